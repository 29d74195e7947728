/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors and the packet inside (RFC 7915 sections 4.2, 4.3, 5.2, 5.3); the core's icmp/. What is
 * unusual (RFC 4884 extensions, an error about an error, an inner packet that can't have been forwarded) is passed to
 * the user engine. Only at tc: these packets are few.
 */
#ifndef FORDWAY_ICMP_ERROR_H
#define FORDWAY_ICMP_ERROR_H

#include "address.h"
#include "checksum.h"
#include "common.h"
#include "dynamic4.h"
#include "ends.h"
#include "frame_tc.h"
#include "headers.h"
#include "maps.h"
#include "work.h"

/* RFC 7915 figure 3; negative: no counterpart. */
always_inline int pointer_to_v6(__u32 pointer)
{
	switch (pointer) {
	case 0 ... 1:
		return pointer;
	case 2 ... 3:
		return 4;
	case 8:
		return 7;
	case 9:
		return 6;
	case 12 ... 15:
		return 8;
	case 16 ... 19:
		return 24;
	default:
		return -1;
	}
}

/* RFC 7915 figure 6. */
always_inline int pointer_to_v4(__u32 pointer)
{
	switch (pointer) {
	case 0 ... 1:
		return pointer;
	case 4 ... 5:
		return 2;
	case 6:
		return 9;
	case 7:
		return 8;
	case 8 ... 23:
		return 12;
	case 24 ... 39:
		return 16;
	default:
		return -1;
	}
}

/* RFC 7915 section 4.2, code 4. Without an MTU the error is passed to the user
 * engine. */
always_inline __u32 mtu_to_v6(__u32 mtu)
{
	mtu += 20;
	if (mtu > config.mtu6)
		mtu = config.mtu6;
	/* From 65,535 on it is never the limit. */
	if (config.mtu4 < IPV4_MAX && mtu > config.mtu4 + 20)
		mtu = config.mtu4 + 20;
	return mtu < IPV6_MIN_MTU ? IPV6_MIN_MTU : mtu;
}

/* RFC 7915 section 5.2. */
always_inline __u32 mtu_to_v4(__u32 mtu, int has_fragment_header)
{
	__u32 less = has_fragment_header ? 28 : 20;

	mtu = mtu > less ? mtu - less : 0;
	if (mtu > config.mtu4)
		mtu = config.mtu4;
	if (mtu > config.mtu6 - 20)
		mtu = config.mtu6 - 20;
	if (mtu < 68)
		return 68;
	return mtu > 65535 ? 65535 : mtu;
}

/* RFC 7915 section 4.2. The checksum is left 0. */
always_inline verdict header_to_v6(const struct icmp_header *from, struct icmp_header *to)
{
	__u32 rest = bpf_ntohl(from->rest);
	int pointer;

	to->code = 0;
	to->checksum = 0;
	to->rest = 0;
	switch (from->type) {
	case V4_UNREACHABLE:
		to->type = V6_UNREACHABLE;
		switch (from->code) {
		case 0 ... 1:
		case 5 ... 8:
		case 11 ... 12:
			return GO_ON;
		case 2:
			to->type = V6_PARAMETER_PROBLEM;
			to->code = 1;
			to->rest = bpf_htonl(6);
			return GO_ON;
		case 3:
			to->code = 4;
			return GO_ON;
		case V4_FRAGMENTATION_NEEDED:
			if ((rest & 0xffff) == 0)
				return PASS_ON(FW_PASS_ICMP_ERROR);
			to->type = V6_PACKET_TOO_BIG;
			to->rest = bpf_htonl(mtu_to_v6(rest & 0xffff));
			return GO_ON;
		case 9 ... 10:
		case 13:
		case 15:
			to->code = 1;
			return GO_ON;
		}
		break;
	case V4_TIME_EXCEEDED:
		to->type = V6_TIME_EXCEEDED;
		to->code = from->code;
		return GO_ON;
	case V4_PARAMETER_PROBLEM:
		pointer = pointer_to_v6(rest >> 24);
		if ((from->code != 0 && from->code != 2) || pointer < 0)
			break;
		to->type = V6_PARAMETER_PROBLEM;
		to->rest = bpf_htonl(pointer);
		return GO_ON;
	}
	return PASS_ON(FW_PASS_ICMP_ERROR);
}

/* RFC 7915 section 5.2. */
always_inline verdict header_to_v4(const struct icmp_header *from, int has_fragment_header, struct icmp_header *to)
{
	__u32 rest = bpf_ntohl(from->rest);
	int pointer;

	to->type = V4_UNREACHABLE;
	to->code = 0;
	to->checksum = 0;
	to->rest = 0;
	switch (from->type) {
	case V6_UNREACHABLE:
		if (from->code > 4)
			break;
		to->code = from->code == 1 ? 10 : from->code == 4 ? 3 : 1;
		return GO_ON;
	case V6_PACKET_TOO_BIG:
		to->code = V4_FRAGMENTATION_NEEDED;
		to->rest = bpf_htonl(mtu_to_v4(rest, has_fragment_header));
		return GO_ON;
	case V6_TIME_EXCEEDED:
		to->type = V4_TIME_EXCEEDED;
		to->code = from->code;
		return GO_ON;
	case V6_PARAMETER_PROBLEM:
		if (from->code == 1) {
			to->code = 2;
			return GO_ON;
		}
		pointer = pointer_to_v4(rest);
		if (from->code != 0 || pointer < 0)
			break;
		to->type = V4_PARAMETER_PROBLEM;
		to->rest = bpf_htonl((__u32)pointer << 24);
		return GO_ON;
	}
	return PASS_ON(FW_PASS_ICMP_ERROR);
}

/* Adds the change of a word of the quoted transport header to the sum. */
always_inline void quoted_word(struct quoted *quoted, __be16 from, __be16 to)
{
	quoted->sum += (__u16)~from;
	quoted->sum += to;
}

/* Corrects the transport header of the packet inside as far as it is quoted. Offsets in `work` are from the transport
 * header on. */
always_inline verdict quoted_transport(struct __sk_buff *skb, const struct fields *fields, struct quoted *quoted,
				       int to_v6, struct work *work)
{
	__u32 field;
	__be16 checksum, updated;
	__be16 icmp[2];

	work->inner_words = 0;
	if (!has_transport(fields))
		return GO_ON;
	switch (fields->protocol) {
	case PROTOCOL_TCP:
		field = TCP_CHECKSUM_AT;
		break;
	case PROTOCOL_UDP:
	case PROTOCOL_UDP_LITE:
	case PROTOCOL_DCCP:
		field = UDP_CHECKSUM_AT;
		break;
	case PROTOCOL_ICMP:
	case PROTOCOL_ICMPV6: {
		if (quoted->len < ICMP_LEN || bpf_skb_load_bytes(skb, quoted->at, icmp, 4))
			return PASS_ON(FW_PASS_ICMP_ERROR);
		__u16 word = bpf_ntohs(icmp[0]);
		int mapped = echo_type(word >> 8, to_v6);
		if (mapped < 0)
			return PASS_ON(FW_PASS_ICMP_ERROR);
		__u64 pseudo = sum_number(PROTOCOL_ICMPV6) + sum_number(fields->payload_len);
		__be16 becomes = bpf_htons((__u16)mapped << 8 | (word & 0xff));
		__u64 old = icmp[0] + (to_v6 ? 0 : quoted->sums.old + pseudo);
		__u64 new = becomes + (to_v6 ? quoted->sums.new + pseudo : 0);
		updated = update_checksum(icmp[1], sum_difference(old, new));
		quoted_word(quoted, icmp[0], becomes);
		quoted_word(quoted, icmp[1], updated);
		work->inner_at = 0;
		work->inner_words = 2;
		work->inner[0] = becomes;
		work->inner[1] = updated;
		return GO_ON;
	}
	default:
		return GO_ON;
	}
	if (quoted->len < field + 2)
		return GO_ON;
	if (bpf_skb_load_bytes(skb, quoted->at + field, &checksum, 2))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	/* It has no checksum, and none can be computed: the datagram is not complete here. */
	if (fields->protocol == PROTOCOL_UDP && checksum == 0)
		return GO_ON;
	updated = update_checksum(checksum, sum_difference(quoted->sums.old, quoted->sums.new));
	updated = never_zero(fields->protocol, updated);
	quoted_word(quoted, checksum, updated);
	work->inner_at = field;
	work->inner_words = 1;
	work->inner[0] = updated;
	return GO_ON;
}

/*
 * Verifies the message of `len` octets at octet `at` of the frame, whose ICMP and inner header have
 * `head` octets. `quoted`: what lies behind them. `pseudo`: the sum of the pseudo-header.
 */
always_inline verdict quote(struct __sk_buff *skb, __u32 at, __u32 len, __u32 head, __u64 pseudo,
			    struct quoted *quoted)
{
	int first = sum_octets(skb, at, head);
	int rest = sum_octets(skb, at + head, len - head);

	if (first < 0 || rest < 0 || fold(pseudo + first + rest) != 0xffff)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	quoted->at = at + head;
	quoted->len = len - head;
	quoted->sum = rest;
	return GO_ON;
}

/* Maps the source of the IPv4 packet inside: a host behind the translator. */
always_inline int map_quoted_src4(struct flow *flow, __u32 v4, struct halves *host)
{
	enum via via = map_v4(v4, host);

	if (is_pooled(v4) && via != VIA_EAM)
		return dynamic_to_v6(flow, v4, IS_NO_USE, host) == GO_ON;
	return is_mapped(via);
}

/* Maps the destination of the IPv6 packet inside: a host behind the translator. */
always_inline int map_quoted_dst6(struct flow *flow, struct halves host, __u32 *v4)
{
	enum via via = map_v6(host, v4);

	if (nat64.mode == FW_NAT64_DYNAMIC4 && via == VIA_NONE)
		return dynamic_to_v4(flow, host, IS_NO_USE, v4) == GO_ON;
	return is_mapped(via);
}

/*
 * Decides on an ICMPv4 error of `len` octets at octet `at` of the packet; the outer header's addresses
 * are in `plan` already. `tos_hops`: its Type of Service, and the new hop limit.
 */
__noinline int error_v4_to_v6(struct __sk_buff *ctx, struct work *work, __u32 at, __u32 len, __u32 tos_hops)
{
	if (!work)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	struct plan *plan = &work->plan;
	struct icmp_header *icmp = &work->error.icmp;
	struct ipv4_header *ip = &work->error.v4;
	struct halves *address = &work->src6;
	struct fields *inner = &work->error.inner;
	struct quoted *quoted = &work->error.quoted;
	__u32 outer_len = at;
	at += config.link_layer_len;
	if (ctx->gso_size || len < ICMP_LEN + IPV4_LEN || bpf_skb_load_bytes(ctx, at, icmp, ICMP_LEN) ||
	    bpf_skb_load_bytes(ctx, at + ICMP_LEN, ip, IPV4_LEN))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	/* RFC 4884: a length says that extensions follow the inner packet. */
	if (ip->version_ihl >> 4 != 4 || (bpf_ntohl(icmp->rest) >> 16 & 0xff))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	read_v4(ip, inner);
	__u32 head = ICMP_LEN + inner->header_len;
	if (inner->header_len < IPV4_LEN || bpf_ntohs(ip->total_len) < inner->header_len || len < head)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	plan->old_len = outer_len + head;
	verdict v = quote(ctx, at, len, head, 0, quoted);
	if (v != GO_ON)
		return v;
	int next_header = protocol_to_v6(inner->protocol);
	if (next_header < 0 || !map_quoted_src4(&work->flow, bpf_ntohl(ip->src), address))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	to_wire(*address, &plan->error6.inner.src);
	if (!is_mapped(map_v4(bpf_ntohl(ip->dst), address)))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	to_wire(*address, &plan->error6.inner.dst);
	v = header_to_v6(icmp, &plan->error6.icmp);
	if (v != GO_ON)
		return v;
	quoted->sums.old = (__u64)ip->src + ip->dst;
	quoted->sums.new = sum_address_v6(&plan->error6.inner.src) + sum_address_v6(&plan->error6.inner.dst);
	v = quoted_transport(ctx, inner, quoted, 1, work);
	if (v != GO_ON)
		return v;
	__u32 inner_len = write_v6(&plan->error6.inner, &plan->error6.fragment, inner, next_header, inner->hop_limit);
	__u32 new_len = ICMP_LEN + inner_len + quoted->len;
	/* RFC 4443 section 2.4 (c): cut by the user engine. */
	if (IPV6_LEN + new_len > IPV6_MIN_MTU)
		return PASS_ON(FW_PASS_ICMP_ERROR);

	/* The inner header is written; its fields are used for the outer one. */
	__builtin_memset(inner, 0, sizeof(*inner));
	inner->tos = tos_hops >> 8;
	inner->payload_len = new_len;
	write_v6(&plan->v6, 0, inner, PROTOCOL_ICMPV6, tos_hops & 0xff);
	__u64 sum = quoted->sum + sum_address_v6(&plan->v6.src) + sum_address_v6(&plan->v6.dst) +
		    sum_number(PROTOCOL_ICMPV6) + sum_number(new_len);
	if (inner_len == IPV6_LEN)
		sum += bpf_csum_diff(0, 0, (void *)&plan->error6.icmp, ICMP_LEN + IPV6_LEN, 0) & 0xffffffff;
	else
		sum += bpf_csum_diff(0, 0, (void *)&plan->error6.icmp, ICMP_LEN + IPV6_LEN + FRAGMENT_LEN, 0) & 0xffffffff;
	plan->error6.icmp.checksum = ~fold(sum);
	plan->segments = 1;
	plan->new_len = IPV6_LEN + ICMP_LEN + inner_len;
	work->inner_at += plan->new_len;
	return GO_ON;
}

/* Reads the IPv6 header inside an error. A Fragment Header may follow it; other extension headers are passed on. */
always_inline verdict read_inner_v6(struct __sk_buff *skb, __u32 at, __u32 len, struct ipv6_header *ip,
				    struct fragment_header *fragment, struct fields *inner)
{
	if (len < IPV6_LEN || bpf_skb_load_bytes(skb, at, ip, IPV6_LEN))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	__u32 first = bpf_ntohl(ip->first);
	if (first >> 28 != 6)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	__builtin_memset(inner, 0, sizeof(*inner));
	inner->tos = first >> 20;
	inner->hop_limit = ip->hop_limit;
	inner->protocol = ip->next_header;
	inner->header_len = IPV6_LEN;
	inner->payload_len = bpf_ntohs(ip->payload_len);
	if (inner->protocol == PROTOCOL_FRAGMENT) {
		if (len < IPV6_LEN + FRAGMENT_LEN || inner->payload_len < FRAGMENT_LEN ||
		    bpf_skb_load_bytes(skb, at + IPV6_LEN, fragment, FRAGMENT_LEN))
			return PASS_ON(FW_PASS_ICMP_ERROR);
		__u16 offset_more = bpf_ntohs(fragment->offset_more);
		inner->is_fragment = 1;
		inner->fragment_offset = offset_more & ~7;
		inner->more_fragments = offset_more & 1;
		inner->identification = bpf_ntohl(fragment->identification);
		inner->protocol = fragment->next_header;
		inner->header_len += FRAGMENT_LEN;
		inner->payload_len -= FRAGMENT_LEN;
	}
	if (is_extension(inner->protocol))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	return GO_ON;
}

/*
 * Decides on an ICMPv6 error of `len` octets at octet `at` of the packet. The plan has the outer header's addresses and
 * identification already, and in `difference` the sum of the old addresses. `tos_hops`: its Traffic Class, and the new
 * hop limit.
 */
__noinline int error_v6_to_v4(struct __sk_buff *ctx, struct work *work, __u32 at, __u32 len, __u32 tos_hops)
{
	__u32 src = 0, dst = 0;

	if (!work)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	struct plan *plan = &work->plan;
	struct icmp_header *icmp = &work->error.icmp;
	struct ipv6_header *ip = &work->error.v6;
	struct fields *inner = &work->error.inner;
	struct quoted *quoted = &work->error.quoted;
	__u32 outer_len = at;
	at += config.link_layer_len;
	if (ctx->gso_size || len < ICMP_LEN + IPV6_LEN || len > MAX_SUMMED ||
	    bpf_skb_load_bytes(ctx, at, icmp, ICMP_LEN))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	/* RFC 4884: a length says that extensions follow the inner packet. */
	if ((icmp->type == V6_UNREACHABLE || icmp->type == V6_TIME_EXCEEDED) && bpf_ntohl(icmp->rest) >> 24)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	verdict v = read_inner_v6(ctx, at + ICMP_LEN, len - ICMP_LEN, ip, &work->error.fragment, inner);
	if (v != GO_ON)
		return v;
	__u64 pseudo = plan->difference + sum_number(PROTOCOL_ICMPV6) + sum_number(len);
	__u32 head = ICMP_LEN + inner->header_len;
	plan->old_len = outer_len + head;
	v = quote(ctx, at, len, head, pseudo, quoted);
	if (v != GO_ON)
		return v;
	enum via src_via = map_v6(to_halves(&ip->src), &src);
	int protocol = protocol_to_v4(inner->protocol);
	if (protocol < 0 || !is_mapped(src_via) || !map_quoted_dst6(&work->flow, to_halves(&ip->dst), &dst))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	if (hairpins(src, src_via))
		return PASS_ON(FW_PASS_HAIRPIN);
	v = header_to_v4(icmp, inner->is_fragment, &plan->error4.icmp);
	if (v != GO_ON)
		return v;
	quoted->sums.old = sum_address_v6(&ip->src) + sum_address_v6(&ip->dst);
	quoted->sums.new = (__u64)bpf_htonl(src) + bpf_htonl(dst);
	v = quoted_transport(ctx, inner, quoted, 0, work);
	if (v != GO_ON)
		return v;
	__u32 inner_total = IPV4_LEN + inner->payload_len;
	if (inner_total > IPV4_MAX)
		return PASS_ON(FW_PASS_ICMP_ERROR);
	write_v4(&plan->error4.inner, inner, inner_total, inner->identification,
		 !inner->is_fragment && inner_total > DF_CLEAR_MAX, inner->hop_limit, protocol, src, dst);
	__u32 total = IPV4_LEN + ICMP_LEN + IPV4_LEN + quoted->len;
	if (total > config.mtu4)
		return PASS_ON(FW_PASS_ICMP_ERROR);

	struct fields whole = { .tos = tos_hops >> 8 };
	write_v4(&plan->v4, &whole, total, bpf_ntohs(plan->v4.identification), total > DF_CLEAR_MAX, tos_hops & 0xff,
		 PROTOCOL_ICMP, bpf_ntohl(plan->v4.src), bpf_ntohl(plan->v4.dst));
	__u64 sum = quoted->sum +
		    (bpf_csum_diff(0, 0, (void *)&plan->error4.icmp, ICMP_LEN + IPV4_LEN, 0) & 0xffffffff);
	plan->error4.icmp.checksum = ~fold(sum);
	plan->segments = 1;
	plan->new_len = IPV4_LEN + ICMP_LEN + IPV4_LEN;
	work->inner_at += plan->new_len;
	return GO_ON;
}

/* The outer header's new addresses are in `work` already. */
always_inline verdict error_to_v6(struct __sk_buff *skb, const struct fields *fields, __u8 hop_limit, struct work *work)
{
	struct plan *plan = &work->plan;

	__builtin_memset(plan, 0, offsetof(struct plan, mapped));
	plan->len = fields->header_len + fields->payload_len;
	to_wire(work->src6, &plan->v6.src);
	to_wire(work->dst6, &plan->v6.dst);
	return error_v4_to_v6(skb, work, fields->header_len, fields->payload_len, (__u32)fields->tos << 8 | hop_limit);
}

/* The outer header's new addresses are in `plan->mapped` already. `addresses`: the sum of the old ones. */
always_inline verdict error_to_v4(struct __sk_buff *skb, const struct fields *fields, __u8 hop_limit, __u64 addresses,
				  struct work *work)
{
	struct plan *plan = &work->plan;
	__u32 src = plan->mapped.src, dst = plan->mapped.dst;
	__u16 identification = fields->is_fragment ? fields->identification
						   : next_identification(src, dst, PROTOCOL_ICMP, 1);

	__builtin_memset(plan, 0, offsetof(struct plan, mapped));
	plan->len = fields->header_len + fields->payload_len;
	plan->v4.identification = bpf_htons(identification);
	plan->v4.src = bpf_htonl(src);
	plan->v4.dst = bpf_htonl(dst);
	plan->difference = fold(addresses);
	return error_v6_to_v4(skb, work, fields->header_len, fields->payload_len, (__u32)fields->tos << 8 | hop_limit);
}

#endif
