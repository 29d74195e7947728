/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The program at XDP of a stateful translator (RFC 6146). A packet's way: ours.h says whether it is the
 * translator's, v4_to_v6.h or v6_to_v4.h finds its session or makes one, pair.h asks routing for the way of the
 * translated packet, xdp.h makes it. Whatever is not taken reaches the stack as it came, and with it the interface.
 */
#define FORDWAY_XDP
#define FORDWAY_STATE
/* Each packet is looked up twice: as it arrives, and as it leaves. */
#define ROUTES_BITS 13

#include "common.h"
#include "maps.h"
#include "nat64_flow.h"
#include "ours.h"
#include "outcome.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"
#include "xdp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

always_inline verdict translate(struct xdp_md *ctx, const struct packet *p, int to_v6, struct fw_counters *c,
				struct plan *plan, __u32 *device)
{
	verdict v = to_v6 ? v4_to_v6(ctx, p, HOOK_XDP, 0, plan)
			  : v6_to_v4(ctx, p, HOOK_XDP, 0, c->identification, plan);
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
	v = refresh_found(&plan->flow);
	if (v != GO_ON)
		return v;
	v = carry_out(ctx, p, to_v6, plan, way);
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
	struct plan *plan = bpf_map_lookup_elem(&plans, &zero);

	journey.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!journey.counters || !plan || !mac || !is_for_us(ctx, ethernet, *mac, journey.counters))
		return XDP_PASS;
	if (config.measure)
		journey.started = bpf_ktime_get_ns();
	if (!is_ours(ctx, p, to_v6)) {
		journey.counters->unmatched++;
		return XDP_PASS;
	}
	begin_trace(ctx, &journey, 0);
	begin_plan(plan);
	verdict v = translate(ctx, p, to_v6, journey.counters, plan, &device);
	count_state(journey.counters, v, journey.octets, plan);
	count(&journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, 1);
	end_trace(ctx, &journey, v);
	if (v == GO_ON)
		return bpf_redirect_map(&devices, device, XDP_DROP);
	return VERDICT_KIND(v) == DROP(0) ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int fordway_xdp_nat64(struct xdp_md *ctx)
{
	return receive(ctx);
}
