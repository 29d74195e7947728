/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * State by a keyed hash of source, destination and protocol of IPv4 packets: the identifications that were used, and
 * whether such packets were recently passed on to be fragmented. All processors share it, but each takes several
 * identifications at once.
 */
#ifndef FORDWAY_ENDS_H
#define FORDWAY_ENDS_H

#include "common.h"
#include "maps.h"
#include "mix.h"

#define ENDS_BITS 12

#define ENDS_MAP(name, of)                                                                                            \
	struct {                                                                                                      \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                     \
		__uint(max_entries, 1 << ENDS_BITS);                                                                  \
		__type(key, __u32);                                                                                   \
		__type(value, of);                                                                                    \
	} name SEC(".maps")

/* How many identifications were taken. */
ENDS_MAP(identifications, __u32);
/* What a processor took and has not used yet. */
struct identification_range {
	__u32 next;
	__u32 left;
};
/* In one value, since each value for each processor takes one more load, of its address. */
struct identification_ranges {
	struct identification_range by_ends[1 << ENDS_BITS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct identification_ranges);
} own_identifications SEC(".maps");

/* A processor takes so many. It uses none after so many others were taken: they would repeat too soon. */
#define IDENTIFICATIONS_AT_ONCE 64
#define IDENTIFICATIONS_APART 16384
/* The packet that was passed on last: 32 bits of its hash, and 32 bits of time. */
ENDS_MAP(cut_lately, __u64);

/* The unit of that time, 2^20 ns, and for how many units the entry counts: 67 ms. */
#define CUT_SHIFT 20
#define CUT_LATELY 64

/* The top bits are the index. Callers of one table give addresses in the same byte order. */
always_inline __u64 ends_hash(__u32 src, __u32 dst, __u8 protocol)
{
	return mix(mix(config.identification_secret ^ ((__u64)src << 32 | dst)) + protocol);
}

/* RFC 6864 section 4.1: what may be fragmented does not repeat an identification of the same source, destination and
 * protocol. Returns the first of
 * `segments` identifications. */
always_inline __u16 next_identification(__u32 src, __u32 dst, __u8 protocol, __u32 segments)
{
	__u64 hash = ends_hash(src, dst, protocol);
	__u32 zero = 0, place = hash >> (64 - ENDS_BITS);
	struct identification_ranges *ranges = bpf_map_lookup_elem(&own_identifications, &zero);
	__u32 *taken = bpf_map_lookup_elem(&identifications, &place);

	if (!ranges || !taken)
		return hash;
	struct identification_range *own = &ranges->by_ends[bounded(place, 1 << ENDS_BITS)];
	if (own->left < segments || *(volatile __u32 *)taken - own->next > IDENTIFICATIONS_APART) {
		own->left = segments + IDENTIFICATIONS_AT_ONCE - 1;
		own->next = __sync_fetch_and_add(taken, own->left);
	}
	__u16 first = hash + own->next;
	own->next += segments;
	own->left -= segments;
	return first;
}

/*
 * RFC 7915 section 4: packets of a flow SHOULD keep their order. A packet that has to be fragmented is passed to the user
 * engine, and the next one would overtake it. So packets without DF between the same addresses are passed on as well,
 * until none needed fragments for a while. Takes and returns the verdict of a packet without DF.
 */
always_inline verdict keep_behind_cut(__u32 src, __u32 dst, __u8 protocol, verdict v)
{
	__u64 hash = ends_hash(src, dst, protocol);
	__u32 place = hash >> (64 - ENDS_BITS);
	__u64 *last = bpf_map_lookup_elem(&cut_lately, &place);

	if (!last || (v != GO_ON && v != PASS_ON(FW_PASS_NEEDS_FRAGMENTS)))
		return v;
	__u64 seen = *(volatile __u64 *)last;
	if (v == GO_ON && (!seen || seen >> 32 != (__u32)hash))
		return v;
	__u32 now = bpf_ktime_get_coarse_ns() >> CUT_SHIFT;
	if (v != GO_ON)
		*(volatile __u64 *)last = hash << 32 | now;
	else if (now - (__u32)seen < CUT_LATELY)
		return PASS_ON(FW_PASS_NEEDS_FRAGMENTS);
	return v;
}

#endif
