"""Networks in the guest, made of network namespaces, and traffic through them.

The guest is the gateway of gateway.py, or a host of an IPv6-only network:

    the guest  up0 ──── n0  net  n1 ──── s1  server
    2001:db8:1::/64         NAT64, DNS64     198.51.100.1
                            advertisements, DHCPv4
"""

import os

from gateway import CONFIGURATION as GATEWAY_CONFIGURATION
from gateway import NETWORK, SERVER4, SERVER6, SNAPSHOT, unanswered
from topology import Failure, wait_until

HERE = os.path.dirname(os.path.realpath(__file__))
PEER = os.path.join(os.path.dirname(HERE), "package-test.d", "peer.py")
WORK = "/run/fwtest"
# A copy of the program, which is there while the package is not; and how it is asked. No program can be started from /run.
ROUTER_PROGRAM = "/usr/local/sbin/fw-router"
ROUTER_COMMAND = f"{ROUTER_PROGRAM} --run-dir {WORK}/router-run"
CONNECTIONS = 12
FILE = "/etc/fordway/fordway.toml"
# How systemd-networkd treats the host's device.
NETWORK_FILE = "/etc/systemd/network/20-up.network"
# What parts start.
SERVICES = ("fordway", "fordway-clat", "NetworkManager", "systemd-networkd.socket", "systemd-networkd", "networkd-dispatcher", "systemd-resolved")
# Names of transient units for traffic.
UNITS = ("fw-client", "fw-end", "fw-ping", "fw-server")

CONFIGURATION = GATEWAY_CONFIGURATION + """
[[translator.log]]
what = ["sessions"]
to = "json:/var/log/fordway/nat64.json"
"""

# The host's cable is put in by `LINK`.
ROUTER = """
ip netns add net && ip netns add server
ip -n server link set lo up && ip -n server addr add 198.51.100.1/32 dev lo
ip -n net link set lo up
ip netns exec net sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1 net.ipv6.conf.all.keep_addr_on_down=1
ip -n net link add n1 type veth peer name s1 netns server
ip -n net addr add 203.0.113.2/24 dev n1 && ip -n net link set n1 up
ip -n server addr add 203.0.113.1/24 dev s1 && ip -n server link set s1 up
ip -n server route add 192.0.2.2 via 203.0.113.2 && ip -n server route add 198.18.0.0/24 via 203.0.113.2
ip -n net route add 198.51.100.0/24 via 203.0.113.1
"""
LINK = """
ip link add up0 type veth peer name n0 netns net
ip -n net addr add 2001:db8:1::1/64 dev n0 nodad && ip -n net addr add 198.18.0.1/24 dev n0 && ip -n net link set n0 up
"""
ROUTER_CONFIGURATION = """
[[translator]]
name = "nat64"
mode = "nat64"
engine = "user"
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.2"]

[dns64]
listen = ["2001:db8:1::1"]
upstream = ["203.0.113.1"]

[[advertise]]
device = "n0"
interval = "10s"
"""
# A name with IPv4 alone.
NAME = "only4.example.net"


class Network:
    """The networks, and who runs in them."""

    def __init__(self, guest):
        self.guest = guest

    def build(self):
        """The gateway's."""
        self.guest.run(f"set -e; mkdir -p {WORK}; sysctl -qw net.ipv6.conf.default.accept_dad=0; ip netns add client; ip netns add server")
        with open(PEER, encoding="utf-8") as file:
            self.guest.put(f"{WORK}/peer.py", file.read())
        self.guest.run(NETWORK.format(client="client", server="server"))

    def clear(self):
        """Ends what earlier parts have left running, and removes their networks."""
        self.guest.run(f"systemctl stop {' '.join(SERVICES)} 'fw-*' 2>/dev/null; ip -all netns delete; "
                       f"for device in g4 g6 up0; do ip link del $device 2>/dev/null; done; rm -rf {WORK} {ROUTER_PROGRAM} {NETWORK_FILE}*")

    def purge(self):
        """Makes the host one on which the packages have never been, whatever parts came before."""
        # A group that a user has as its own is not removed.
        self.guest.run("deluser --quiet reader 2>/dev/null || userdel reader 2>/dev/null; dpkg --purge fordway 2>/dev/null; "
                       "rm -f /etc/NetworkManager/conf.d/60-*; true")
        self.clear()

    def snapshot(self):
        """What each line of it says. Lifetimes pass, and devices have other numbers after a reboot."""
        return self.guest.says(f"set -e; found=$({SNAPSHOT}); echo \"$found\" | sed -E 's/(valid|preferred)_lft [^ ]*//g; s/expires [0-9]+sec//; "
                               "s/^[0-9]+: //; s/@if[0-9]+//; s/link-netns(id)? [^ ]+//'; ls -A /sys/fs/bpf/fordway 2>/dev/null || true")

    def start(self, unit, namespace, command, output=None, properties=""):
        """Starts a transient unit in a namespace."""
        if output:
            properties += f" -p StandardOutput=truncate:{WORK}/{output}"
        self.guest.run(f"systemctl reset-failed {unit} 2>/dev/null; systemd-run --quiet --collect --unit={unit} {properties} "
                       f"nsenter --net=/run/netns/{namespace} {command}")

    def has_said(self, unit, words):
        """Whether a unit has said so since it was started this time."""
        return self.guest.holds(f"journalctl --quiet -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show --value --property=InvocationID {unit}) | "
                                f"grep -i -q '{words}'")

    def answers(self, namespace=None, address=SERVER6, seconds=5):
        """Whether one ping is answered."""
        where = f"nsenter --net=/run/netns/{namespace} " if namespace else ""
        return self.guest.holds(f"{where}ping -n -q -c 1 -W {seconds} {address}")

    # The host's network

    def build_router(self):
        """That of an IPv6-only network, whatever was there before."""
        self.clear()
        self.guest.run(f"set -e; mkdir -p {WORK}; sysctl -qw net.ipv6.conf.default.accept_dad=0" + ROUTER)
        self.guest.put(f"{WORK}/router.toml", ROUTER_CONFIGURATION)
        self.guest.run(f"cp /usr/bin/fordway {ROUTER_PROGRAM}")
        self.start("fw-names", "server", f"dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces "
                   f"--listen-address=203.0.113.1 --address=/{NAME}/{SERVER4}")
        self.link()
        self.start("fw-router", "net", f"{ROUTER_COMMAND} run {WORK}/router.toml")
        wait_until("the router advertises", lambda: self.guest.holds(f"{ROUTER_COMMAND} status"), 60)

    def link(self):
        """Puts the cable in."""
        self.guest.run("set -e" + LINK)

    def dhcp(self, *options):
        """A DHCPv4 server in the host's network, instead of the one before."""
        self.guest.run("systemctl stop fw-dhcp 2>/dev/null; true")
        self.start("fw-dhcp", "net", "dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --interface=n0 --bind-dynamic "
                   f"--dhcp-range=198.18.0.100,198.18.0.150,1h --dhcp-leasefile={WORK}/leases --log-dhcp " + " ".join(options))

    # Traffic

    def start_traffic(self):
        """Connections from the client to the server, and pings beside them."""
        self.guest.run(f"rm -f {WORK}/end {WORK}/client; mkfifo {WORK}/end")
        self.start("fw-server", "server", f"python3 {WORK}/peer.py server {SERVER4}", "port")
        port = wait_until("the server listens", lambda: self.guest.says(f"cat {WORK}/port"), 60)
        # As long as it runs, the client's standard input does not end.
        self.guest.run(f"systemd-run --quiet --collect --unit=fw-end sh -c 'exec sleep infinity >{WORK}/end'")
        self.start("fw-client", "client", f"sh -c 'exec python3 {WORK}/peer.py client {SERVER6} {port} {CONNECTIONS} <{WORK}/end'", "client")
        self.start("fw-ping", "client", f"ping -n -q -i 0.1 -W 10 {SERVER6}", "ping")
        self.go_on()

    def _rounds(self):
        words = self.guest.says(f"tail -n 1 {WORK}/client 2>/dev/null").split()
        return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)

    def go_on(self):
        """Waits for two more rounds over each connection."""
        least = self._rounds()[0] + 2
        wait_until("connections go on", lambda: self._rounds()[0] >= least, 120)

    def end_traffic(self):
        """Fails if a connection failed or a ping got no answer."""
        self.go_on()
        self.guest.run("systemctl stop fw-end; systemctl kill --signal=INT fw-ping")
        wait_until("the client and the pings end", lambda: not self.guest.holds("systemctl --quiet is-active fw-client fw-ping"), 60)
        failed = self._rounds()[1]
        pings = self.guest.says(f"cat {WORK}/ping")
        self.stop_traffic()
        lost = unanswered(pings)
        if failed or lost:
            raise Failure(f"{failed} connections failed, {lost} pings got no answer")

    def stop_traffic(self):
        self.guest.run(f"systemctl stop {' '.join(UNITS)} 2>/dev/null; true")
