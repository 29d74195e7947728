/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Making BIB entries and sessions, within the quotas of their subscriber (RFC 6146 section 3.5, RFC 6888 REQ-4
 * and REQ-5); the core's nat64/packet/make.rs, nat64/table/bib.rs and nat64/policy/subscriber.rs.
 *
 * A new entry is private until it is linked into a chain. The sweeper may still mark it dead meanwhile, because it scans
 * every entry and ends those whose BIB entry or pool is gone. A program that then fails to link the entry must not free
 * it: the sweeper does, and corrects the counts.
 */
#ifndef FORDWAY_NAT64_MAKE_H
#define FORDWAY_NAT64_MAKE_H

#include "common.h"
#include "nat64_chain.h"
#include "nat64_maps.h"
#include "nat64_permission.h"
#include "nat64_tcp.h"

/* Results of a step beside the verdicts: look up again. */
#define AGAIN 0x400u
/* There is no BIB entry yet: reserve_bib() comes next. */
#define NEEDS_BIB 0x500u
/* There is no session yet: open_session() comes next. */
#define NEEDS_SESSION 0x600u

/* The user engine handles everything that is not a plain success. */
#define LEAVE PASS_ON(FW_PASS_SESSION)

always_inline int is_tcp(const struct flow *flow)
{
	return flow->protocol == PROTOCOL_TCP;
}

/* TCP, UDP, ICMP. */
always_inline __u32 protocol_index(const struct flow *flow)
{
	return is_tcp(flow) ? 0 : flow->protocol == PROTOCOL_UDP ? 1 : 2;
}

/* Counts a session in its live BIB entry. */
always_inline int one_session_more(struct fw_bib *bib)
{
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u32 life = READ_ONCE(bib->life);
		if (life_state(life) != FW_ENTRY_LIVE || life_number(life) == 0xffffff)
			return 0;
		if (__sync_val_compare_and_swap(&bib->life, life, life + 1) == life)
			return 1;
	}
	return 0;
}

always_inline void one_session_less(struct fw_bib *bib)
{
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u32 life = READ_ONCE(bib->life);
		if (life_number(life) == 0 || __sync_val_compare_and_swap(&bib->life, life, life - 1) == life)
			return;
	}
	/* Under such contention the number is above 0. */
	__sync_fetch_and_sub(&bib->life, 1);
}

/* IPv4 hosts get no ICMP error; IPv6 hosts get one from the user engine. */
always_inline verdict refused(const struct flow *flow, __u32 reason)
{
	return flow->direction == FW_V6_TO_V4 ? LEAVE : DROP(reason);
}

/* New sessions are counted in intervals of eight ticks, 1.07 s. */
always_inline int is_within_rate(struct fw_subscriber *subscriber, __u32 now, __u32 most)
{
	__u64 second = now >> 3;

	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u64 rate = READ_ONCE(subscriber->rate);
		__u32 number = rate >> 32 == second ? (__u32)rate : 0;
		if (number >= most)
			return 0;
		if (__sync_val_compare_and_swap(&subscriber->rate, rate, second << 32 | (number + 1)) == rate)
			return 1;
	}
	return 0;
}

/* IPv4 hosts may use at most half of a quota of a subscriber. */
always_inline __u32 part_of(__u32 quota, const struct flow *flow)
{
	return flow->direction == FW_V6_TO_V4 ? quota : quota / 2 + (quota & 1);
}

/* Whether the quotas allow an IPv6 host one more session; without one a BIB entry would be useless. The core's
 * View::has_room. */
always_inline int has_room(const struct fw_subscriber *subscriber, __u32 now)
{
	__u64 rate = READ_ONCE(subscriber->rate);
	__u32 number = rate >> 32 == now >> 3 ? (__u32)rate : 0;

	if (nat64.max_new_per_second && number >= nat64.max_new_per_second)
		return 0;
	return !nat64.max_sessions || READ_ONCE(subscriber->sessions) < nat64.max_sessions;
}

/* Counts one session more of a subscriber, if the quotas allow it (RFC 6888 REQ-4). */
always_inline verdict count_session(struct fw_subscriber *subscriber, const struct flow *flow)
{
	__u32 most = part_of(nat64.max_sessions, flow);

	/* The user engine sends the ICMP error. Tested first, so that the rate is charged once. */
	if (most && flow->direction == FW_V6_TO_V4 && READ_ONCE(subscriber->sessions) >= most)
		return LEAVE;
	if (nat64.max_new_per_second &&
	    !is_within_rate(subscriber, flow->now, part_of(nat64.max_new_per_second, flow)))
		return refused(flow, FW_DROP_RATE_QUOTA);
	if (__sync_fetch_and_add(&subscriber->sessions, 1) >= most && most) {
		one_less(&subscriber->sessions);
		return refused(flow, FW_DROP_SESSION_QUOTA);
	}
	WRITE_ONCE(subscriber->last_used, flow->now);
	return GO_ON;
}

/* Counts one port more of a subscriber, if its quota allows it. */
always_inline int count_port(struct fw_subscriber *subscriber, __u32 protocol)
{
	__u32 most = nat64.max_ports[protocol];
	__u32 *ports = &subscriber->ports[protocol];

	if (most && READ_ONCE(*ports) >= most)
		return 0;
	if ((__sync_fetch_and_add(ports, 1) >= most && most) ||
	    life_state(READ_ONCE(subscriber->life)) != FW_ENTRY_LIVE) {
		one_less(ports);
		return 0;
	}
	return 1;
}

always_inline int is_draining(void)
{
	__u32 zero = 0;
	struct fw_nat64_meta *meta = bpf_map_lookup_elem(&nat64_meta, &zero);

	return !meta || READ_ONCE(meta->draining);
}

/* Whether an IPv4 host may open a session: the last eighth of the table is reserved for IPv6 hosts. The core's
 * FreeList::has_reserve: entries in use are those ever used, less those in the free lists. */
__noinline int has_reserve(__u32 kind)
{
	__u32 zero = 0;

	/* Tested before any map is used: verifiers before Linux 6.8 also check functions that are never called. */
	if (nat64.mode != FW_NAT64_STATEFUL || kind >= FW_KINDS)
		return 0;
	struct fw_nat64_meta *meta = bpf_map_lookup_elem(&nat64_meta, &zero);
	if (!meta)
		return 0;
	__u32 entries = entries_of(kind), most = (__u64)entries * 7 / 8;
	__u32 ever = READ_ONCE(*fresh_of(meta, kind));
	__s64 free = 0;
	if (ever < most)
		return 1;
	LOOP (__u32 shard = 0; shard < FW_FREE_SHARDS; shard++) {
		struct fw_free *list = free_list(kind, shard);
		if (!list)
			return 0;
		free += READ_ONCE(list->count);
	}
	__s64 used = (__s64)(ever < entries ? ever : entries) - 1 - free;
	return used < (__s64)most;
}

/* In a cluster: a session is new or has another state. The core's Shards::note. */
always_inline void note_session(__u32 index)
{
	__u32 zero = 0;

	if (!nat64.shards)
		return;
	struct fw_gates *gates = bpf_map_lookup_elem(&nat64_gates, &zero);
	if (gates)
		__sync_fetch_and_or(&gates->changed[(index >> 6) & (FW_CHANGED_WORDS - 1)], 1ull << (index & 63));
}

/* The life word of a new session. */
always_inline __u64 birth(const struct flow *flow)
{
	if (is_tcp(flow))
		return session_life(flow->now, flow->direction == FW_V6_TO_V4 ? FW_TCP_V6_INIT : FW_TCP_V4_INIT,
				    FW_TIMEOUT_TCP_TRANS);
	return session_life(flow->now, FW_ENTRY_LIVE,
			    flow->protocol == PROTOCOL_UDP ? FW_TIMEOUT_UDP : FW_TIMEOUT_ICMP);
}

/* Links a session that is complete but for its place in the chain. */
always_inline verdict link_session(struct flow *flow, struct fw_session *session, __u32 index)
{
	__u64 *head = session_head(flow);

	if (!head)
		return LEAVE;
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		int found = find_session(flow);
		if (found)
			return found < 0 ? PASS_ON(FW_PASS_CHAIN) : AGAIN;
		WRITE_ONCE(session->next, (__u32)flow->seen);
		if (swap_head(head, flow->seen, index))
			return GO_ON;
	}
	return LEAVE;
}

/* A new session of the live BIB entry `flow->bib`. */
__noinline int open_session(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	struct fw_bib *bib = bib_at(flow->bib);
	if (!bib)
		return LEAVE;
	if (is_draining())
		return refused(flow, FW_DROP_DRAINING);
	/* The user engine says so, and counts it. */
	if (flow->direction == FW_V4_TO_V6 && !has_reserve(FW_KIND_SESSION))
		return LEAVE;
	if (!one_session_more(bib))
		return AGAIN;
	__u32 owner = READ_ONCE(bib->subscriber);
	struct fw_subscriber *subscriber = owner ? subscriber_at(owner) : 0;
	verdict v = subscriber ? count_session(subscriber, flow) : GO_ON;
	if (v != GO_ON) {
		one_session_less(bib);
		return v;
	}
	int permission = nat64.address_dependent ? permit(flow) : 0;
	__u32 index = permission || !nat64.address_dependent ? take_free(FW_KIND_SESSION) : 0;
	struct fw_session *session = index ? session_at(index) : 0;
	if (!session) {
		one_session_less(bib);
		if (subscriber)
			one_less(&subscriber->sessions);
		if (permission)
			unpermit(permission);
		return LEAVE;
	}
	__u64 born = birth(flow) | (permission ? FW_SESSION_PERMITS : 0);
	fill_session(session, flow, flow->remote_port, flow->pool6, flow->protocol, born);
	v = link_session(flow, session, index);
	if (v == GO_ON) {
		flow->session = index;
		flow->created |= CREATED_SESSION;
		/* One of TCP has a record when it is established. The subscriber is known, and so are its blocks. */
		if (!is_tcp(flow))
			note_session(index);
		return GO_ON;
	}
	/* Fails if the sweeper has ended it already. */
	__u64 dead = session_life(born, FW_ENTRY_DEAD, session_timeout(born)) | (born & FW_SESSION_PERMITS);
	__sync_val_compare_and_swap(&session->life, born, dead);
	return v;
}

/* Links the live BIB entry under its IPv6 side. from_v6() has searched that chain, from `seen6` on, and found none. */
always_inline verdict announce(struct flow *flow, struct fw_bib *bib, __u32 index)
{
	__u64 *head = HEAD(nat64_bib6, DIRECTORY_BIB6, hash_v6(flow->host, flow->host_port, flow->protocol));

	LOOP (int i = 0; head && i < ATTEMPTS; i++) {
		WRITE_ONCE(bib->next6, (__u32)flow->seen6);
		if (swap_head(head, flow->seen6, index))
			return GO_ON;
		int found = find_bib6(flow);
		/* Another thread was first. */
		if (found)
			return found < 0 ? PASS_ON(FW_PASS_CHAIN) : AGAIN;
	}
	return LEAVE;
}

/* Ends a BIB entry. 0: the sweeper has ended it already and returned its port. */
always_inline int end_bib(struct fw_bib *bib)
{
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u32 life = READ_ONCE(bib->life);
		__u32 dead = make_life(FW_ENTRY_DEAD, life_number(life));

		if (life_state(life) != FW_ENTRY_LIVE)
			return 0;
		if (__sync_val_compare_and_swap(&bib->life, life, dead) == life)
			return 1;
	}
	return 0;
}

/* Ends the hold-down of the host's port, and notes the port. 0: it is no longer held down. */
always_inline int end_rest(struct flow *flow)
{
	struct fw_bib *resting = flow->bib ? bib_at(flow->bib) : 0;

	flow->local_port = 0;
	if (!resting)
		return 1;
	if (!end_hold_down(resting))
		return 0;
	flow->local = resting->v4;
	flow->local_port = resting->v4_port;
	return 1;
}

/* The first of three steps to a new BIB entry for (X',x), with the port of `flow->bib` if that is held down: this one
 * makes it, choose_port() links it under (T,t), and settle_bib() under (X',x). */
__noinline int reserve_bib(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	int owner = find_subscriber(flow);
	struct fw_subscriber *subscriber = owner > 0 ? subscriber_at(owner) : 0;
	if (!subscriber)
		return PASS_ON(owner < 0 ? FW_PASS_CHAIN : FW_PASS_SUBSCRIBER);
	__u32 protocol = protocol_index(flow);
	/* The user engine says so, and counts it. */
	if (!has_room(subscriber, flow->now) || !count_port(subscriber, protocol))
		return LEAVE;
	verdict v = LEAVE;
	__u32 index = take_free(FW_KIND_BIB);
	struct fw_bib *bib = index ? bib_at(index) : 0;
	if (bib && end_rest(flow)) {
		bib->v6_hi = flow->host.hi;
		bib->v6_lo = flow->host.lo;
		bib->v6_port = flow->host_port;
		bib->protocol = flow->protocol;
		bib->flags = 0;
		bib->subscriber = owner;
		bib->created = flow->now;
		bib->since = flow->now;
		WRITE_ONCE(bib->life, make_life(FW_ENTRY_CLAIMED, 0));
		flow->bib = index;
		flow->subscriber = owner;
		return GO_ON;
	}
	if (bib) {
		push_free(FW_KIND_BIB, index);
		v = AGAIN;
	}
	one_less(&subscriber->ports[protocol]);
	return v;
}

/* `has_port`: it is linked under (T,t). */
__noinline int settle_bib(struct flow *flow, int has_port)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	struct fw_bib *bib = bib_at(flow->bib);
	struct fw_subscriber *subscriber = subscriber_at(flow->subscriber);
	if (!bib || !subscriber)
		return LEAVE;
	verdict v = PASS_ON(FW_PASS_PORT);
	if (has_port) {
		WRITE_ONCE(bib->life, make_life(FW_ENTRY_LIVE, 0));
		v = announce(flow, bib, flow->bib);
		if (v == GO_ON) {
			flow->created |= CREATED_BIB;
			return GO_ON;
		}
		if (!end_bib(bib))
			return v;
	} else {
		WRITE_ONCE(bib->life, make_life(FW_ENTRY_FREE, 0));
		push_free(FW_KIND_BIB, flow->bib);
	}
	one_less(&subscriber->ports[protocol_index(flow)]);
	return v;
}

#endif
