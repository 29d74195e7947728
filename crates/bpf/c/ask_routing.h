/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's routing, asked whether it would bring a packet to the interface; its answers are kept for a tick. */
#ifndef FORDWAY_ASK_ROUTING_H
#define FORDWAY_ASK_ROUTING_H

#include "common.h"
#include "maps.h"
#include "routed.h"

/* What was found of two hosts, kept until the kernel's clock's next tick (1 to 10 ms). */
struct ours {
	struct pair_key key;
	__u64 tick;
	__u32 is_ours;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << PAIRS_BITS);
	__type(key, __u32);
	__type(value, struct ours);
} ours SEC(".maps");

/* Asks the kernel's routing, or remembers. */
__noinline int ask_routing(FRAME *frame, struct pair_key *key, int to_v6)
{
	struct bpf_fib_lookup fib;

	if (!key)
		return 0;
	int is_known;
	struct ours *found = REMEMBERED(ours, key, is_known);
	if (!found)
		return 0;
	if (!is_known)
		found->is_ours = is_routed_here(frame, key, to_v6, &fib);
	return found->is_ours;
}

#endif
