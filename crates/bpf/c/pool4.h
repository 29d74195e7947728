/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Whose an IPv4 transport address is. */
#ifndef FORDWAY_POOL4_H
#define FORDWAY_POOL4_H

#include "common.h"
#include "nat64_maps.h"

enum pool4 {
	POOL4_NONE,
	/* Of the pools, or, of ICMP, any of the translator's addresses: it chooses the identifiers. */
	POOL4_POOL,
	/* Bound by the operator, beside the pools, for one protocol or another; or one host's own (NAT-PT). */
	POOL4_FIXED,
};

always_inline enum pool4 pool4_of(__u32 address, __u16 port, __u8 protocol)
{
	LOOP (__u32 i = 0; i < FW_MAX_POOL4; i++) {
		if (i >= nat64.pool4_count)
			break;
		if (address < nat64.pool4[i].first || address > nat64.pool4[i].last)
			continue;
		if (protocol == PROTOCOL_ICMP && i < nat64.pool4_pools)
			return POOL4_POOL;
		if (protocol == PROTOCOL_ICMP)
			return POOL4_FIXED;
		if (port >= nat64.pool4[i].low && port <= nat64.pool4[i].high)
			return i < nat64.pool4_pools ? POOL4_POOL : POOL4_FIXED;
	}
	return POOL4_NONE;
}

/* Whether an IPv4 address is the translator's, whatever the port. */
always_inline int owns_address(__u32 address)
{
	return pool4_of(address, 0, PROTOCOL_ICMP) != POOL4_NONE;
}

/* Whether it is one of those that IPv6 hosts get on first use (dynamic4.h). */
always_inline int is_pooled(__u32 address)
{
	return nat64.mode == FW_NAT64_DYNAMIC4 && owns_address(address);
}

#endif
