"""Traffic of one end, each kind with its own count of what was sent and what came of it.

    peer.py serve client|server            echo servers (UDP, TCP), until SIGTERM
    peer.py drive client|server SECONDS    every kind of probe towards the other end

Prints one JSON object at its end. Runs inside the namespace of its role: the client speaks IPv4, the
server IPv6, and the translator is between them.
"""

import errno
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

from topology import CLAT6, SERVER4, SERVER6

UDP_ECHO, TCP_ECHO, CLOSED = 7007, 7008, 7999
PATIENCE = 5.0
IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_PROBE, IP_RECVERR = 10, 0, 3, 11
IPV6_RECVERR, SO_NO_CHECK = 25, 11

stop = threading.Event()


class End:
    """Addresses and families of one end and of the one that it talks to."""

    def __init__(self, role):
        self.v4 = role == "client"
        self.family = socket.AF_INET if self.v4 else socket.AF_INET6
        self.any = "0.0.0.0" if self.v4 else SERVER6
        self.other = SERVER4 if self.v4 else CLAT6

    def socket(self, kind):
        s = socket.socket(self.family, kind)
        s.settimeout(PATIENCE)
        if not self.v4:
            s.bind((SERVER6, 0))
        return s

    def udp(self, port):
        s = self.socket(socket.SOCK_DGRAM)
        s.connect((self.other, port))
        return s


# Servers

def serve_udp(end, counts):
    s = socket.socket(end.family, socket.SOCK_DGRAM)
    s.bind((end.any, UDP_ECHO))
    s.settimeout(0.2)
    if end.v4:
        s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
    while not stop.is_set():
        try:
            octets, sender = s.recvfrom(65535)
        except TimeoutError:
            continue
        counts["udp_datagrams"] += 1
        s.sendto(octets, sender)


def serve_tcp(end, counts):
    listener = socket.create_server((end.any, TCP_ECHO), family=end.family, backlog=64)
    listener.settimeout(0.2)
    while not stop.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        counts["tcp_connections"] += 1
        with connection:
            connection.settimeout(PATIENCE)
            try:
                while octets := connection.recv(65536):
                    connection.sendall(octets)
            except OSError:
                counts["tcp_broken"] += 1


# Probes: each returns None if all was well, else what was not

def payload(number, size):
    """Octets that tell a mixed-up or damaged datagram from the right one."""
    head = struct.pack("!Q", number)
    block = hashlib.sha256(head).digest()
    return (head + block * (size // len(block) + 1))[:size]


def echo(end, size, checksum=True, fragments=False):
    s = end.udp(UDP_ECHO)
    if not checksum:
        s.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    if fragments and end.v4:
        s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)

    def probe(number):
        octets = payload(number, size)
        s.send(octets)
        while True:
            answer = s.recv(65535)
            if answer == octets:
                return None
            # An answer to one that was given up is not damage.
            if len(answer) != size or answer != payload(struct.unpack("!Q", answer[:8])[0], size):
                return "damaged"
    return probe


def error(end, port, expected, hops=None, size=40, probe_mtu=False):
    """A datagram that has to be answered by an ICMP error."""
    s = end.udp(port)
    if end.v4:
        s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        if hops:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
        if probe_mtu:
            s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
    else:
        s.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        if hops:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)

    def probe(number):
        try:
            s.send(payload(number, size))
            s.recv(65535)
            return "answered instead of refused"
        except TimeoutError:
            return "no error came"
        except OSError as e:
            return None if e.errno == expected else errno.errorcode.get(e.errno, str(e))
    return probe


def connection(end):
    def probe(number):
        octets = payload(number, 3000)
        with end.socket(socket.SOCK_STREAM) as s:
            s.connect((end.other, TCP_ECHO))
            s.sendall(octets)
            s.shutdown(socket.SHUT_WR)
            back = b""
            while some := s.recv(65536):
                back += some
        return None if back == octets else "damaged"
    return probe


def large_ping(end):
    """Echo requests in fragments: their checksum can't be translated, so no answer may come."""
    protocol = socket.IPPROTO_ICMP if end.v4 else socket.IPPROTO_ICMPV6
    s = socket.socket(end.family, socket.SOCK_RAW, protocol)
    if end.v4:
        s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
    else:
        s.bind((SERVER6, 0))

    def probe(number):
        head = struct.pack("!BBHHH", 8 if end.v4 else 128, 0, 0, 0xF0D, number & 0xFFFF)
        body = payload(number, 4000)
        octets = head + body
        if end.v4:
            octets = octets[:2] + struct.pack("!H", internet_checksum(octets)) + octets[4:]
        try:
            s.sendto(octets, (end.other, 0))
        except OSError as e:
            # A kernel engine's refusal reaches the sender at once.
            return None if e.errno == errno.ENOBUFS else str(e)
        return None
    return probe


def internet_checksum(octets):
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def lanes(end):
    """Name, rate per second, probe."""
    yield "udp_echo_40", 20, echo(end, 40)
    yield "udp_echo_1400", 10, echo(end, 1400)
    yield "udp_echo_4000_fragments", 5, echo(end, 4000, fragments=True)
    yield "udp_closed_port", 5, error(end, CLOSED, errno.ECONNREFUSED)
    for hops in (1, 2, 3):
        # The client's own kernel, the router, the destination; from the server: router, client, destination.
        last = hops == 3
        yield f"hops_{hops}", 2, error(end, CLOSED, errno.ECONNREFUSED if last else errno.EHOSTUNREACH, hops=hops)
    yield "tcp_connections", 10, connection(end)
    yield "icmp_4000_fragments", 1, large_ping(end)
    if end.v4:
        yield "udp_echo_no_checksum", 5, echo(end, 200, checksum=False)
        # 1490 octets fit the device; as IPv6 they are 1510.
        yield "udp_too_big", 2, error(end, UDP_ECHO, errno.EMSGSIZE, size=1490 - 28, probe_mtu=True)


def drive(rate, probe, count, until):
    number, due = 0, time.monotonic()
    while due < until and not stop.wait(max(0.0, due - time.monotonic())):
        number += 1
        # Behind time, the lane goes on from now: it is a load, not a measurement of rate.
        due = max(due + 1.0 / rate, time.monotonic())
        count["sent"] += 1
        try:
            wrong = probe(number)
        except TimeoutError:
            wrong = "lost"
        except OSError as e:
            wrong = errno.errorcode.get(e.errno, str(e))
        if wrong is None:
            count["good"] += 1
        else:
            count["wrong"][wrong] = count["wrong"].get(wrong, 0) + 1


def main():
    task, role = sys.argv[1:3]
    end = End(role)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if task == "serve":
        counts = {"udp_datagrams": 0, "tcp_connections": 0, "tcp_broken": 0}
        threads = [threading.Thread(target=f, args=(end, counts)) for f in (serve_udp, serve_tcp)]
    else:
        until = time.monotonic() + float(sys.argv[3])
        counts, threads = {}, []
        for name, rate, probe in lanes(end):
            counts[name] = {"sent": 0, "good": 0, "wrong": {}}
            threads.append(threading.Thread(target=drive, args=(rate, probe, counts[name], until)))
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)
    sys.stdout.write(json.dumps(counts))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
