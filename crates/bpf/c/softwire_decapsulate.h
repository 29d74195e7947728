/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Out of the tunnel (RFC 2473 section 3.3, RFC 7596 section 6.2, RFC 6040 section 4.2); the core's decapsulate.rs,
 * step by step. */
#ifndef FORDWAY_SOFTWIRE_DECAPSULATE_H
#define FORDWAY_SOFTWIRE_DECAPSULATE_H

#include "softwire.h"
#include "tc.h"

/* The Next Header of a packet that is quoted by an ICMPv6 error, in octets behind the outer fixed header. */
#define QUOTED_NEXT_HEADER_AT (ICMP_LEN + 6)

/*
 * At an uplink the client's tunnel may end at an address of the host itself, which has other traffic too: whether
 * a packet to it without an IPv4 packet behind the fixed header may be the tunnel's.
 */
always_inline int may_be_tunnels(struct __sk_buff *skb, __u8 next_header)
{
	__u32 at = config.link_layer_len + IPV6_LEN;
	__u8 octet = 0;

	switch (next_header) {
	case PROTOCOL_FRAGMENT:
	case PROTOCOL_OPTIONS:
		if (bpf_skb_load_bytes(skb, at, &octet, 1))
			return 0;
		return octet == PROTOCOL_IPV4 || (next_header == PROTOCOL_OPTIONS && octet == PROTOCOL_FRAGMENT);
	case PROTOCOL_ICMPV6:
		/* An error about what the tunnel has sent. */
		if (bpf_skb_load_bytes(skb, at, &octet, 1) || octet >= V6_ECHO_REQUEST ||
		    bpf_skb_load_bytes(skb, at + QUOTED_NEXT_HEADER_AT, &octet, 1))
			return 0;
		return octet == PROTOCOL_IPV4 || octet == PROTOCOL_FRAGMENT;
	default:
		return 0;
	}
}

/* Whether a frame at an uplink is for the client's end of its tunnel. */
always_inline int is_for_here(const struct ipv6_header *ip)
{
	__u32 zero = 0;
	const struct fw_softwire_here *here = bpf_map_lookup_elem(&softwire_here, &zero);

	return here && ip->dst.hi == here->hi && ip->dst.lo == here->lo;
}

/* The outer header. */
always_inline verdict read_outer(struct __sk_buff *skb, const struct packet *p, int hook, struct ipv6_header *outer)
{
	const struct ipv6_header *ip = p->data;

	if ((void *)(ip + 1) > p->data_end)
		return p->len < IPV6_LEN ? PASS_ON(FW_PASS_MALFORMED) : PASS_ON(FW_PASS_NOT_LINEAR);
	if (hook == HOOK_UPLINK && !is_for_here(ip))
		return UNMATCHED;
	*outer = *ip;
	if (outer->next_header == PROTOCOL_IPV4)
		return GO_ON;
	if (hook == HOOK_UPLINK && !may_be_tunnels(skb, outer->next_header))
		return UNMATCHED;
	return outer->next_header == PROTOCOL_ICMPV6 ? PASS_ON(FW_PASS_ICMP_ERROR) : PASS_ON(FW_PASS_EXTENSION_HEADERS);
}

/* RFC 6040 section 4.2, figure 4; the core's ecn.rs. Negative: to be dropped. */
always_inline int ecn_of(__u8 inner, __u8 outer)
{
	inner &= ECN_MASK;
	outer &= ECN_MASK;
	if (inner == ECN_NOT_ECT)
		return outer == ECN_CE ? -1 : ECN_NOT_ECT;
	if (inner == ECN_CE || outer == ECN_CE)
		return ECN_CE;
	return outer == ECN_ECT_1 ? ECN_ECT_1 : inner;
}

/* Whether the packet arrived through the tunnel of its client. */
always_inline verdict check_tunnel(const struct inner *inner, const struct ipv6_header *outer)
{
	int is_tep = softwire.role == FW_SOFTWIRE_TEP;
	const struct fw_softwire_tunnel *tunnel;

	verdict v = find_tunnel(inner, is_tep ? inner->src : inner->dst, is_tep ? inner->src_port : inner->dst_port,
				&tunnel);
	if (v == UNMATCHED)
		return PASS_ON(FW_PASS_SOFTWIRE_SOURCE);
	if (v != GO_ON)
		return v;
	if (outer->dst.hi != tunnel->here_hi || outer->dst.lo != tunnel->here_lo || outer->src.hi != tunnel->there_hi ||
	    outer->src.lo != tunnel->there_lo)
		return PASS_ON(FW_PASS_SOFTWIRE_SOURCE);
	if (illegal_v4(bpf_ntohl(inner->src)) || illegal_v4(bpf_ntohl(inner->dst)))
		return PASS_ON(FW_PASS_UNMAPPED);
	if (is_tep && !softwire.hairpin && bpf_map_lookup_elem(&softwire_addresses, &inner->dst))
		return PASS_ON(FW_PASS_HAIRPIN);
	return GO_ON;
}

/*
 * Takes the IPv6 header off. In two steps, since kernels before 6.3 have no flag by which the helper makes it an IPv4
 * frame.
 */
always_inline verdict take_off(struct __sk_buff *skb)
{
	if (bpf_skb_adjust_room(skb, IPV4_LEN - IPV6_LEN, BPF_ADJ_ROOM_MAC, ROOM_FLAGS))
		return PASS_ON(FW_PASS_RESIZE);
	return bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0) ? BROKEN : GO_ON;
}

always_inline verdict decapsulate(struct __sk_buff *skb, const struct packet *p, int hook, __u32 *segments)
{
	__u32 front = config.link_layer_len;
	__be16 mss_from = 0, mss_to = 0;
	struct ipv6_header outer;
	struct inner inner;
	__u32 mss_at;

	verdict v = read_outer(skb, p, hook, &outer);
	if (v != GO_ON)
		return v;
	*segments = 1;
	__u32 len = bpf_ntohs(outer.payload_len);
	/* A super-packet of more than 65,535 octets says 0. */
	if (p->gso_size && len == 0)
		return PASS_ON(FW_PASS_OFFLOAD);
	if (p->len < IPV6_LEN + len)
		return PASS_ON(FW_PASS_MALFORMED);
	v = read_inner(skb, p, IPV6_LEN, len, &inner);
	if (v == GO_ON)
		v = check_tunnel(&inner, &outer);
	if (v != GO_ON)
		return v;
	int ecn = ecn_of(inner.fields.tos, bpf_ntohl(outer.first) >> 20);
	if (ecn < 0)
		return PASS_ON(FW_PASS_SOFTWIRE_ECN);
	__u8 tos = (inner.fields.tos & ~ECN_MASK) | ecn;
	__u8 ttl = inner.fields.hop_limit;
	if (config.decrement_hop_limit[FW_V6_TO_V4] && ttl-- <= 1)
		return PASS_ON(FW_PASS_HOP_LIMIT);
	v = measure(skb, p, IPV6_LEN, &inner);
	if (v == GO_ON)
		v = find_tunnel_mss(skb, front + IPV6_LEN + inner.fields.header_len, &inner, config.mtu6, &mss_at, &mss_from,
				    &mss_to);
	if (v == GO_ON)
		v = cut_tail(skb, p, IPV6_LEN + inner.fields.header_len + inner.fields.payload_len);
	if (v == GO_ON)
		v = take_off(skb);
	if (v != GO_ON)
		return v;
	if (rewrite_v4(skb, front, &inner, tos, ttl) ||
	    (mss_at && lower_mss(skb, front + inner.fields.header_len, mss_at, mss_from, mss_to)) ||
	    set_frame_type(skb, ETH_P_IP))
		return BROKEN;
	*segments = inner.segments;
	return GO_ON;
}

#endif
