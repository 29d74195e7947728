/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Into the tunnel (RFC 2473 section 3.1); the core's encapsulate.rs, step by step. */
#ifndef FORDWAY_SOFTWIRE_ENCAPSULATE_H
#define FORDWAY_SOFTWIRE_ENCAPSULATE_H

#include "softwire.h"
#include "tc.h"

/* Octets of the longest packet of this tunnel. */
always_inline __u32 path_mtu(const struct fw_softwire_tunnel *tunnel)
{
	if (!tunnel->mtu || tunnel->mtu >= config.mtu6 || bpf_ktime_get_ns() >= tunnel->mtu_until_ns)
		return config.mtu6;
	return tunnel->mtu;
}

/* A packet that does not fit is refused with DF and fragmented without: the user engine does both. */
always_inline verdict check_fit(struct __sk_buff *skb, const struct packet *p, int hook, const struct inner *inner,
				__u32 mtu)
{
	__u32 wire_len = inner->longest + IPV6_LEN;

	if (wire_len <= mtu && !(hook == HOOK_UPLINK && exceeds_device(skb, wire_len)))
		return GO_ON;
	if (inner->fields.dont_fragment)
		return PASS_ON(FW_PASS_TOO_BIG);
	return p->gso_size ? PASS_ON(FW_PASS_OFFLOAD) : PASS_ON(FW_PASS_NEEDS_FRAGMENTS);
}

/* RFC 6040 section 4.1: the ECN field is copied, whatever the DSCP. */
always_inline __u8 outer_traffic_class(__u8 tos)
{
	if (!config.set_traffic_class)
		return tos;
	return (config.traffic_class & ~ECN_MASK) | (tos & ECN_MASK);
}

always_inline verdict encapsulate(struct __sk_buff *skb, const struct packet *p, int hook, __u32 *segments)
{
	int is_tep = softwire.role == FW_SOFTWIRE_TEP;
	const struct fw_softwire_tunnel *tunnel;
	__u32 front = config.link_layer_len;
	__be16 mss_from = 0, mss_to = 0;
	struct ipv6_header outer;
	struct inner inner;
	__u32 mss_at;

	verdict v = read_inner(skb, p, 0, p->len, &inner);
	if (v != GO_ON)
		return v;
	*segments = 1;
	/* The host may have to refuse it (accept_source_route), and has not seen it yet. */
	if (hook == HOOK_INGRESS && inner.may_have_route)
		return PASS_ON(FW_PASS_ROUTE_OPTION);
	if (illegal_v4(bpf_ntohl(inner.src)) || illegal_v4(bpf_ntohl(inner.dst)))
		return hook == HOOK_UPLINK ? UNMATCHED : PASS_ON(FW_PASS_UNMAPPED);
	v = find_tunnel(&inner, is_tep ? inner.dst : inner.src, is_tep ? inner.dst_port : inner.src_port, &tunnel);
	/* At the uplink, packets of other addresses are not the tunnel's. Ports of our address outside the binding must
	 * not be used. */
	if (v == UNMATCHED && (hook != HOOK_UPLINK || bpf_map_lookup_elem(&softwire_addresses, &inner.src)))
		return PASS_ON(FW_PASS_UNMAPPED);
	if (v != GO_ON)
		return v;
	__u32 total_len = inner.fields.header_len + inner.fields.payload_len;
	__u32 mtu = path_mtu(tunnel);
	__u8 ttl = inner.fields.hop_limit;
	if (config.decrement_hop_limit[FW_V4_TO_V6] && ttl-- <= 1)
		return PASS_ON(FW_PASS_HOP_LIMIT);
	v = measure(skb, p, 0, &inner);
	if (v == GO_ON)
		v = check_fit(skb, p, hook, &inner, mtu);
	if (v == GO_ON)
		v = find_tunnel_mss(skb, front + inner.fields.header_len, &inner, mtu, &mss_at, &mss_from, &mss_to);
	if (v != GO_ON)
		return v;
	outer.first = bpf_htonl(6u << 28 | (__u32)outer_traffic_class(inner.fields.tos) << 20 | flow_label(&inner));
	outer.payload_len = bpf_htons(total_len);
	outer.next_header = PROTOCOL_IPV4;
	outer.hop_limit = softwire.hop_limit;
	outer.src.hi = tunnel->here_hi;
	outer.src.lo = tunnel->here_lo;
	outer.dst.hi = tunnel->there_hi;
	outer.dst.lo = tunnel->there_lo;

	v = cut_tail(skb, p, total_len);
	if (v != GO_ON)
		return v;
	if (bpf_skb_adjust_room(skb, IPV6_LEN, BPF_ADJ_ROOM_MAC, ROOM_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return PASS_ON(FW_PASS_RESIZE);
	if (bpf_skb_store_bytes(skb, front, &outer, IPV6_LEN, BPF_F_RECOMPUTE_CSUM) ||
	    rewrite_v4(skb, front + IPV6_LEN, &inner, inner.fields.tos, ttl) ||
	    (mss_at && lower_mss(skb, front + IPV6_LEN + inner.fields.header_len, mss_at, mss_from, mss_to)) ||
	    set_frame_type(skb, ETH_P_IPV6))
		return BROKEN;
	*segments = inner.segments;
	return GO_ON;
}

#endif
