/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which packets that arrive at a gateway's devices are the translator's. (Stateless translation at XDP has pair.h.)
 */
#ifndef FORDWAY_OURS_H
#define FORDWAY_OURS_H

#include "address.h"
#include "ask_routing.h"
#include "common.h"
#include "frame.h"
#include "maps.h"
#include "nat64.h"

/* Whether the addresses may be a stateful translator's at all: most traffic of a gateway need not be asked about.
 * Where the mark decides, nobody knows: nftables comes later. */
always_inline int may_be_ours(const struct pair_key *key, int to_v6)
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
	struct pair_key key = { .ifindex = DEVICE_OF(frame) };

	if (!read_pair(p, to_v6, &key))
		return 0;
	if (nat64.mode == FW_NAT64_STATEFUL && !may_be_ours(&key, to_v6))
		return 0;
	return ask_routing(frame, &key, to_v6);
}

#endif
