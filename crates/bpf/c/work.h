/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* In objects with tables: the plan of a packet, and the working state to find it. */
#ifndef FORDWAY_WORK_H
#define FORDWAY_WORK_H

#include "common.h"

/* The packet inside an ICMP error: where its transport header is in the old frame, and how much of it is quoted. */
struct quoted {
	/* Octet of the frame. */
	__u32 at;
	/* Octets to the end of the message, and their sum, which follows the changes. */
	__u32 len;
	__u64 sum;
	/* Sums of its addresses. */
	struct sums sums;
};

/* Working state of an ICMP error; it would not fit on the stack. */
struct error_work {
	struct icmp_header icmp;
	union {
		struct ipv4_header v4;
		struct ipv6_header v6;
	};
	struct fragment_header fragment;
	struct fields inner;
	struct quoted quoted;
};

/* A search in the tables of stateful translation, and its result. In the host's byte order. */
struct flow {
	/* (X',x), (T,t) and (Z,z). Of ICMP, x and t are the identifier, and z is 0. */
	struct halves host;
	__u32 local;
	__u32 remote;
	__u16 host_port;
	__u16 local_port;
	__u16 remote_port;
	/* Its number in IPv4. */
	__u8 protocol;
	/* enum fw_direction. */
	__u8 direction;
	/* enum segment, of TCP. */
	__u8 segment;
	/* Which of pool6 Z is embedded in. */
	__u8 pool6;
	/* Of the BIB entry that was found. */
	__u8 bib_state;
	/* CREATED_BIB, CREATED_SESSION. */
	__u8 created;
	/* In ticks. */
	__u32 now;
	__u32 mark;
	/* Entries that were found or made; 0: none. */
	__u32 bib;
	__u32 session;
	__u32 subscriber;
	/* Of HAND_OVER: the interface from which the packet is to arrive. */
	__u32 way;
	/* The head of the chain that was searched last. */
	__u64 seen;
	/* The same, of chains of BIB entries by (X',x). */
	__u64 seen6;
};
#define CREATED_BIB 1
#define CREATED_SESSION 2

struct work {
	struct plan plan;
	struct flow flow;
	/* Source and destination of a packet that becomes IPv6. */
	struct halves src6;
	struct halves dst6;
	/* ICMP errors: one or two words of the transport header inside that are written; all checksums are
	 * right already. */
	__u32 inner_at;
	__u32 inner_words;
	__be16 inner[2];
	struct error_work error;
};

/* One per processor: it would not fit on the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

/* This processor's. begin_work() has to follow. */
always_inline struct work *own_work(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&works, &zero);
}

always_inline void begin_work(struct work *work)
{
	begin_plan(&work->plan);
	work->flow.created = 0;
	work->inner_at = 0;
	work->inner_words = 0;
}

#endif
