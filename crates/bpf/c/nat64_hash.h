/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Keyed hashes: which chain an entry is in, and which port is tried first; the core's nat64/table/hash.rs. */
#ifndef FORDWAY_NAT64_HASH_H
#define FORDWAY_NAT64_HASH_H

#include "common.h"
#include "mix.h"
#include "nat64_config.h"

/* Of an IPv6 transport address. */
always_inline __u64 hash_v6(struct halves addr, __u16 port, __u8 protocol)
{
	__u64 word = mix(mix(nat64.secret[0] ^ addr.hi) ^ addr.lo);
	return mix(word ^ nat64.secret[1] ^ ((__u64)port | (__u64)protocol << 16));
}

/* Of an IPv4 transport address. */
always_inline __u64 hash_v4(__u32 addr, __u16 port, __u8 protocol)
{
	return mix(nat64.secret[0] ^ ((__u64)addr << 32 | (__u64)port << 16 | protocol));
}

/* Of a session: its IPv4 transport addresses. */
always_inline __u64 hash_session(__u32 local, __u16 local_port, __u32 remote, __u16 remote_port, __u8 protocol)
{
	__u64 far = (__u64)remote << 16 | remote_port;
	return mix(hash_v4(local, local_port, protocol) ^ nat64.secret[1] ^ far);
}

/* Of a subscriber. */
always_inline __u64 hash_subscriber(struct halves prefix, __u32 mark)
{
	return mix(mix(mix(nat64.secret[0] ^ prefix.hi) ^ prefix.lo) ^ nat64.secret[1] ^ mark);
}

/* For the choice of a port: neighbouring ports, an even one and the next, have the same. */
always_inline __u64 hash_port(struct halves addr, __u16 port, __u8 protocol)
{
	return mix(hash_v6(addr, port >> 1, protocol) ^ (nat64.secret[0] << 17 | nat64.secret[0] >> 47));
}

/* The next number after `hash` in a sequence. */
always_inline __u64 hash_again(__u64 hash, __u32 attempt)
{
	return attempt == 0 ? hash : mix(hash ^ nat64.secret[1] ^ attempt);
}

#endif
