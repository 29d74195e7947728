/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What XDP knows of two hosts that talk: whose their packets are, what their addresses become, and the
 * way of the translated packets. Found by the kernel's routing and kept until its clock's next tick (1
 * to 10 ms), since one look-up costs more than all of the translation. So a change of routes, of
 * neighbours or of devices takes effect with the next tick.
 */
#ifndef FORDWAY_PAIR_H
#define FORDWAY_PAIR_H

#include "address.h"
#include "checksum.h"
#include "common.h"
#include "headers.h"
#include "maps.h"
#include "routed.h"

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

/* Addresses that devices have beside their own: those of interfaces on top of them (macvlan), as VRRP has them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_MAX_VIRTUAL_MACS);
	__type(key, struct fw_virtual_mac);
	__type(value, __u8);
} virtual_macs SEC(".maps");

/* With state, `key` has the addresses of the translated packet: there is only a way to be known. */
struct pair {
	struct pair_key key;
	/* The tick of the kernel's clock in which it was found. */
	__u64 tick;
	/* The device's own address. */
	__u64 mac;
	/* UNMATCHED, GO_ON, or why not. */
	verdict verdict;
	/* Where the translated packets leave, and the longest of them. */
	__u32 ifindex;
	__u32 mtu;
	/* New addresses minus old ones. */
	__u32 difference;
	union {
		struct {
			struct ipv6_address src;
			struct ipv6_address dst;
		} v6;
		struct {
			__be32 src;
			__be32 dst;
		} v4;
	};
	/* Destination and source address of the frames. */
	__u8 macs[12];
	__u8 reserved[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << PAIRS_BITS);
	__type(key, __u32);
	__type(value, struct pair);
} pairs SEC(".maps");

always_inline __u64 mac_number(const __u8 *mac)
{
	return *(const __u32 *)mac | (__u64)*(const __u16 *)(mac + 4) << 32;
}

/* Routes the translated packets. */
always_inline verdict route_pair(struct xdp_md *ctx, int to_v6, struct bpf_fib_lookup *fib, struct pair *pair)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = pair->key.ifindex;
	/* Asks for the MTU. */
	fib->tot_len = 1;
	__u8 tos = traffic_class(pair->key.tos);
	if (to_v6) {
		fib->family = AF_INET6;
		fib->flowinfo = bpf_htonl((__u32)tos << 20);
		__builtin_memcpy(fib->ipv6_src, &pair->v6.src, 16);
		__builtin_memcpy(fib->ipv6_dst, &pair->v6.dst, 16);
	} else {
		fib->family = AF_INET;
		fib->tos = tos;
		fib->ipv4_src = pair->v4.src;
		fib->ipv4_dst = pair->v4.dst;
	}
	if (bpf_fib_lookup(ctx, fib, sizeof(*fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return PASS_ON(FW_PASS_NO_ROUTE);
	/* Among them is no translator's interface: its own output never goes back into it. */
	if (!bpf_map_lookup_elem(&devices, &fib->ifindex))
		return PASS_ON(FW_PASS_NO_REDIRECT);
	pair->ifindex = fib->ifindex;
	/* Kernels before 5.12 leave it as it was: then it is not known here, and nothing fits. */
	pair->mtu = fib->mtu_result;
	__builtin_memcpy(pair->macs, fib->dmac, 6);
	__builtin_memcpy(pair->macs + 6, fib->smac, 6);
	return GO_ON;
}

#ifndef FORDWAY_STATE
/* Maps both addresses (fordway_xdp.bpf.c). */
always_inline verdict map_pair(int to_v6, struct pair *pair);

/* Finds everything out beside key and tick. */
always_inline void find_pair(struct xdp_md *ctx, int to_v6, struct pair *pair)
{
	struct bpf_fib_lookup fib;
	__u32 device = pair->key.ifindex;
	const __u64 *mac = bpf_map_lookup_elem(&macs, &device);

	pair->mac = mac ? *mac : 0;
	pair->verdict = UNMATCHED;
	if (!mac || !is_routed_here(ctx, &pair->key, to_v6, &fib))
		return;
	pair->verdict = map_pair(to_v6, pair);
	if (pair->verdict == GO_ON)
		pair->verdict = route_pair(ctx, to_v6, &fib, pair);
}

/* The pair of a packet's hosts; 0: its header is out of reach. */
always_inline struct pair *pair_of(struct xdp_md *ctx, const struct packet *p, int to_v6)
{
	struct pair_key key = { .ifindex = ctx->ingress_ifindex };

	if (!read_pair(p, to_v6, &key))
		return 0;
	int is_known;
	struct pair *pair = REMEMBERED(pairs, &key, is_known);
	if (pair && !is_known)
		find_pair(ctx, to_v6, pair);
	return pair;
}
#else
/* The way of a packet that was translated; 0: there is none, and what to do instead is not known. */
always_inline const struct pair *way_of(struct xdp_md *ctx, int to_v6, const struct plan *plan)
{
	struct bpf_fib_lookup fib;
	struct pair_key key = { .ifindex = ctx->ingress_ifindex };

	if (to_v6) {
		key.tos = bpf_ntohl(plan->v6.first) >> 20 & 0xff;
		key.address[0] = plan->v6.src.hi;
		key.address[1] = plan->v6.src.lo;
		key.address[2] = plan->v6.dst.hi;
		key.address[3] = plan->v6.dst.lo;
	} else {
		key.tos = plan->v4.tos;
		key.address[0] = plan->v4.src | (__u64)plan->v4.dst << 32;
	}
	int is_known;
	struct pair *way = REMEMBERED(pairs, &key, is_known);
	if (!way)
		return 0;
	if (!is_known) {
		if (to_v6) {
			way->v6.src = plan->v6.src;
			way->v6.dst = plan->v6.dst;
		} else {
			way->v4.src = plan->v4.src;
			way->v4.dst = plan->v4.dst;
		}
		way->verdict = route_pair(ctx, to_v6, &fib, way);
	}
	return way;
}
#endif

#endif
