/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The tables of stateful NAT64 as maps, which the daemon makes, and maps into its own memory. Programs of
 * stateless translators are loaded without them. */
#ifndef FORDWAY_NAT64_MAPS_H
#define FORDWAY_NAT64_MAPS_H

#include "common.h"
#include "nat64_config.h"

#define NAT64_MAP(name, of)                                                                                           \
	struct {                                                                                                      \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                     \
		__uint(max_entries, 1);                                                                               \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                    \
		__type(key, __u32);                                                                                   \
		__type(value, of);                                                                                    \
	} name SEC(".maps")

NAT64_MAP(nat64_meta, struct fw_nat64_meta);
NAT64_MAP(nat64_bibs, struct fw_bib);
NAT64_MAP(nat64_sessions, struct fw_session);
NAT64_MAP(nat64_subscribers, struct fw_subscriber);
/* Free lists of all kinds, one kind behind the other. */
NAT64_MAP(nat64_free, struct fw_free);
/* Heads of chains. */
NAT64_MAP(nat64_bib6, __u64);
NAT64_MAP(nat64_bib4, __u64);
NAT64_MAP(nat64_session, __u64);
NAT64_MAP(nat64_subscriber, __u64);
/* Made only in a cluster. */
NAT64_MAP(nat64_gates, struct fw_gates);

/* Marks of hosts (by their address as on the wire) whose packets were passed to the user engine: a TUN device does not
 * carry them. Made only with pools by mark. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct ipv6_address);
	__type(value, __u32);
} nat64_marks SEC(".maps");

#endif
