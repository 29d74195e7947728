/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The program at XDP of a stateful translator (RFC 6146). ours.h tests whether a packet is the translator's, v4_to_v6.h or
 * v6_to_v4.h finds or makes its session, routing.h finds the route of the translated packet, xdp.h carries the plan out.
 * Packets that it does not translate reach the stack as they arrived, and with it the interface.
 */
#include "frame_xdp.h"

#include "mss.h"
#include "ours.h"
#include "outcome.h"
#include "state.h"
#include "xdp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* There may be no route for the packet at XDP. The stack has it then, and the program at the interface or the user engine
 * refreshes the session; so it is refreshed once. */
always_inline verdict found_session(const struct flow *flow, struct fw_session *session)
{
	return session_state(READ_ONCE(session->life)) < FW_ENTRY_LIVE ? LEAVE : GO_ON;
}

/* Refreshes the session of a packet that has a route. */
__noinline int refresh_found(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	struct fw_session *session = flow->session ? session_at(flow->session) : 0;
	if (!session || flow->created & CREATED_SESSION)
		return GO_ON;
	/* It has just ended: there is nothing to be refreshed. */
	return refresh(flow, session) == GO_ON ? GO_ON : LEAVE;
}

always_inline verdict translate(struct xdp_md *ctx, const struct packet *p, int to_v6, struct fw_counters *c,
				struct work *work, __u32 *device)
{
	const struct plan *plan = &work->plan;
	verdict v = to_v6 ? v4_to_v6(ctx, p, HOOK_XDP_NAT64, work)
			  : v6_to_v4(ctx, p, HOOK_XDP_NAT64, c->identification, work);
	if (v != GO_ON)
		return v;
	struct route_key key = to_v6 ? route_key_v6(ctx->ingress_ifindex, bpf_ntohl(plan->v6.first) >> 20, &plan->v6.src,
						    &plan->v6.dst)
				     : route_key_v4(ctx->ingress_ifindex, plan->v4.tos, plan->v4.src, plan->v4.dst);
	const struct way *way = way_of(ctx, &key);
	if (!way || way->verdict != GO_ON)
		return way ? way->verdict : PASS_ON(FW_PASS_NO_ROUTE);
	if (!fits(plan, way))
		return PASS_ON(FW_PASS_NO_ROUTE);
	v = refresh_found(&work->flow);
	if (v != GO_ON)
		return v;
	v = carry_out(ctx, p, to_v6, HOOK_XDP_NAT64, plan, way);
	if (v == GO_ON && !to_v6)
		c->identification++;
	*device = way->ifindex;
	return v;
}

always_inline int handle(struct xdp_md *ctx, const struct packet *p, const struct ethernet_header *ethernet, int to_v6)
{
	struct journey journey = { .octets = p->len };
	__u32 zero = 0, device = ctx->ingress_ifindex;
	const __u64 *mac = bpf_map_lookup_elem(&macs, &device);
	struct work *work = own_work();

	journey.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!journey.counters || !work || !mac || !is_for_us(ctx, ethernet, *mac, journey.counters))
		return XDP_PASS;
	if (config.measure)
		journey.started = bpf_ktime_get_ns();
	if (!is_ours(ctx, p, to_v6)) {
		journey.counters->unmatched++;
		return XDP_PASS;
	}
	begin_trace(ctx, &journey, 0);
	begin_work(work);
	verdict v = translate(ctx, p, to_v6, journey.counters, work, &device);
	/* Behind routing a program can hand it over. */
	if (v == HAND_OVER)
		v = PASS_ON(FW_PASS_SHARD);
	count_state(journey.counters, v, journey.octets, work);
	return leave(ctx, &journey, v, to_v6, device);
}

SEC("xdp")
int fordway_xdp_nat64(struct xdp_md *ctx)
{
	return receive(ctx);
}
