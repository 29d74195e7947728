/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* IPv6 to IPv4 (RFC 7915 section 5); the core's v6_to_v4.rs, step by step. */
#ifndef FORDWAY_V6_TO_V4_H
#define FORDWAY_V6_TO_V4_H

#include "address.h"
#include "common.h"
#include "ends.h"
#include "headers.h"
#include "maps.h"
#include "nat64_config.h"
#include "transport.h"
#include "v4_to_v6.h"
#include "validate.h"

/* Each object defines these, as their counterparts in v4_to_v6.h. */
always_inline verdict addresses_to_v4(const struct ipv6_header *ip, int is_error, const struct fields *fields, int hook,
				      struct work *work);
always_inline verdict session_to_v4(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
				    __u8 protocol, struct halves src6, struct work *work);
always_inline verdict error_to_v4(FRAME *frame, const struct fields *fields, __u8 hop_limit, __u64 addresses,
				  struct work *work);

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
	if (has_dynamic4(hook) && out->src_via == VIA_NONE && is_mapped(out->dst_via)) {
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

/* Stateful translation: packets with impossible addresses are rejected, and what programs do not carry is passed on. */
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
	/* RFC 6146 section 3.5: a source in pool6 is forged. */
	if (out->dst_via != VIA_POOL6 || out->src_via != VIA_NONE || illegal_v4(out->dst))
		return PASS_ON(FW_PASS_UNMAPPED);
	return is_carried(fields, fields->protocol == PROTOCOL_ICMPV6 ? PROTOCOL_ICMP : fields->protocol);
}

/* RFC 7915 section 5.1 ("Total Length", "Flags"). Counts the segments. */
always_inline verdict fit_v4(const struct packet *p, const struct fields *fields, struct plan *plan,
			     __u8 *dont_fragment)
{
	__u32 total_len = IPV4_LEN + fields->payload_len;
	__u32 mtu4 = config.mtu4 < IPV4_MAX ? config.mtu4 : IPV4_MAX;
	__u32 len = total_len;

	if (!count_segments(p, fields, IPV4_LEN, &len, plan))
		return PASS_ON(FW_PASS_OFFLOAD);
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
 * that may not be fragmented; it may repeat (RFC 6864 section 4.1). */
always_inline verdict v6_to_v4(FRAME *frame, const struct packet *p, int hook, __u16 identification, struct work *work)
{
	struct plan *plan = plan_of(work);
	struct mapped_v6 *mapped = &plan->mapped;
	struct fields fields;
	__u8 dont_fragment;
	int is_error;

	if (hook == HOOK_UPLINK && !is_for_clat(p))
		return UNMATCHED;
	verdict v = validate_v6(frame, p, hook, &fields);
	if (v != GO_ON)
		return v;
	const struct ipv6_header *ip = p->data;
	__u64 old = sum_address_v6(&ip->src) + sum_address_v6(&ip->dst);
	struct halves src6 = to_halves(&ip->src);
	__u32 at = fields.header_len;

	v = look_for_error(p, &fields, 0, &is_error);
	if (v != GO_ON)
		return v;
	if (is_error && is_xdp(hook))
		return PASS_ON(FW_PASS_ICMP_ERROR);
	v = addresses_to_v4(ip, is_error, &fields, hook, work);
	if (v != GO_ON)
		return v;
	__u8 hops = config.decrement_hop_limit[FW_V6_TO_V4];
	if (fields.hop_limit <= hops)
		return PASS_ON(FW_PASS_HOP_LIMIT);
	int protocol = protocol_to_v4(fields.protocol);
	if (protocol < 0)
		return DROP(FW_DROP_PROTOCOL);
	v = check_fragment(&fields, 0);
	if (v != GO_ON)
		return v;
	/* At XDP a pair that hairpins has that verdict already. */
	if (!is_xdp(hook) && !has_state(hook) && !is_error && hairpins(mapped->dst, mapped->dst_via))
		return PASS_ON(FW_PASS_HAIRPIN);
	if (has_dynamic4(hook) && mapped->src_via == VIA_DYNAMIC4) {
		v = v4_of_host(work, src6, is_error, &mapped->src);
		if (v != GO_ON)
			return v;
	}
	if (is_error)
		return error_to_v4(frame, &fields, fields.hop_limit - hops, old, work);

	plan->len = fields.header_len + fields.payload_len;
	plan->protocol = fields.protocol;
	v = fit_v4(p, &fields, plan, &dont_fragment);
	if (v != GO_ON)
		return v;
	int is_query = fields.protocol == PROTOCOL_ICMPV6;
	__u64 pseudo = old + sum_number(PROTOCOL_ICMPV6) + sum_number(fields.payload_len);
	v = is_query ? query_to_plan(p, at, &fields, pseudo, 0, hook, plan)
		     : transport_to_plan(frame, p, at, &fields, old, 0, hook, plan);
	if (v != GO_ON)
		return v;
	if (has_state(hook)) {
		v = session_to_v4(frame, p, at, &fields, protocol, src6, work);
		if (v != GO_ON)
			return v;
	}
	struct sums sums = { old, (__u64)bpf_htonl(mapped->src) + bpf_htonl(mapped->dst) };
	if (is_query)
		plan->difference = sum_difference(pseudo, 0);
	else
		finish_transport(hook, sums, plan);
	if (fields.is_fragment)
		identification = fields.identification;
	else if (!dont_fragment)
		identification = next_identification(mapped->src, mapped->dst, protocol, plan->segments);
	write_v4(&plan->v4, &fields, IPV4_LEN + fields.payload_len, identification, dont_fragment,
		 fields.hop_limit - hops, protocol, mapped->src, mapped->dst);
	plan->old_len = fields.header_len;
	place_behind(plan, IPV4_LEN);
	return GO_ON;
}

#endif
