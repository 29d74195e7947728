/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Filtering and updating binding and session information (RFC 6146 section 3.5); the core's nat64/filter.rs.
 * What is refused, and what is not found quickly, is left to the user engine, which works on the same tables
 * and knows who is to be told.
 */
#ifndef FORDWAY_NAT64_H_
#define FORDWAY_NAT64_H_

#include "common.h"
#include "nat64_chain.h"
#include "nat64_maps.h"
#include "nat64_port.h"
#include "nat64_tcp.h"

/* How often a packet looks anew, because others have changed what it found. */
#define ROUNDS 4

/* What a step says beside a verdict: look anew. */
#define AGAIN 0x400u
/* There is no BIB entry yet: reserve_bib() comes next. */
#define NEEDS_BIB 0x500u
/* There is no session yet: open_session() comes next. */
#define NEEDS_SESSION 0x600u

/* Everything that is not a plain success is the user engine's. */
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

/* Ticks of a clock that is some milliseconds behind at most. */
always_inline __u32 now_in_ticks(const struct fw_nat64_meta *meta)
{
	return (bpf_ktime_get_coarse_ns() + READ_ONCE(meta->clock_offset_ns)) >> FW_TICK_SHIFT;
}

/* Time passes. One engine may be a tick behind the other. */
always_inline int is_later(__u32 now, __u32 tick)
{
	return (__s32)(now - tick) > 0;
}

/* A packet of a session: its state and lifetime follow. */
always_inline verdict refresh(const struct flow *flow, struct fw_session *session)
{
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u64 before = READ_ONCE(session->life);
		__u8 state = session_state(before), timeout = session_timeout(before);
		__u32 tick = before;
		int anew = flow->direction == FW_V6_TO_V4 || nat64.refresh_from_v4;

		if (state < FW_ENTRY_LIVE)
			return AGAIN;
		if (is_tcp(flow)) {
			struct transition step = transition(state, flow->direction, flow->segment);
			int refused = step.state == FW_TCP_V4_INIT && !nat64.accept_v4_syn;
			anew = step.timeout != TIMEOUT_STAYS && !refused;
			if (!refused)
				state = step.state;
			if (anew)
				timeout = step.timeout;
		}
		if (anew && is_later(flow->now, tick))
			tick = flow->now;
		__u64 after = session_life(tick, state, timeout);
		if (after == before || __sync_val_compare_and_swap(&session->life, before, after) == before)
			return GO_ON;
	}
	return LEAVE;
}

/* Counts a session of a live BIB entry. */
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
}

/* Nobody in IPv4 is told; IPv6 hosts are, by the user engine. */
always_inline verdict refused(const struct flow *flow, __u32 reason)
{
	return flow->direction == FW_V6_TO_V4 ? LEAVE : DROP(reason);
}

/* New sessions are counted by eights of ticks, 1.07 s. */
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

/* Hosts in IPv4 may use up half of what a subscriber may have. */
always_inline __u32 part_of(__u32 quota, const struct flow *flow)
{
	return flow->direction == FW_V6_TO_V4 ? quota : quota / 2 + (quota & 1);
}

/* Counts one session more of a subscriber, if the quotas allow it (RFC 6888 REQ-4). */
always_inline verdict count_session(struct fw_subscriber *subscriber, const struct flow *flow)
{
	__u32 most = part_of(nat64.max_sessions, flow);

	/* The user engine tells an IPv6 host; looked at first, so that its rate is used up once. */
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

/* Whether an eighth of the sessions was never used. */
always_inline int has_reserve(void)
{
	__u32 zero = 0, entries = nat64.entries[FW_KIND_SESSION];
	struct fw_nat64_meta *meta = bpf_map_lookup_elem(&nat64_meta, &zero);

	return meta && READ_ONCE(meta->fresh[FW_KIND_SESSION]) < (__u64)entries * 7 / 8;
}

/* What a session begins with. */
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
	/* The last of the table is the IPv6 hosts'; the user engine knows how much is left. */
	if (flow->direction == FW_V4_TO_V6 && !has_reserve())
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
	v = LEAVE;
	__u32 index = take_free(FW_KIND_SESSION);
	struct fw_session *session = index ? session_at(index) : 0;
	if (session) {
		session->bib = flow->bib;
		session->remote = flow->remote;
		session->remote_port = flow->remote_port;
		session->pool6 = flow->pool6;
		session->protocol = flow->protocol;
		session->local = flow->local;
		session->local_port = flow->local_port;
		session->seen = 0;
		session->packets[0] = session->packets[1] = 0;
		session->octets[0] = session->octets[1] = 0;
		WRITE_ONCE(session->life, birth(flow));
		v = link_session(flow, session, index);
		if (v == GO_ON) {
			flow->session = index;
			flow->created |= CREATED_SESSION;
			return GO_ON;
		}
		WRITE_ONCE(session->life, 0);
		push_free(FW_KIND_SESSION, index);
	}
	one_session_less(bib);
	if (subscriber)
		one_less(&subscriber->sessions);
	return v;
}

/* Lets others find the live BIB entry by its IPv6 side. */
always_inline verdict announce(struct flow *flow, struct fw_bib *bib, __u32 index)
{
	__u64 *head = HEAD(nat64_bib6, DIRECTORY_BIB6, hash_v6(flow->host, flow->host_port, flow->protocol));
	verdict v = LEAVE;

	LOOP (int i = 0; head && i < ATTEMPTS; i++) {
		int found = find_bib6(flow);
		if (found) {
			/* Another has come first. */
			v = found < 0 ? PASS_ON(FW_PASS_CHAIN) : AGAIN;
			break;
		}
		WRITE_ONCE(bib->next6, (__u32)flow->seen);
		if (swap_head(head, flow->seen, index))
			return GO_ON;
	}
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u32 life = READ_ONCE(bib->life);
		__u32 dead = make_life(FW_ENTRY_DEAD, life_number(life));
		if (__sync_val_compare_and_swap(&bib->life, life, dead) == life)
			break;
	}
	return v;
}

/* Ends the rest of the host's port, and keeps in mind which that is. 0: it rests no longer. */
always_inline int end_rest(struct flow *flow)
{
	struct fw_bib *resting = flow->bib ? bib_at(flow->bib) : 0;

	flow->local_port = 0;
	if (!resting)
		return 1;
	__u32 life = READ_ONCE(resting->life);
	if (life_state(life) != FW_ENTRY_RESTING ||
	    __sync_val_compare_and_swap(&resting->life, life, make_life(FW_ENTRY_DEAD, life_number(life))) != life)
		return 0;
	flow->local = resting->v4;
	flow->local_port = resting->v4_port;
	return 1;
}

/* The three steps to a new BIB entry for (X',x), and for its port where `flow->bib` rests: this one makes it, then
 * choose_port() links it under (T,t), and settle_bib() under (X',x). */
__noinline int reserve_bib(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	int owner = find_subscriber(flow);
	struct fw_subscriber *subscriber = owner > 0 ? subscriber_at(owner) : 0;
	if (!subscriber)
		return PASS_ON(owner < 0 ? FW_PASS_CHAIN : FW_PASS_SUBSCRIBER);
	__u32 protocol = protocol_index(flow);
	if (!count_port(subscriber, protocol))
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
	} else {
		WRITE_ONCE(bib->life, make_life(FW_ENTRY_FREE, 0));
		push_free(FW_KIND_BIB, flow->bib);
	}
	one_less(&subscriber->ports[protocol_index(flow)]);
	return v;
}

/* Whose an IPv4 transport address is. */
enum pool4 {
	POOL4_NONE,
	/* Of the pools, or, of ICMP, any of the translator's addresses: it chooses the identifiers. */
	POOL4_POOL,
	/* Bound by the operator, beside the pools, for one protocol or another. */
	POOL4_FIXED,
};

always_inline enum pool4 pool4_of(__u32 address, __u16 port, __u8 protocol)
{
	LOOP (__u32 i = 0; i < FW_MAX_POOL4; i++) {
		if (i >= nat64.pool4_count)
			break;
		if (address < nat64.pool4[i].first || address > nat64.pool4[i].last)
			continue;
		if (protocol == PROTOCOL_ICMP)
			return POOL4_POOL;
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

/* What a packet from an IPv6 host finds. */
always_inline verdict look_from_v6(struct flow *flow)
{
	int may_open = !is_tcp(flow) || opens(flow->segment);
	int found = find_bib6(flow);

	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	struct fw_bib *bib = found ? bib_at(found) : 0;
	if (bib && flow->bib_state == FW_ENTRY_LIVE) {
		flow->bib = found;
		flow->local = bib->v4;
		flow->local_port = bib->v4_port;
		found = find_session(flow);
		if (found < 0)
			return PASS_ON(FW_PASS_CHAIN);
		struct fw_session *session = found ? session_at(found) : 0;
		if (session) {
			/* One that was left behind. */
			if (session->bib != flow->bib)
				return LEAVE;
			/* Answers come from where the host asked last. */
			if (session->pool6 != flow->pool6)
				WRITE_ONCE(session->pool6, flow->pool6);
			flow->session = found;
			return refresh(flow, session);
		}
		/* RFC 6146 section 3.5.2.2, CLOSED: other segments pass by the BIB alone. */
		return may_open ? NEEDS_SESSION : GO_ON;
	}
	if (!may_open)
		return DROP(FW_DROP_NOT_SYN);
	/* The host comes back while its port rests: it gets it again. */
	flow->bib = bib ? found : 0;
	return is_draining() ? LEAVE : NEEDS_BIB;
}

/* A packet from an IPv6 host: updates the tables, and finds (T,t). */
__noinline int from_v6(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	LOOP (int i = 0; i < ROUNDS; i++) {
		verdict v = look_from_v6(flow);
		if (v != AGAIN)
			return v;
	}
	return LEAVE;
}

/* There is no BIB entry of (T,t). */
always_inline verdict without_bib(const struct flow *flow)
{
	/* Whether it is an entry of this protocol that the operator would have made, the user engine knows. */
	enum pool4 whose = pool4_of(flow->local, flow->local_port, flow->protocol);
	if (whose != POOL4_POOL)
		return whose == POOL4_NONE ? DROP(FW_DROP_NO_MAPPING_DESTINATION) : LEAVE;
	if (!is_tcp(flow) || !opens(flow->segment))
		return DROP(FW_DROP_NO_BIB);
	if (!nat64.accept_v4_syn)
		return DROP(FW_DROP_EXTERNALLY_INITIATED);
	/* An unsolicited SYN waits for an answer in the user engine; one that is an answer has no question here. */
	return flow->segment == SEGMENT_SYN ? LEAVE : DROP(FW_DROP_NO_BIB);
}

/* What a packet from IPv4 finds. */
always_inline verdict look_from_v4(struct flow *flow)
{
	int syn = is_tcp(flow) && opens(flow->segment);
	int found = find_session(flow);

	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	struct fw_session *session = found ? session_at(found) : 0;
	struct fw_bib *bib = session ? bib_at(session->bib) : 0;
	if (bib && session->bib && life_state(READ_ONCE(bib->life)) == FW_ENTRY_LIVE) {
		/* What a stored SYN left is no sign that the host wants to hear of its sender. */
		if (session_timeout(READ_ONCE(session->life)) == FW_TIMEOUT_TCP_INCOMING_SYN)
			return flow->segment == SEGMENT_SYN ? LEAVE : DROP(FW_DROP_FILTERED);
		flow->session = found;
		flow->host.hi = bib->v6_hi;
		flow->host.lo = bib->v6_lo;
		flow->host_port = bib->v6_port;
		flow->pool6 = session->pool6;
		return refresh(flow, session);
	}
	if (session)
		return LEAVE;
	found = find_bib4(flow);
	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	bib = found && flow->bib_state == FW_ENTRY_LIVE ? bib_at(found) : 0;
	if (!bib)
		return without_bib(flow);
	if (syn && !nat64.accept_v4_syn)
		return DROP(FW_DROP_EXTERNALLY_INITIATED);
	if (nat64.address_dependent) {
		if (is_tcp(flow) && flow->segment == SEGMENT_SYN)
			return LEAVE;
		int known = find_session_with(flow);
		if (known <= 0)
			return known < 0 ? PASS_ON(FW_PASS_CHAIN) : DROP(FW_DROP_FILTERED);
	}
	flow->bib = found;
	flow->host.hi = bib->v6_hi;
	flow->host.lo = bib->v6_lo;
	flow->host_port = bib->v6_port;
	return !is_tcp(flow) || syn ? NEEDS_SESSION : GO_ON;
}

/* A packet from IPv4: updates the tables, and finds (X',x), and which of pool6 the other end is embedded in. */
__noinline int from_v4(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	LOOP (int i = 0; i < ROUNDS; i++) {
		verdict v = look_from_v4(flow);
		if (v != AGAIN)
			return v;
	}
	return LEAVE;
}

/* Counts a packet that was translated. */
always_inline void count_in_session(const struct flow *flow, __u32 segments, __u32 octets)
{
	struct fw_session *session = flow->session ? session_at(flow->session) : 0;

	if (!session)
		return;
	__u32 direction = flow->direction == FW_V6_TO_V4;
	__sync_fetch_and_add(&session->packets[direction], segments);
	__sync_fetch_and_add(&session->octets[direction], octets);
}

#endif
