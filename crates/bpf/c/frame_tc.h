/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A frame at tc. Functions of their own, so that the verifier checks each once, whatever calls it. */
#ifndef FORDWAY_FRAME_TC_H
#define FORDWAY_FRAME_TC_H

#include "checksum.h"
#include "common.h"
#include "frame.h"
#include "headers.h"
#include "maps.h"

#define FRAME struct __sk_buff

always_inline long load_octets(struct __sk_buff *skb, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, at, to, len);
}

/* The device where the program sees the frame. */
always_inline __u32 device_of(const struct __sk_buff *skb)
{
	return skb->ifindex;
}

/* Makes the first `len` octets of the packet, or all of a shorter one, accessible. */
always_inline int reach(struct __sk_buff *skb, struct packet *p, __u32 len)
{
	len += config.link_layer_len;
	if (len > skb->len)
		len = skb->len;
	if ((void *)(long)skb->data + len > (void *)(long)skb->data_end && bpf_skb_pull_data(skb, len))
		return 0;
	p->data = (void *)(long)skb->data + config.link_layer_len;
	p->data_end = (void *)(long)skb->data_end;
	return 1;
}

always_inline __u32 mark_of(const struct __sk_buff *skb)
{
	return skb->mark;
}

/* The next hop: an address of either family. The kernel has its link-layer address. */
struct hop {
	struct bpf_redir_neigh neighbour;
};

always_inline void note_hop(struct hop *hop, const struct bpf_fib_lookup *fib)
{
	/* May differ from the packet's family: IPv4 by an IPv6 router. An IPv4 address is the first word. */
	hop->neighbour.nh_family = fib->family;
	__builtin_memcpy(hop->neighbour.ipv6_nh, fib->ipv6_dst, sizeof(fib->ipv6_dst));
}

/* Any device takes what is forwarded directly. */
always_inline int takes_redirected(__u32 ifindex)
{
	return config.direct && ifindex != config.tun_ifindex;
}

/*
 * The folded sum of the `len` octets of IPv4 options at octet `at` of the frame. OPTIONS_ROUTE is added if one of the
 * octets is the type of a source route; the user engine finds out whether it is one.
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
				/* The user engine drops it and sends an ICMP error. */
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
