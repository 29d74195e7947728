/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The step of all keyed hashes: of tables' chains (nat64_hash.h) and of flow labels (softwire.h). */
#ifndef FORDWAY_MIX_H
#define FORDWAY_MIX_H

#include "common.h"

/* Spreads 64 bits over 64 bits. */
always_inline __u64 mix(__u64 word)
{
	word ^= word >> 32;
	word *= 0xd6e8feb86659fd93ull;
	word ^= word >> 32;
	word *= 0xd6e8feb86659fd93ull;
	return word ^ word >> 32;
}

#endif
