/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* IPv6 to IPv4 (RFC 7915 section 5); the core's v6_to_v4.rs, step by step. */
#ifndef FORDWAY_V6_TO_V4_H
#define FORDWAY_V6_TO_V4_H

#include "address.h"
#include "common.h"
#include "ends.h"
#include "headers.h"
#include "icmp_error.h"
#include "transport.h"
#include "v4_to_v6.h"

always_inline int may_be_walked(__u8 next_header)
{
	return next_header == PROTOCOL_HOPOPT || next_header == PROTOCOL_ROUTING || next_header == PROTOCOL_OPTIONS ||
	       next_header == PROTOCOL_FRAGMENT;
}

/* Lengths, version, extension headers. A Routing header with segments left is for the user engine. */
always_inline verdict validate_v6(void *ctx, const struct packet *p, int hook, struct fields *fields)
{
	const struct ipv6_header *ip = p->data;

	if ((void *)(ip + 1) > p->data_end)
		return p->len < IPV6_LEN ? DROP(FW_DROP_TRUNCATED) : PASS_ON(FW_PASS_NOT_LINEAR);
	__u32 first = bpf_ntohl(ip->first);
	if (first >> 28 != 6)
		return PASS_ON(FW_PASS_MALFORMED);
	__u32 payload_len = bpf_ntohs(ip->payload_len);
	/* A super-packet of more than 65,535 octets says 0. */
	if (p->gso_size && payload_len == 0)
		return PASS_ON(FW_PASS_OFFLOAD);
	__u32 len = IPV6_LEN + payload_len;
	if (p->len < len)
		return short_frame(hook);
	fields->tos = first >> 20;
	fields->hop_limit = ip->hop_limit;
	fields->protocol = ip->next_header;
	fields->is_fragment = 0;
	fields->more_fragments = 0;
	fields->dont_fragment = 0;
	fields->fragment_offset = 0;
	fields->identification = 0;
	fields->header_len = IPV6_LEN;
	fields->payload_len = payload_len;
	if (!may_be_walked(fields->protocol))
		return GO_ON;
#ifdef FORDWAY_XDP
	return PASS_ON(FW_PASS_EXTENSION_HEADERS);
#else
	struct walked walked = { .protocol = ip->next_header };
	v6_extensions(ctx, &walked, len);
	if (walked.verdict != GO_ON)
		return walked.verdict;
	__u32 header_len = walked.header_len;
	/* Never true; the verifier has not seen how the walk ends. */
	if (header_len < IPV6_LEN || header_len > MAX_HEADERS_V6 + FRAGMENT_LEN || header_len > len)
		return PASS_ON(FW_PASS_MALFORMED);
	fields->header_len = header_len;
	fields->payload_len = len - header_len;
	fields->protocol = walked.protocol;
	if (walked.is_fragment) {
		/* An atomic fragment has neither offset nor more to come, and counts as one all the same. */
		fields->is_fragment = 1;
		fields->fragment_offset = walked.offset_more & ~7;
		fields->more_fragments = walked.offset_more & 1;
		fields->identification = walked.identification;
	}
	return GO_ON;
#endif
}

/* RFC 7915 section 6; RFC 6791 for the source of ICMPv6 errors. */
always_inline verdict map_addresses_v6(struct halves src6, struct halves dst6, int is_error, int hook,
				       struct mapped_v6 *out)
{
	__u32 reason = illegal_v6(dst6);
	if (!reason)
		reason = illegal_v6(src6);
	if (reason)
		return drop_address(reason, hook);
	if (src6.hi == dst6.hi && src6.lo == dst6.lo)
		return drop_address(FW_DROP_SELF_ADDRESSED, hook);
	if ((config.icmp_source6_hi | config.icmp_source6_lo) && dst6.hi == config.icmp_source6_hi &&
	    dst6.lo == config.icmp_source6_lo)
		return drop_address(FW_DROP_SELF_ADDRESSED, hook);
	out->dst_via = map_v6(dst6, &out->dst);
	out->src_via = map_v6(src6, &out->src);
	if (HAS_DYNAMIC4(hook) && out->src_via == VIA_NONE && is_mapped(out->dst_via)) {
		reason = illegal_v4(out->dst);
		out->src_via = VIA_DYNAMIC4;
		return reason ? DROP(reason) : GO_ON;
	}
	if (out->src_via == VIA_NONE && is_error && config.icmp_source4) {
		/* The user engine adds the object. */
		if (config.icmp_node_id && is_mapped(out->dst_via))
			return PASS_ON(FW_PASS_ICMP_ERROR);
		out->src = config.icmp_source4;
		out->src_via = VIA_ICMP_SOURCE;
	}
	if (hook == HOOK_UPLINK && out->src_via == VIA_NONE)
		return UNMATCHED;
	if (!is_mapped(out->src_via) || !is_mapped(out->dst_via))
		return PASS_ON(FW_PASS_UNMAPPED);
	reason = illegal_v4(out->dst);
	if (!reason)
		reason = illegal_v4(out->src);
	if (reason)
		return drop_address(reason, hook);
	if (out->src_via == VIA_POOL6 && out->dst_via == VIA_POOL6 && !config.ipv4_translatable)
		return PASS_ON(FW_PASS_UNMAPPED);
	return GO_ON;
}

/* The same where state decides: what can't be on a wire is sorted out, and what is not carried left. */
always_inline verdict admit_v6(struct halves src6, struct halves dst6, int is_error, const struct fields *fields,
			       struct mapped_v6 *out)
{
	__u32 reason = illegal_v6(dst6);
	if (!reason)
		reason = illegal_v6(src6);
	if (reason)
		return DROP(reason);
	if (is_error)
		return PASS_ON(FW_PASS_NAT64_ICMP_ERROR);
	__u64 found = map_v6_halves(dst6.hi, dst6.lo);
	out->dst = found;
	out->dst_via = found >> 32 & 0xff;
	out->pool6 = found >> 40;
	out->src_via = map_v6(src6, &out->src);
	/* RFC 6146 section 3.5: from pool6 nobody sends. */
	if (out->dst_via != VIA_POOL6 || out->src_via != VIA_NONE || illegal_v4(out->dst))
		return PASS_ON(FW_PASS_UNMAPPED);
	return is_carried(fields, fields->protocol == PROTOCOL_ICMPV6 ? PROTOCOL_ICMP : fields->protocol);
}

/* RFC 8200 section 4.5. */
always_inline verdict check_fragment_v6(const struct fields *fields)
{
	if (!fields->is_fragment)
		return GO_ON;
	if (fields->more_fragments && (fields->payload_len % 8 || fields->payload_len == 0))
		return DROP(FW_DROP_BAD_FRAGMENT);
	if (fields->fragment_offset + fields->payload_len + IPV4_LEN > IPV4_MAX)
		return DROP(FW_DROP_BAD_FRAGMENT);
	if (fields->protocol == PROTOCOL_ICMPV6 && (fields->fragment_offset || fields->more_fragments))
		return DROP(FW_DROP_FRAGMENTED_ICMP);
	return GO_ON;
}

/* RFC 7915 section 5.1 ("Total Length", "Flags"). Counts the segments. */
always_inline verdict fit_v4(const struct packet *p, const struct fields *fields, struct plan *plan,
			     __u8 *dont_fragment)
{
	__u32 total_len = IPV4_LEN + fields->payload_len;
	__u32 mtu4 = config.mtu4 < IPV4_MAX ? config.mtu4 : IPV4_MAX;
	__u32 len = total_len;

	plan->segments = 1;
	if (p->gso_size) {
		__u32 header_len = segment_header_len(p, fields->header_len, fields);
		if (header_len == 0)
			return PASS_ON(FW_PASS_OFFLOAD);
		len = IPV4_LEN + header_len + p->gso_size;
		plan->segments = segment_count(fields->payload_len, header_len, p->gso_size);
	}
	*dont_fragment = !fields->is_fragment && len > DF_CLEAR_MAX;
	if (total_len > IPV4_MAX)
		return PASS_ON(FW_PASS_TOO_BIG);
	if (len <= mtu4)
		return GO_ON;
	if (p->gso_size)
		return PASS_ON(FW_PASS_OFFLOAD);
	return *dont_fragment ? PASS_ON(FW_PASS_TOO_BIG) : PASS_ON(FW_PASS_NEEDS_FRAGMENTS);
}

/* Whether a packet that arrives by the uplink is for the CLAT; see is_from_clat(). */
always_inline int is_for_clat(const struct packet *p)
{
	const struct ipv6_header *ip = p->data;
	__u32 ignored;

	return (void *)(ip + 1) <= p->data_end && bpf_ntohl(ip->first) >> 28 == 6 &&
	       map_v6(to_halves(&ip->dst), &ignored) == VIA_EAM;
}

/* Decides on a packet whose first octet says IPv6. `identification`: of this processor, for packets
 * that nobody may fragment; it may repeat (RFC 6864 section 4.1). */
always_inline verdict v6_to_v4(void *ctx, const struct packet *p, int hook, const struct pair *pair,
			       __u16 identification, struct plan *plan)
{
	struct fields fields;
	struct mapped_v6 *mapped = &plan->mapped;
	__u8 dont_fragment;

	if (hook == HOOK_UPLINK && !is_for_clat(p))
		return UNMATCHED;
	verdict v = validate_v6(ctx, p, hook, &fields);
	if (v != GO_ON)
		return v;
	const struct ipv6_header *ip = p->data;
	__u64 old = sum_address_v6(&ip->src) + sum_address_v6(&ip->dst);
	__u32 at = fields.header_len;

	int is_error = 0;
	if (fields.protocol == PROTOCOL_ICMPV6 && has_transport(&fields) && fields.payload_len > 0) {
		const __u8 *type = octets_at(p, at, sizeof(*type));
		if (!type)
			return PASS_ON(FW_PASS_NOT_LINEAR);
		is_error = is_error_v6(*type);
	}
#ifdef FORDWAY_XDP
	if (is_error)
		return PASS_ON(FW_PASS_ICMP_ERROR);
#endif
#ifndef FORDWAY_STATE
	if (pair->way.verdict != GO_ON)
		return pair->way.verdict;
	mapped->src = bpf_ntohl(pair->v4.src);
	mapped->dst = bpf_ntohl(pair->v4.dst);
#else
	struct halves src6 = to_halves(&ip->src), dst6 = to_halves(&ip->dst);
	v = HAS_STATE(hook) ? admit_v6(src6, dst6, is_error, &fields, mapped)
			: map_addresses_v6(src6, dst6, is_error, hook, mapped);
	if (v != GO_ON)
		return v;
#endif
	__u8 hops = config.decrement_hop_limit[FW_V6_TO_V4];
	if (fields.hop_limit <= hops)
		return PASS_ON(FW_PASS_HOP_LIMIT);
	int protocol = protocol_to_v4(fields.protocol);
	if (protocol < 0)
		return DROP(FW_DROP_PROTOCOL);
	v = check_fragment_v6(&fields);
	if (v != GO_ON)
		return v;
	if (fields.is_fragment)
		identification = fields.identification;

#ifndef FORDWAY_XDP
	if (!HAS_STATE(hook) && !is_error && hairpins(mapped->dst, mapped->dst_via))
		return PASS_ON(FW_PASS_HAIRPIN);
	if (HAS_DYNAMIC4(hook) && mapped->src_via == VIA_DYNAMIC4) {
		v = dynamic_to_v4(&plan->flow, src6, is_error ? IS_NO_USE : IS_USE, &mapped->src);
		/* RFC 6791: a router on the way gets no address for its errors. */
		if (v == LEAVE && is_error && config.icmp_source4 && !config.icmp_node_id) {
			mapped->src = config.icmp_source4;
			v = GO_ON;
		}
		if (v != GO_ON)
			return v;
	}
	if (is_error) {
		__builtin_memset(plan, 0, offsetof(struct plan, mapped));
		plan->len = fields.header_len + fields.payload_len;
		if (!fields.is_fragment)
			identification = next_identification(mapped->src, mapped->dst, PROTOCOL_ICMP, 1);
		plan->v4.identification = bpf_htons(identification);
		plan->v4.src = bpf_htonl(mapped->src);
		plan->v4.dst = bpf_htonl(mapped->dst);
		plan->difference = fold(old);
		return error_v6_to_v4(ctx, plan, at, fields.payload_len, (__u32)fields.tos << 8 | (fields.hop_limit - hops));
	}
#endif
	plan->len = fields.header_len + fields.payload_len;
	plan->protocol = fields.protocol;
	v = fit_v4(p, &fields, plan, &dont_fragment);
	if (v != GO_ON)
		return v;
	int is_query = fields.protocol == PROTOCOL_ICMPV6;
	__u64 pseudo = old + sum_number(PROTOCOL_ICMPV6) + sum_number(fields.payload_len);
	v = is_query ? query_to_plan(p, at, &fields, pseudo, 0, hook, plan)
		     : transport_to_plan(ctx, p, at, &fields, old, 0, hook, plan);
	if (v != GO_ON)
		return v;
#ifdef FORDWAY_STATE
	if (HAS_STATE(hook)) {
		v = flow_v6_to_v4(p, at, &fields, protocol, src6, mapped->dst, mapped->pool6, mark_of(ctx), &mapped->src,
				  plan);
		if (v != GO_ON)
			return v;
	}
#endif
	struct sums sums = { old, (__u64)bpf_htonl(mapped->src) + bpf_htonl(mapped->dst) };
	if (is_query)
		plan->difference = sum_difference(pseudo, 0);
	else
		finish_transport(pair, sums, plan);
	if (!fields.is_fragment && !dont_fragment)
		identification = next_identification(mapped->src, mapped->dst, protocol, plan->segments);
	write_v4(&plan->v4, &fields, IPV4_LEN + fields.payload_len, identification, dont_fragment,
		 fields.hop_limit - hops, protocol, mapped->src, mapped->dst);
	plan->old_len = fields.header_len;
	plan->new_len = IPV4_LEN;
	plan->checksum_at += plan->new_len;
	plan->field_at += plan->new_len;
	plan->port_at += plan->new_len;
	return GO_ON;
}

#endif
