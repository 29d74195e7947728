/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What stateless translation at XDP knows of two hosts that talk: whether their packets are the translator's, what
 * their addresses become, and where the translated packets leave. Kept as routing.h says of answers, and in front of them.
 */
#ifndef FORDWAY_PAIR_H
#define FORDWAY_PAIR_H

#include "common.h"
#include "headers.h"
#include "maps.h"
#include "route_cache.h"
#include "v4_to_v6.h"
#include "v6_to_v4.h"
#include "xdp.h"

struct pair {
	/* Of packets as they arrive. */
	struct route_key key;
	struct asked asked;
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

/* Direct mapped, 1 << FW_PAIRS_BITS for each processor: the loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pair);
} pairs SEC(".maps");

/* A device's own link-layer address. */
struct own_mac {
	struct asked asked;
	__u64 mac;
	__u32 ifindex;
	/* The program is at this device. */
	__u32 is_known;
};

#define OWN_MACS 8

/*
 * What a processor needs for each packet, small enough for its nearest caches. A pair is kept from its second packet on: where
 * there are many more pairs than places, none would be found again, and to read and write a place of `pairs`, which is in no near
 * cache then, costs more than to make the pair.
 */
struct at_hand {
	/* The clock's tick, and the time then: to ask for the time costs much of what a packet does. */
	__u64 tick;
	__u64 now;
	/* By place of `pairs`, 16 more bits of the hash of the last pair that belongs there. */
	__u16 last[1 << FW_PAIRS_BITS];
	struct own_mac macs[OWN_MACS];
	/* The pair of the packet at work, if it is not kept. */
	struct pair pair;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct at_hand);
} at_hand SEC(".maps");

/* Maps both addresses of a pair, as the core does for anything but ICMP errors. */
always_inline verdict map_pair(int to_v6, const struct route_key *key, struct pair *pair)
{
	verdict v;

	/* fordway_xdp_nat64 does that. */
	if (nat64.mode == FW_NAT64_STATEFUL)
		return PASS_ON(FW_PASS_SESSION);
	if (to_v6) {
		struct halves src = {}, dst = {};
		__be32 from = key->address[0], to = key->address[0] >> 32;
		v = map_addresses_v4(bpf_ntohl(from), bpf_ntohl(to), 0, HOOK_XDP, 0, &src, &dst);
		to_wire(src, &pair->v6.src);
		to_wire(dst, &pair->v6.dst);
		pair->difference = addresses_difference((__u64)from + to, sum_address_v6(&pair->v6.src) +
									  sum_address_v6(&pair->v6.dst));
		return v;
	}
	struct mapped_v6 mapped = {};
	struct ipv6_address from = { key->address[0], key->address[1] };
	struct ipv6_address to = { key->address[2], key->address[3] };
	v = map_addresses_v6(to_halves(&from), to_halves(&to), 0, HOOK_XDP, &mapped);
	if (v == GO_ON && hairpins(mapped.dst, mapped.dst_via))
		v = PASS_ON(FW_PASS_HAIRPIN);
	pair->v4.src = bpf_htonl(mapped.src);
	pair->v4.dst = bpf_htonl(mapped.dst);
	pair->difference = addresses_difference(sum_address_v6(&from) + sum_address_v6(&to),
						(__u64)pair->v4.src + pair->v4.dst);
	return v;
}

/* An answer that two others make is as old as the older one. */
always_inline void join(struct asked *asked, const struct asked *other)
{
	if (other->at < asked->at)
		asked->at = other->at;
	if (other->generation != asked->generation)
		asked->generation = 0;
}

/* As bpf_ktime_get_coarse_ns(). The kernel counts a tick a moment before it sets that clock: of a packet in between it is the
 * time of the tick before, and remains that for the tick. */
always_inline __u64 time_of(struct at_hand *hand)
{
	__u64 tick = bpf_jiffies64();

	if (hand->tick != tick) {
		hand->now = bpf_ktime_get_coarse_ns();
		hand->tick = tick;
	}
	return hand->now;
}

always_inline const struct own_mac *mac_of(struct at_hand *hand, __u32 device, const struct news *news)
{
	struct own_mac *own = &hand->macs[bounded(device, OWN_MACS)];

	if (own->ifindex == device && is_current(&own->asked, news))
		return own;
	const __u64 *mac = bpf_map_lookup_elem(&macs, &device);
	own->ifindex = device;
	own->is_known = mac != 0;
	own->mac = mac ? *mac : 0;
	own->asked.at = news->now;
	own->asked.generation = news->generation;
	return own;
}

/* Fills in everything but the key. */
always_inline void find_pair(struct xdp_md *ctx, int to_v6, struct at_hand *hand, const struct news *news,
			     const struct route_key *arrived, struct pair *pair)
{
	__u32 device = ifindex_of(arrived);
	__u8 tos = traffic_class(tos_of(arrived));
	const struct own_mac *own = mac_of(hand, device, news);
	const struct route *route = own->is_known ? route_of(ctx, arrived, news) : 0;

	pair->mac = own->mac;
	pair->way.verdict = UNMATCHED;
	__builtin_memset(&pair->asked, 0, sizeof(pair->asked));
	if (!route)
		return;
	pair->asked = route->asked;
	if (!route->way.is_ours)
		return;
	verdict v = map_pair(to_v6, arrived, pair);
	if (v != GO_ON) {
		pair->way.verdict = v;
		return;
	}
	struct route_key key = to_v6 ? route_key_v6(device, tos, &pair->v6.src, &pair->v6.dst)
				     : route_key_v4(device, tos, pair->v4.src, pair->v4.dst);
	route = route_of(ctx, &key, news);
	pair->way.verdict = PASS_ON(FW_PASS_NO_ROUTE);
	if (!route)
		return;
	pair->way = route->way;
	join(&pair->asked, &route->asked);
}

/* The pair of a packet's hosts; 0: its header is out of reach. */
always_inline const struct pair *pair_of(struct xdp_md *ctx, const struct packet *p, int to_v6)
{
	struct route_key key;

	if (!read_route_key(p, to_v6, ctx->ingress_ifindex, &key))
		return 0;
	__u64 hash = route_hash(&key);
	__u32 zero = 0, place = hash >> (64 - FW_PAIRS_BITS);
	__u16 mark = hash >> (64 - FW_PAIRS_BITS - 16);
	struct at_hand *hand = bpf_map_lookup_elem(&at_hand, &zero);
	if (!hand)
		return 0;
	struct news news = read_news(time_of(hand));
	__u16 *last = &hand->last[bounded(place, 1 << FW_PAIRS_BITS)];
	struct pair *pair = &hand->pair;
	if (*last == mark) {
		place |= bpf_get_smp_processor_id() << FW_PAIRS_BITS;
		pair = bpf_map_lookup_elem(&pairs, &place);
		if (!pair || (is_current(&pair->asked, &news) && is_same_route(&pair->key, &key)))
			return pair;
		pair->key = key;
	}
	*last = mark;
	find_pair(ctx, to_v6, hand, &news, &key, pair);
	return pair;
}

/* The work on a packet; on the stack. */
struct work {
	struct plan plan;
	const struct pair *pair;
};

/* What v4_to_v6.h and v6_to_v4.h need of each object: here the pair has the addresses. */
always_inline verdict addresses_to_v6(const struct ipv4_header *ip, int is_error, const struct fields *fields, int hook,
				      struct work *work)
{
	const struct pair *pair = work->pair;

	if (pair->way.verdict != GO_ON)
		return pair->way.verdict;
	work->plan.v6.src = pair->v6.src;
	work->plan.v6.dst = pair->v6.dst;
	work->plan.difference = pair->difference;
	return GO_ON;
}

always_inline verdict addresses_to_v4(const struct ipv6_header *ip, int is_error, const struct fields *fields, int hook,
				      struct work *work)
{
	const struct pair *pair = work->pair;

	if (pair->way.verdict != GO_ON)
		return pair->way.verdict;
	work->plan.mapped.src = bpf_ntohl(pair->v4.src);
	work->plan.mapped.dst = bpf_ntohl(pair->v4.dst);
	work->plan.difference = pair->difference;
	return GO_ON;
}

/* Not used: pairs that need tables have a verdict already. */
always_inline verdict host_of_v4(struct flow *flow, __u32 v4, int is_error, struct halves *host)
{
	return PASS_ON(FW_PASS_SESSION);
}

always_inline verdict v4_of_host(struct work *work, struct halves host, int is_error, __u32 *v4)
{
	return PASS_ON(FW_PASS_SESSION);
}

always_inline verdict session_to_v6(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
				    __u32 src, __u32 dst, verdict kept, struct work *work)
{
	return PASS_ON(FW_PASS_SESSION);
}

always_inline verdict session_to_v4(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
				    __u8 protocol, struct halves src6, struct work *work)
{
	return PASS_ON(FW_PASS_SESSION);
}

/* A SYN whose MSS may have to be lowered is passed to the stack. */
always_inline verdict find_mss(FRAME *frame, __u32 at, __u32 len, __u32 limit, __u32 *place, __be16 *from, __be16 *to)
{
	return PASS_ON(FW_PASS_TRANSPORT);
}

#endif
