/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Allocation of IPv4 transport addresses (RFC 6146 sections 3.5.1.1 and 3.5.2.3), as far as it is quick: the
 * tries by hash of the core's nat64/policy/allocate.rs.
 */
#ifndef FORDWAY_NAT64_PORT_H
#define FORDWAY_NAT64_PORT_H

#include "common.h"
#include "nat64_chain.h"
#include "nat64_hash.h"
#include "nat64_maps.h"

/* The first port that is not well-known. */
#define FIRST_UNPRIVILEGED 1024

/* In a subscriber's number of blocks: one more is being written. */
#define ADDING 0x800000

/* The port to try with this hash: of the class and parity of the host's port; 0: the block has no pair of such ports, and
 * the user engine decides whether to take one of the other class. */
always_inline __u16 port_by_hash(const struct fw_block *block, __u8 protocol, __u16 port, __u64 hash)
{
	__u32 low = block->low, high = block->high;

	if (protocol != PROTOCOL_ICMP) {
		if (port < FIRST_UNPRIVILEGED && high >= FIRST_UNPRIVILEGED)
			high = FIRST_UNPRIVILEGED - 1;
		if (port >= FIRST_UNPRIVILEGED && low < FIRST_UNPRIVILEGED)
			low = FIRST_UNPRIVILEGED;
	}
	low = (low + 1) & ~1u;
	if (high + 1 < low + 2)
		return 0;
	__u32 pairs = (high + 1 - low) / 2;
	return (low + 2 * ((__u32)hash % pairs)) | (port & 1);
}

/* RFC 6888 REQ-8: a port is held down before another subscriber gets it; the same subscriber may have it at once. 1: it
 * was held down for this subscriber, and is free now. */
__noinline int end_own_rest(struct flow *flow, __u32 index)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return 0;
	struct fw_bib *holder = bib_at(index);
	if (!holder)
		return 0;
	struct halves host = { holder->v6_hi ^ flow->host.hi, holder->v6_lo ^ flow->host.lo };
	struct halves differs = prefix_of(host, nat64.subscriber_len);

	return differs.hi || differs.lo ? 0 : end_hold_down(holder);
}

/* Links the claimed entry `flow->bib` under (T,t) if that is free. 1: linked; 0: in use; negative: gave up. */
__noinline int claim_port(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return -1;
	struct fw_bib *bib = bib_at(flow->bib);
	__u64 *head = bib4_head(flow);
	if (!bib || !head)
		return -1;
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		int found = search_bib4(flow, head);
		if (found < 0)
			return -1;
		if (found) {
			if (end_own_rest(flow, found))
				continue;
			return 0;
		}
		bib->v4 = flow->local;
		bib->v4_port = flow->local_port;
		WRITE_ONCE(bib->next4, (__u32)flow->seen);
		if (swap_head(head, flow->seen, flow->bib))
			return 1;
	}
	return -1;
}

/* Whether (T,t) is the subscriber's. */
always_inline int is_in_blocks(const struct flow *flow, const struct fw_subscriber *subscriber, __u32 blocks)
{
	LOOP (__u32 i = 0; i < FW_MAX_BLOCKS; i++) {
		const struct fw_block *block = &subscriber->blocks[i];

		if (i < blocks && block->v4 == flow->local && block->low <= flow->local_port &&
		    block->high >= flow->local_port)
			return 1;
	}
	return 0;
}

/* Tries a port of the subscriber's blocks: number `attempt` in the host's order. 1: linked; 0: in use, or of the wrong
 * class; negative: gave up. */
__noinline int try_port(struct flow *flow, __u32 attempt)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return -1;
	struct fw_subscriber *subscriber = subscriber_at(flow->subscriber);
	if (!subscriber)
		return -1;
	__u32 blocks = life_number(READ_ONCE(subscriber->life)) & ~ADDING;
	if (blocks == 0 || blocks > FW_MAX_BLOCKS)
		return -1;
	__u64 hash = hash_again(hash_port(flow->host, flow->host_port, flow->protocol), attempt);
	__u32 number = (__u32)(hash >> 32) % blocks;
	/* The compiler would drop the mask, which verifiers need. */
	asm volatile("" : "+r"(number));
	const struct fw_block *block = &subscriber->blocks[number & (FW_MAX_BLOCKS - 1)];
	__u16 port = port_by_hash(block, flow->protocol, flow->host_port, hash);
	if (port == 0)
		return 0;
	flow->local = block->v4;
	flow->local_port = port;
	return claim_port(flow);
}

/* Finds a port of the subscriber's blocks for the claimed entry, and links it there: `flow->local_port` if that is
 * set and still the subscriber's. 0: there is none. */
__noinline int choose_port(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return 0;
	struct fw_subscriber *subscriber = subscriber_at(flow->subscriber);
	if (!subscriber)
		return 0;
	__u32 blocks = life_number(READ_ONCE(subscriber->life)) & ~ADDING;
	if (blocks == 0 || blocks > FW_MAX_BLOCKS)
		return 0;
	if (flow->local_port && is_in_blocks(flow, subscriber, blocks)) {
		int again = claim_port(flow);
		if (again)
			return again > 0;
	}
	LOOP (__u32 attempt = 0; attempt < FW_PORT_TRIES; attempt++) {
		int tried = try_port(flow, attempt);
		if (tried)
			return tried > 0;
	}
	return 0;
}

#endif
