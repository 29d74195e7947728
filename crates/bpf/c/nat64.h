/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Filtering and updating binding and session information (RFC 6146 section 3.5); the core's nat64/filter.rs.
 * Packets that are refused or not found quickly are passed to the user engine. It works on the same tables, and sends the
 * ICMP errors.
 */
#ifndef FORDWAY_NAT64_H_
#define FORDWAY_NAT64_H_

#include "address.h"
#include "common.h"
#include "nat64_chain.h"
#include "nat64_make.h"
#include "nat64_maps.h"
#include "nat64_tcp.h"
#include "pool4.h"

/* How often a packet is looked up again after another thread has changed what it found. */
#define ROUNDS 4

/* The time in ticks, from a clock that is at most some milliseconds behind. */
always_inline __u32 now_in_ticks(void)
{
	__u64 now = nat64.clock == FW_CLOCK_STANDS ? 0 : bpf_ktime_get_coarse_ns();
	__u32 zero = 0;

	if (nat64.clock != FW_CLOCK_MACHINE) {
		struct fw_nat64_meta *meta = bpf_map_lookup_elem(&nat64_meta, &zero);
		now += meta ? READ_ONCE(meta->clock_offset_ns) : 0;
	}
	return now >> FW_TICK_SHIFT;
}

/* Whether time has passed. The clocks of the two engines may differ by a tick. */
always_inline int is_later(__u32 now, __u32 tick)
{
	return (__s32)(now - tick) > 0;
}

/* Updates state and lifetime of a session for a packet of it. */
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
		__u64 after = session_life(tick, state, timeout) | (before & FW_SESSION_PERMITS);
		if (after != before && __sync_val_compare_and_swap(&session->life, before, after) != before)
			continue;
		if ((after ^ before) >> 32)
			note_session(flow->session);
		return GO_ON;
	}
	return LEAVE;
}

/* A packet's session was found: each object defines what follows. */
always_inline verdict found_session(const struct flow *flow, struct fw_session *session);

/* Whether an ALG inspects a port. */
always_inline int is_left_port(__u16 port)
{
	/* A constant when the program is loaded: without ALGs the verifier removes the loop. */
	if (!nat64.left_ports[0])
		return 0;
	for (int i = 0; i < FW_LEFT_PORTS; i++) {
		if (port && nat64.left_ports[i] == port)
			return 1;
	}
	return 0;
}

/* What a packet from an IPv6 host finds. */
__noinline int look_from_v6(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
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
			/* A stale session of an earlier BIB entry. */
			if (session->bib != flow->bib)
				return LEAVE;
			/* The answer to a stored SYN adds a permission, which the user engine makes. */
			if (nat64.address_dependent &&
			    session_timeout(READ_ONCE(session->life)) == FW_TIMEOUT_TCP_INCOMING_SYN)
				return LEAVE;
			/* Answers use the prefix that the host used last. */
			if (session->pool6 != flow->pool6) {
				WRITE_ONCE(session->pool6, flow->pool6);
				note_session(found);
			}
			flow->session = found;
			return found_session(flow, session);
		}
		/* RFC 6146 section 3.5.2.2, CLOSED: other segments pass by the BIB alone. */
		return may_open ? NEEDS_SESSION : GO_ON;
	}
	if (!may_open)
		return DROP(FW_DROP_NOT_SYN);
	/* The host returns during the hold-down of its port: it gets the same port. */
	flow->bib = bib ? found : 0;
	return is_draining() ? LEAVE : NEEDS_BIB;
}

/* A packet from an IPv6 host: updates the tables, and finds (T,t). */
always_inline verdict from_v6(struct flow *flow)
{
	verdict v = look_from_v6(flow);

	LOOP (int i = 1; v == AGAIN && i < ROUNDS; i++)
		v = look_from_v6(flow);
	return v == AGAIN ? LEAVE : v;
}

/* There is no BIB entry of (T,t). */
always_inline verdict without_bib(const struct flow *flow)
{
	/* The user engine knows whether the operator has configured an entry for this protocol. */
	enum pool4 whose = pool4_of(flow->local, flow->local_port, flow->protocol);
	if (whose != POOL4_POOL)
		return whose == POOL4_NONE ? DROP(FW_DROP_NO_MAPPING_DESTINATION) : LEAVE;
	if (!is_tcp(flow) || !opens(flow->segment))
		return DROP(FW_DROP_NO_BIB);
	if (!nat64.accept_v4_syn)
		return DROP(FW_DROP_EXTERNALLY_INITIATED);
	/* The user engine stores an unsolicited SYN until it is answered. A SYN-ACK here answers no SYN. */
	return flow->segment == SEGMENT_SYN ? LEAVE : DROP(FW_DROP_NO_BIB);
}

/* What a packet from IPv4 finds. */
__noinline int look_from_v4(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !flow)
		return LEAVE;
	int syn = is_tcp(flow) && opens(flow->segment);
	int found = find_session(flow);

	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	struct fw_session *session = found ? session_at(found) : 0;
	struct fw_bib *bib = session ? bib_at(session->bib) : 0;
	if (bib && session->bib && life_state(READ_ONCE(bib->life)) == FW_ENTRY_LIVE) {
		/* A session that a stored SYN has made does not admit packets of its sender. */
		if (session_timeout(READ_ONCE(session->life)) == FW_TIMEOUT_TCP_INCOMING_SYN)
			return flow->segment == SEGMENT_SYN ? LEAVE : DROP(FW_DROP_FILTERED);
		if (is_left_port(bib->v6_port))
			return PASS_ON(FW_PASS_ALG);
		flow->session = found;
		flow->host.hi = bib->v6_hi;
		flow->host.lo = bib->v6_lo;
		flow->host_port = bib->v6_port;
		flow->pool6 = session->pool6;
		return found_session(flow, session);
	}
	/* The user engine knows which IPv4 hosts may open sessions. */
	if (session || nat64.v4_restricted)
		return LEAVE;
	/* A new session begins with the first prefix of pool6; an existing one has its own. */
	if (!may_embed(flow->pool6, flow->remote))
		return PASS_ON(FW_PASS_UNMAPPED);
	found = find_bib4(flow);
	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	bib = found && flow->bib_state == FW_ENTRY_LIVE ? bib_at(found) : 0;
	if (!bib)
		return without_bib(flow);
	/* The user engine knows which connections an ALG expects. */
	if (bib->flags & FW_BIB_EXPECTED || is_left_port(bib->v6_port))
		return PASS_ON(FW_PASS_ALG);
	if (syn && !nat64.accept_v4_syn)
		return nat64.left_ports[0] ? PASS_ON(FW_PASS_ALG) : DROP(FW_DROP_EXTERNALLY_INITIATED);
	flow->bib = found;
	if (nat64.address_dependent) {
		if (is_tcp(flow) && flow->segment == SEGMENT_SYN)
			return LEAVE;
		verdict v = check_permission(flow);
		if (v != GO_ON)
			return v;
	}
	flow->host.hi = bib->v6_hi;
	flow->host.lo = bib->v6_lo;
	flow->host_port = bib->v6_port;
	return !is_tcp(flow) || syn ? NEEDS_SESSION : GO_ON;
}

/* A packet from IPv4: updates the tables, and finds (X',x), and which of pool6 the other end is embedded in. */
always_inline verdict from_v4(struct flow *flow)
{
	verdict v = look_from_v4(flow);

	LOOP (int i = 1; v == AGAIN && i < ROUNDS; i++)
		v = look_from_v4(flow);
	return v == AGAIN ? LEAVE : v;
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
