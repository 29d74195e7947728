/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The program at XDP, for a gateway: what is routed into the translator's interface is translated
 * before the stack sees it, routed by the kernel's own tables (pair.h), and sent. Whatever this program
 * does not take, or has no way for, reaches the stack as it came, and with it the interface.
 */
#define FORDWAY_XDP

#include "common.h"
#include "maps.h"
#include "outcome.h"
#include "pair.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct ethernet_header {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
};

/* Maps both addresses of a pair, as the core does for anything but ICMP errors. */
always_inline verdict map_pair(int to_v6, struct pair *pair)
{
	verdict v;

	/* The stack takes it to the program of the interface, which has the tables. */
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
		*field = plan->field_to;
	}
	*checksum = never_zero(plan->protocol, updated);
	return GO_ON;
}

/* Makes the plan true. After `correct` there is no way back; what fails then is a counted drop. */
always_inline verdict carry_out(struct xdp_md *ctx, const struct packet *p, int to_v6, const struct plan *plan,
				const struct pair *pair)
{
	if (plan->len - plan->old_len + plan->new_len > pair->mtu)
		return PASS_ON(FW_PASS_NO_ROUTE);
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
	__builtin_memcpy(ethernet, pair->macs, 12);
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

/* What snap_frame() writes. */
struct snapped {
	__u8 octets[FW_TRACE_SNAP];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct snapped);
} snapped SEC(".maps");

/* Copies the first octets of the packet, and gives their number. A function of its own, since the verifier
 * follows every way out of its loop. */
__noinline int snap_frame(struct xdp_md *ctx)
{
	const __u8 *from = (void *)(long)ctx->data + ETHERNET_LEN;
	const void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, len = 0;
	struct snapped *to = bpf_map_lookup_elem(&snapped, &zero);

	if (!config.trace || !to)
		return 0;
	for (int i = 0; i < FW_TRACE_SNAP; i++) {
		if ((void *)(from + i + 1) > end)
			break;
		to->octets[i] = from[i];
		len++;
	}
	return len;
}

/* The first octets of the packet, for a trace. */
always_inline __u8 snap(struct xdp_md *ctx, __u8 *to)
{
	__u32 zero = 0;
	int len = snap_frame(ctx);
	const struct snapped *from = bpf_map_lookup_elem(&snapped, &zero);

	if (!from)
		return 0;
	__builtin_memcpy(to, from->octets, FW_TRACE_SNAP);
	return len;
}

always_inline verdict translate(struct xdp_md *ctx, const struct packet *p, int to_v6, const struct pair *pair,
				struct fw_counters *c, struct plan *plan)
{
	plan->checksum_mode = CHECKSUM_NONE;
	plan->checksum_at = 0;
	plan->field_at = 0;
	plan->field_from = 0;
	plan->field_to = 0;
	plan->port_from = 0;
	plan->port_to = 0;
	verdict v = to_v6 ? v4_to_v6(ctx, p, HOOK_XDP, pair, plan)
			  : v6_to_v4(ctx, p, HOOK_XDP, pair, c->identification, plan);
	if (v == GO_ON)
		v = carry_out(ctx, p, to_v6, plan, pair);
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
	/* Frames for all (RFC 1812 section 5.3.4), or for others that share the link with a device in
	 * promiscuous mode, are none of ours. */
	if (!pair || pair->mac != mac_number(ethernet->dst))
		return XDP_PASS;
	journey.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!journey.counters)
		return XDP_PASS;
	if (pair->verdict == UNMATCHED) {
		journey.counters->unmatched++;
		return XDP_PASS;
	}
	if (config.trace) {
		journey.event = begin_event(journey.counters, journey.octets, 0, ctx->ingress_ifindex);
		if (journey.event) {
			journey.event->before_len = snap(ctx, journey.event->before);
			journey.traced = TRACED;
		}
	}
	verdict v = translate(ctx, p, to_v6, pair, journey.counters, &plan);
	count(&journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, 1);
	if (config.trace && journey.traced) {
		if (v == GO_ON)
			journey.event->after_len = snap(ctx, journey.event->after);
		end_event(journey.event, v);
	}
	if (v == GO_ON)
		return bpf_redirect_map(&devices, pair->ifindex, XDP_DROP);
	return VERDICT_KIND(v) == DROP(0) ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int fordway_xdp(struct xdp_md *ctx)
{
	const struct ethernet_header *ethernet = (void *)(long)ctx->data;
	struct packet p = {
		.data = (void *)(ethernet + 1),
		.data_end = (void *)(long)ctx->data_end,
	};

	if (p.data > p.data_end)
		return XDP_PASS;
	p.len = p.data_end - p.data;
	/* Frames with a VLAN tag go to the stack. */
	if (ethernet->type == bpf_htons(ETH_P_IP))
		return handle(ctx, &p, ethernet, 1);
	if (ethernet->type == bpf_htons(ETH_P_IPV6))
		return handle(ctx, &p, ethernet, 0);
	return XDP_PASS;
}
