/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The programs at tc hooks. `handle` reads a packet, v4_to_v6.h or v6_to_v4.h decides and makes a plan, `carry_out`
 * carries it out, outcome.h counts. Until carry_out the packet is untouched, so packets that are not translated go on as
 * they arrived.
 */
#include "frame_tc.h"

#include "icmp_error.h"
#include "mss.h"
#include "ours.h"
#include "outcome.h"
#include "pass_rate.h"
#include "pod.h"
#include "state.h"
#include "tc.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

always_inline verdict found_session(const struct flow *flow, struct fw_session *session)
{
	return refresh(flow, session);
}

/* Makes the packet's front `new_len` instead of `old_len` octets long, and the frame one of the other family. */
always_inline verdict resize(struct __sk_buff *skb, const struct packet *p, int to_v6, const struct plan *plan)
{
	/* The kernel turns 20 octets into 40 or back; headers behind the fixed ones make the rest. */
	int step = to_v6 ? IPV6_LEN - IPV4_LEN : IPV4_LEN - IPV6_LEN;
	int rest = (int)plan->new_len - (int)plan->old_len - step;
	int changed = 0;

	verdict v = cut_tail(skb, p, plan->len);
	if (v != GO_ON)
		return v;
	if (rest < 0) {
		if (bpf_skb_adjust_room(skb, rest, BPF_ADJ_ROOM_NET, ROOM_FLAGS))
			return PASS_ON(FW_PASS_RESIZE);
		changed = 1;
	}
	if (bpf_skb_change_proto(skb, bpf_htons(to_v6 ? ETH_P_IPV6 : ETH_P_IP), 0))
		return changed ? BROKEN : PASS_ON(FW_PASS_RESIZE);
	if (rest > 0 && bpf_skb_adjust_room(skb, rest, BPF_ADJ_ROOM_NET, ROOM_FLAGS))
		return BROKEN;
	return GO_ON;
}

/* Writes the new front. Its length is bounded as in LOAD_SOME, for all verifiers. */
always_inline long write_front(struct __sk_buff *skb, const struct plan *plan)
{
	__u32 less = plan->new_len - 1;

	asm volatile("" : "+r"(less));
	if (less >= FRONT_MAX)
		return -1;
	return bpf_skb_store_bytes(skb, config.link_layer_len, plan->front, less + 1, BPF_F_RECOMPUTE_CSUM);
}

/* RFC 7915 section 4.5: the checksum of a UDP datagram that came without one. */
always_inline long compute_checksum(struct __sk_buff *skb, const struct plan *plan)
{
	__u32 at = config.link_layer_len + plan->new_len;
	__u32 len = plan->len - plan->old_len;
	int sum = sum_octets(skb, at, len);

	if (sum < 0)
		return -1;
	__u64 pseudo = sum_address_v6(&plan->v6.src) + sum_address_v6(&plan->v6.dst) + sum_number(PROTOCOL_UDP) +
		       sum_number(len);
	__be16 checksum = never_zero(PROTOCOL_UDP, ~fold(pseudo + sum));
	return bpf_skb_store_bytes(skb, at + UDP_CHECKSUM_AT, &checksum, 2, BPF_F_RECOMPUTE_CSUM);
}

/*
 * Whether the datagram's checksum, which is 0, can be computed: not if the device is to complete the
 * checksum of a packet inside. The kernel's helper changes a complete checksum and leaves a partial
 * one alone, which tells them apart.
 */
always_inline verdict check_computable(struct __sk_buff *skb, const struct plan *plan)
{
	__u32 at = config.link_layer_len + plan->old_len + UDP_CHECKSUM_AT;
	__be16 zero = 0, seen = 0;

	if (plan->len - plan->old_len > MAX_SUMMED)
		return PASS_ON(FW_PASS_UDP_CHECKSUM);
	if (bpf_l4_csum_replace(skb, at, 0, 1, 2) || bpf_skb_load_bytes(skb, at, &seen, 2) ||
	    bpf_skb_store_bytes(skb, at, &zero, 2, 0))
		return PASS_ON(FW_PASS_UDP_CHECKSUM);
	return seen == 0 ? PASS_ON(FW_PASS_UDP_CHECKSUM) : GO_ON;
}

/*
 * Writes the port or identifier that changes. An updated checksum follows it, unless it is partial, which the
 * kernel's helper knows; others are made for the new one.
 */
always_inline long correct_port(struct __sk_buff *skb, int hook, const struct plan *plan)
{
	__u32 at = config.link_layer_len + plan->port_at;
	__u64 flags = 2 | (plan->protocol == PROTOCOL_UDP ? BPF_F_MARK_MANGLED_0 : 0);

	if (!has_state(hook) || plan->port_from == plan->port_to)
		return 0;
	if (plan->checksum_mode != CHECKSUM_UPDATE)
		return bpf_skb_store_bytes(skb, at, &plan->port_to, 2, BPF_F_RECOMPUTE_CSUM);
	return bpf_l4_csum_replace(skb, config.link_layer_len + plan->checksum_at, plan->port_from, plan->port_to, flags) ||
	       bpf_skb_store_bytes(skb, at, &plan->port_to, 2, 0);
}

always_inline long correct_checksum(struct __sk_buff *skb, const struct plan *plan)
{
	__u32 at = config.link_layer_len + plan->checksum_at;
	__u64 mangled = plan->protocol == PROTOCOL_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	long failed;

	switch (plan->checksum_mode) {
	case CHECKSUM_NONE:
		return 0;
	case CHECKSUM_UPDATE:
		failed = bpf_l4_csum_replace(skb, at, 0, plan->difference, BPF_F_PSEUDO_HDR | mangled);
		if (failed || plan->field_from == plan->field_to)
			return failed;
		failed = bpf_l4_csum_replace(skb, at, plan->field_from, plan->field_to, 2);
		return failed || bpf_skb_store_bytes(skb, config.link_layer_len + plan->field_at, &plan->field_to, 2, 0);
	case CHECKSUM_WRITE:
		return bpf_skb_store_bytes(skb, at, &plan->checksum, 2, BPF_F_RECOMPUTE_CSUM);
	case CHECKSUM_COMPUTE:
		return compute_checksum(skb, plan);
	}
	return -1;
}

always_inline long write_quoted(struct __sk_buff *skb, const struct work *work)
{
	__u32 at = config.link_layer_len + work->inner_at;

	if (work->inner_words == 1)
		return bpf_skb_store_bytes(skb, at, work->inner, 2, BPF_F_RECOMPUTE_CSUM);
	if (work->inner_words == 2)
		return bpf_skb_store_bytes(skb, at, work->inner, 4, BPF_F_RECOMPUTE_CSUM);
	return 0;
}

/* Carries the plan out. */
always_inline verdict carry_out(struct __sk_buff *skb, const struct packet *p, int to_v6, int hook,
				const struct work *work)
{
	const struct plan *plan = &work->plan;
	verdict v;

	if (plan->checksum_mode == CHECKSUM_COMPUTE) {
		v = check_computable(skb, plan);
		if (v != GO_ON)
			return v;
	}
	v = resize(skb, p, to_v6, plan);
	if (v != GO_ON)
		return v;
	if (write_front(skb, plan) || correct_port(skb, hook, plan) || correct_checksum(skb, plan) || write_quoted(skb, work))
		return BROKEN;
	return set_frame_type(skb, to_v6 ? ETH_P_IPV6 : ETH_P_IP) ? BROKEN : GO_ON;
}

/* Whether the transport header follows the fixed IP header. */
always_inline int is_plain(const struct packet *p, int to_v6)
{
	const struct ipv4_header *v4 = p->data;
	const struct ipv6_header *v6 = p->data;

	if (to_v6)
		return (void *)(v4 + 1) > p->data_end || v4->version_ihl == 0x45;
	return (void *)(v6 + 1) > p->data_end || !may_be_walked(v6->next_header);
}

always_inline verdict translate(struct __sk_buff *skb, int to_v6, int hook, struct fw_counters *c, struct work *work)
{
	const struct plan *plan = &work->plan;
	struct packet p = { .len = skb->len - config.link_layer_len, .gso_size = skb->gso_size };

	/* No more than needed: pulling payload costs. */
	if (!reach(skb, &p, (to_v6 ? IPV4_LEN : IPV6_LEN) + TCP_LEN) ||
	    (!is_plain(&p, to_v6) && !reach(skb, &p, REACH)))
		return PASS_ON(FW_PASS_NOT_LINEAR);
	verdict v = to_v6 ? v4_to_v6(skb, &p, hook, work) : v6_to_v4(skb, &p, hook, c->identification, work);
	if (v != GO_ON)
		return v;
	if (hook == HOOK_UPLINK && to_v6 && exceeds_device(skb, plan->wire_len))
		return PASS_ON(FW_PASS_TOO_BIG);
	v = carry_out(skb, &p, to_v6, hook, work);
	/* A super-packet takes one for each segment. */
	if (v == GO_ON && !to_v6)
		c->identification += plan->segments;
	return v;
}

/* Notes the mark of an IPv6 packet that is passed to the user engine. */
__noinline int note_mark(struct __sk_buff *skb)
{
	struct ipv6_address host;
	__u32 mark;

	if (!nat64.by_mark)
		return 0;
	mark = skb->mark;
	if (bpf_skb_load_bytes(skb, config.link_layer_len + offsetof(struct ipv6_header, src), &host, sizeof(host)))
		return -1;
	return bpf_map_update_elem(&nat64_marks, &host, &mark, BPF_ANY);
}

/* In front of routing: whether it would be the translator's. A function of its own, whose stack is free again before the
 * translation, which needs most of it. */
__noinline int is_routed_to_us(struct __sk_buff *skb, int to_v6)
{
	struct packet p = {};

	return reach(skb, &p, to_v6 ? IPV4_LEN : IPV6_LEN) && is_ours(skb, &p, to_v6);
}

/* One packet, from beginning to end. */
always_inline verdict handle(struct __sk_buff *skb, int to_v6, int hook)
{
	struct journey journey = { .octets = skb->len - config.link_layer_len };
	struct work *work = own_work();

	if (!work || !begin_journey(skb, &journey))
		return UNMATCHED;
	if (hook == HOOK_INGRESS && !is_routed_to_us(skb, to_v6)) {
		journey.counters->unmatched++;
		return UNMATCHED;
	}
	begin_trace(skb, &journey, skb->gso_size);
	begin_work(work);
	verdict v = limit_passes(translate(skb, to_v6, hook, journey.counters, work), to_v6, hook);
	if (has_state(hook))
		count_state(journey.counters, v, journey.octets, work);
	if (has_state(hook) && nat64.by_mark && !to_v6 && VERDICT_KIND(v) == PASS_ON(0))
		note_mark(skb);
	count(&journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, work->plan.segments);
	end_trace(skb, &journey, v);
	/* As it came: the kernel routes it on, as it routes what the user engine hands over. */
	if (has_state(hook) && v == HAND_OVER)
		bpf_redirect(work->flow.way, BPF_F_INGRESS);
	return v;
}

/* Egress of the translator's own interface: what was routed into it comes out of it. */
SEC("tc")
int fordway_interface(struct __sk_buff *skb)
{
	return is_back(skb) ? end_loop(skb, config.link_layer_len) : arrive_from(skb, HOOK_INTERFACE, skb->ifindex);
}

/* The same of a translator at an uplink, whose interface leads to the user engine alone. */
SEC("tc")
int fordway_uplink_interface(struct __sk_buff *skb)
{
	return is_back(skb) ? end_loop(skb, 0) : TC_ACT_UNSPEC;
}

/* Egress of the uplink: the host's IPv4 leaves as IPv6. */
SEC("tc")
int fordway_uplink_egress(struct __sk_buff *skb)
{
	return at_uplink_egress(skb);
}

/* Ingress of the uplink: what is for the CLAT's address arrives as IPv4. */
SEC("tc")
int fordway_uplink_ingress(struct __sk_buff *skb)
{
	return at_uplink_ingress(skb);
}

/* Ingress of a gateway's devices: what would be routed into the interface is translated before that, and
 * arrives from the interface, goes on in place or leaves directly. All else goes on as it came. */
SEC("tc")
int fordway_ingress(struct __sk_buff *skb)
{
	if (!is_for_device(skb))
		return TC_ACT_UNSPEC;
	return arrive_from(skb, HOOK_INGRESS, config.tun_ifindex);
}

/* Egress of a pod's device: as at an uplink, without a user engine. */
SEC("tc")
int fordway_pod_egress(struct __sk_buff *skb)
{
	return at_pod_egress(skb);
}

/* Ingress of a pod's device. */
SEC("tc")
int fordway_pod_ingress(struct __sk_buff *skb)
{
	return at_pod_ingress(skb);
}
