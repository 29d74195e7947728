"""Both ends of the connections that cross the gateway: `server ADDRESS` echoes, `client ADDRESS PORT COUNT` sends.

The server prints its port. The client sends eight octets over each connection and takes them back, round after round,
until its standard input ends; after each round it prints the number of rounds, and how many connections failed so far.
"""

import contextlib
import selectors
import socket
import sys


def serve(address):
    wait = selectors.DefaultSelector()
    listener = socket.create_server((address, 0), backlog=1024)
    wait.register(listener, selectors.EVENT_READ)
    print(listener.getsockname()[1], flush=True)
    while True:
        for key, _ in wait.select():
            if key.fileobj is listener:
                wait.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                octets = key.fileobj.recv(4096)
            except OSError:
                octets = b""
            if octets:
                key.fileobj.sendall(octets)
            else:
                wait.unregister(key.fileobj)
                key.fileobj.close()


def echo(connection, octets):
    """Whether they came back."""
    try:
        connection.sendall(octets)
        back = b""
        while len(back) < len(octets):
            more = connection.recv(len(octets) - len(back))
            if not more:
                return False
            back += more
        return back == octets
    except OSError:
        return False


def ask(address, port, count):
    connections = [socket.create_connection((address, port), timeout=20) for _ in range(count)]
    end = selectors.DefaultSelector()
    end.register(sys.stdin, selectors.EVENT_READ)
    rounds = failed = 0
    while not end.select(0.02):
        rounds += 1
        failed += sum(not echo(connection, rounds.to_bytes(8, "big")) for connection in connections)
        print(rounds, failed, flush=True)


# Ctrl-C ends all processes of the test.
with contextlib.suppress(KeyboardInterrupt):
    if sys.argv[1] == "server":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
