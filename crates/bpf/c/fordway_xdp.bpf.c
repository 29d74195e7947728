/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The program at XDP, for a gateway: what is routed into the translator's interface is translated
 * before the stack sees it, routed by the kernel's own tables, and sent. Whatever this program does not
 * take, or has no way for, reaches the stack as it came, and with it the interface.
 */
#define FORDWAY_XDP

#include "common.h"
#include "maps.h"
#include "outcome.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define AF_INET 2
#define AF_INET6 10

/* The devices that take redirected frames, by interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FW_MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* The addresses of the devices where this program runs, by interface index: as mac_number() makes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u64);
} macs SEC(".maps");

struct ethernet_header {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
};

/* Whether the kernel would route the packet into the translator's interface. */
always_inline int is_routed_here(struct xdp_md *ctx, const struct packet *p, int to_v6)
{
	struct bpf_fib_lookup fib = { .ifindex = ctx->ingress_ifindex };

	if (to_v6) {
		const struct ipv4_header *ip = p->data;
		if ((void *)(ip + 1) > p->data_end)
			return 0;
		fib.family = AF_INET;
		fib.ipv4_src = ip->src;
		fib.ipv4_dst = ip->dst;
		fib.tos = ip->tos;
	} else {
		const struct ipv6_header *ip = p->data;
		if ((void *)(ip + 1) > p->data_end)
			return 0;
		fib.family = AF_INET6;
		fib.flowinfo = ip->first & bpf_htonl(0x0fffffff);
		__builtin_memcpy(fib.ipv6_src, &ip->src, 16);
		__builtin_memcpy(fib.ipv6_dst, &ip->dst, 16);
	}
	/* The interface has no neighbours, so the look-up ends with this; the way out is known all the same. */
	long found = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	return (found == BPF_FIB_LKUP_RET_NO_NEIGH || found == BPF_FIB_LKUP_RET_SUCCESS) &&
	       fib.ifindex == config.tun_ifindex;
}

/* Routes the packet that the plan makes. */
always_inline verdict route(struct xdp_md *ctx, const struct plan *plan, int to_v6, struct bpf_fib_lookup *fib)
{
	fib->ifindex = ctx->ingress_ifindex;
	fib->tot_len = plan->len - plan->old_len + plan->new_len;
	if (to_v6) {
		fib->family = AF_INET6;
		fib->flowinfo = plan->v6.first & bpf_htonl(0x0fffffff);
		__builtin_memcpy(fib->ipv6_src, &plan->v6.src, 16);
		__builtin_memcpy(fib->ipv6_dst, &plan->v6.dst, 16);
	} else {
		fib->family = AF_INET;
		fib->tos = plan->v4.tos;
		fib->ipv4_src = plan->v4.src;
		fib->ipv4_dst = plan->v4.dst;
	}
	long found = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return PASS_ON(FW_PASS_NO_ROUTE);
	/* A translator's own output never goes back into it. */
	if (fib->ifindex == config.tun_ifindex)
		return PASS_ON(FW_PASS_NO_ROUTE);
	if (!bpf_map_lookup_elem(&devices, &fib->ifindex))
		return PASS_ON(FW_PASS_NO_REDIRECT);
	return GO_ON;
}

/* The transport header, in the frame as it came: before it moves, everything lies within REACH. */
always_inline verdict correct(const struct packet *p, const struct plan *plan)
{
	__be16 *checksum = p->data + (plan->old_len & 127) + ((plan->checksum_at - plan->new_len) & 31);
	__be16 *field = p->data + (plan->old_len & 127) + ((plan->field_at - plan->new_len) & 63);

	if (plan->checksum_mode == CHECKSUM_NONE)
		return GO_ON;
	if ((void *)(checksum + 1) > p->data_end)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	if (plan->field_from != plan->field_to && (void *)(field + 1) > p->data_end)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	if (plan->checksum_mode == CHECKSUM_WRITE) {
		*checksum = plan->checksum;
		return GO_ON;
	}
	__be16 updated = update_checksum(*checksum, plan->difference);
	if (plan->field_from != plan->field_to) {
		updated = update_checksum(updated, sum_difference(plan->field_from, plan->field_to));
		if ((void *)(field + 1) > p->data_end)
			return PASS_ON(FW_PASS_NOT_LINEAR);
		*field = plan->field_to;
	}
	*checksum = never_zero(plan->protocol, updated);
	return GO_ON;
}

/* Makes the plan true. After `correct` there is no way back; what fails then is a counted drop. */
always_inline verdict carry_out(struct xdp_md *ctx, const struct packet *p, int to_v6, const struct plan *plan,
				const struct bpf_fib_lookup *fib)
{
	verdict v = correct(p, plan);
	if (v != GO_ON)
		return v;
	if (p->len > plan->len && bpf_xdp_adjust_tail(ctx, (int)plan->len - (int)p->len))
		return DROP(FW_DROP_NO_HEADROOM);
	if (bpf_xdp_adjust_head(ctx, (int)plan->old_len - (int)plan->new_len))
		return DROP(FW_DROP_NO_HEADROOM);
	struct ethernet_header *ethernet = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if ((void *)(ethernet + 1) > end)
		return DROP(FW_DROP_NO_HEADROOM);
	__builtin_memcpy(ethernet->dst, fib->dmac, 6);
	__builtin_memcpy(ethernet->src, fib->smac, 6);
	ethernet->type = bpf_htons(to_v6 ? ETH_P_IPV6 : ETH_P_IP);
	void *front = ethernet + 1;
	if (to_v6 && plan->new_len == IPV6_LEN + FRAGMENT_LEN) {
		if (front + IPV6_LEN + FRAGMENT_LEN > end)
			return DROP(FW_DROP_NO_HEADROOM);
		__builtin_memcpy(front, plan->front, IPV6_LEN + FRAGMENT_LEN);
	} else if (to_v6) {
		if (front + IPV6_LEN > end)
			return DROP(FW_DROP_NO_HEADROOM);
		__builtin_memcpy(front, plan->front, IPV6_LEN);
	} else {
		if (front + IPV4_LEN > end)
			return DROP(FW_DROP_NO_HEADROOM);
		__builtin_memcpy(front, plan->front, IPV4_LEN);
	}
	return GO_ON;
}

always_inline __u8 snap(struct xdp_md *ctx, __u8 *to)
{
	__u8 *from = (void *)(long)ctx->data + ETHERNET_LEN;
	void *end = (void *)(long)ctx->data_end;
	__u8 len = 0;

	for (int i = 0; i < FW_TRACE_SNAP; i++) {
		if ((void *)(from + i + 1) > end)
			break;
		to[i] = from[i];
		len++;
	}
	return len;
}

always_inline verdict translate(struct xdp_md *ctx, __u32 octets, int to_v6, struct fw_counters *c,
				struct plan *plan, struct bpf_fib_lookup *fib)
{
	struct packet p = {
		.data = (void *)(long)ctx->data + ETHERNET_LEN,
		.data_end = (void *)(long)ctx->data_end,
		.len = octets,
	};

	if (!is_routed_here(ctx, &p, to_v6))
		return UNMATCHED;
	plan->checksum_mode = CHECKSUM_NONE;
	plan->checksum_at = 0;
	plan->field_at = 0;
	plan->field_from = 0;
	plan->field_to = 0;
	verdict v = to_v6 ? v4_to_v6(ctx, &p, HOOK_XDP, plan) : v6_to_v4(ctx, &p, HOOK_XDP, c->identification, plan);
	if (v == GO_ON)
		v = route(ctx, plan, to_v6, fib);
	if (v == GO_ON)
		v = carry_out(ctx, &p, to_v6, plan, fib);
	if (v == GO_ON && !to_v6)
		c->identification++;
	return v;
}

always_inline int handle(struct xdp_md *ctx, __u32 octets, int to_v6)
{
	struct bpf_fib_lookup fib = {};
	struct journey journey = { .octets = octets };
	__u32 zero = 0;
	struct plan *plan = bpf_map_lookup_elem(&plans, &zero);

	journey.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!journey.counters || !plan)
		return XDP_PASS;
	if (config.measure)
		journey.started = bpf_ktime_get_ns();
	if (config.trace) {
		journey.event = begin_event(journey.counters, journey.octets, 0, ctx->ingress_ifindex);
		if (journey.event) {
			journey.event->before_len = snap(ctx, journey.event->before);
			journey.traced = TRACED;
		}
	}
	verdict v = translate(ctx, octets, to_v6, journey.counters, plan, &fib);
	count(&journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, 1);
	if (config.trace && journey.traced) {
		if (v == GO_ON)
			journey.event->after_len = snap(ctx, journey.event->after);
		end_event(journey.event, v);
	}
	if (v == GO_ON)
		return bpf_redirect_map(&devices, fib.ifindex, XDP_DROP);
	return VERDICT_KIND(v) == DROP(0) ? XDP_DROP : XDP_PASS;
}

always_inline __u64 mac_number(const __u8 *mac)
{
	return *(const __u32 *)mac | (__u64)*(const __u16 *)(mac + 4) << 32;
}

/* Whether the frame is for this host: not for all (RFC 1812 section 5.3.4), nor for another that shares the
 * link with a device in promiscuous mode. */
always_inline int is_for_us(struct xdp_md *ctx, const struct ethernet_header *ethernet)
{
	__u32 device = ctx->ingress_ifindex;
	const __u64 *mac = bpf_map_lookup_elem(&macs, &device);

	return mac && *mac == mac_number(ethernet->dst);
}

SEC("xdp")
int fordway_xdp(struct xdp_md *ctx)
{
	struct ethernet_header *ethernet = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 octets = end - (void *)(ethernet + 1);

	if ((void *)(ethernet + 1) > end || !is_for_us(ctx, ethernet))
		return XDP_PASS;
	/* Frames with a VLAN tag go to the stack. */
	if (ethernet->type == bpf_htons(ETH_P_IP))
		return handle(ctx, octets, 1);
	if (ethernet->type == bpf_htons(ETH_P_IPV6))
		return handle(ctx, octets, 0);
	return XDP_PASS;
}
