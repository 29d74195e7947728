/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Dynamic 1:1 mappings of a stateless translator: the IPv4 address that an IPv6 host was given on first use; the
 * core's nat64/policy/dynamic.rs. They lie in the BIB, with protocol 0 and ports 0. A host's first packet is left to the user
 * engine, which chooses the address.
 */
#ifndef FORDWAY_DYNAMIC4_H
#define FORDWAY_DYNAMIC4_H

#include "common.h"
#include "nat64.h"

/* Every packet from either side refreshes the mapping, except ICMP errors. */
enum use {
	IS_NO_USE,
	IS_USE,
};

always_inline void use_mapping(struct fw_bib *bib, enum use use)
{
	__u32 now = use == IS_USE ? now_in_ticks() : 0;

	if (use == IS_USE && is_later(now, READ_ONCE(bib->since)))
		WRITE_ONCE(bib->since, now);
}

/* The live mapping that a search has found; 0: none. `found`: what the search returned. */
always_inline struct fw_bib *live_mapping(const struct flow *flow, int found)
{
	return found > 0 && flow->bib_state == FW_ENTRY_LIVE ? bib_at(found) : 0;
}

/* Looks up the IPv4 address of a host. LEAVE: it has none yet. */
always_inline verdict dynamic_to_v4(struct flow *flow, struct halves host, enum use use, __u32 *v4)
{
	flow->host = host;
	flow->host_port = 0;
	flow->protocol = 0;
	int found = find_bib6(flow);
	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	struct fw_bib *bib = live_mapping(flow, found);
	if (!bib)
		return LEAVE;
	use_mapping(bib, use);
	*v4 = bib->v4;
	return GO_ON;
}

/* Looks up the host that has an IPv4 address. */
always_inline verdict dynamic_to_v6(struct flow *flow, __u32 v4, enum use use, struct halves *host)
{
	flow->local = v4;
	flow->local_port = 0;
	flow->protocol = 0;
	int found = find_bib4(flow);
	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	struct fw_bib *bib = live_mapping(flow, found);
	if (!bib)
		return PASS_ON(FW_PASS_UNMAPPED);
	use_mapping(bib, use);
	host->hi = bib->v6_hi;
	host->lo = bib->v6_lo;
	return GO_ON;
}

#endif
