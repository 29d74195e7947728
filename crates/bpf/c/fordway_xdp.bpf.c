/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The program at XDP, for a gateway: what is routed into the translator's interface is translated
 * before the stack sees it, routed by the kernel's own tables (pair.h), and sent. Whatever this program
 * does not take, or has no way for, reaches the stack as it came, and with it the interface.
 */
#define FORDWAY_XDP
#define ROUTES_BITS 12

#include "common.h"
#include "maps.h"
#include "outcome.h"
#include "pair.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"
#include "xdp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Maps both addresses of a pair, as the core does for anything but ICMP errors. */
always_inline verdict map_pair(int to_v6, struct pair *pair)
{
	verdict v;

	/* fordway_xdp_nat64 does that. */
	if (nat64.mode == FW_NAT64_STATEFUL)
		return PASS_ON(FW_PASS_SESSION);
	if (to_v6) {
		struct halves src = {}, dst = {};
		__be32 from = pair->key.address[0], to = pair->key.address[0] >> 32;
		v = map_addresses_v4(bpf_ntohl(from), bpf_ntohl(to), 0, HOOK_XDP, 0, &src, &dst);
		to_wire(src, &pair->v6.src);
		to_wire(dst, &pair->v6.dst);
		pair->difference = sum_difference((__u64)from + to,
						  sum_address_v6(&pair->v6.src) + sum_address_v6(&pair->v6.dst));
		return v;
	}
	struct mapped_v6 mapped = {};
	struct ipv6_address from = { pair->key.address[0], pair->key.address[1] };
	struct ipv6_address to = { pair->key.address[2], pair->key.address[3] };
	v = map_addresses_v6(to_halves(&from), to_halves(&to), 0, HOOK_XDP, &mapped);
	if (v == GO_ON && hairpins(mapped.dst, mapped.dst_via))
		v = PASS_ON(FW_PASS_HAIRPIN);
	pair->v4.src = bpf_htonl(mapped.src);
	pair->v4.dst = bpf_htonl(mapped.dst);
	pair->difference = sum_difference(sum_address_v6(&from) + sum_address_v6(&to),
					  (__u64)pair->v4.src + pair->v4.dst);
	return v;
}

always_inline verdict translate(struct xdp_md *ctx, const struct packet *p, int to_v6, const struct pair *pair,
				struct fw_counters *c, struct plan *plan)
{
	verdict v = to_v6 ? v4_to_v6(ctx, p, HOOK_XDP, pair, plan)
			  : v6_to_v4(ctx, p, HOOK_XDP, pair, c->identification, plan);
	if (v == GO_ON)
		v = fits(plan, &pair->way) ? carry_out(ctx, p, to_v6, plan, &pair->way) : PASS_ON(FW_PASS_NO_ROUTE);
	if (v == GO_ON && !to_v6)
		c->identification++;
	return v;
}

always_inline int handle(struct xdp_md *ctx, const struct packet *p, const struct ethernet_header *ethernet, int to_v6)
{
	struct journey journey = { .octets = p->len };
	struct plan plan;
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
	begin_plan(&plan);
	verdict v = translate(ctx, p, to_v6, pair, journey.counters, &plan);
	count(&journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, 1);
	end_trace(ctx, &journey, v);
	if (v == GO_ON)
		return bpf_redirect_map(&devices, pair->way.ifindex, XDP_DROP);
	return VERDICT_KIND(v) == DROP(0) ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int fordway_xdp(struct xdp_md *ctx)
{
	return receive(ctx);
}
