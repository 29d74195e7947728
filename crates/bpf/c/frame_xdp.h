/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A frame at XDP. Options, extension headers and ICMP errors are left to the stack, and with it to the interface. */
#ifndef FORDWAY_FRAME_XDP_H
#define FORDWAY_FRAME_XDP_H

#include "common.h"
#include "frame.h"
#include "maps.h"

#define FRAME struct xdp_md

/* The devices that take redirected frames, by interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FW_MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* Destination and source address of the frames. */
struct hop {
	__u8 macs[12];
	__u8 reserved[4];
} __attribute__((aligned(8)));

always_inline void note_hop(struct hop *hop, const struct bpf_fib_lookup *fib)
{
	__builtin_memcpy(hop->macs, fib->dmac, 6);
	__builtin_memcpy(hop->macs + 6, fib->smac, 6);
}

always_inline int takes_redirected(__u32 ifindex)
{
	return bpf_map_lookup_elem(&devices, &ifindex) != 0;
}

always_inline long load_octets(struct xdp_md *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, at, to, len);
}

/* The device where the program sees the frame. */
always_inline __u32 device_of(const struct xdp_md *ctx)
{
	return ctx->ingress_ifindex;
}

/* Marks are set later. */
always_inline __u32 mark_of(const struct xdp_md *ctx)
{
	return 0;
}

always_inline int v4_options(struct xdp_md *ctx, __u32 at, __u32 len)
{
	return OPTIONS_UNREACHABLE;
}

always_inline int v6_extensions(struct xdp_md *ctx, struct walked *out, __u32 len)
{
	out->verdict = PASS_ON(FW_PASS_EXTENSION_HEADERS);
	return 0;
}

#endif
