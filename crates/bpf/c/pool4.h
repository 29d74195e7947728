/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which IPv4 transport addresses are the translator's. */
#ifndef FORDWAY_POOL4_H
#define FORDWAY_POOL4_H

#include "common.h"
#include "nat64_config.h"

enum pool4 {
	POOL4_NONE,
	/* Of the pools, or, of ICMP, any of the translator's addresses: it chooses the identifiers. */
	POOL4_POOL,
	/* Bound by the operator, beside the pools, for one protocol or another; or one host's own (NAT-PT). */
	POOL4_FIXED,
};

/* Negative (as signed) if the number is not in the range. */
always_inline __u64 beyond(__u32 number, __u32 first, __u32 last)
{
	return (__u64)(last - first) - (__u32)(number - first);
}

/* Returns an enum pool4. One branch for each range, because verifiers follow every path. */
always_inline int pool4_of(__u32 address, __u32 port, __u32 protocol)
{
	__u64 port_counts = protocol == PROTOCOL_ICMP ? 0 : ~0ull;

	LOOP (__u32 i = 0; i < FW_MAX_POOL4; i++) {
		if (i >= nat64.pool4_count)
			break;
		__s64 misses = beyond(address, nat64.pool4[i].first, nat64.pool4[i].last) |
			       (beyond(port, nat64.pool4[i].low, nat64.pool4[i].high) & port_counts);
		/* The compiler would make branches of the parts again. */
		asm volatile("" : "+r"(misses));
		if (misses >= 0)
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
