/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What stateless translation at XDP knows of two hosts that talk: whether their packets are the translator's, what
 * their addresses become, and where the translated packets leave. Cached as routing.h says.
 */
#ifndef FORDWAY_PAIR_H
#define FORDWAY_PAIR_H

#include "common.h"
#include "headers.h"
#include "maps.h"
#include "routing.h"
#include "xdp.h"

/* An entry of the cache; it begins as struct route does. */
struct pair {
	/* Of packets as they arrive. */
	struct route_key key;
	__u64 tick;
	/* Of translated packets. `verdict` is UNMATCHED if the packets are not the translator's. */
	struct way way;
	/* The device's own link-layer address. */
	__u64 mac;
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
};

ROUTES_MAP(struct pair);

/* Maps both addresses (fordway_xdp.bpf.c). */
always_inline verdict map_pair(int to_v6, struct pair *pair);

/* Fills in everything but key and tick. */
always_inline void find_pair(struct xdp_md *ctx, int to_v6, struct pair *pair)
{
	__u32 device = pair->key.ifindex;
	const __u64 *mac = bpf_map_lookup_elem(&macs, &device);
	struct route_key key = pair->key;

	pair->mac = mac ? *mac : 0;
	pair->way.verdict = UNMATCHED;
	if (!mac)
		return;
	ask_routing(ctx, &key, &pair->way);
	verdict v = pair->way.is_ours ? map_pair(to_v6, pair) : UNMATCHED;
	if (v != GO_ON) {
		pair->way.verdict = v;
		return;
	}
	__u8 tos = traffic_class(key.tos);
	key = to_v6 ? route_key_v6(device, tos, &pair->v6.src, &pair->v6.dst)
		    : route_key_v4(device, tos, pair->v4.src, pair->v4.dst);
	ask_routing(ctx, &key, &pair->way);
}

/* The pair of a packet's hosts; 0: its header is out of reach. */
always_inline const struct pair *pair_of(struct xdp_md *ctx, const struct packet *p, int to_v6)
{
	struct route_key key;

	if (!read_route_key(p, to_v6, ctx->ingress_ifindex, &key))
		return 0;
	int is_known;
	struct pair *pair = CACHED_ROUTE(&key, is_known);
	if (pair && !is_known)
		find_pair(ctx, to_v6, pair);
	return pair;
}

#endif
