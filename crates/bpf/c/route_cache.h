/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The cache of routing answers: direct mapped, a part of it for each processor. Where the kernel chooses routes by
 * destination alone, as it does without policy rules and multipath routes, packets of all sources share an answer, and so do
 * the destinations of a cell (fordway_abi.h) that have one next hop.
 */
#ifndef FORDWAY_ROUTE_CACHE_H
#define FORDWAY_ROUTE_CACHE_H

#include "routing.h"

/* The loader sets the size: 1 << config.routes_bits for each processor. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct route);
} routes SEC(".maps");

always_inline struct route *place_of(__u64 hash)
{
	__u32 bits = config.routes_bits, place = bpf_get_smp_processor_id() << bits | hash >> (64 - bits);

	return bpf_map_lookup_elem(&routes, &place);
}

/* Where functions share the stack: memory is read again from here on, instead of a second copy in spilled registers. */
#ifdef ONE_FUNCTION
#define READ_AGAIN(memory)
#else
#define READ_AGAIN(memory) asm volatile("" : : "r"(memory) : "memory")
#endif

/* The place of a key's answer; 0: out of memory. `found`: it is there, and good. If it is not, the key is written already. A
 * function of its own, so that the copy of the key is off the stack before the kernel is asked. */
always_inline struct route *find_place(const struct route_key *key, const struct news *news, int *found)
{
	struct route_key known = *key;
	__u64 hash = 0;
	int is_cell = share(&known, news, &hash);

	/* So that it is not computed again below, from words that would have to be spilled until then. */
	asm volatile("" : "+r"(hash));
	READ_AGAIN(&known);
	struct route *route = place_of(is_cell ? hash : route_hash(&known));
	READ_AGAIN(&known);
	int is_known = route && is_current(&route->asked, news) && is_same_route(&route->key, &known);

	if (is_known && is_cell && route->way.by_host) {
		leave_cell(&known, key);
		route = place_of(route_hash(&known));
		is_known = route && is_current(&route->asked, news) && is_same_route(&route->key, &known);
	}
	if (route && !is_known)
		route->key = known;
	*found = is_known;
	return route;
}

/* What the kernel does with packets with this key, from the cache or asked now; 0: out of memory. */
always_inline const struct route *route_of(FRAME *frame, const struct route_key *key, const struct news *news)
{
	int found;
	struct route *route = find_place(key, news, &found);

	if (!route || found)
		return route;
	route->asked.at = news->now;
	route->asked.generation = ask_routing(frame, key, &route->way) ? news->generation : 0;
	return route;
}

always_inline const struct way *way_of(FRAME *frame, const struct route_key *key)
{
	struct news news = read_news(bpf_ktime_get_coarse_ns());
	const struct route *route = route_of(frame, key, &news);

	return route ? &route->way : 0;
}

/* Whether the kernel routes such packets into the translator's interface. */
__noinline int is_routed_here(FRAME *frame, struct route_key *key)
{
	const struct way *way = key ? way_of(frame, key) : 0;

	return way && way->is_ours;
}

#endif
