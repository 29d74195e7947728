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

#define AF_INET 2
#define AF_INET6 10

/* Pairs per processor; two that fall on one place take it from each other. */
#define PAIRS_BITS 12

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

/* What tells pairs apart: addresses as in the packet (IPv4: both in the first word), device, traffic class. */
struct pair_key {
	__u64 address[4];
	__u32 ifindex;
	__u32 tos;
};

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

/* Whether the kernel would route the packet into the translator's interface. */
always_inline int is_routed_here(struct xdp_md *ctx, const struct pair_key *key, int to_v6, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = key->ifindex;
	if (to_v6) {
		fib->family = AF_INET;
		fib->tos = key->tos;
		fib->ipv4_src = key->address[0];
		fib->ipv4_dst = key->address[0] >> 32;
	} else {
		fib->family = AF_INET6;
		fib->flowinfo = bpf_htonl(key->tos << 20);
		__builtin_memcpy(fib->ipv6_src, &key->address[0], 16);
		__builtin_memcpy(fib->ipv6_dst, &key->address[2], 16);
	}
	/* The interface has no neighbours, so the look-up ends with this; the way out is known all the same. */
	long found = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	return (found == BPF_FIB_LKUP_RET_NO_NEIGH || found == BPF_FIB_LKUP_RET_SUCCESS) &&
	       fib->ifindex == config.tun_ifindex;
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
	/* A translator's own output never goes back into it. */
	if (fib->ifindex == config.tun_ifindex)
		return PASS_ON(FW_PASS_NO_ROUTE);
	if (!bpf_map_lookup_elem(&devices, &fib->ifindex))
		return PASS_ON(FW_PASS_NO_REDIRECT);
	pair->ifindex = fib->ifindex;
	/* Kernels before 5.12 leave it as it was: then it is not known here, and nothing fits. */
	pair->mtu = fib->mtu_result;
	__builtin_memcpy(pair->macs, fib->dmac, 6);
	__builtin_memcpy(pair->macs + 6, fib->smac, 6);
	return GO_ON;
}

/* Maps both addresses (fordway_xdp.bpf.c). */
always_inline verdict map_pair(int to_v6, struct pair *pair);

/* Finds everything out. */
always_inline void find_pair(struct xdp_md *ctx, const struct pair_key *key, int to_v6, struct pair *pair)
{
	struct bpf_fib_lookup fib;
	__u32 device = key->ifindex;
	const __u64 *mac = bpf_map_lookup_elem(&macs, &device);

	pair->key = *key;
	pair->mac = mac ? *mac : 0;
	pair->verdict = UNMATCHED;
	if (!mac || !is_routed_here(ctx, &pair->key, to_v6, &fib))
		return;
	pair->verdict = map_pair(to_v6, pair);
	if (pair->verdict == GO_ON)
		pair->verdict = route_pair(ctx, to_v6, &fib, pair);
}

always_inline int is_same(const struct pair_key *a, const struct pair_key *b)
{
	return ((a->address[0] ^ b->address[0]) | (a->address[1] ^ b->address[1]) | (a->address[2] ^ b->address[2]) |
		(a->address[3] ^ b->address[3]) | (a->ifindex ^ b->ifindex) | (a->tos ^ b->tos)) == 0;
}

/* Multiplicative hashing: the upper bits depend on all the lower ones. */
always_inline __u32 place_of(const struct pair_key *key)
{
	__u64 mixed = key->address[0] * 0x9e3779b97f4a7c15ull ^ key->address[1] * 0xc2b2ae3d27d4eb4full ^
		      key->address[2] * 0x165667b19e3779f9ull ^ key->address[3] * 0xd6e8feb86659fd93ull;
	return (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15ull >> (64 - PAIRS_BITS);
}

/* The pair of a packet's hosts; 0: its header is out of reach. */
always_inline struct pair *pair_of(struct xdp_md *ctx, const struct packet *p, int to_v6)
{
	struct pair_key key = { .ifindex = ctx->ingress_ifindex };

	if (to_v6) {
		const struct ipv4_header *ip = p->data;
		if ((void *)(ip + 1) > p->data_end)
			return 0;
		key.address[0] = ip->src | (__u64)ip->dst << 32;
		key.tos = ip->tos;
	} else {
		const struct ipv6_header *ip = p->data;
		if ((void *)(ip + 1) > p->data_end)
			return 0;
		key.address[0] = ip->src.hi;
		key.address[1] = ip->src.lo;
		key.address[2] = ip->dst.hi;
		key.address[3] = ip->dst.lo;
		key.tos = bpf_ntohl(ip->first) >> 20 & 0xff;
	}
	__u32 place = place_of(&key);
	struct pair *pair = bpf_map_lookup_elem(&pairs, &place);
	__u64 tick = bpf_jiffies64();
	if (!pair)
		return 0;
	if (pair->tick != tick || !is_same(&pair->key, &key)) {
		find_pair(ctx, &key, to_v6, pair);
		pair->tick = tick;
	}
	return pair;
}

#endif
