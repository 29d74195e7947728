/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The cache of routing answers: direct mapped, a part of it for each processor. Where the kernel chooses routes by
 * destination alone, as it does without policy rules and multipath routes, packets of all sources share an answer.
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

/* What the kernel does with packets with this key, from the cache or asked now; 0: out of memory. */
always_inline const struct route *route_of(FRAME *frame, const struct route_key *key)
{
	struct news news = read_news();
	__u32 place = bpf_get_smp_processor_id() << config.routes_bits |
		      route_hash(key, news.by_destination, config.routes_bits);
	struct route *route = bpf_map_lookup_elem(&routes, &place);

	if (!route)
		return 0;
	if (is_current(&route->asked, &news) && is_same_route(&route->key, key, news.by_destination))
		return route;
	route->key = *key;
	route->asked.at = news.now;
	route->asked.generation = ask_routing(frame, key, &route->way) ? news.generation : 0;
	return route;
}

always_inline const struct way *way_of(FRAME *frame, const struct route_key *key)
{
	const struct route *route = route_of(frame, key);

	return route ? &route->way : 0;
}

/* Whether the kernel routes such packets into the translator's interface. */
__noinline int is_routed_here(FRAME *frame, struct route_key *key)
{
	const struct way *way = key ? way_of(frame, key) : 0;

	return way && way->is_ours;
}

#endif
