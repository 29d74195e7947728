/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Headers on the wire, verdicts, and the kernel's interface. Only uapi headers: nothing depends on the
 * running kernel's types. */
#ifndef FORDWAY_COMMON_H
#define FORDWAY_COMMON_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "fordway_abi.h"

#define always_inline static __always_inline

/* Reads a field once that other threads may change. */
#define READ_ONCE(field) (*(const volatile __typeof__(field) *)&(field))
#define WRITE_ONCE(field, value) (*(volatile __typeof__(field) *)&(field) = (value))

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETHERNET_LEN 14

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2
#define TC_ACT_REDIRECT 7

enum protocol {
	PROTOCOL_HOPOPT = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_IGMP = 2,
	/* In a tunnel (RFC 2473 section 3.1). */
	PROTOCOL_IPV4 = 4,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_DCCP = 33,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_AH = 51,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_OPTIONS = 60,
	PROTOCOL_SCTP = 132,
	PROTOCOL_MOBILITY = 135,
	PROTOCOL_UDP_LITE = 136,
	PROTOCOL_HIP = 139,
	PROTOCOL_SHIM6 = 140,
};

/* RFC 791 section 3.1. */
struct ipv4_header {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_len;
	__be16 identification;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 src;
	__be32 dst;
};
#define IPV4_LEN 20
#define IPV4_DF 0x4000
#define IPV4_MF 0x2000
#define IPV4_OFFSET 0x1fff
#define IPV4_MAX 65535

/* Two halves in network order. Packed: Ethernet's 14 octets leave them at odd places. */
struct ipv6_address {
	__be64 hi;
	__be64 lo;
};

/* RFC 8200 section 3. */
struct ipv6_header {
	/* Version, Traffic Class, Flow Label. */
	__be32 first;
	__be16 payload_len;
	__u8 next_header;
	__u8 hop_limit;
	struct ipv6_address src;
	struct ipv6_address dst;
};
#define IPV6_LEN 40
#define IPV6_MIN_MTU 1280

/* RFC 8200 section 4.5. */
struct fragment_header {
	__u8 next_header;
	__u8 reserved;
	/* Offset in units of 8 octets, shifted by 3; the lowest bit says that more follow. */
	__be16 offset_more;
	__be32 identification;
};
#define FRAGMENT_LEN 8

/* RFC 792, RFC 4443. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};
#define ICMP_LEN 8
#define ICMP_IDENTIFIER_AT 4

/* Types, and the code of V4_UNREACHABLE that has fields of its own. */
enum icmp_v4 {
	V4_ECHO_REPLY = 0,
	V4_UNREACHABLE = 3,
	V4_SOURCE_QUENCH = 4,
	V4_REDIRECT = 5,
	V4_ECHO = 8,
	V4_TIME_EXCEEDED = 11,
	V4_PARAMETER_PROBLEM = 12,
	V4_FRAGMENTATION_NEEDED = 4,
};

enum icmp_v6 {
	V6_UNREACHABLE = 1,
	V6_PACKET_TOO_BIG = 2,
	V6_TIME_EXCEEDED = 3,
	V6_PARAMETER_PROBLEM = 4,
	V6_ECHO_REQUEST = 128,
	V6_ECHO_REPLY = 129,
};

/* RFC 9293 section 3.1: places in the header, and a flag. */
#define TCP_LEN 20
#define TCP_OFFSET_AT 12
#define TCP_FLAGS_AT 13
#define TCP_CHECKSUM_AT 16
#define TCP_SYN 0x02

/* RFC 768. */
struct udp_header {
	__be16 src;
	__be16 dst;
	__be16 length;
	__be16 checksum;
};
#define UDP_LEN 8
#define UDP_CHECKSUM_AT 6
#define ICMP_CHECKSUM_AT 2
#define SCTP_LEN 12
#define SCTP_CHECKSUM_AT 8

/* Octets from the IP header on that programs look at directly. */
#define REACH 128

/* Where a program runs; known when it is compiled. */
enum hook {
	HOOK_INTERFACE,
	HOOK_UPLINK,
	HOOK_INGRESS,
	HOOK_XDP,
	HOOK_XDP_NAT64,
};

always_inline int is_xdp(int hook)
{
	return hook == HOOK_XDP || hook == HOOK_XDP_NAT64;
}

/*
 * The result of a step: go on (after the last one: translate), or one of these with its reason in the low octet.
 * A reason's order of precedence is the core's: steps stand in the order of
 * crates/xlat/src/v4_to_v6.rs and v6_to_v4.rs.
 */
typedef __u32 verdict;
#define GO_ON 0
#define PASS_ON(reason) (0x100u | (reason))
#define DROP(reason) (0x200u | (reason))
#define UNMATCHED 0x300u
/* Of another gateway of the cluster: handle() has said where to. */
#define HAND_OVER (UNMATCHED | 1)
#define VERDICT_KIND(v) ((v) & 0x300u)
#define VERDICT_REASON(v) ((v) & 0xffu)

/* At an uplink, packets that the core would drop for their addresses do not belong to the translator: they were not
 * routed to it. */
always_inline verdict drop_address(__u32 reason, int hook)
{
	return hook == HOOK_UPLINK ? UNMATCHED : DROP(reason);
}

/* The frame is shorter than the length in its IP header. XDP may see only the first of several buffers. */
always_inline verdict short_frame(int hook)
{
	return is_xdp(hook) ? PASS_ON(FW_PASS_NOT_LINEAR) : DROP(FW_DROP_TRUNCATED);
}

/* Octets of the longest front of a translated packet: an ICMPv6 error about a fragment, 40 + 8 + 40 + 8. */
#define FRONT_MAX 96

/* How the transport checksum follows the addresses. */
enum checksum_mode {
	/* Nothing to do. */
	CHECKSUM_NONE,
	/* By the difference, whether it is complete or partial. */
	CHECKSUM_UPDATE,
	/* Written as it stands in `checksum`. For ICMP errors it lies in `front` already. */
	CHECKSUM_WRITE,
	/* Computed over the datagram (RFC 7915 section 4.5). */
	CHECKSUM_COMPUTE,
};

/* Sums of source and destination before and after, as they lie in memory. */
struct sums {
	__u64 old;
	__u64 new;
};

/* An IPv6 address in host order. */
struct halves {
	__u64 hi;
	__u64 lo;
};

/* The IPv4 addresses of a packet that becomes IPv4, in host order, and how they were mapped. */
struct mapped_v6 {
	__u32 src;
	__u32 dst;
	/* enum via. */
	__u8 src_via;
	__u8 dst_via;
	/* Number of the prefix that the destination is embedded in. */
	__u8 pool6;
};

/* The fields of an IP header. */
struct fields {
	/* Octets of all IP headers. */
	__u32 header_len;
	/* Octets behind them. */
	__u32 payload_len;
	/* In octets. */
	__u32 fragment_offset;
	__u32 identification;
	__u8 is_fragment;
	__u8 more_fragments;
	__u8 dont_fragment;
	__u8 tos;
	__u8 hop_limit;
	__u8 protocol;
};

/*
 * A translation that is decided and not yet carried out: `front` replaces the first `old_len` octets of the packet, then
 * checksum and fields in the transport header are corrected.
 */
struct plan {
	union {
		__u8 front[FRONT_MAX];
		struct ipv4_header v4;
		struct {
			struct ipv6_header v6;
			struct fragment_header fragment;
		};
		/* ICMP errors: the outer header is `v4` or `v6`. */
		struct {
			__u8 outer[IPV4_LEN];
			struct icmp_header icmp;
			struct ipv4_header inner;
		} error4;
		struct {
			__u8 outer[IPV6_LEN];
			struct icmp_header icmp;
			struct ipv6_header inner;
			struct fragment_header fragment;
		} error6;
	};
	/* Octets of the packet that `front` replaces, and of `front`. */
	__u32 old_len;
	__u32 new_len;
	/* Octets of the packet by its IP header; the rest of the frame is cut off. */
	__u32 len;
	/* Packets on the wire: 1, or the segments of a super-packet; and octets of the longest of them. */
	__u32 segments;
	__u32 wire_len;
	/* Offset of the transport checksum in the new packet, and how it changes. */
	__u32 checksum_at;
	enum checksum_mode checksum_mode;
	/* CHECKSUM_UPDATE: sum of new minus sum of old addresses, as in memory. */
	__u32 difference;
	/* CHECKSUM_WRITE. */
	__be16 checksum;
	__u8 protocol;
	/* Another field that changes (ICMP type and code, MSS), unless `field_from` equals `field_to`: its offset in the
	 * new packet. A complete checksum is corrected for it; a partial one needs no correction. */
	__u32 field_at;
	__be16 field_from;
	__be16 field_to;
	/* The port or ICMP identifier that changes, unless `port_from` equals `port_to`: its offset in the new packet. */
	__u32 port_at;
	__be16 port_from;
	__be16 port_to;
	struct mapped_v6 mapped;
} __attribute__((aligned(8)));

/* Clears what not every translation sets. */
always_inline void begin_plan(struct plan *plan)
{
	plan->checksum_mode = CHECKSUM_NONE;
	plan->checksum_at = 0;
	plan->field_at = 0;
	plan->field_from = 0;
	plan->field_to = 0;
	plan->port_from = 0;
	plan->port_to = 0;
}

/* Each object defines its struct work, whose first member is the plan. */
struct work;

always_inline struct plan *plan_of(struct work *work)
{
	return (void *)work;
}

/* Sets the length of the new front. Offsets from the transport header become offsets in the packet. */
always_inline void place_behind(struct plan *plan, __u32 new_len)
{
	plan->new_len = new_len;
	plan->checksum_at += new_len;
	plan->field_at += new_len;
	plan->port_at += new_len;
}

/* A packet as it came. `data` points to its IP header. */
struct packet {
	void *data;
	void *data_end;
	/* Octets from the IP header to the end of the frame. */
	__u32 len;
	/* Octets of transport payload per segment of a super-packet; 0: an ordinary packet. */
	__u32 gso_size;
};

/* A number that is below `limit`, a power of two: verifiers forget that of one that was on the stack. */
always_inline __u32 bounded(__u32 number, __u32 limit)
{
	asm volatile("" : "+r"(number));
	return number & (limit - 1);
}

/* Bounds the offset of a header: more than the 128 octets that programs look at. */
#define HEADERS_MASK 0xff

/*
 * `len` octets (a constant) of the packet at offset `at`, which is within its headers; 0: out of reach. The offset is
 * bounded, and the address is tested and used in the same register: the verifier of Linux 6.1 forgets the bounds of
 * values on the stack, and does not relate two sums of the same numbers.
 */
always_inline void *octets_at(const struct packet *p, __u32 at, __u32 len)
{
	asm volatile("" : "+r"(at));
	void *octets = p->data + (at & HEADERS_MASK);

	asm volatile("" : "+r"(octets));
	return octets + len > p->data_end ? 0 : octets;
}

#endif
