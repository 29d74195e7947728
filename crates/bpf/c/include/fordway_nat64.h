/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * State of stateful NAT64 (RFC 6146 section 3): the entries of the tables, which the programs in the
 * kernel and the core work on at the same time. crates/xlat/src/nat64/table/layout.rs is the same in Rust; a
 * test holds both against the object's BTF.
 *
 * Entries lie in arrays and are named by their index; 0 names none, entry 0 is never used. Integers are
 * in the host's byte order. IPv6 addresses are two halves, `hi` has the first 64 bits. Times are ticks of
 * CLOCK_MONOTONIC, and wrap.
 *
 * There are no locks. What more than one thread changes is one word, changed by compare-and-swap:
 *
 * - An entry is in a chain once the chain's head was swapped to it. Heads hold the index in the low and a
 *   version in the high 32 bits. A thread that inserts has searched the chain from the very head that it swaps,
 *   so no key is in a chain twice. Entries that are FW_ENTRY_DEAD do not count.
 * - `life` holds an entry's state. An entry ends by a change of `life` to FW_ENTRY_DEAD. Only the sweeper,
 *   one thread of the daemon, unlinks them, and frees them after a grace period.
 * - Free entries are chained by their `next` (Bib: `next6`) under versioned heads, too.
 */
#ifndef FORDWAY_NAT64_H
#define FORDWAY_NAT64_H

/* Changes whenever an entry's layout or meaning changes: tables of another version are not adopted. */
#define FW_NAT64_LAYOUT 1

/* The layout of tables with permissions, for address-dependent filtering. */
#define FW_NAT64_LAYOUT_PERMISSIONS 2

/* A tick is 2^27 ns, 0.134 s. */
#define FW_TICK_SHIFT 27

/* The state of any entry: the top octet of a Bib's and Subscriber's `life`, bits 32 to 39 of a Session's. */
enum fw_entry_state {
	FW_ENTRY_FREE = 0,
	FW_ENTRY_CLAIMED = 1,	/* taken off the free list, not complete yet */
	FW_ENTRY_DEAD = 2,	/* gone; may still be in chains */
	FW_ENTRY_LIMBO = 3,	/* in no chain; freed after a grace period */
	FW_ENTRY_LIVE = 4,	/* Bib, Subscriber; Session of UDP or ICMP */
	FW_ENTRY_HOLD_DOWN = 5,	/* Bib: its port is held down (RFC 6888 REQ-8) */
	/* Session of TCP (RFC 6146 section 3.5.2.1). */
	FW_TCP_V4_INIT = 6,
	FW_TCP_V6_INIT = 7,
	FW_TCP_ESTABLISHED = 8,
	FW_TCP_V4_FIN_RCV = 9,
	FW_TCP_V6_FIN_RCV = 10,
	FW_TCP_V4_FIN_V6_FIN_RCV = 11,
	FW_TCP_TRANS = 12,
};

/* Flags of a Bib. */
enum fw_bib_flags {
	FW_BIB_STATIC = 1,	/* set by the operator: never expires */
	FW_BIB_SEEN = 2,	/* the sweeper has logged it */
	FW_BIB_ADDED = 4,	/* made while the daemon ran, not by its configuration */
	FW_BIB_EXPECTED = 8,	/* made for an ALG: only expected hosts may connect through it */
	FW_BIB_HELD = 16,	/* protocol 0: asked for by name, and not yet used */
};

/* A BIB entry (RFC 6146 section 3.1): (X',x) <--> (T,t). With protocol 0 and ports 0: X' <--> T. */
struct fw_bib {
	__u64 v6_hi;
	__u64 v6_lo;
	__u32 v4;
	__u16 v4_port;
	__u16 v6_port;
	/* Chains by IPv6 and by IPv4 transport address. */
	__u32 next6;
	__u32 next4;
	/* State (8 bits) and number of sessions (24 bits). */
	__u32 life;
	__u32 subscriber;
	/* Tick of its creation; tick of its last change of state, or (protocol 0) of its last use. */
	__u32 created;
	__u32 since;
	__u8 protocol;
	__u8 flags;
	__u8 reserved[2];
	/* Of a connection whose octets an ALG has changed: the session, and what is added to the sequence numbers of
	 * IPv4 and of IPv6 hosts. Only where that session's `seen` has the bit FW_SESSION_SHIFTED. */
	__u32 alg_session;
	__u32 alg_shift[2];
};
_Static_assert(sizeof(struct fw_bib) == 64, "fw_bib");

/* `seen` of a session. */
enum fw_session_seen {
	FW_SESSION_TOLD = 1,	/* the sweeper has logged it */
	FW_SESSION_SHIFTED = 2,	/* its BIB entry says what is added to its sequence numbers */
};

/* In a session's `life`: a permission counts it. */
#define FW_SESSION_PERMITS (1ull << 48)

/* In an entry's `protocol`: it is no session, but a permission. */
#define FW_PERMISSION 128

/*
 * A session table entry (RFC 6146 section 3.2).
 *
 * With address-dependent filtering some entries are permissions: for (T,t), Z and the BIB entry, with remote port 0. The
 * low 32 bits of their `life` are the number of sessions that they count; FW_ENTRY_LIVE stands where a session's state
 * does.
 */
struct fw_session {
	/* Tick of the last use that counts (32 bits), state (8 bits), timeout class (8 bits), FW_SESSION_PERMITS, 0. */
	__u64 life;
	__u32 bib;
	__u32 next;
	/* (Z,z); of ICMP, z is 0. */
	__u32 remote;
	__u16 remote_port;
	/* Which of pool6 Z is embedded in on the IPv6 side. */
	__u8 pool6;
	__u8 protocol;
	/* (T,t), as in the BIB entry. */
	__u32 local;
	__u16 local_port;
	/* FW_SESSION_*. */
	__u16 seen;
	/* By direction (enum fw_direction). */
	__u64 packets[2];
	__u64 octets[2];
};
_Static_assert(sizeof(struct fw_session) == 64, "fw_session");

/* Ports `low` to `high` of an IPv4 address, for one subscriber. */
struct fw_block {
	__u32 v4;
	__u16 low;
	__u16 high;
};
_Static_assert(sizeof(struct fw_block) == 8, "fw_block");

#define FW_MAX_BLOCKS 8

/* By protocol: TCP, UDP, ICMP. */
#define FW_PROTOCOLS 3

/* A subscriber (RFC 6888 section 1): an IPv6 prefix, what it was given and what it uses. */
struct fw_subscriber {
	__u64 hi;
	__u64 lo;
	__u32 next;
	/* State (8 bits) and number of blocks (24 bits). */
	__u32 life;
	/* Mark of the packets; 0 unless a pool asks for marks. */
	__u32 mark;
	/* Live sessions. */
	__u32 sessions;
	/* BIB entries with a port of the subscriber's. */
	__u32 ports[FW_PROTOCOLS];
	/* Tick of the last new session. */
	__u32 last_used;
	/* New sessions: second (32 bits, ticks >> 3) and how many in it (32 bits). */
	__u64 rate;
	/* Which pool its blocks are of. */
	__u16 pool;
	/* How many of its blocks the sweeper has logged. */
	__u16 seen;
	__u32 created;
	struct fw_block blocks[FW_MAX_BLOCKS];
};
_Static_assert(sizeof(struct fw_subscriber) == 128, "fw_subscriber");

/* Heads of free lists: so many for each kind of entry; each has a cache line of its own. */
#define FW_FREE_SHARDS 64

enum fw_kind {
	FW_KIND_BIB = 0,
	FW_KIND_SESSION = 1,
	FW_KIND_SUBSCRIBER = 2,
	FW_KINDS = 3,
};

struct fw_free {
	__u64 head;
	/* Entries in the list, roughly. */
	__u64 count;
	__u64 reserved[6];
};
_Static_assert(sizeof(struct fw_free) == 64, "fw_free");

/* The only entry of `nat64_meta`: what a later process, and the programs, have to know of the tables. */
struct fw_nat64_meta {
	__u32 layout;
	/* Entries of each kind, entry 0 included. */
	__u32 entries[FW_KINDS];
	/* Number of heads less 1, a mask: bib6, bib4, session, subscriber. */
	__u32 masks[4];
	/* Key of the hashes: drawn once, by the process that made the tables. */
	__u64 secret[2];
	/* Of tests, as `clock` of fw_nat64_config says; else 0. */
	__u64 clock_offset_ns;
	/* 1: no new sessions (drain). */
	__u32 draining;
	/* The first entry of each kind that was never used; taken when the free lists are empty. */
	__u32 fresh[FW_KINDS];
	/* 1: tables of an earlier version that left remote ports out of the sessions' hash. They are not adopted. */
	__u32 by_address;
	__u32 reserved;
};
_Static_assert(sizeof(struct fw_nat64_meta) == 80, "fw_nat64_meta");

/* Timeout classes of sessions: which of the configured lifetimes counts. */
enum fw_timeout {
	FW_TIMEOUT_UDP = 0,
	FW_TIMEOUT_ICMP = 1,
	FW_TIMEOUT_TCP_EST = 2,
	FW_TIMEOUT_TCP_TRANS = 3,
	FW_TIMEOUT_TCP_INCOMING_SYN = 4,
	FW_TIMEOUTS = 5,
};

/* So many ports are tried by hash before all are searched (by the user engine). */
#define FW_PORT_TRIES 32

/* What the time is. Packets of sessions read fw_nat64_meta only in tests: a new session may write to it. */
enum fw_clock {
	FW_CLOCK_MACHINE = 0,	/* CLOCK_MONOTONIC */
	FW_CLOCK_MOVED = 1,	/* of tests: with `clock_offset_ns` added */
	FW_CLOCK_STANDS = 2,	/* of tests: `clock_offset_ns` alone, which does not pass by itself */
};

/* Ranges of pool4, by which programs know the translator's IPv4 transport addresses. */
#define FW_MAX_POOL4 64

/* Ports whose packets the programs pass to the user engine. */
#define FW_LEFT_PORTS 8

struct fw_pool4_range {
	__u32 first;
	__u32 last;
	__u16 low;
	__u16 high;
};
_Static_assert(sizeof(struct fw_pool4_range) == 12, "fw_pool4_range");

/* A range of a pool, and how shards of a cluster share it: Part of the core. */
struct fw_part {
	__u32 first;
	__u32 last;
	/* Of the whole pool, and before this range. */
	__u32 slots;
	__u32 base;
	__u16 low;
	__u16 high;
	/* A slot is 1 << shift ports of an address. */
	__u8 shift;
	__u8 reserved[11];
};
_Static_assert(sizeof(struct fw_part) == 32, "fw_part");

/* Shards of a cluster at most. */
#define FW_MAX_SHARDS 1024

/* Words for the bits of changed sessions. A power of two. */
#define FW_CHANGED_WORDS 16384

/* The only entry of `nat64_gates`: which packets may be translated, in nanoseconds of CLOCK_BOOTTIME; and which sessions have
 * changed. */
struct fw_gates {
	/* Until when; 0: none. */
	__u64 lease;
	struct fw_gate {
		/* From when on programs translate the shard's; all ones: never. */
		__u64 from;
		/* For the next process: in which it was owned. */
		__u64 epoch;
		/* Where packets of another gateway's shard arrive from, to be routed to that gateway: an interface. 0: the user
		 * engine knows. */
		__u64 way;
	} shards[FW_MAX_SHARDS];
	/* Sessions that are new or have another state: of entry n bit n % 64 of word n / 64, modulo FW_CHANGED_WORDS. */
	__u64 changed[FW_CHANGED_WORDS];
};
_Static_assert(sizeof(struct fw_gates) == 8 + 24 * FW_MAX_SHARDS + 8 * FW_CHANGED_WORDS, "fw_gates");

enum fw_nat64_mode {
	FW_NAT64_NONE = 0,
	FW_NAT64_STATEFUL = 1,
	FW_NAT64_DYNAMIC4 = 2,
};

/* Read-only for the programs; beside fw_config. */
struct fw_nat64_config {
	/* Of the tables, as in fw_nat64_meta. */
	__u64 secret[2];
	__u32 masks[4];
	__u32 entries[FW_KINDS];
	__u32 mode;
	/* Entries of `pool4`, and how many of them are of the pools: what the operator bound beside them follows. */
	__u32 pool4_count;
	__u32 pool4_pools;
	/* How many bits of an IPv6 address name a subscriber: 1 to 128. */
	__u32 subscriber_len;
	/* 0: no limit. */
	__u32 max_ports[FW_PROTOCOLS];
	__u32 max_sessions;
	__u32 max_new_per_second;
	/* Address-dependent filtering (RFC 6146 section 3.5). */
	__u8 address_dependent;
	/* Subscribers are distinguished by mark as well. */
	__u8 by_mark;
	/* IPv4 hosts may open TCP connections to what is in the BIB. */
	__u8 accept_v4_syn;
	/* Packets from IPv4 refresh sessions of UDP and ICMP, too (RFC 4787 REQ-6a). */
	__u8 refresh_from_v4;
	/* Ports of TCP and UDP that ALGs inspect: their packets are passed to the user engine. 0 ends the list. */
	__u16 left_ports[FW_LEFT_PORTS];
	struct fw_pool4_range pool4[FW_MAX_POOL4];
	/* Not every IPv4 host may open sessions: first packets from IPv4 are passed to the user engine. */
	__u8 v4_restricted;
	/* enum fw_clock. */
	__u8 clock;
	__u8 reserved[2];
	/* Shards of the cluster; 0: there is none. */
	__u32 shards;
	/* Entries of `parts`. */
	__u32 part_count;
	/* By which subscribers are divided. */
	__u64 shard_key[2];
	struct fw_part parts[FW_MAX_POOL4];
};
_Static_assert(sizeof(struct fw_nat64_config) == 128 + 44 * FW_MAX_POOL4, "fw_nat64_config");

#endif
