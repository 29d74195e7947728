/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A frame at XDP: making a plan true, and what a trace shows of it. */
#ifndef FORDWAY_XDP_H
#define FORDWAY_XDP_H

#include "checksum.h"
#include "common.h"
#include "frame_xdp.h"
#include "maps.h"
#include "nat64_config.h"
#include "outcome.h"
#include "routing.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"

struct ethernet_header {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
};

#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8

/* The link-layer addresses of the devices where this program runs, by interface index: as mac_number() makes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u64);
} macs SEC(".maps");

/* Addresses that devices have beside their own: those of interfaces on top of them (macvlan), as VRRP has them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_MAX_VIRTUAL_MACS);
	__type(key, struct fw_virtual_mac);
	__type(value, __u8);
} virtual_macs SEC(".maps");

always_inline __u64 mac_number(const __u8 *mac)
{
	return *(const __u32 *)mac | (__u64)*(const __u16 *)(mac + 4) << 32;
}

/*
 * Whether a frame is for this host, whose own address at the device is `mac`. Group addresses are not (RFC 1812 section
 * 5.3.4), nor are addresses of other hosts, which a device in promiscuous mode receives. The latter are counted: if there
 * are only those, the program is at the wrong device.
 */
always_inline int is_for_us(const struct xdp_md *ctx, const struct ethernet_header *ethernet, __u64 mac,
			    struct fw_counters *c)
{
	__u64 to = mac_number(ethernet->dst);

	if (to == mac)
		return 1;
	/* A group address. */
	if (ethernet->dst[0] & 1)
		return 0;
	struct fw_virtual_mac key = { .mac = to, .ifindex = ctx->ingress_ifindex };
	if (bpf_map_lookup_elem(&virtual_macs, &key))
		return 1;
	c->elsewhere++;
	return 0;
}

typedef __u64 __attribute__((may_alias)) any_u64;
typedef __u32 __attribute__((may_alias)) any_u32;

/* Corrects the transport header in the frame as it arrived, where all offsets are within REACH. */
always_inline verdict correct(const struct packet *p, int hook, const struct plan *plan)
{
	__be16 *checksum = p->data + (plan->old_len & 127) + ((plan->checksum_at - plan->new_len) & 31);
	__be16 *field = p->data + (plan->old_len & 127) + ((plan->field_at - plan->new_len) & 63);
	__be16 *port = p->data + (plan->old_len & 127) + ((plan->port_at - plan->new_len) & 7);

	/* Fields that don't change have offset 0, so that one test fits all. */
	int changes_port = has_state(hook) && plan->port_from != plan->port_to;
	if (has_state(hook) && (void *)(port + 1) > p->data_end)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	if (plan->checksum_mode == CHECKSUM_NONE) {
		if (changes_port)
			*port = plan->port_to;
		return GO_ON;
	}
	if ((void *)(checksum + 1) > p->data_end || (void *)(field + 1) > p->data_end)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	if (changes_port)
		*port = plan->port_to;
	if (plan->checksum_mode == CHECKSUM_WRITE) {
		*checksum = plan->checksum;
		return GO_ON;
	}
	__be16 updated = update_checksum(*checksum, plan->difference);
	if (changes_port)
		updated = update_checksum(updated, sum_difference(plan->port_from, plan->port_to));
	if (plan->field_from != plan->field_to) {
		updated = update_checksum(updated, sum_difference(plan->field_from, plan->field_to));
		*field = plan->field_to;
	}
	*checksum = never_zero(plan->protocol, updated);
	return GO_ON;
}

/* Copies `len` octets, a constant and a multiple of 4. A built-in copy to a frame, which may be anywhere, is one of octets. */
always_inline void write_words(void *to, const void *from, __u32 len)
{
	__u32 at = 0;

#pragma unroll
	for (; at + 8 <= len; at += 8)
		*(any_u64 *)(to + at) = *(const any_u64 *)(from + at);
	if (len & 4)
		*(any_u32 *)(to + at) = *(const any_u32 *)(from + at);
}

/* Whether the translated packet may leave by the way. */
always_inline int fits(const struct plan *plan, const struct way *way)
{
	return plan->len - plan->old_len + plan->new_len <= way->mtu;
}

/* Carries the plan out. The changes of `correct` can't be undone; what fails after it is a counted drop. */
always_inline verdict carry_out(struct xdp_md *ctx, const struct packet *p, int to_v6, int hook, const struct plan *plan,
				const struct way *way)
{
	verdict v = correct(p, hook, plan);
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
	write_words(ethernet, way->hop.macs, sizeof(way->hop.macs));
	ethernet->type = bpf_htons(to_v6 ? ETH_P_IPV6 : ETH_P_IP);
	void *front = ethernet + 1;
	if (to_v6 && plan->new_len == IPV6_LEN + FRAGMENT_LEN) {
		if (front + IPV6_LEN + FRAGMENT_LEN > end)
			return DROP(FW_DROP_NO_HEADROOM);
		write_words(front, plan->front, IPV6_LEN + FRAGMENT_LEN);
	} else if (to_v6) {
		if (front + IPV6_LEN > end)
			return DROP(FW_DROP_NO_HEADROOM);
		write_words(front, plan->front, IPV6_LEN);
	} else {
		if (front + IPV4_LEN > end)
			return DROP(FW_DROP_NO_HEADROOM);
		write_words(front, plan->front, IPV4_LEN);
	}
	return GO_ON;
}

/* Not used: ICMP errors are passed to the stack before. */
always_inline verdict error_to_v6(struct xdp_md *ctx, const struct fields *fields, __u8 hop_limit, struct work *work)
{
	return PASS_ON(FW_PASS_ICMP_ERROR);
}

always_inline verdict error_to_v4(struct xdp_md *ctx, const struct fields *fields, __u8 hop_limit, __u64 addresses,
				  struct work *work)
{
	return PASS_ON(FW_PASS_ICMP_ERROR);
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

/* Copies the first octets of the packet. Returns their number. Not inlined, because the verifier follows every exit of
 * its loop. */
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

/* For a trace. */
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

/* Counts the outcome of a packet, and redirects it to `device` if it was translated. */
always_inline int leave(struct xdp_md *ctx, const struct journey *journey, verdict v, int to_v6, __u32 device)
{
	count(journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, 1);
	end_trace(ctx, journey, v);
	if (v == GO_ON)
		return bpf_redirect_map(&devices, device, XDP_DROP);
	return VERDICT_KIND(v) == DROP(0) ? XDP_DROP : XDP_PASS;
}

/* Decides on an IP packet: each program defines it. */
always_inline int handle(struct xdp_md *ctx, const struct packet *p, const struct ethernet_header *ethernet, int to_v6);

/* A frame as the driver has it. */
always_inline int receive(struct xdp_md *ctx)
{
	const struct ethernet_header *ethernet = (void *)(long)ctx->data;
	struct packet p = {
		.data = (void *)(ethernet + 1),
		.data_end = (void *)(long)ctx->data_end,
	};

	if (p.data > p.data_end)
		return XDP_PASS;
	p.len = p.data_end - p.data;
	if (ethernet->type == bpf_htons(ETH_P_IP))
		return handle(ctx, &p, ethernet, 1);
	if (ethernet->type == bpf_htons(ETH_P_IPV6))
		return handle(ctx, &p, ethernet, 0);
	/* Frames with a VLAN tag go to the stack. */
	if (ethernet->type == bpf_htons(ETH_P_8021Q) || ethernet->type == bpf_htons(ETH_P_8021AD)) {
		__u32 zero = 0;
		struct fw_counters *c = bpf_map_lookup_elem(&counters, &zero);

		if (c)
			c->tagged++;
	}
	return XDP_PASS;
}

#endif
