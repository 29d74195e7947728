/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Address-dependent filtering (RFC 6146 section 3.5): which remote addresses may send to (T,t), whatever their port; the
 * core's nat64/table/permission.rs. A permission is an entry of the session table that counts the sessions of (T,t) with Z.
 */
#ifndef FORDWAY_NAT64_PERMISSION_H
#define FORDWAY_NAT64_PERMISSION_H

#include "common.h"
#include "nat64_chain.h"
#include "nat64_maps.h"

always_inline __u32 permitted(__u64 life)
{
	return life;
}

always_inline __u64 permission_life(__u8 state, __u32 number)
{
	return (__u64)state << 32 | number;
}

always_inline __u64 *permission_head(const struct flow *flow)
{
	return HEAD(nat64_session, DIRECTORY_SESSION,
		    hash_session(flow->local, flow->local_port, flow->remote, 0, flow->protocol | FW_PERMISSION));
}

/* The live permission of (T,t), Z and `flow->bib`. */
__noinline int find_permission(struct flow *flow)
{
	if (nat64.mode != FW_NAT64_STATEFUL || !nat64.address_dependent || !flow)
		return 0;
	__u64 *head = permission_head(flow);
	if (!head)
		return 0;
	flow->seen = READ_ONCE(*head);
	__u32 index = flow->seen;
	LOOP (int i = 0; i < LINKS_MAX; i++) {
		struct fw_session *entry = index ? session_at(index) : 0;
		if (!entry)
			return 0;
		__u32 differs = (entry->local ^ flow->local) | (entry->remote ^ flow->remote) |
				(entry->local_port ^ flow->local_port) | entry->remote_port |
				(entry->protocol ^ (flow->protocol | FW_PERMISSION)) | (entry->bib ^ flow->bib);
		if (differs == 0 && session_state(READ_ONCE(entry->life)) == FW_ENTRY_LIVE)
			return index;
		index = READ_ONCE(entry->next);
	}
	return TOO_LONG;
}

/* Counts one session more. 0: the permission is dead. */
always_inline int permit_one_more(struct fw_session *permission)
{
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u64 life = READ_ONCE(permission->life);
		if (session_state(life) != FW_ENTRY_LIVE || permitted(life) == ~0u)
			return 0;
		if (__sync_val_compare_and_swap(&permission->life, life, life + 1) == life)
			return 1;
	}
	return 0;
}

/* A permission that counts one session, and is linked nowhere yet; 0: the table is full. */
always_inline __u32 new_permission(const struct flow *flow)
{
	__u32 index = take_free(FW_KIND_SESSION);
	struct fw_session *entry = index ? session_at(index) : 0;

	if (!entry)
		return 0;
	fill_session(entry, flow, 0, 0, flow->protocol | FW_PERMISSION, permission_life(FW_ENTRY_LIVE, 1));
	return index;
}

/* Counts a session in its permission, which is made if there is none. Returns the index of the permission; 0: failed. */
__noinline int permit(struct flow *flow)
{
	__u32 made = 0;

	if (nat64.mode != FW_NAT64_STATEFUL || !nat64.address_dependent || !flow)
		return 0;
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		int found = find_permission(flow);
		struct fw_session *permission = found > 0 ? session_at(found) : 0;
		if (found < 0)
			break;
		if (permission) {
			if (!permit_one_more(permission))
				continue;
			/* Another thread was first. */
			struct fw_session *own = made ? session_at(made) : 0;
			if (own)
				WRITE_ONCE(own->life, permission_life(FW_ENTRY_DEAD, 0));
			return found;
		}
		if (!made)
			made = new_permission(flow);
		__u64 *head = permission_head(flow);
		struct fw_session *own = made ? session_at(made) : 0;
		if (!own || !head)
			return 0;
		WRITE_ONCE(own->next, (__u32)flow->seen);
		if (swap_head(head, flow->seen, made))
			return made;
	}
	/* The sweeper frees it. */
	struct fw_session *own = made ? session_at(made) : 0;
	if (own)
		WRITE_ONCE(own->life, permission_life(FW_ENTRY_DEAD, 0));
	return 0;
}

/* Undoes permit(). */
always_inline void unpermit(__u32 index)
{
	struct fw_session *permission = session_at(index);

	if (!permission)
		return;
	LOOP (int i = 0; i < ATTEMPTS; i++) {
		__u64 life = READ_ONCE(permission->life);
		__u64 after = permitted(life) > 1 ? life - 1 : permission_life(FW_ENTRY_DEAD, 0);
		if (session_state(life) != FW_ENTRY_LIVE ||
		    __sync_val_compare_and_swap(&permission->life, life, after) == life)
			return;
	}
	/* Under such contention the number is above 0. The sweeper ends the permission if that was the last session. */
	__sync_fetch_and_sub(&permission->life, 1);
}

/* Whether a packet without a session may pass. */
always_inline verdict check_permission(struct flow *flow)
{
	int found = find_permission(flow);

	if (found < 0)
		return PASS_ON(FW_PASS_CHAIN);
	struct fw_session *permission = found ? session_at(found) : 0;
	return permission && permitted(READ_ONCE(permission->life)) ? GO_ON : DROP(FW_DROP_FILTERED);
}

#endif
