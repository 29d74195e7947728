/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The Internet checksum (RFC 1071, RFC 1624). Sums are of 16-bit words as they lie in memory: by RFC
 * 1071 section 2 (B) the machine's byte order only swaps the result, and the result goes back into
 * memory.
 */
#ifndef FORDWAY_CHECKSUM_H
#define FORDWAY_CHECKSUM_H

#include "common.h"

/* Folds to 16 bits; 0 only if all that was summed is 0. */
always_inline __u16 fold_word(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The same, of at most 65,536 words of 32 bits. */
always_inline __u16 fold(__u64 sum)
{
	return fold_word((sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32));
}

always_inline __u64 sum_address_v6(const struct ipv6_address *address)
{
	return (address->hi & 0xffffffff) + (address->hi >> 32) + (address->lo & 0xffffffff) + (address->lo >> 32);
}

/* A number of 16 bits, such as a protocol or a length, in its place in a pseudo-header. */
always_inline __u64 sum_number(__u16 number)
{
	return bpf_htons(number);
}

/* RFC 1624, equation 3, without the checksum itself: the new words minus the old, of 16 bits. */
always_inline __u32 sum_difference(__u64 old, __u64 new)
{
	return fold(new + (0xffff - fold(old)));
}

/* The same of addresses, whose sums are not 0: then it is enough to fold once. */
always_inline __u32 addresses_difference(__u64 old, __u64 new)
{
	/* A multiple of 0xffff, and more than any sum of addresses. */
	return fold(new + (0xffffull << 28) - old);
}

always_inline __be16 update_checksum(__be16 checksum, __u32 difference)
{
	return ~fold_word((__u16)~checksum + difference);
}

/* RFC 768 and RFC 3828: a computed checksum of zero is sent as all ones. */
always_inline __be16 never_zero(__u8 protocol, __be16 checksum)
{
	int udp = protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDP_LITE;
	return udp && checksum == 0 ? 0xffff : checksum;
}

#endif
