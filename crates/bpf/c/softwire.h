/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Softwires: the tables, and what both directions need of the IPv4 packet in a tunnel. The core's bindings.rs, inner.rs,
 * flow.rs and ecn.rs (crates/softwire/src).
 */
#ifndef FORDWAY_SOFTWIRE_PACKET_H
#define FORDWAY_SOFTWIRE_PACKET_H

#include "checksum.h"
#include "common.h"
#include "fordway_softwire.h"
#include "frame_tc.h"
#include "headers.h"
#include "maps.h"
#include "mix.h"
#include "mss.h"
#include "validate.h"

/* Set by the loader before the programs are verified. */
const volatile struct fw_softwire_config softwire;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be32);
	__type(value, struct fw_softwire_address);
} softwire_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct fw_softwire_key);
	__type(value, struct fw_softwire_tunnel);
} softwire_bindings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_softwire_here);
} softwire_here SEC(".maps");

/* Octets of an IPv4 and a TCP header without options: the MTU less the MSS. */
#define MSS_OVERHEAD 40

/* The two bits of the ECN field. */
#define ECN_MASK 3
enum ecn {
	ECN_NOT_ECT = 0,
	ECN_ECT_1 = 1,
	ECN_CE = 3,
};

/* The IPv4 packet in a tunnel, and how it will be on the wire. */
struct inner {
	struct fields fields;
	/* In network order. */
	__be32 src;
	__be32 dst;
	__be16 checksum;
	/* TCP, UDP: ports; echo: the identifier, twice. 0: there are none. In network order. */
	__be16 src_port;
	__be16 dst_port;
	/* It has ports, by which a shared address tells clients apart. */
	__u8 has_ports;
	/* It has options among which a source route may be. */
	__u8 may_have_route;
	/* TCP of which this is the beginning, with SYN. */
	__u8 is_syn;
	/* Octets of the longest packet on the wire, and how many these are. */
	__u32 longest;
	__u32 segments;
};

/* Source and destination port, or an echo's identifier, of the transport header at octet `at` of the frame. */
always_inline verdict read_transport(struct __sk_buff *skb, __u32 at, struct inner *inner)
{
	const struct fields *fields = &inner->fields;
	__be16 words[4];
	__u8 flags = 0;

	inner->src_port = inner->dst_port = 0;
	inner->has_ports = inner->is_syn = 0;
	if (!has_transport(fields))
		return GO_ON;
	if (fields->protocol == PROTOCOL_TCP && fields->payload_len >= TCP_LEN) {
		if (bpf_skb_load_bytes(skb, at + TCP_FLAGS_AT, &flags, 1))
			return PASS_ON(FW_PASS_NOT_LINEAR);
		inner->is_syn = (flags & TCP_SYN) != 0;
	}
	if (fields->is_fragment ||
	    (fields->protocol != PROTOCOL_TCP && fields->protocol != PROTOCOL_UDP && fields->protocol != PROTOCOL_ICMP))
		return GO_ON;
	if (fields->payload_len < sizeof(words))
		return PASS_ON(FW_PASS_TRANSPORT);
	if (bpf_skb_load_bytes(skb, at, words, sizeof(words)))
		return PASS_ON(FW_PASS_NOT_LINEAR);
	if (fields->protocol == PROTOCOL_ICMP) {
		__u8 type = bpf_ntohs(words[0]) >> 8;
		inner->has_ports = type == V4_ECHO || type == V4_ECHO_REPLY;
		inner->src_port = inner->dst_port = words[ICMP_IDENTIFIER_AT / 2];
		return GO_ON;
	}
	inner->has_ports = fields->protocol == PROTOCOL_UDP || fields->payload_len >= TCP_LEN;
	inner->src_port = words[0];
	inner->dst_port = words[1];
	return GO_ON;
}

/* Reads the IPv4 packet that begins at octet `at` of `p`, and of which `len` octets are there. */
always_inline verdict read_inner(struct __sk_buff *skb, const struct packet *p, __u32 at, __u32 len,
				 struct inner *inner)
{
	const struct ipv4_header *ip = p->data + at;
	int route;

	verdict v = validate_v4(skb, p, at, len, HOOK_INTERFACE, &inner->fields, &route);
	/* Nothing is dropped here: the core sends an ICMP error about most of what it drops. */
	if (v != GO_ON)
		return VERDICT_KIND(v) == DROP(0) ? PASS_ON(FW_PASS_MALFORMED) : v;
	inner->src = ip->src;
	inner->dst = ip->dst;
	inner->checksum = ip->checksum;
	inner->may_have_route = route;
	return read_transport(skb, config.link_layer_len + at + inner->fields.header_len, inner);
}

/* Counts the packets on the wire. A super-packet is TCP or UDP, and not a fragment. */
always_inline verdict measure(struct __sk_buff *skb, const struct packet *p, __u32 at, struct inner *inner)
{
	const struct fields *fields = &inner->fields;
	__u32 transport = UDP_LEN;
	__u8 offset;

	inner->longest = fields->header_len + fields->payload_len;
	inner->segments = 1;
	if (!p->gso_size)
		return GO_ON;
	if (!inner->has_ports || fields->protocol == PROTOCOL_ICMP)
		return PASS_ON(FW_PASS_OFFLOAD);
	if (fields->protocol == PROTOCOL_TCP) {
		if (bpf_skb_load_bytes(skb, config.link_layer_len + at + fields->header_len + TCP_OFFSET_AT, &offset, 1))
			return PASS_ON(FW_PASS_NOT_LINEAR);
		transport = (offset >> 4) * 4;
		if (transport < TCP_LEN)
			return PASS_ON(FW_PASS_OFFLOAD);
	}
	if (transport > fields->payload_len)
		return PASS_ON(FW_PASS_OFFLOAD);
	__u32 longest = fields->header_len + transport + p->gso_size;
	if (longest < inner->longest)
		inner->longest = longest;
	inner->segments = (fields->payload_len - transport + p->gso_size - 1) / p->gso_size;
	return inner->segments ? GO_ON : PASS_ON(FW_PASS_OFFLOAD);
}

/* The tunnel of one end of a packet, `v4` and `port`. UNMATCHED: there is no binding. */
always_inline verdict find_tunnel(const struct inner *inner, __be32 v4, __be16 port,
				  const struct fw_softwire_tunnel **tunnel)
{
	struct fw_softwire_key key = { .v4 = v4 };
	const struct fw_softwire_address *address = bpf_map_lookup_elem(&softwire_addresses, &v4);

	if (!address)
		return UNMATCHED;
	__u32 a = address->offset_bits & 15, k = address->psid_len & 31;
	if (k) {
		if (inner->fields.is_fragment)
			return PASS_ON(FW_PASS_SOFTWIRE_FRAGMENT);
		if (!inner->has_ports)
			return PASS_ON(FW_PASS_TRANSPORT);
		__u32 number = bpf_ntohs(port);
		if (a && number >> (16 - a) == 0)
			return UNMATCHED;
		key.psid = number >> ((16 - a - k) & 15) & ((1u << k) - 1);
	}
	*tunnel = bpf_map_lookup_elem(&softwire_bindings, &key);
	if (!*tunnel || (*tunnel)->v4 != v4 || (*tunnel)->psid != key.psid)
		return UNMATCHED;
	return GO_ON;
}

/* RFC 6438; the core's flow.rs. */
always_inline __u32 flow_label(const struct inner *inner)
{
	__u64 addresses = (__u64)bpf_ntohl(inner->src) << 32 | bpf_ntohl(inner->dst);
	__u64 transport = (__u64)inner->fields.protocol << 32;

	if (inner->fields.protocol != PROTOCOL_ICMP)
		transport |= (__u32)bpf_ntohs(inner->src_port) << 16 | bpf_ntohs(inner->dst_port);
	__u32 label = mix(mix(softwire.secret[0] ^ addresses) ^ softwire.secret[1] ^ transport) & 0xfffff;
	return label ? label : 1;
}

/*
 * Looks for an MSS in the SYN at octet `at` of the frame that is above what fits tunnel packets of `mtu` octets. `place`
 * is where it lies from the TCP header on; 0: nothing is to be lowered.
 */
always_inline verdict find_tunnel_mss(struct __sk_buff *skb, __u32 at, const struct inner *inner, __u32 mtu, __u32 *place,
				      __be16 *from, __be16 *to)
{
	__u32 limit = mtu - IPV6_LEN - MSS_OVERHEAD;
	__u8 offset;

	*place = 0;
	if (!config.mss_clamp || !inner->is_syn || limit > 0xffff)
		return GO_ON;
	if (bpf_skb_load_bytes(skb, at + TCP_OFFSET_AT, &offset, 1))
		return PASS_ON(FW_PASS_NOT_LINEAR);
	__u32 header_len = (offset >> 4) * 4;
	if (header_len > inner->fields.payload_len)
		return PASS_ON(FW_PASS_TRANSPORT);
	return find_mss(skb, at, header_len, limit, place, from, to);
}

/* Lowers the MSS that find_tunnel_mss() found, in the TCP header at octet `at` of the frame. */
always_inline long lower_mss(struct __sk_buff *skb, __u32 at, __u32 place, __be16 from, __be16 to)
{
	return bpf_l4_csum_replace(skb, at + TCP_CHECKSUM_AT, from, to, 2) ||
	       bpf_skb_store_bytes(skb, at + place, &to, 2, 0);
}

/* Writes Type of Service and hop limit into the IPv4 header at octet `at` of the frame, and its checksum. */
always_inline long rewrite_v4(struct __sk_buff *skb, __u32 at, const struct inner *inner, __u8 tos, __u8 ttl)
{
	const struct fields *fields = &inner->fields;
	__u64 old = (__u64)bpf_htons(0x4500 | fields->tos) + bpf_htons((__u16)fields->hop_limit << 8);
	__u64 new = (__u64)bpf_htons(0x4500 | tos) + bpf_htons((__u16)ttl << 8);
	__be16 checksum = update_checksum(inner->checksum, sum_difference(old, new));

	if (tos == fields->tos && ttl == fields->hop_limit)
		return 0;
	return bpf_skb_store_bytes(skb, at + 1, &tos, 1, BPF_F_RECOMPUTE_CSUM) ||
	       bpf_skb_store_bytes(skb, at + 8, &ttl, 1, BPF_F_RECOMPUTE_CSUM) ||
	       bpf_skb_store_bytes(skb, at + 10, &checksum, 2, BPF_F_RECOMPUTE_CSUM);
}

#endif
