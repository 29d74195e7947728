/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How objects with tables find the new addresses: what v4_to_v6.h and v6_to_v4.h ask each object for. */
#ifndef FORDWAY_STATE_H
#define FORDWAY_STATE_H

#include "address.h"
#include "common.h"
#include "dynamic4.h"
#include "nat64_flow.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"
#include "work.h"

/* RFC 5508 REQ-6: an ICMP error is no use of a mapping. */
always_inline verdict host_of_v4(struct flow *flow, __u32 v4, int is_error, struct halves *host)
{
	return dynamic_to_v6(flow, v4, is_error ? IS_NO_USE : IS_USE, host);
}

always_inline verdict v4_of_host(struct work *work, struct halves host, int is_error, __u32 *v4)
{
	verdict v = dynamic_to_v4(&work->flow, host, is_error ? IS_NO_USE : IS_USE, v4);

	/* RFC 6791: a router on the way gets no address for its errors. */
	if (v != LEAVE || !is_error || !config.icmp_source4 || config.icmp_node_id)
		return v;
	*v4 = config.icmp_source4;
	return GO_ON;
}

always_inline verdict addresses_to_v6(const struct ipv4_header *ip, int is_error, const struct fields *fields, int hook,
				      struct work *work)
{
	__u32 src = bpf_ntohl(ip->src), dst = bpf_ntohl(ip->dst);

	if (has_state(hook))
		return admit_v4(src, dst, is_error, fields);
	verdict v = map_addresses_v4(src, dst, is_error, hook, &work->flow, &work->src6, &work->dst6);
	if (v != GO_ON)
		return v;
	to_wire(work->src6, &work->plan.v6.src);
	to_wire(work->dst6, &work->plan.v6.dst);
	return GO_ON;
}

always_inline verdict addresses_to_v4(const struct ipv6_header *ip, int is_error, const struct fields *fields, int hook,
				      struct work *work)
{
	struct halves src = to_halves(&ip->src), dst = to_halves(&ip->dst);

	return has_state(hook) ? admit_v6(src, dst, is_error, fields, &work->plan.mapped)
			       : map_addresses_v6(src, dst, is_error, hook, &work->plan.mapped);
}

always_inline verdict session_to_v6(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
				    __u32 src, __u32 dst, verdict kept, struct work *work)
{
	verdict v = flow_v4_to_v6(p, at, fields, src, dst, nat64.by_mark ? mark_of(frame) : 0, kept, work);

	if (v != GO_ON)
		return v;
	if (!may_embed(work->flow.pool6, src))
		return LEAVE;
	embed_in_pool6(work->flow.pool6, src, &work->src6);
	to_wire(work->src6, &work->plan.v6.src);
	to_wire(work->flow.host, &work->plan.v6.dst);
	return GO_ON;
}

always_inline verdict session_to_v4(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
				    __u8 protocol, struct halves src6, struct work *work)
{
	struct mapped_v6 *mapped = &work->plan.mapped;

	return flow_v6_to_v4(p, at, fields, protocol, src6, mapped->dst, mapped->pool6,
			     nat64.by_mark ? mark_of(frame) : 0, &mapped->src, work);
}

#endif
