/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Looking into a frame where the way is not straight: options, extension headers, sums over many
 * octets. At tc these are functions of their own that the verifier checks once, whatever calls them;
 * the XDP program leaves such packets to the stack.
 */
#ifndef FORDWAY_FRAME_H
#define FORDWAY_FRAME_H

#include "checksum.h"
#include "common.h"
#include "headers.h"
#include "maps.h"

/* Octets of options at most, in IPv4 and in TCP. */
#define OPTIONS_MAX 40

/* TCP options looked at, paddings among them. */
#define MAX_TCP_OPTIONS 12

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
		less >= (max) || LOAD_OCTETS(frame, at, to, less + 1);                                                \
	})

#if defined(FORDWAY_STATE) || defined(FORDWAY_SOFTWIRE)

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

#endif

#ifndef FORDWAY_XDP

/*
 * The sum of the `len` octets of IPv4 options at octet `at` of the frame, folded; OPTIONS_ROUTE is added if one of their octets is the type of a
 * source route (the user engine looks whether it is one).
 */
__noinline int v4_options(struct __sk_buff *skb, __u32 at, __u32 len)
{
	__u8 octets[OPTIONS_MAX] = {};
	const __u32 *words = (void *)octets;
	__u64 sum = 0;
	int route = 0;

	if (LOAD_SOME(skb, at, octets, len, OPTIONS_MAX))
		return OPTIONS_UNREACHABLE;
	for (int i = 0; i < OPTIONS_MAX / 4; i++)
		sum += words[i];
	for (int i = 0; i < OPTIONS_MAX; i++) {
		if (octets[i] == 131 || octets[i] == 137)
			route = OPTIONS_ROUTE;
	}
	return fold(sum) + route;
}

/* Walks the extension headers of an IPv6 packet of `len` octets (RFC 8200 section 4). */
__noinline int v6_extensions(struct __sk_buff *skb, struct walked *out, __u32 len)
{
	__u8 octets[8];
	__u32 at = IPV6_LEN;

	if (!out)
		return -1;
	__u8 protocol = out->protocol;
	out->is_fragment = 0;
	out->verdict = GO_ON;
	for (int i = 0; i < MAX_EXTENSIONS + 1; i++) {
		int is_fragment = protocol == PROTOCOL_FRAGMENT;

		if (!is_fragment && protocol != PROTOCOL_HOPOPT && protocol != PROTOCOL_ROUTING &&
		    protocol != PROTOCOL_OPTIONS)
			break;
		if (!is_fragment && i == MAX_EXTENSIONS) {
			out->verdict = PASS_ON(FW_PASS_EXTENSION_HEADERS);
			return 0;
		}
		if (at + 8 > len) {
			out->verdict = DROP(FW_DROP_TRUNCATED);
			return 0;
		}
		if (bpf_skb_load_bytes(skb, config.link_layer_len + at, octets, 8)) {
			out->verdict = PASS_ON(FW_PASS_NOT_LINEAR);
			return 0;
		}
		if (is_fragment) {
			const struct fragment_header *fragment = (void *)octets;
			if (is_extension(fragment->next_header)) {
				/* The user engine drops it, and tells the sender. */
				out->verdict = PASS_ON(FW_PASS_EXTENSION_HEADERS);
				return 0;
			}
			out->is_fragment = 1;
			out->offset_more = bpf_ntohs(fragment->offset_more);
			out->identification = bpf_ntohl(fragment->identification);
			protocol = fragment->next_header;
			at += FRAGMENT_LEN;
			break;
		}
		if (protocol == PROTOCOL_ROUTING && octets[3]) {
			out->verdict = PASS_ON(FW_PASS_ROUTE_OPTION);
			return 0;
		}
		protocol = octets[0];
		at += ((__u32)octets[1] + 1) * 8;
		if (at > len) {
			out->verdict = DROP(FW_DROP_TRUNCATED);
			return 0;
		}
		if (at > MAX_HEADERS_V6) {
			out->verdict = PASS_ON(FW_PASS_EXTENSION_HEADERS);
			return 0;
		}
	}
	out->protocol = protocol;
	out->header_len = at;
	return 0;
}

/* The sum of `len` octets of the frame from octet `at` on, folded; negative: out of reach. */
__noinline int sum_octets(struct __sk_buff *skb, __u32 at, __u32 len)
{
	__u32 words[CHUNK / 4];
	__s64 sum = 0;

	if (len > MAX_SUMMED)
		return -1;
	for (int i = 0; i < MAX_SUMMED / CHUNK; i++) {
		if (len < CHUNK)
			break;
		if (bpf_skb_load_bytes(skb, at, words, CHUNK))
			return -1;
		sum = bpf_csum_diff(0, 0, words, CHUNK, sum);
		at += CHUNK;
		len -= CHUNK;
	}
	if (len) {
		__builtin_memset(words, 0, CHUNK);
		if (LOAD_SOME(skb, at, words, len, CHUNK))
			return -1;
		sum = bpf_csum_diff(0, 0, words, CHUNK, sum);
	}
	return fold(sum & 0xffffffff);
}

#endif

#endif
