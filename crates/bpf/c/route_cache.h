/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The cache of routing answers, of all objects but the stateless one at XDP (pair.h). */
#ifndef FORDWAY_ROUTE_CACHE_H
#define FORDWAY_ROUTE_CACHE_H

#include "routing.h"

ROUTES_MAP(struct route);

/* Where the kernel sends packets with this key, from the cache or asked now; 0: out of memory. */
always_inline const struct way *way_of(FRAME *frame, const struct route_key *key)
{
	int is_known;
	struct route *route = CACHED_ROUTE(key, is_known);

	if (!route)
		return 0;
	if (!is_known)
		ask_routing(frame, key, &route->way);
	return &route->way;
}

/* Whether the kernel routes such packets into the translator's interface. */
__noinline int is_routed_here(FRAME *frame, struct route_key *key)
{
	const struct way *way = key ? way_of(frame, key) : 0;

	return way && way->is_ours;
}

#endif
