/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Reading a frame where direct access does not do: options, extension headers, sums over many octets. frame_tc.h and
 * frame_xdp.h have the functions; an object includes one of them before everything else.
 */
#ifndef FORDWAY_FRAME_H
#define FORDWAY_FRAME_H

#include "common.h"

/* Octets of options at most, in IPv4 and in TCP. */
#define OPTIONS_MAX 40

/* Extension headers that are stepped over, and their octets together with the fixed header. */
#define MAX_EXTENSIONS 4
#define MAX_HEADERS_V6 (IPV6_LEN + 64)

/* Octets summed at a time (they lie on the stack), and at most. */
#define CHUNK 32
#define MAX_SUMMED 2048

/* Of v4_options(). */
#define OPTIONS_UNREACHABLE (-1)
#define OPTIONS_ROUTE 0x10000

/* Where the transport header is, and what the Fragment Header says. */
struct walked {
	/* GO_ON, or why not. */
	verdict verdict;
	__u32 header_len;
	__u32 identification;
	__u16 offset_more;
	__u8 is_fragment;
	__u8 protocol;
};

/*
 * Reads `len` octets, 1 to `max`, of the frame from octet `at` on. Counted from 1 less, since verifiers
 * before Linux 6.8 learn nothing from a test for 0; and behind a barrier, since the compiler would drop
 * the tests that the verifier wants to see.
 */
#define LOAD_SOME(frame, at, to, len, max)                                                                            \
	({                                                                                                            \
		__u32 less = (len) - 1;                                                                               \
		asm volatile("" : "+r"(less));                                                                        \
		less >= (max) || load_octets(frame, at, to, less + 1);                                                \
	})

#endif
