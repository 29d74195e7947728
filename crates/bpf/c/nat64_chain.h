/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Finding entries of the stateful tables, and making new ones; the core's nat64/chain.rs and view.rs. fordway_nat64.h has
 * the rules. Each function is verified once. All of them test the mode first, so that the verifier removes their bodies
 * from a stateless translator.
 */
#ifndef FORDWAY_NAT64_CHAIN_H
#define FORDWAY_NAT64_CHAIN_H

#include "common.h"
#include "nat64_hash.h"
#include "nat64_maps.h"
#include "work.h"

/* Links that a search follows. A chain has one entry on average. */
#define LINKS_MAX 16

/* How often a compare-and-swap is retried. */
#define ATTEMPTS 8

/* What searches return instead of an index if the chain is longer than LINKS_MAX. */
#define TOO_LONG (-1)

/* Directories: index of `masks`. */
enum directory {
	DIRECTORY_BIB6 = 0,
	DIRECTORY_BIB4 = 1,
	DIRECTORY_SESSION = 2,
	DIRECTORY_SUBSCRIBER = 3,
};

#define HEAD(map, directory, hash)                                                                                    \
	({                                                                                                            \
		__u32 head_place = (__u32)(hash) & nat64.masks[directory];                                            \
		(__u64 *)bpf_map_lookup_elem(&map, &head_place);                                                      \
	})

always_inline struct fw_bib *bib_at(__u32 index)
{
	return bpf_map_lookup_elem(&nat64_bibs, &index);
}

always_inline struct fw_session *session_at(__u32 index)
{
	return bpf_map_lookup_elem(&nat64_sessions, &index);
}

always_inline struct fw_subscriber *subscriber_at(__u32 index)
{
	return bpf_map_lookup_elem(&nat64_subscribers, &index);
}

/* State and number of a life of 32 bits. */
always_inline __u8 life_state(__u32 life)
{
	return life >> 24;
}

always_inline __u32 life_number(__u32 life)
{
	return life & 0xffffff;
}

always_inline __u32 make_life(__u8 state, __u32 number)
{
	return (__u32)state << 24 | number;
}

/* A session's life. */
always_inline __u8 session_state(__u64 life)
{
	return life >> 32;
}

always_inline __u8 session_timeout(__u64 life)
{
	return life >> 40;
}

always_inline __u64 session_life(__u32 tick, __u8 state, __u8 timeout)
{
	return tick | (__u64)state << 32 | (__u64)timeout << 40;
}

always_inline int is_bib6(const struct fw_bib *bib, const struct flow *flow)
{
	return ((bib->v6_lo ^ flow->host.lo) | (bib->v6_hi ^ flow->host.hi) | (bib->v6_port ^ flow->host_port) |
		(bib->protocol ^ flow->protocol)) == 0;
}

always_inline int is_bib4(const struct fw_bib *bib, const struct flow *flow)
{
	return ((bib->v4 ^ flow->local) | (bib->v4_port ^ flow->local_port) | (bib->protocol ^ flow->protocol)) == 0;
}

/* The BIB entry of (X',x), LIVE or HOLD_DOWN. */
__noinline int find_bib6(struct flow *flow)
{
	if (nat64.mode == FW_NAT64_NONE || !flow)
		return 0;
	__u64 *head = HEAD(nat64_bib6, DIRECTORY_BIB6, hash_v6(flow->host, flow->host_port, flow->protocol));
	if (!head)
		return 0;
	flow->seen6 = READ_ONCE(*head);
	__u32 index = flow->seen6;
	LOOP (int i = 0; i < LINKS_MAX; i++) {
		struct fw_bib *bib = index ? bib_at(index) : 0;
		if (!bib)
			return 0;
		__u8 state = life_state(READ_ONCE(bib->life));
		if ((state == FW_ENTRY_LIVE || state == FW_ENTRY_HOLD_DOWN) && is_bib6(bib, flow)) {
			flow->bib_state = state;
			return index;
		}
		index = READ_ONCE(bib->next6);
	}
	return TOO_LONG;
}

/* The entry that holds (T,t): FW_ENTRY_CLAIMED, LIVE or HOLD_DOWN. */
always_inline int search_bib4(struct flow *flow, const __u64 *head)
{
	flow->seen = READ_ONCE(*head);
	__u32 index = flow->seen;
	LOOP (int i = 0; i < LINKS_MAX; i++) {
		struct fw_bib *bib = index ? bib_at(index) : 0;
		if (!bib)
			return 0;
		__u8 state = life_state(READ_ONCE(bib->life));
		if ((state == FW_ENTRY_LIVE || state == FW_ENTRY_CLAIMED || state == FW_ENTRY_HOLD_DOWN) &&
		    is_bib4(bib, flow)) {
			flow->bib_state = state;
			return index;
		}
		index = READ_ONCE(bib->next4);
	}
	return TOO_LONG;
}

always_inline __u64 *bib4_head(const struct flow *flow)
{
	return HEAD(nat64_bib4, DIRECTORY_BIB4, hash_v4(flow->local, flow->local_port, flow->protocol));
}

__noinline int find_bib4(struct flow *flow)
{
	if (nat64.mode == FW_NAT64_NONE || !flow)
		return 0;
	const __u64 *head = bib4_head(flow);
	return head ? search_bib4(flow, head) : 0;
}

always_inline __u64 *session_head(const struct flow *flow)
{
	return HEAD(nat64_session, DIRECTORY_SESSION,
		    hash_session(flow->local, flow->local_port, flow->remote, flow->remote_port, flow->protocol));
}

/* The live session of (T,t) and (Z,z). */
__noinline int find_session(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return 0;
	__u64 *head = session_head(flow);
	if (!head)
		return 0;
	flow->seen = READ_ONCE(*head);
	__u32 index = flow->seen;
	LOOP (int i = 0; i < LINKS_MAX; i++) {
		struct fw_session *session = index ? session_at(index) : 0;
		if (!session)
			return 0;
		__u64 life = READ_ONCE(session->life);
		__u32 differs = (session->local ^ flow->local) | (session->remote ^ flow->remote) |
				(session->local_port ^ flow->local_port) | (session->protocol ^ flow->protocol) |
				(session->remote_port ^ flow->remote_port);
		if (differs == 0 && session_state(life) >= FW_ENTRY_LIVE)
			return index;
		index = READ_ONCE(session->next);
	}
	return TOO_LONG;
}

/* The first bits of an address. */
always_inline struct halves prefix_of(struct halves address, __u32 len)
{
	struct halves mask = {
		len >= 64 ? ~0ull : ~(~0ull >> (len & 63)),
		len <= 64 ? 0 : len >= 128 ? ~0ull : ~(~0ull >> (len & 63)),
	};
	struct halves prefix = { address.hi & mask.hi, address.lo & mask.lo };
	return prefix;
}

/* The live subscriber of the host. */
__noinline int find_subscriber(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return 0;
	struct halves prefix = prefix_of(flow->host, nat64.subscriber_len);
	__u64 *head = HEAD(nat64_subscriber, DIRECTORY_SUBSCRIBER, hash_subscriber(prefix, flow->mark));
	if (!head)
		return 0;
	__u32 index = READ_ONCE(*head);
	LOOP (int i = 0; i < LINKS_MAX; i++) {
		struct fw_subscriber *subscriber = index ? subscriber_at(index) : 0;
		if (!subscriber)
			return 0;
		if (((subscriber->lo ^ prefix.lo) | (subscriber->hi ^ prefix.hi) | (subscriber->mark ^ flow->mark)) == 0 &&
		    life_state(READ_ONCE(subscriber->life)) == FW_ENTRY_LIVE)
			return index;
		index = READ_ONCE(subscriber->next);
	}
	return TOO_LONG;
}

/* Makes an entry, whose link to the next is written, the head of a chain. Fails if the head is no longer `seen`. */
always_inline int swap_head(__u64 *head, __u64 seen, __u32 index)
{
	__u64 new = ((seen >> 32) + 1) << 32 | index;
	return __sync_val_compare_and_swap(head, seen, new) == seen;
}

/* An entry's link in its free list. */
always_inline __u32 *free_link(__u32 kind, __u32 index)
{
	if (kind == FW_KIND_BIB) {
		struct fw_bib *bib = bib_at(index);
		if (!bib)
			return 0;
		/* The verifier wants the test before the sum. */
		asm volatile("" : "+r"(bib));
		return &bib->next6;
	}
	struct fw_session *session = session_at(index);
	if (!session)
		return 0;
	asm volatile("" : "+r"(session));
	return &session->next;
}

always_inline struct fw_free *free_list(__u32 kind, __u32 shard)
{
	__u32 place = kind * FW_FREE_SHARDS + (shard & (FW_FREE_SHARDS - 1));
	return bpf_map_lookup_elem(&nat64_free, &place);
}

/* Takes a free entry of a shard; 0: it has none. */
__noinline __u32 pop_free(__u32 kind, __u32 shard)
{
	if (nat64.mode != FW_NAT64_STATEFUL)
		return 0;
	struct fw_free *list = free_list(kind, shard);
	if (!list)
		return 0;
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u64 seen = READ_ONCE(list->head);
		__u32 index = seen;
		__u32 *link = index ? free_link(kind, index) : 0;
		if (!link)
			return 0;
		if (swap_head(&list->head, seen, READ_ONCE(*link))) {
			__sync_fetch_and_sub(&list->count, 1);
			return index;
		}
	}
	return 0;
}

/* How many entries there are of the two kinds that programs make. The indices are constants: the verifier of Linux 6.1
 * forgets the bounds of an index on the stack. */
always_inline __u32 entries_of(__u32 kind)
{
	return kind == FW_KIND_BIB ? nat64.entries[FW_KIND_BIB] : nat64.entries[FW_KIND_SESSION];
}

/* The first entry of a kind that was never used. */
always_inline __u32 *fresh_of(struct fw_nat64_meta *meta, __u32 kind)
{
	return kind == FW_KIND_BIB ? &meta->fresh[FW_KIND_BIB] : &meta->fresh[FW_KIND_SESSION];
}

/* Frees an entry that was never linked. */
__noinline int push_free(__u32 kind, __u32 index)
{
	if (nat64.mode != FW_NAT64_STATEFUL)
		return 0;
	struct fw_free *list = free_list(kind, bpf_get_smp_processor_id());
	__u32 *link = free_link(kind, index);
	if (!list || !link)
		return 0;
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u64 seen = READ_ONCE(list->head);
		WRITE_ONCE(*link, (__u32)seen);
		if (swap_head(&list->head, seen, index)) {
			__sync_fetch_and_add(&list->count, 1);
			return 1;
		}
	}
	/* The entry leaks until the next process adopts the tables. */
	return 0;
}

/* Entries that were never used are taken so many at once, because all processors share their counter. */
#define FRESH_AT_ONCE 16

/* Takes entries that were never used: one for the caller, the others into the processor's own list. 0: there are none. */
always_inline __u32 take_fresh(__u32 kind)
{
	__u32 zero = 0, entries = entries_of(kind);
	struct fw_nat64_meta *meta = bpf_map_lookup_elem(&nat64_meta, &zero);

	if (!meta)
		return 0;
	__u32 *fresh = fresh_of(meta, kind);
	/* Tested first, so that the count of a full table does not grow without bound. */
	if (READ_ONCE(*fresh) >= entries)
		return 0;
	__u32 first = __sync_fetch_and_add(fresh, FRESH_AT_ONCE);
	/* Does nothing behind the table's end. */
	LOOP (int i = FRESH_AT_ONCE - 1; i > 0; i--)
		push_free(kind, first + i);
	return first < entries ? first : 0;
}

/* Allocates an entry of a kind: from the processor's own shard, else one that was never used, else from any other
 * shard, the nearest first, since as many are filled as there are processors; 0: there is none. The core's FreeList::take. */
__noinline __u32 take_free(__u32 kind)
{
	__u32 shard = bpf_get_smp_processor_id();

	if (nat64.mode != FW_NAT64_STATEFUL || kind >= FW_KINDS)
		return 0;
	__u32 index = pop_free(kind, shard);
	if (!index)
		index = take_fresh(kind);
	LOOP (__u32 step = 1; !index && step < FW_FREE_SHARDS; step++)
		index = pop_free(kind, shard ^ step);
	return index;
}

/* Fills in a new entry of the session table, which is linked nowhere yet. */
always_inline void fill_session(struct fw_session *entry, const struct flow *flow, __u16 remote_port, __u8 pool6,
				__u8 protocol, __u64 life)
{
	entry->bib = flow->bib;
	entry->remote = flow->remote;
	entry->remote_port = remote_port;
	entry->pool6 = pool6;
	entry->protocol = protocol;
	entry->local = flow->local;
	entry->local_port = flow->local_port;
	entry->seen = 0;
	entry->packets[0] = entry->packets[1] = 0;
	entry->octets[0] = entry->octets[1] = 0;
	WRITE_ONCE(entry->life, life);
}

/* RFC 6888 REQ-8: ends the hold-down of a BIB entry's port. 0: the port is not held down. */
always_inline int end_hold_down(struct fw_bib *bib)
{
	__u32 life = READ_ONCE(bib->life), dead = make_life(FW_ENTRY_DEAD, life_number(life));

	return life_state(life) == FW_ENTRY_HOLD_DOWN && __sync_val_compare_and_swap(&bib->life, life, dead) == life;
}

/* Decrements a shared counter, but not below 0: a killed process may have left it too low. */
always_inline void one_less(__u32 *counter)
{
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u32 number = READ_ONCE(*counter);
		if (number == 0 || __sync_val_compare_and_swap(counter, number, number - 1) == number)
			return;
	}
	/* Under such contention the counter is above 0. */
	__sync_fetch_and_sub(counter, 1);
}

#endif
