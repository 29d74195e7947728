"""The gateway whose packages are tested (scripts/package-test, scripts/systemd): its network, its configuration, and what shows that
neither a connection nor a ping was lost, and that nothing of it is left.

    client  c0 ──── g6  gateway  g4 ──── s0  server
    2001:db8:6::2                       198.51.100.1 = 2001:db8:64::c633:6401
"""

from topology import Failure

SERVER4, SERVER6 = "198.51.100.1", "2001:db8:64::c633:6401"
CONFIGURATION = """# Written by the operator.
[[translator]]
name = "nat64"
mode = "nat64"
engine = "kernel"
pool6 = ["2001:db8:64::/96"]
pool4 = ["192.0.2.1"]
"""
# A script of the gateway's network namespace; `client` and `server` are names of the others, which are there.
NETWORK = """set -e
ip link add g6 address 02:00:00:00:06:01 type veth peer name c0 address 02:00:00:00:06:02 netns {client}
ip link add g4 address 02:00:00:00:04:01 type veth peer name s0 address 02:00:00:00:04:02 netns {server}
sysctl -qw net.ipv6.conf.g6.accept_dad=0 net.ipv6.conf.g4.accept_dad=0
nsenter --net=/run/netns/{client} sysctl -qw net.ipv6.conf.c0.accept_dad=0
nsenter --net=/run/netns/{server} sysctl -qw net.ipv6.conf.s0.accept_dad=0
ip addr add 2001:db8:6::1/64 dev g6 nodad && ip link set g6 up
ip addr add 198.51.100.254/24 dev g4 && ip link set g4 up
ip -n {client} link set lo up && ip -n {client} addr add 2001:db8:6::2/64 dev c0 nodad && ip -n {client} link set c0 up
ip -n {client} -6 route add default via 2001:db8:6::1
ip -n {server} link set lo up && ip -n {server} addr add 198.51.100.1/24 dev s0 && ip -n {server} link set s0 up
ip -n {server} route add 192.0.2.1 via 198.51.100.254
"""
# A script that prints what of the gateway's network a daemon could have changed.
SNAPSHOT = """set -e
ip -o link
ip -o addr
ip -4 rule
ip -6 rule
ip -4 route show table all
ip -6 route show table all
nft list ruleset
sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding
"""
# What the installation of any package changes: notes of dpkg and apt, copies of passwd and group.
NOT_OURS = ("tmp", "var/cache", "var/lib/dpkg", "var/log/apt", "var/log/dpkg.log", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-",
            "etc/.pwd.lock")


def unanswered(text):
    """Pings that got no answer, by what `ping -q` says at its end."""
    words = next((line for line in text.splitlines() if "packets transmitted" in line), "").split()
    if not words:
        raise Failure(f"ping has said nothing of its packets: {text}")
    return int(words[0]) - int(words[3])
