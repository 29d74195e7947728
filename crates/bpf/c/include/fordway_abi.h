/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs in the kernel and the loader in user space share: read-only configuration, map
 * keys and values, numbers. crates/bpf/src/abi.rs mirrors this file; a test holds both against the
 * objects' BTF.
 *
 * Integers are in the host's byte order unless a comment says "network order". IPv6 addresses in
 * host order are two halves: `hi` has the first 64 bits.
 */
#ifndef FORDWAY_ABI_H
#define FORDWAY_ABI_H

/* Changes whenever a map's layout changes. */
#define FW_ABI_VERSION 5

#define FW_MAX_POOL6 16
/* Explicit mappings that lie in the configuration itself; more go into the maps. */
#define FW_MAX_INLINE_EAM 8
#define FW_MAX_DEVICES 64
#define FW_MAX_VIRTUAL_MACS 1024
/* Interfaces of pods with a CLAT on one node. */
#define FW_MAX_PODS 4096

/* The core's DropReason (crates/xlat/src/verdict.rs): same numbers. */
enum fw_drop_reason {
	FW_DROP_NONE = 0,
	FW_DROP_TRUNCATED = 1,
	FW_DROP_BAD_VERSION = 2,
	FW_DROP_BAD_HEADER = 3,
	FW_DROP_BAD_HEADER_CHECKSUM = 4,
	FW_DROP_MARTIAN = 5,
	FW_DROP_LOOPBACK = 6,
	FW_DROP_LINK_LOCAL = 7,
	FW_DROP_MULTICAST = 8,
	FW_DROP_BROADCAST = 9,
	FW_DROP_SELF_ADDRESSED = 10,
	FW_DROP_NON_GLOBAL = 11,
	FW_DROP_NO_MAPPING_SOURCE = 12,
	FW_DROP_NO_MAPPING_DESTINATION = 13,
	FW_DROP_RESERVED_OCTET = 14,
	FW_DROP_LOOP = 15,
	FW_DROP_HOP_LIMIT_EXCEEDED = 16,
	FW_DROP_SOURCE_ROUTE = 17,
	FW_DROP_ROUTING_HEADER = 18,
	FW_DROP_TOO_BIG = 19,
	FW_DROP_FRAGMENTED_ICMP = 20,
	FW_DROP_FRAGMENT_EXTENSION = 21,
	FW_DROP_BAD_FRAGMENT = 22,
	FW_DROP_UDP_CHECKSUM_ZERO = 23,
	FW_DROP_UDP_CHECKSUM_ZERO_FRAGMENT = 24,
	FW_DROP_ICMP_TYPE = 25,
	FW_DROP_ICMP_CODE = 26,
	FW_DROP_ICMP_POINTER = 27,
	FW_DROP_ICMP_INNER = 28,
	FW_DROP_ICMP_NESTED = 29,
	FW_DROP_BAD_ICMP_CHECKSUM = 30,
	FW_DROP_BAD_OFFLOAD = 31,
	FW_DROP_NO_HEADROOM = 32,
	FW_DROP_QUEUE_FULL = 33,
	FW_DROP_DEVICE_ERROR = 34,
	FW_DROP_PROTOCOL = 35,
	FW_DROP_NO_BIB = 36,
	FW_DROP_FILTERED = 37,
	FW_DROP_POOL_EXHAUSTED = 38,
	FW_DROP_BIB_FULL = 39,
	FW_DROP_SESSIONS_FULL = 40,
	FW_DROP_SUBSCRIBERS_FULL = 41,
	FW_DROP_PORT_QUOTA = 42,
	FW_DROP_SESSION_QUOTA = 43,
	FW_DROP_RATE_QUOTA = 44,
	FW_DROP_NOT_SYN = 45,
	FW_DROP_FRAGMENTS_FULL = 46,
	FW_DROP_FRAGMENT_TIMEOUT = 47,
	FW_DROP_FRAGMENT_OVERLAP = 48,
	FW_DROP_SYNS_FULL = 49,
	FW_DROP_SYN_UNANSWERED = 50,
	FW_DROP_TRANSPORT = 51,
	FW_DROP_DRAINING = 52,
	FW_DROP_EXTERNALLY_INITIATED = 53,
	FW_DROP_BUSY = 54,
	FW_DROP_SOFTWIRE_BINDING = 55,
	FW_DROP_SOFTWIRE_SOURCE = 56,
	FW_DROP_SOFTWIRE_ECN = 57,
	FW_DROP_SOFTWIRE_UNBOUND = 58,
	FW_DROP_SOFTWIRE_HAIRPIN = 59,
	FW_DROP_MAY_NOT_BEGIN = 60,
	FW_DROP_PORT_IN_USE = 61,
	FW_DROP_RECEIVE_QUEUE_FULL = 62,
	FW_DROP_PASS_RATE = 63,
	FW_DROP_LEASE_ENDED = 64,
	FW_DROP_OTHER_SHARD = 65,
	FW_DROP_COUNT
};

/* Why a packet of the translator is passed to the user engine. Append-only. */
enum fw_pass_reason {
	FW_PASS_NONE = 0,
	FW_PASS_MALFORMED = 1,		/* lengths contradict each other; the core says how */
	FW_PASS_NOT_LINEAR = 2,		/* its headers can't be reached */
	FW_PASS_EXTENSION_HEADERS = 3,	/* extension headers that a program does not walk */
	FW_PASS_HOP_LIMIT = 4,		/* expires here: an ICMP error is due */
	FW_PASS_TOO_BIG = 5,		/* does not fit and must not be cut: an ICMP error is due */
	FW_PASS_NEEDS_FRAGMENTS = 6,	/* has to be fragmented */
	FW_PASS_UNMAPPED = 7,		/* an address without mapping: an ICMP error may be due */
	FW_PASS_HAIRPIN = 8,		/* hairpins (RFC 7757 section 4) */
	FW_PASS_ICMP_ERROR = 9,		/* an ICMP error with extensions, or whose inner packet is unusual */
	FW_PASS_UDP_CHECKSUM = 10,	/* UDP without checksum that can't be computed here */
	FW_PASS_TRANSPORT = 11,		/* a transport header that programs can't correct */
	FW_PASS_OFFLOAD = 12,		/* a super-packet whose segments would have to change */
	FW_PASS_ROUTE_OPTION = 13,	/* source route or Routing header: an ICMP error is due */
	FW_PASS_RESIZE = 14,		/* the kernel refused to make room */
	FW_PASS_PARTIAL_CHECKSUM = 15,	/* xdp: the sender left its checksum to a device */
	FW_PASS_NO_ROUTE = 16,		/* xdp: no route, no neighbour, or not forwarding */
	FW_PASS_NO_REDIRECT = 17,	/* xdp: the way out is a device that takes no redirected frames */
	FW_PASS_SUBSCRIBER = 18,	/* of a subscriber that has no block of ports yet */
	FW_PASS_PORT = 19,		/* no free port was found quickly */
	FW_PASS_SESSION = 20,		/* state that the user engine has to make */
	FW_PASS_NAT64_FRAGMENT = 21,	/* a fragment, to be reassembled first */
	FW_PASS_NAT64_HAIRPIN = 22,	/* hairpins to another host (RFC 6146 section 3.8) */
	FW_PASS_NAT64_ICMP_ERROR = 23,	/* an ICMP error about a session */
	FW_PASS_CHAIN = 24,		/* a chain longer than a program walks */
	FW_PASS_SOFTWIRE_SOURCE = 25,	/* out of another tunnel than its binding's */
	FW_PASS_SOFTWIRE_ECN = 26,	/* a congestion mark that its sender would not understand */
	FW_PASS_SOFTWIRE_FRAGMENT = 27,	/* a fragment, to be reassembled first */
	FW_PASS_ALG = 28,		/* an ALG may inspect its connection */
	FW_PASS_SHARD = 29,		/* of a shard that no program may translate now */
	FW_PASS_COUNT
};

enum fw_direction {
	FW_V4_TO_V6 = 0,
	FW_V6_TO_V4 = 1,
};

/* What became of a packet, in trace events. */
enum fw_outcome {
	FW_TRANSLATED = 1,
	FW_PASSED_ON = 2,
	FW_DROPPED = 3,
	FW_UNMATCHED = 4,	/* none of the translator's (uplink, xdp) */
	FW_HANDED_OVER = 5,	/* of another gateway of the cluster */
};

enum fw_udp_checksum_zero {
	FW_UDP_ZERO_COMPUTE = 0,
	FW_UDP_ZERO_DROP = 1,
	FW_UDP_ZERO_PASS = 2,
};

/* A translation prefix (RFC 6052); `len` is 32, 40, 48, 56, 64 or 96. */
struct fw_pool6 {
	__u64 hi;
	__u64 lo;
	__u8 len;
	/* RFC 6052 section 3.1 holds: refuse non-global IPv4 addresses. */
	__u8 global_only;
	/* Its place in the operator's order, by which sessions name it. */
	__u8 number;
	/* Where in the array the prefix lies that has this entry's index as number. */
	__u8 place;
	__u8 reserved[4];
};
_Static_assert(sizeof(struct fw_pool6) == 24, "fw_pool6");

/* An explicit address mapping (RFC 7757); also the value of both maps. */
struct fw_eam {
	__u64 v6_hi;
	__u64 v6_lo;
	__u32 v4;
	__u8 v4_len;
	__u8 v6_len;
	__u8 reserved[2];
};
_Static_assert(sizeof(struct fw_eam) == 24, "fw_eam");

/* Keys of the longest-prefix-match maps; addresses in network order. */
struct fw_eam_key4 {
	__u32 prefix_len;
	__u8 addr[4];
};
_Static_assert(sizeof(struct fw_eam_key4) == 8, "fw_eam_key4");

struct fw_eam_key6 {
	__u32 prefix_len;
	__u8 addr[16];
};
_Static_assert(sizeof(struct fw_eam_key6) == 20, "fw_eam_key6");

/* Read-only for the programs: the verifier removes code that these constants disable. */
struct fw_config {
	/* Longest first. */
	struct fw_pool6 pool6[FW_MAX_POOL6];
	/* Longest IPv4 prefix first. */
	struct fw_eam eam4[FW_MAX_INLINE_EAM];
	/* The mappings of eam4, longest IPv6 prefix first. */
	struct fw_eam eam6[FW_MAX_INLINE_EAM];
	/* The translator's own source of ICMPv6 errors; 0: none. */
	__u64 icmp_source6_hi;
	__u64 icmp_source6_lo;
	/* Key of the hash that IPv4 identifications begin with; drawn at each load. */
	__u64 identification_secret;
	__u32 pool6_count;
	/* Which of pool6 IPv4 addresses are embedded in. */
	__u32 pool6_first;
	/* Entries of eam4 and eam6; 0 with `eam_in_maps`. */
	__u32 eam_count;
	/* RFC 6791; 0: none. */
	__u32 icmp_source4;
	__u32 mtu4;
	__u32 mtu6;
	__u32 lowest_ipv6_mtu;
	/* The translator's own interface. */
	__u32 tun_ifindex;
	/* Octets of the link-layer header: 0 or 14. */
	__u32 link_layer_len;
	/* Events per second and processor, at most. */
	__u32 trace_rate;
	/* Nanoseconds between packets that are left for one reason (pass_rate.h); 0: as many as come. */
	__u32 pass_interval_ns;
	__u8 eam_in_maps;
	/* By direction. */
	__u8 decrement_hop_limit[2];
	/* Write `traffic_class` instead of copying. */
	__u8 set_traffic_class;
	__u8 traffic_class;
	__u8 udp_checksum_zero;
	__u8 ipv4_translatable;
	__u8 hairpin;
	__u8 mss_clamp;
	/* Take time per packet. */
	__u8 measure;
	/* Write events. */
	__u8 trace;
	/* Pass on packets that follow one that needs fragments; off in tests that look at each packet by itself. */
	__u8 keep_order;
	/* Errors from `icmp_source4` carry their IPv6 source. */
	__u8 icmp_node_id;
	/* At the ingress of a gateway's devices: translated packets leave by the device that routing names (direct.h). */
	__u8 direct;
	/* Programs of many pods: the IPv6 address of the only explicit mapping is in the pod's entry (pod.h). */
	__u8 by_pod;
	/* In front of routing: places of the cache of routing answers for each processor, as a power of two. */
	__u8 routes_bits;
	/* There as well: they arrive from the device that they came by. */
	__u8 in_place;
	__u8 reserved[3];
};
_Static_assert(sizeof(struct fw_config) == 24 * (FW_MAX_POOL6 + 2 * FW_MAX_INLINE_EAM) + 88, "fw_config");

/* What one direction carried (the core's DirectionTotals). */
struct fw_direction_counters {
	__u64 packets;
	__u64 segments;
	__u64 octets;
};
_Static_assert(sizeof(struct fw_direction_counters) == 24, "fw_direction_counters");

/* The only entry of the per-CPU array `counters`. */
struct fw_counters {
	struct fw_direction_counters directions[2];
	/* By drop reason. */
	__u64 drops[128];
	/* By pass reason. */
	__u64 passed_on[32];
	/* None of the translator's. */
	__u64 unmatched;
	/* With `measure`: packets translated, and the nanoseconds that took. */
	__u64 measured_packets;
	__u64 measured_ns;
	/* Trace events that were due and not written: rate limit or full buffer. */
	__u64 trace_lost;
	/* Trace rate limit: the current second, and events in it. */
	__u64 trace_second;
	__u64 trace_events;
	/* The next IPv4 identification of this processor, of packets that may not be fragmented. */
	__u64 identification;
	/* BIB entries and sessions made, by protocol: TCP, UDP, ICMP. */
	__u64 bibs_created[3];
	__u64 sessions_created[3];
	/* In front of routing: frames for other link-layer addresses, but those for many; and frames with a VLAN tag. */
	__u64 elsewhere;
	__u64 tagged;
	/* Direct forwarding: packets that the program has translated and the stack has to route. */
	__u64 routed;
	/* In a cluster: packets for other gateways. */
	__u64 handed_over;
};
_Static_assert(sizeof(struct fw_counters) == 48 + 1024 + 256 + 56 + 48 + 32, "fw_counters");

/* Destinations that share an answer of the kernel's routing are of one network of so many bits (a cell)... */
#define FW_CELL4 24
#define FW_CELL6 96
/* ...in which no longer prefix is routed: bits by a cell's hash. */
#define FW_FINE_BITS 16
#define FW_FINE_WORDS 1024
_Static_assert(FW_FINE_WORDS * 64 == 1 << FW_FINE_BITS, "a bit for each hash");

/* Pairs of hosts that stateless translation at XDP keeps for each processor, as a power of two. */
#define FW_PAIRS_BITS 12

/* The only entry of the array `routing`: what the daemon hears of the kernel's routing. */
struct fw_routing {
	/* Another number after each change of routes, rules, neighbours, addresses or devices. Never 0. */
	__u64 generation;
	/* Until when changes are heard: CLOCK_MONOTONIC, in nanoseconds. */
	__u64 until;
	/* 1: routes are chosen by destination, device and Type of Service alone; 0: perhaps not. */
	__u64 by_destination;
	/* For how long an answer is kept at most, in nanoseconds: not everything is heard. */
	__u64 life;
	/* Cells in which longer prefixes are routed, and perhaps others. */
	__u64 fine[FW_FINE_WORDS];
};
_Static_assert(sizeof(struct fw_routing) == 32 + 8192, "fw_routing");

#define FW_POD_NAME 96

/* Value of the map `pods`: the CLAT at one interface of a pod. The key is a number that the loader makes of the network's,
 * the container's and the interface's name. */
struct fw_pod {
	/* The CLAT's IPv6 address. */
	__u64 clat_hi;
	__u64 clat_lo;
	/* The pod's own address, the network that it belongs to, and the programs that it uses. For the loader alone. */
	__u64 pod_hi;
	__u64 pod_lo;
	__u64 network;
	__u64 programs;
	/* Packets, by direction. */
	__u64 translated[2];
	/* To the CLAT's address and from outside the translation prefix, except Neighbor Discovery: dropped. */
	__u64 foreign;
	/* Lost: by drop reason, and by pass reason, since there is no user engine. */
	__u64 drops[128];
	__u64 passed_on[32];
	/* Container and interface, as texts that end with a zero. For people. */
	__u8 container[FW_POD_NAME];
	__u8 interface[16];
};
_Static_assert(sizeof(struct fw_pod) == 72 + 1024 + 256 + FW_POD_NAME + 16, "fw_pod");

/* Key of the map `virtual_macs`: a link-layer address beside a device's own, as mac_number() makes it. */
struct fw_virtual_mac {
	__u64 mac;
	__u32 ifindex;
	__u32 reserved;
};
_Static_assert(sizeof(struct fw_virtual_mac) == 16, "fw_virtual_mac");

#define FW_TRACE_SNAP 128

/* An entry of the ring buffer `trace`. */
struct fw_event {
	/* CLOCK_MONOTONIC. */
	__u64 ns;
	/* Octets of the packet, from its IP header. */
	__u32 len;
	__u32 gso_size;
	/* Where it was seen. */
	__u32 ifindex;
	/* enum fw_outcome, and the drop or pass reason. */
	__u8 outcome;
	__u8 reason;
	/* Octets in `before` and `after`. */
	__u8 before_len;
	__u8 after_len;
	/* First octets of the packet from its IP header, as it came. */
	__u8 before[FW_TRACE_SNAP];
	/* Translated: the new header. */
	__u8 after[FW_TRACE_SNAP];
};
_Static_assert(sizeof(struct fw_event) == 24 + 2 * FW_TRACE_SNAP, "fw_event");

#endif
