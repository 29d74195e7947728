/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The fence of a cluster: whether a packet's shard may be translated here now (docs/cluster.md); the core's
 * nat64/policy/shards.rs, and shard.rs of the cluster. What is another gateway's is handed over to it. Everything else is
 * passed to the user engine.
 */
#ifndef FORDWAY_NAT64_SHARD_H
#define FORDWAY_NAT64_SHARD_H

#include "common.h"
#include "mix.h"
#include "nat64_chain.h"
#include "nat64_config.h"
#include "nat64_make.h"
#include "nat64_maps.h"
#include "pool4.h"

/* The shard of an IPv6 host, by its subscriber's prefix. */
always_inline __u32 shard_of_host(struct halves host)
{
	struct halves prefix = prefix_of(host, nat64.subscriber_len);
	__u64 word = mix(mix(nat64.shard_key[0] ^ prefix.hi) ^ prefix.lo);
	__u64 hash = mix(word ^ nat64.shard_key[1]) >> 32;

	return hash * nat64.shards >> 32;
}

/* The shard of an IPv4 transport address; of ICMP, `port` is the identifier. FW_MAX_SHARDS: it is of none. */
__noinline int shard_of_v4(__u32 address, __u32 port)
{
	if (!nat64.shards)
		return FW_MAX_SHARDS;
	LOOP (__u32 i = 0; i < FW_MAX_POOL4; i++) {
		const volatile struct fw_part *part = &nat64.parts[i];

		if (i >= nat64.part_count)
			break;
		__s64 misses = beyond(address, part->first, part->last) | beyond(port, part->low, part->high);
		/* The compiler would make branches of the parts again. */
		asm volatile("" : "+r"(misses));
		if (misses < 0)
			continue;
		__u32 shift = part->shift & 31, low = part->low >> shift;
		__u32 of_address = (part->high >> shift) - low + 1;
		__u64 slot = part->base + (__u64)(address - part->first) * of_address + (port >> shift) - low;
		return slot * nat64.shards / part->slots;
	}
	return FW_MAX_SHARDS;
}

/* Whether packets of a shard are translated by programs now: it is this gateway's, the quiet time after a take-over is over,
 * and the lease is not. */
__noinline int enter_shard(struct flow *flow, __u32 shard)
{
	__u32 zero = 0;

	/* Tested before any map is used: verifiers before Linux 6.8 also check functions that are never called. */
	if (!nat64.shards || !flow)
		return GO_ON;
	struct fw_gates *gates = bpf_map_lookup_elem(&nat64_gates, &zero);
	if (!gates || shard >= FW_MAX_SHARDS)
		return LEAVE;
	struct fw_gate *gate = &gates->shards[shard];
	__u64 now = bpf_ktime_get_boot_ns();
	if (READ_ONCE(gate->from) <= now && now < READ_ONCE(gates->lease))
		return GO_ON;
	flow->way = READ_ONCE(gate->way);
	return flow->way ? HAND_OVER : PASS_ON(FW_PASS_SHARD);
}

#endif
