/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Limits the packets that are passed to the user engine for one reason. Any host in the IPv4 network can send packets
 * that programs pass on, such as SYNs to ports of the pool, and all of them share the queues of the interface: without a
 * limit, a flood for one reason would fill the queues, which new subscribers, Packet Too Big and fragments need.
 */
#ifndef FORDWAY_PASS_RATE_H
#define FORDWAY_PASS_RATE_H

#include "common.h"
#include "maps.h"

#define REASON(reason) (1u << (reason))

/*
 * The reasons with a limit: state to be made, an error to be sent, a fragment to be reassembled. Ordinary data is passed
 * on without a limit (FW_PASS_NEEDS_FRAGMENTS, FW_PASS_OFFLOAD, FW_PASS_RESIZE). With state, packets without a session
 * are not passed on for these three.
 */
#define REASONS_WITH_RATE                                                                                             \
	(REASON(FW_PASS_MALFORMED) | REASON(FW_PASS_NOT_LINEAR) | REASON(FW_PASS_HOP_LIMIT) |                         \
	 REASON(FW_PASS_TOO_BIG) | REASON(FW_PASS_UNMAPPED) | REASON(FW_PASS_HAIRPIN) | REASON(FW_PASS_ICMP_ERROR) |  \
	 REASON(FW_PASS_UDP_CHECKSUM) | REASON(FW_PASS_TRANSPORT) | REASON(FW_PASS_ROUTE_OPTION) |                    \
	 REASON(FW_PASS_SESSION) | REASON(FW_PASS_NAT64_FRAGMENT) | REASON(FW_PASS_NAT64_HAIRPIN) |                   \
	 REASON(FW_PASS_NAT64_ICMP_ERROR) | REASON(FW_PASS_CHAIN) | REASON(FW_PASS_SOFTWIRE_FRAGMENT) |               \
	 REASON(FW_PASS_ALG))

/* How far a processor may be ahead of the rate, in nanoseconds: the size of a burst. */
#define PASS_AHEAD_NS 100000000

/* When the next packet of each reason is due at the rate, in nanoseconds of the kernel's coarse clock. */
struct passes {
	__u64 due[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct passes);
} passes SEC(".maps");

/*
 * Takes and returns a packet's verdict: a packet from IPv4 beyond the rate of its reason is dropped. Only at the
 * translator's interface, which also receives what programs in front of routing pass on; at an uplink IPv4 packets are
 * the host's own.
 */
always_inline verdict limit_passes(verdict v, int to_v6, int hook)
{
	__u32 zero = 0;

	if (!config.pass_interval_ns || !to_v6 || hook != HOOK_INTERFACE || VERDICT_KIND(v) != PASS_ON(0) ||
	    !(REASONS_WITH_RATE & REASON(VERDICT_REASON(v) & 31)))
		return v;
	struct passes *found = bpf_map_lookup_elem(&passes, &zero);
	if (!found)
		return v;
	__u64 now = bpf_ktime_get_coarse_ns();
	/* The verifier of Linux 6.1 forgets the bounds of values on the stack. */
	asm volatile("" : "+r"(v));
	__u64 *place = &found->due[VERDICT_REASON(v) & 31];
	__u64 due = *place;
	if (due < now)
		due = now;
	else if (due - now > PASS_AHEAD_NS)
		return DROP(FW_DROP_PASS_RATE);
	*place = due + config.pass_interval_ns;
	return v;
}

#endif
