/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The program at XDP, for a gateway: packets that the kernel would route into the translator's interface are translated
 * before the stack sees them, routed by the kernel's tables (pair.h), and sent. Packets that it does not translate, or
 * can't route, reach the stack as they arrived, and with it the interface.
 */
#include "frame_xdp.h"

/* Headers inline what they have as functions elsewhere: here a call costs as much as what it does, and the stack suffices. */
#define ONE_FUNCTION

#include "outcome.h"
#include "pair.h"
#include "xdp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

always_inline verdict translate(struct xdp_md *ctx, const struct packet *p, int to_v6, struct fw_counters *c,
				struct work *work)
{
	const struct plan *plan = &work->plan;
	const struct way *way = &work->pair->way;
	verdict v = to_v6 ? v4_to_v6(ctx, p, HOOK_XDP, work) : v6_to_v4(ctx, p, HOOK_XDP, c->identification, work);
	if (v == GO_ON)
		v = fits(plan, way) ? carry_out(ctx, p, to_v6, HOOK_XDP, plan, way) : PASS_ON(FW_PASS_NO_ROUTE);
	if (v == GO_ON && !to_v6)
		c->identification++;
	return v;
}

always_inline int handle(struct xdp_md *ctx, const struct packet *p, const struct ethernet_header *ethernet, int to_v6)
{
	struct journey journey = { .octets = p->len };
	struct work work;
	__u32 zero = 0;

	if (config.measure)
		journey.started = bpf_ktime_get_ns();
	const struct pair *pair = pair_of(ctx, p, to_v6);
	journey.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!pair || !journey.counters || !is_for_us(ctx, ethernet, pair->mac, journey.counters))
		return XDP_PASS;
	if (pair->way.verdict == UNMATCHED) {
		journey.counters->unmatched++;
		return XDP_PASS;
	}
	begin_trace(ctx, &journey, 0);
	begin_plan(&work.plan);
	work.pair = pair;
	verdict v = translate(ctx, p, to_v6, journey.counters, &work);
	return leave(ctx, &journey, v, to_v6, pair->way.ifindex);
}

SEC("xdp")
int fordway_xdp(struct xdp_md *ctx)
{
	return receive(ctx);
}
