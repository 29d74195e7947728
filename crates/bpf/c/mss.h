/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The search for the MSS option of a SYN. */
#ifndef FORDWAY_MSS_H
#define FORDWAY_MSS_H

#include "common.h"
#include "frame.h"
#include "maps.h"

/* TCP options that are looked at, paddings among them. */
#define MAX_TCP_OPTIONS 12

/*
 * Where in the TCP header of `len` octets at octet `at` of the frame the value of the MSS option lies
 * (RFC 9293 section 3.2); 0: there is none; negative: out of reach, or behind many others.
 */
__noinline int mss_place(FRAME *frame, __u32 at, __u32 len)
{
	/* Zeros behind the options end them, as option 0 does. */
	__u8 options[OPTIONS_MAX + 8] = {};
	__u32 option = 0;

	if (!config.mss_clamp || len <= TCP_LEN)
		return 0;
	len -= TCP_LEN;
	if (LOAD_SOME(frame, at + TCP_LEN, options, len, OPTIONS_MAX))
		return -1;
	for (int i = 0; i < MAX_TCP_OPTIONS; i++) {
		if (option > OPTIONS_MAX)
			return 0;
		__u8 kind = options[option], octets = options[option + 1];
		if (kind == 0)
			return 0;
		if (kind == 1)
			octets = 1;
		else if (octets < 2)
			return 0;
		if (kind == 2)
			return octets == 4 && option + 4 <= len ? TCP_LEN + option + 2 : 0;
		option += octets;
	}
	return -1;
}

/*
 * Looks for an MSS above `limit` in the TCP header of `len` octets at octet `at` of the frame. If there is one, `place`
 * is where it lies from the header on, `from` its value and `to` the lower one, in network order; else nothing is
 * written. An option at an odd place stands swapped in the sum, which the kernel's helper can't correct.
 */
always_inline verdict find_mss(FRAME *frame, __u32 at, __u32 len, __u32 limit, __u32 *place, __be16 *from, __be16 *to)
{
	__be16 mss;
	int found = mss_place(frame, at, len);

	if (found == 0)
		return GO_ON;
	if (found < 0 || found & 1 || load_octets(frame, at + found, &mss, 2))
		return PASS_ON(FW_PASS_TRANSPORT);
	if (bpf_ntohs(mss) <= limit)
		return GO_ON;
	*place = found;
	*from = mss;
	*to = bpf_htons(limit);
	return GO_ON;
}

#endif
