/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* IPv4 to IPv6 (RFC 7915 section 4); the core's v4_to_v6.rs, step by step. */
#ifndef FORDWAY_V4_TO_V6_H
#define FORDWAY_V4_TO_V6_H

#include "address.h"
#include "common.h"
#include "ends.h"
#include "headers.h"
#include "icmp_error.h"
#ifdef FORDWAY_STATE
#include "dynamic4.h"
#include "nat64_flow.h"
#endif
#include "transport.h"

/* Lengths, version and header checksum. `route`: there may be a source route among the options. */
always_inline verdict validate_v4(void *ctx, const struct packet *p, int hook, struct fields *fields, int *route)
{
	const struct ipv4_header *ip = p->data;

	if ((void *)(ip + 1) > p->data_end)
		return p->len < IPV4_LEN ? DROP(FW_DROP_TRUNCATED) : PASS_ON(FW_PASS_NOT_LINEAR);
	if (ip->version_ihl >> 4 != 4)
		return PASS_ON(FW_PASS_MALFORMED);
	__u32 header_len = (ip->version_ihl & 15) * 4;
	__u32 total_len = bpf_ntohs(ip->total_len);
	/* A super-packet of more than 65,535 octets says 0. */
	if (p->gso_size && total_len == 0)
		return PASS_ON(FW_PASS_OFFLOAD);
	if (header_len < IPV4_LEN || total_len < header_len)
		return DROP(FW_DROP_BAD_HEADER);
	if (p->len < total_len)
		return short_frame(hook);
	const __u32 *word = p->data;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	*route = 0;
	if (header_len > IPV4_LEN) {
#ifdef FORDWAY_XDP
		return PASS_ON(FW_PASS_NOT_LINEAR);
#else
		int options = v4_options(ctx, config.link_layer_len + IPV4_LEN, header_len - IPV4_LEN);
		if (options < 0)
			return PASS_ON(FW_PASS_NOT_LINEAR);
		*route = options >= OPTIONS_ROUTE;
		sum += options & 0xffff;
#endif
	}
	if (fold(sum) != 0xffff)
		return DROP(FW_DROP_BAD_HEADER_CHECKSUM);
	read_v4(ip, fields);
	return GO_ON;
}

/* The host that has an address of the pool. RFC 5508 REQ-6: an ICMP error is no use of it. */
always_inline verdict find_host(struct flow *flow, __u32 v4, int is_error, struct halves *host)
{
#ifdef FORDWAY_XDP
	return PASS_ON(FW_PASS_SESSION);
#else
	return dynamic_to_v6(flow, v4, is_error ? IS_NO_USE : IS_USE, host);
#endif
}

/* RFC 7915 section 6. An ICMP error from an illegal source is translated, by the user engine. `flow`: for searches; at
 * XDP there are none. */
always_inline verdict map_addresses_v4(__u32 src, __u32 dst, int is_error, int hook, struct flow *flow,
				       struct halves *src6, struct halves *dst6)
{
	__u32 reason = illegal_v4(dst);
	if (reason)
		return drop_address(reason, hook);
	reason = illegal_v4(src);
	if (reason)
		return is_error && hook != HOOK_UPLINK ? PASS_ON(FW_PASS_ICMP_ERROR) : drop_address(reason, hook);
	if (src == dst)
		return drop_address(FW_DROP_SELF_ADDRESSED, hook);
	int pooled = is_pooled(dst);
	if (config.icmp_source4 && (dst == config.icmp_source4 || (src == config.icmp_source4 && !is_error)))
		return pooled ? PASS_ON(FW_PASS_UNMAPPED) : drop_address(FW_DROP_SELF_ADDRESSED, hook);
	enum via via_src = map_v4(src, src6);
	enum via via_dst = map_v4(dst, dst6);
	if (pooled && via_dst != VIA_EAM)
		return is_mapped(via_src) ? find_host(flow, dst, is_error, dst6) : PASS_ON(FW_PASS_UNMAPPED);
	if (!is_mapped(via_src) || !is_mapped(via_dst))
		return PASS_ON(FW_PASS_UNMAPPED);
	if (via_src == VIA_POOL6 && via_dst == VIA_POOL6 && !config.ipv4_translatable)
		return PASS_ON(FW_PASS_UNMAPPED);
	return GO_ON;
}

#ifdef FORDWAY_STATE
/* The same where state decides: what can't be on a wire is sorted out, and what is not carried left. */
always_inline verdict admit_v4(__u32 src, __u32 dst, int is_error, const struct fields *fields)
{
	__u32 reason = illegal_v4(dst);
	if (reason)
		return DROP(reason);
	if (is_error)
		return PASS_ON(FW_PASS_NAT64_ICMP_ERROR);
	reason = illegal_v4(src);
	if (reason)
		return DROP(reason);
	if (!owns_address(dst))
		return DROP(FW_DROP_NO_MAPPING_DESTINATION);
	if (src == dst)
		return PASS_ON(FW_PASS_UNMAPPED);
	return is_carried(fields, fields->protocol);
}
#endif

/* RFC 791 section 3.2. */
always_inline verdict check_fragment_v4(const struct fields *fields)
{
	if (!fields->is_fragment)
		return GO_ON;
	if (fields->more_fragments && (fields->payload_len % 8 || fields->payload_len == 0))
		return DROP(FW_DROP_BAD_FRAGMENT);
	if (fields->fragment_offset + fields->payload_len > IPV4_MAX)
		return DROP(FW_DROP_BAD_FRAGMENT);
	if (fields->protocol == PROTOCOL_ICMP)
		return DROP(FW_DROP_FRAGMENTED_ICMP);
	return GO_ON;
}

/* Whether it fits (RFC 7915 section 4.1). Counts the segments. */
always_inline verdict fit_v6(const struct packet *p, const struct fields *fields, struct plan *plan)
{
	__u32 lowest = config.mtu6 < config.lowest_ipv6_mtu ? config.mtu6 : config.lowest_ipv6_mtu;
	__u32 len = IPV6_LEN + (fields->is_fragment ? FRAGMENT_LEN : 0) + fields->payload_len;

	plan->segments = 1;
	if (p->gso_size) {
		__u32 header_len = segment_header_len(p, fields->header_len, fields);
		if (header_len == 0)
			return PASS_ON(FW_PASS_OFFLOAD);
		len = IPV6_LEN + header_len + p->gso_size;
		plan->segments = segment_count(fields->payload_len, header_len, p->gso_size);
	}
	plan->wire_len = len;
	if (fields->dont_fragment)
		return len > config.mtu6 ? PASS_ON(FW_PASS_TOO_BIG) : GO_ON;
	if (len <= lowest)
		return GO_ON;
	if (!p->gso_size)
		return PASS_ON(FW_PASS_NEEDS_FRAGMENTS);
	if (fields->protocol == PROTOCOL_TCP)
		return PASS_ON(FW_PASS_OFFLOAD);
	return len <= config.mtu6 ? GO_ON : PASS_ON(FW_PASS_NEEDS_FRAGMENTS);
}

/* What is behind a packet without DF that leaves in pieces goes by the user engine, too. */
always_inline verdict keep_order_v4(const __u32 ends[2], const struct fields *fields, verdict fits)
{
	if (!config.keep_order || fields->dont_fragment)
		return fits;
	return keep_behind_cut(ends[0], ends[1], fields->protocol, fits);
}

/* Whether a packet that leaves by the uplink comes from the CLAT: before anything else is looked at, for
 * what is not the CLAT's may be as odd as it likes. */
always_inline int is_from_clat(const struct packet *p)
{
	const struct ipv4_header *ip = p->data;
	struct halves ignored = {};

	return (void *)(ip + 1) <= p->data_end && ip->version_ihl >> 4 == 4 &&
	       map_v4(bpf_ntohl(ip->src), &ignored) == VIA_EAM;
}

/* Decides on a packet whose first octet says IPv4. `pair`: at XDP without state, what is known of
 * its hosts. */
always_inline verdict v4_to_v6(void *ctx, const struct packet *p, int hook, const struct pair *pair, struct plan *plan)
{
	struct fields fields;
	int route;

	if (hook == HOOK_UPLINK && !is_from_clat(p))
		return UNMATCHED;
	verdict v = validate_v4(ctx, p, hook, &fields, &route);
	if (v != GO_ON)
		return v;
	const struct ipv4_header *ip = p->data;
	__u64 old = (__u64)ip->src + ip->dst;
	__u32 ends[2] = { ip->src, ip->dst };
	__u32 at = fields.header_len;

	int is_error = 0;
	if (fields.protocol == PROTOCOL_ICMP && has_transport(&fields) && fields.payload_len > 0) {
		const __u8 *type = octets_at(p, at, sizeof(*type));
		if (!type)
			return PASS_ON(FW_PASS_NOT_LINEAR);
		is_error = is_error_v4(*type);
	}
#ifdef FORDWAY_XDP
	if (is_error)
		return PASS_ON(FW_PASS_ICMP_ERROR);
#endif
#ifndef FORDWAY_STATE
	if (pair->way.verdict != GO_ON)
		return pair->way.verdict;
	plan->v6.src = pair->v6.src;
	plan->v6.dst = pair->v6.dst;
#else
	__u32 src = bpf_ntohl(ip->src), dst = bpf_ntohl(ip->dst);
	v = HAS_STATE(hook) ? admit_v4(src, dst, is_error, &fields)
			    : map_addresses_v4(src, dst, is_error, hook, &plan->flow, &plan->src6, &plan->dst6);
	if (v != GO_ON)
		return v;
#endif
	if (route)
		return PASS_ON(FW_PASS_ROUTE_OPTION);
	__u8 hops = config.decrement_hop_limit[FW_V4_TO_V6];
	if (fields.hop_limit <= hops)
		return PASS_ON(FW_PASS_HOP_LIMIT);
	int next_header = protocol_to_v6(fields.protocol);
	if (next_header < 0)
		return DROP(FW_DROP_PROTOCOL);
	v = check_fragment_v4(&fields);
	if (v != GO_ON)
		return v;

#ifndef FORDWAY_XDP
	if (is_error) {
		__builtin_memset(plan, 0, offsetof(struct plan, mapped));
		plan->len = fields.header_len + fields.payload_len;
		to_wire(plan->src6, &plan->v6.src);
		to_wire(plan->dst6, &plan->v6.dst);
		return error_v4_to_v6(ctx, plan, at, fields.payload_len, (__u32)fields.tos << 8 | (fields.hop_limit - hops));
	}
	if (!HAS_STATE(hook)) {
		to_wire(plan->src6, &plan->v6.src);
		to_wire(plan->dst6, &plan->v6.dst);
	}
#endif
	plan->len = fields.header_len + fields.payload_len;
	plan->protocol = fields.protocol;
	verdict fits = fit_v6(p, &fields, plan), kept = fits;
	if (!HAS_STATE(hook) || fits == GO_ON)
		kept = keep_order_v4(ends, &fields, fits);
	/* Where there is state, what leaves in pieces, and what follows it, goes to the user engine only if it has a session:
	 * at any rate, as ordinary data does. */
	if (kept != GO_ON && (!HAS_STATE(hook) || fields.dont_fragment))
		return kept;
	int is_query = fields.protocol == PROTOCOL_ICMP;
	v = is_query ? query_to_plan(p, at, &fields, 0, 1, hook, plan)
		     : transport_to_plan(ctx, p, at, &fields, old, 1, hook, plan);
	if (v != GO_ON)
		return v;
#ifdef FORDWAY_STATE
	if (HAS_STATE(hook)) {
		v = flow_v4_to_v6(p, at, &fields, src, dst, mark_of(ctx), kept, plan);
		if (v == fits && fits != GO_ON)
			return keep_order_v4(ends, &fields, fits);
		if (v != GO_ON)
			return v;
		if (!may_embed(plan->flow.pool6, src))
			return LEAVE;
		embed_in_pool6(plan->flow.pool6, src, &plan->src6);
		to_wire(plan->src6, &plan->v6.src);
		to_wire(plan->flow.host, &plan->v6.dst);
	}
#endif
	struct sums sums = { old, sum_address_v6(&plan->v6.src) + sum_address_v6(&plan->v6.dst) };
	if (is_query)
		plan->difference = sum_difference(0, sums.new + sum_number(PROTOCOL_ICMPV6) + sum_number(fields.payload_len));
	else
		finish_transport(pair, sums, plan);
	plan->old_len = fields.header_len;
	plan->new_len = write_v6(&plan->v6, &plan->fragment, &fields, next_header, fields.hop_limit - hops);
	plan->checksum_at += plan->new_len;
	plan->field_at += plan->new_len;
	plan->port_at += plan->new_len;
	return GO_ON;
}

#endif
