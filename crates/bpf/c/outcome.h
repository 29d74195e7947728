/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Counting, timing and tracing the outcome of a packet. */
#ifndef FORDWAY_OUTCOME_H
#define FORDWAY_OUTCOME_H

#include "common.h"
#include "maps.h"

/* What was noted when a program began with a packet. */
struct journey {
	struct fw_counters *counters;
	struct fw_event *event;
	/* There is an event. Verifiers before Linux 6.4 forget that a record was tested, and report a second test as a
	 * leak of the record. */
	int traced;
	__u64 started;
	/* Octets from the IP header, as they came. */
	__u32 octets;
};

/* Limits the events per second of this processor. */
always_inline int may_trace(struct fw_counters *c)
{
	__u64 second = bpf_ktime_get_ns() / 1000000000;

	if (second != c->trace_second) {
		c->trace_second = second;
		c->trace_events = 0;
	}
	if (c->trace_events >= config.trace_rate) {
		c->trace_lost++;
		return 0;
	}
	c->trace_events++;
	return 1;
}

always_inline struct fw_event *begin_event(struct fw_counters *c, __u32 len, __u32 gso_size, __u32 ifindex)
{
	if (!may_trace(c))
		return 0;
	struct fw_event *event = bpf_ringbuf_reserve(&trace, sizeof(*event), 0);
	if (!event) {
		c->trace_lost++;
		return 0;
	}
	event->ns = bpf_ktime_get_ns();
	event->len = len;
	event->gso_size = gso_size;
	event->ifindex = ifindex;
	event->before_len = 0;
	event->after_len = 0;
	return event;
}

/* 1, which the compiler can't see. */
#define TRACED                                                                                                        \
	({                                                                                                            \
		int one = 1;                                                                                          \
		asm volatile("" : "+r"(one));                                                                         \
		one;                                                                                                  \
	})

always_inline void end_event(struct fw_event *event, verdict v)
{
	switch (VERDICT_KIND(v)) {
	case GO_ON:
		event->outcome = FW_TRANSLATED;
		break;
	case PASS_ON(0):
		event->outcome = FW_PASSED_ON;
		break;
	case DROP(0):
		event->outcome = FW_DROPPED;
		break;
	default:
		event->outcome = v == HAND_OVER ? FW_HANDED_OVER : FW_UNMATCHED;
	}
	event->reason = v == HAND_OVER ? 0 : VERDICT_REASON(v);
	bpf_ringbuf_submit(event, 0);
}

_Static_assert(FW_DROP_COUNT <= 128 && FW_PASS_COUNT <= 32, "every reason has a counter of its own");

/* Copies the first octets of the packet; each kind of frame defines it. Returns their number. */
always_inline __u8 snap(FRAME *frame, __u8 *to);

always_inline void begin_trace(FRAME *frame, struct journey *journey, __u32 gso_size)
{
	if (!config.trace)
		return;
	journey->event = begin_event(journey->counters, journey->octets, gso_size, device_of(frame));
	if (journey->event) {
		journey->event->before_len = snap(frame, journey->event->before);
		journey->traced = TRACED;
	}
}

always_inline void end_trace(FRAME *frame, const struct journey *journey, verdict v)
{
	if (!config.trace || !journey->traced)
		return;
	if (v == GO_ON)
		journey->event->after_len = snap(frame, journey->event->after);
	end_event(journey->event, v);
}

always_inline void count(const struct journey *journey, verdict v, int direction, __u32 segments)
{
	struct fw_counters *c = journey->counters;

	switch (VERDICT_KIND(v)) {
	case GO_ON:
		c->directions[direction].packets++;
		c->directions[direction].segments += segments;
		c->directions[direction].octets += journey->octets;
		if (config.measure) {
			c->measured_packets++;
			c->measured_ns += bpf_ktime_get_ns() - journey->started;
		}
		break;
	case PASS_ON(0):
		c->passed_on[VERDICT_REASON(v) & 31]++;
		break;
	case DROP(0):
		c->drops[VERDICT_REASON(v) & 127]++;
		break;
	default:
		if (v == HAND_OVER)
			c->handed_over++;
		else
			c->unmatched++;
	}
}

#endif
