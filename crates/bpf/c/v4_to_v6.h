/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* IPv4 to IPv6 (RFC 7915 section 4); the core's v4_to_v6.rs, step by step. */
#ifndef FORDWAY_V4_TO_V6_H
#define FORDWAY_V4_TO_V6_H

#include "address.h"
#include "common.h"
#include "ends.h"
#include "headers.h"
#include "maps.h"
#include "nat64_config.h"
#include "transport.h"
#include "validate.h"

struct flow;

/* Each object defines these: state.h or pair.h. The host of a dynamic address, and the dynamic address of a host. */
always_inline verdict host_of_v4(struct flow *flow, __u32 v4, int is_error, struct halves *host);
always_inline verdict v4_of_host(struct work *work, struct halves host, int is_error, __u32 *v4);

/* Writes the new addresses into the plan, as far as they are known without a session. */
always_inline verdict addresses_to_v6(const struct ipv4_header *ip, int is_error, const struct fields *fields, int hook,
				      struct work *work);

/* Finds the session of a packet, and writes addresses and ports into the plan. `kept`: as in flow_v4_to_v6(). */
always_inline verdict session_to_v6(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
				    __u32 src, __u32 dst, verdict kept, struct work *work);

/* Decides on an ICMP error: icmp_error.h, or xdp.h. */
always_inline verdict error_to_v6(FRAME *frame, const struct fields *fields, __u8 hop_limit, struct work *work);

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
		return is_mapped(via_src) ? host_of_v4(flow, dst, is_error, dst6) : PASS_ON(FW_PASS_UNMAPPED);
	if (!is_mapped(via_src) || !is_mapped(via_dst))
		return PASS_ON(FW_PASS_UNMAPPED);
	if (via_src == VIA_POOL6 && via_dst == VIA_POOL6 && !config.ipv4_translatable)
		return PASS_ON(FW_PASS_UNMAPPED);
	return GO_ON;
}

/* Stateful translation: packets with impossible addresses are rejected, and what programs do not carry is passed on. */
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

/* Whether it fits (RFC 7915 section 4.1). Counts the segments. */
always_inline verdict fit_v6(const struct packet *p, const struct fields *fields, struct plan *plan)
{
	__u32 lowest = config.mtu6 < config.lowest_ipv6_mtu ? config.mtu6 : config.lowest_ipv6_mtu;
	__u32 len = IPV6_LEN + (fields->is_fragment ? FRAGMENT_LEN : 0) + fields->payload_len;

	if (!count_segments(p, fields, IPV6_LEN, &len, plan))
		return PASS_ON(FW_PASS_OFFLOAD);
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

/* Packets that follow one without DF that needs fragments are passed to the user engine as well. */
always_inline verdict keep_order_v4(const __u32 ends[2], const struct fields *fields, verdict fits)
{
	if (!config.keep_order || fields->dont_fragment)
		return fits;
	return keep_behind_cut(ends[0], ends[1], fields->protocol, fits);
}

/* Whether a packet that leaves by the uplink comes from the CLAT. Tested before validation, which applies to the CLAT's
 * packets alone. */
always_inline int is_from_clat(const struct packet *p)
{
	const struct ipv4_header *ip = p->data;
	struct halves ignored = {};

	return (void *)(ip + 1) <= p->data_end && ip->version_ihl >> 4 == 4 &&
	       map_v4(bpf_ntohl(ip->src), &ignored) == VIA_EAM;
}

/* Decides on a packet whose first octet says IPv4. */
always_inline verdict v4_to_v6(FRAME *frame, const struct packet *p, int hook, struct work *work)
{
	struct plan *plan = plan_of(work);
	struct fields fields;
	int route, is_error;

	if (hook == HOOK_UPLINK && !is_from_clat(p))
		return UNMATCHED;
	verdict v = validate_v4(frame, p, 0, p->len, hook, &fields, &route);
	if (v != GO_ON)
		return v;
	const struct ipv4_header *ip = p->data;
	__u32 src = bpf_ntohl(ip->src), dst = bpf_ntohl(ip->dst);
	__u64 old = (__u64)ip->src + ip->dst;
	__u32 ends[2] = { ip->src, ip->dst };
	__u32 at = fields.header_len;

	v = look_for_error(p, &fields, 1, &is_error);
	if (v != GO_ON)
		return v;
	if (is_error && is_xdp(hook))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	v = addresses_to_v6(ip, is_error, &fields, hook, work);
	if (v != GO_ON)
		return v;
	if (route)
		return PASS_ON(FW_PASS_ROUTE_OPTION);
	__u8 hops = config.decrement_hop_limit[FW_V4_TO_V6];
	if (fields.hop_limit <= hops)
		return PASS_ON(FW_PASS_HOP_LIMIT);
	int next_header = protocol_to_v6(fields.protocol);
	if (next_header < 0)
		return DROP(FW_DROP_PROTOCOL);
	v = check_fragment(&fields, 1);
	if (v != GO_ON)
		return v;
	if (is_error)
		return error_to_v6(frame, &fields, fields.hop_limit - hops, work);

	plan->len = fields.header_len + fields.payload_len;
	plan->protocol = fields.protocol;
	verdict fits = fit_v6(p, &fields, plan), kept = fits;
	if (!has_state(hook) || fits == GO_ON)
		kept = keep_order_v4(ends, &fields, fits);
	/* With state, a packet that needs fragments, and those that follow it, are passed to the user engine only if they
	 * have a session: without a limit on their rate, as other data. */
	if (kept != GO_ON && (!has_state(hook) || fields.dont_fragment))
		return kept;
	int is_query = fields.protocol == PROTOCOL_ICMP;
	v = is_query ? query_to_plan(p, at, &fields, 0, 1, hook, plan)
		     : transport_to_plan(frame, p, at, &fields, old, 1, hook, plan);
	if (v != GO_ON)
		return v;
	if (has_state(hook)) {
		v = session_to_v6(frame, p, at, &fields, src, dst, kept, work);
		if (v == fits && fits != GO_ON)
			return keep_order_v4(ends, &fields, fits);
		if (v != GO_ON)
			return v;
	}
	struct sums sums = { old, sum_address_v6(&plan->v6.src) + sum_address_v6(&plan->v6.dst) };
	if (is_query)
		plan->difference = sum_difference(0, sums.new + sum_number(PROTOCOL_ICMPV6) + sum_number(fields.payload_len));
	else
		finish_transport(hook, sums, plan);
	plan->old_len = fields.header_len;
	place_behind(plan, write_v6(&plan->v6, &plan->fragment, &fields, next_header, fields.hop_limit - hops));
	return GO_ON;
}

#endif
