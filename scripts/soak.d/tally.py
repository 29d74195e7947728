"""Counts that must be equal: the kernel's own beside Fordway's.

nftables counts at the devices' hooks, before the programs of the kernel engine on the way out and, at
the uplink, behind them on the way in. A super-packet and a fragment are one packet each to all of them.
"""

import json

from topology import CLAT6, NAME, PREF64, SERVER6

CLIENT_RULES = f"""
table netdev soak {{
    COUNTERS
    chain clat_out {{
        type filter hook egress device "{NAME}" priority 0;
        meta protocol ip counter name clat_out_v4
        meta protocol ip6 counter name clat_out_v6
        ip frag-off & 0x3fff != 0 ip protocol icmp counter name icmp_pieces
        ip6 nexthdr 44 @nh,320,8 58 counter name icmp_pieces
    }}
    chain clat_in {{
        type filter hook ingress device "{NAME}" priority 0;
        meta protocol ip counter name clat_in_v4
        meta protocol ip6 counter name clat_in_v6
        ip6 hoplimit > 1 counter name clat_in_v6_alive
    }}
    chain uplink_out {{
        type filter hook egress device "c0" priority 0;
        meta protocol ip counter name uplink_out_v4
        ip frag-off & 0x3fff != 0 ip protocol icmp counter name icmp_pieces
    }}
    chain uplink_in {{
        type filter hook ingress device "c0" priority 0;
        meta protocol ip counter name uplink_in_v4
    }}
}}
table ip6 soak {{
    counter host_to_pref64 {{ }}
    counter host_to_clat {{ }}
    chain out {{
        type filter hook output priority 0;
        oifname "c0" ip6 daddr {PREF64} counter name host_to_pref64
        oifname "{NAME}" counter name host_to_clat
    }}
}}
"""

ROUTER_RULES = f"""
table netdev soak {{
    COUNTERS
    chain from_client {{
        type filter hook ingress device "r0" priority 0;
        ip6 daddr {PREF64} counter name router_in
        ip6 saddr {CLAT6} ip6 daddr {SERVER6} ip6 hoplimit > 1 counter name router_in_alive
    }}
    chain to_client {{
        type filter hook egress device "r0" priority 0;
        ip6 daddr {CLAT6} counter name router_out
        ip6 daddr {CLAT6} ip6 hoplimit > 1 counter name router_out_alive
        ip6 daddr {CLAT6} ip6 nexthdr 44 @nh,320,8 58 counter name router_icmp_pieces
    }}
}}
"""

SERVER_RULES = f"""
table netdev soak {{
    COUNTERS
    chain from_router {{
        type filter hook ingress device "s0" priority 0;
        ip6 saddr {CLAT6} counter name server_in
    }}
}}
"""


def install(topology):
    """Puts the rules in place; the devices must be there."""
    for namespace, rules in (
        (topology.client, CLIENT_RULES),
        (topology.router, ROUTER_RULES),
        (topology.server, SERVER_RULES),
    ):
        names = dict.fromkeys(w.split()[0] for w in rules.split("table ip6")[0].split("counter name ")[1:])
        counters = "\n    ".join(f"counter {name} {{ }}" for name in names)
        namespace.run("nft", "-f", "-", stdin=rules.replace("COUNTERS", counters))


def read(topology):
    """Every count at this moment, flat, by name."""
    counts = {}
    for namespace in topology.namespaces:
        listing = json.loads(namespace.run("nft", "-j", "list", "counters").stdout)
        for item in listing["nftables"]:
            if "counter" in item:
                counts[item["counter"]["name"]] = item["counter"]["packets"]
    link = json.loads(topology.client.run("ip", "-j", "-s", "link", "show", NAME).stdout)[0]["stats64"]
    counts["tun_read"] = link["tx"]["packets"]
    counts["tun_lost"] = link["tx"]["dropped"]
    counts["device_errors"] = link["rx"]["dropped"] + link["rx"]["errors"] + link["tx"]["errors"]
    for namespace, device in ((topology.client, "c0"), (topology.router, "r0"),
                              (topology.router, "r1"), (topology.server, "s0")):
        link = json.loads(namespace.run("ip", "-j", "-s", "link", "show", device).stdout)[0]["stats64"]
        counts["device_errors"] += sum(link[way][what] for way in ("rx", "tx") for what in ("dropped", "errors"))
    counts["socket_overflows"] = 0
    for namespace in (topology.client, topology.server):
        text = namespace.run("cat", "/proc/net/snmp6").stdout + namespace.run("cat", "/proc/net/snmp").stdout
        counts["socket_overflows"] += overflows(text)
    counts.update(flatten(topology.stats()))
    return counts


def overflows(snmp):
    """Datagrams that a full socket buffer lost, of both IP versions."""
    total, header = 0, []
    for line in snmp.splitlines():
        words = line.split()
        if words[0] == "Udp6RcvbufErrors":
            total += int(words[1])
        elif words[0] == "Udp:" and not words[1].isdigit():
            header = words
        elif words[0] == "Udp:":
            total += int(words[header.index("RcvbufErrors")])
    return total


def flatten(stats):
    """Fordway's counters by short names."""
    flat = {}
    for way in ("v4_to_v6", "v6_to_v4"):
        for what in ("packets", "segments", "octets", "fragments"):
            flat[f"{way}.{what}"] = stats[way][what]
    flat["icmp_errors.v4"] = stats["icmp_errors"]["v4"]
    flat["icmp_errors.v6"] = stats["icmp_errors"]["v6"]
    flat["icmp_errors.suppressed"] = stats["icmp_errors"]["suppressed"]
    for reason, number in stats["drops"].items():
        flat[f"drop.{reason}"] = number
    kernel = stats.get("kernel") or {}
    flat["kernel.packets"] = sum(kernel[way]["packets"] for way in ("v4_to_v6", "v6_to_v4")) if kernel else 0
    for cause, number in (kernel.get("passed_on") or {}).items():
        flat[f"passed_on.{cause}"] = number
    for error, number in stats["io"].items():
        flat[f"io.{error}"] = number
    return flat


def difference(before, after):
    """What was added. A counter that went back is a fault of its own: see `fallen`."""
    return {name: number - before.get(name, 0) for name, number in after.items()}


def fallen(before, after):
    """Counters that went back, or away."""
    return [name for name, number in before.items() if after.get(name, 0) < number]


def total(counts, prefix):
    return sum(number for name, number in counts.items() if name.startswith(prefix))


def equations(c, kernel, uplink):
    """(what, its left side, its right side): each pair must be equal, to the packet."""
    # Every packet that is cut here leaves in two pieces (1,480 octets of IPv4 in IPv6 of 1,280 or 1,500).
    out_v6 = c["v4_to_v6.packets"] + c["v4_to_v6.fragments"] // 2 + c["icmp_errors.v6"]
    out_v4 = c["v6_to_v4.packets"] + c["v6_to_v4.fragments"] // 2 + c["icmp_errors.v4"]
    # What the interface's queue lost, nobody could handle; `zeros` has it.
    handled = c["v4_to_v6.packets"] + c["v6_to_v4.packets"] + total(c, "drop.") + c["tun_lost"]
    routed_in = c["clat_out_v4"] + c["clat_out_v6"]
    pieces = c["icmp_pieces"] + (c["router_icmp_pieces"] if uplink else 0)
    if uplink:
        yield "packets taken in", c["uplink_out_v4"] + c["router_out"] + routed_in, handled
        yield "IPv4 packets given out", c["clat_in_v4"] + c["uplink_in_v4"], out_v4
        dead = c["clat_in_v6"] - c["clat_in_v6_alive"]
        yield "IPv6 packets given out", c["router_in"] - c["host_to_pref64"], out_v6 - dead
        yield "left to the user engine", c["tun_read"] + c["tun_lost"], total(c, "passed_on.") + routed_in
    else:
        yield "packets taken in", routed_in, handled
        yield "IPv4 packets given out", c["clat_in_v4"], out_v4
        yield "IPv6 packets given out", c["clat_in_v6"], out_v6
        yield "IPv6 out of the uplink", c["router_in"], c["clat_in_v6_alive"] + c["host_to_pref64"]
        yield "IPv6 from the uplink", c["router_out_alive"] + c["host_to_clat"], c["clat_out_v6"]
        left = total(c, "passed_on.") if kernel else routed_in
        yield "left to the user engine", c["tun_read"] + c["tun_lost"], left
    yield "CLAT to server, at both ends", c["router_in_alive"], c["server_in"]
    yield "drops fragmented_icmp", c["drop.fragmented_icmp"], pieces


def zeros(c):
    """Counts that must be 0."""
    expected = ("drop.fragmented_icmp", "drop.too_big", "drop.hop_limit_exceeded")
    for name, number in sorted(c.items()):
        if name.startswith(("drop.", "io.")) and name not in expected:
            yield name, number
    for name in ("icmp_errors.suppressed", "tun_lost", "device_errors", "socket_overflows"):
        yield name, c[name]
