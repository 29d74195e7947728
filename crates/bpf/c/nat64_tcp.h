/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The state machine of TCP sessions (RFC 6146 section 3.5.2.2); the core's nat64/packet/tcp.rs. */
#ifndef FORDWAY_NAT64_TCP_H
#define FORDWAY_NAT64_TCP_H

#include "common.h"
#include "fordway_nat64.h"

/* The kind of a segment. */
enum segment {
	SEGMENT_SYN,
	/* A SYN to the state machine; but it is an answer, and is not stored until one comes. */
	SEGMENT_SYN_ACK,
	SEGMENT_FIN,
	SEGMENT_RST,
	SEGMENT_OTHER,
};

/* The kind of a segment by its flags. If several are set, which no sound host does, the one that keeps state for the
 * shortest time counts. */
always_inline enum segment segment_of(__u8 flags)
{
	if (flags & 0x04)
		return SEGMENT_RST;
	if (flags & 0x02)
		return flags & 0x10 ? SEGMENT_SYN_ACK : SEGMENT_SYN;
	return flags & 0x01 ? SEGMENT_FIN : SEGMENT_OTHER;
}

/* Whether it is a SYN to the state machine. */
always_inline int opens(__u8 segment)
{
	return segment == SEGMENT_SYN || segment == SEGMENT_SYN_ACK;
}

/* The lifetime does not start anew. */
#define TIMEOUT_STAYS 0xff

struct transition {
	__u8 state;
	/* The lifetime starts anew, of this class; or TIMEOUT_STAYS. */
	__u8 timeout;
};

/* The transition of a session in `state`, a TCP state, for a segment in `direction`. */
always_inline struct transition transition(__u8 state, int direction, enum segment segment)
{
	int from_v4 = direction == FW_V4_TO_V6;
	struct transition stay = { state, TIMEOUT_STAYS };
	struct transition anew = { state, FW_TIMEOUT_TCP_EST };
	struct transition shortened = { state, FW_TIMEOUT_TCP_TRANS };

	switch (state) {
	case FW_TCP_V4_INIT:
	case FW_TCP_V6_INIT:
		if (!opens(segment))
			return stay;
		if (from_v4 == (state == FW_TCP_V6_INIT)) {
			anew.state = FW_TCP_ESTABLISHED;
			return anew;
		}
		return state == FW_TCP_V6_INIT ? shortened : stay;
	case FW_TCP_ESTABLISHED:
		if (segment == SEGMENT_RST) {
			shortened.state = FW_TCP_TRANS;
			return shortened;
		}
		if (segment == SEGMENT_FIN)
			anew.state = from_v4 ? FW_TCP_V4_FIN_RCV : FW_TCP_V6_FIN_RCV;
		return anew;
	case FW_TCP_V4_FIN_RCV:
	case FW_TCP_V6_FIN_RCV:
		if (segment == SEGMENT_FIN && from_v4 == (state == FW_TCP_V6_FIN_RCV)) {
			shortened.state = FW_TCP_V4_FIN_V6_FIN_RCV;
			return shortened;
		}
		/* RFC 7857 section 2.2. */
		return segment == SEGMENT_RST ? shortened : anew;
	case FW_TCP_V4_FIN_V6_FIN_RCV:
		if (!opens(segment))
			return stay;
		/* The ports are used for a new connection. */
		shortened.state = from_v4 ? FW_TCP_V4_INIT : FW_TCP_V6_INIT;
		return shortened;
	case FW_TCP_TRANS:
		if (segment == SEGMENT_RST)
			return stay;
		anew.state = FW_TCP_ESTABLISHED;
		return anew;
	default:
		return stay;
	}
}

#endif
