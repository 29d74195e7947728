/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which packets that arrive at a gateway's devices are the translator's: those that the kernel would route into its
 * interface. Stateless translation at XDP has pair.h instead.
 */
#ifndef FORDWAY_OURS_H
#define FORDWAY_OURS_H

#include "address.h"
#include "common.h"
#include "maps.h"
#include "nat64.h"
#include "route_cache.h"

/*
 * Whether the addresses can be a stateful translator's at all, so that most traffic of a gateway needs no lookup. With
 * pools by mark, packets from IPv6 are left to the interface: nftables sets the mark after these programs.
 */
always_inline int may_be_ours(const struct route_key *key, int to_v6)
{
	if (to_v6)
		return owns_address(bpf_ntohl(key->address[0] >> 32));
	if (nat64.by_mark)
		return 0;
	__u64 via = map_v6_halves(bpf_be64_to_cpu(key->address[2]), bpf_be64_to_cpu(key->address[3]));
	return (via >> 32 & 0xff) == VIA_POOL6;
}

always_inline int is_ours(FRAME *frame, const struct packet *p, int to_v6)
{
	struct route_key key;

	if (!read_route_key(p, to_v6, device_of(frame), &key))
		return 0;
	if (nat64.mode == FW_NAT64_STATEFUL && !may_be_ours(&key, to_v6))
		return 0;
	return is_routed_here(frame, &key);
}

#endif
