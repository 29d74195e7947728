/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which packets are the translator's, for programs in front of routing: those of two hosts that the kernel
 * would route into the translator's interface.
 */
#ifndef FORDWAY_ROUTED_H
#define FORDWAY_ROUTED_H

#include "common.h"
#include "maps.h"

#define AF_INET 2
#define AF_INET6 10

/* Pairs of hosts that are remembered per processor; two that fall on one place take it from each other. */
#define PAIRS_BITS 12

/* What tells pairs apart: addresses as in the packet (IPv4: both in the first word), device, traffic class. */
struct pair_key {
	__u64 address[4];
	__u32 ifindex;
	__u32 tos;
};

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

/*
 * A value that was found for a key, in a per-processor array map with a place for each place_of(): its type begins with
 * `key` and `tick`, and it is good until the kernel's clock's next tick (1 to 10 ms). Gives the value of the map, or 0;
 * and with `found`, whether it is this key's, and of this tick. If it is not, the caller finds the rest out: key and tick
 * are written already.
 */
#define REMEMBERED(map, wanted, found)                                                                                \
	({                                                                                                            \
		__u32 cache_place = place_of(wanted);                                                                 \
		__typeof__(*(map).value) *cached = bpf_map_lookup_elem(&(map), &cache_place);                         \
		__u64 cache_tick = bpf_jiffies64();                                                                   \
		(found) = cached && cached->tick == cache_tick && is_same(&cached->key, wanted);                      \
		if (cached && !(found)) {                                                                             \
			cached->key = *(wanted);                                                                      \
			cached->tick = cache_tick;                                                                    \
		}                                                                                                     \
		cached;                                                                                               \
	})

/* The hosts of a packet. 0: its header is out of reach. */
always_inline int read_pair(const struct packet *p, int to_v6, struct pair_key *key)
{
	const struct ipv4_header *v4 = p->data;
	const struct ipv6_header *v6 = p->data;

	if (to_v6) {
		if ((void *)(v4 + 1) > p->data_end)
			return 0;
		key->address[0] = v4->src | (__u64)v4->dst << 32;
		key->tos = v4->tos;
	} else {
		if ((void *)(v6 + 1) > p->data_end)
			return 0;
		key->address[0] = v6->src.hi;
		key->address[1] = v6->src.lo;
		key->address[2] = v6->dst.hi;
		key->address[3] = v6->dst.lo;
		key->tos = bpf_ntohl(v6->first) >> 20 & 0xff;
	}
	return 1;
}

/* Whether the kernel would route the packet into the translator's interface. */
always_inline int is_routed_here(void *ctx, const struct pair_key *key, int to_v6, struct bpf_fib_lookup *fib)
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

#endif
