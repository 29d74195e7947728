/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Whether an IP header is sound, and what it says. */
#ifndef FORDWAY_VALIDATE_H
#define FORDWAY_VALIDATE_H

#include "checksum.h"
#include "common.h"
#include "frame.h"
#include "headers.h"
#include "maps.h"

/*
 * Lengths, version and header checksum of the IPv4 packet that begins at octet `at` of `p`, and of which `len` octets
 * are there. `route`: there may be a source route among the options.
 */
always_inline verdict validate_v4(FRAME *frame, const struct packet *p, __u32 at, __u32 len, int hook,
				  struct fields *fields, int *route)
{
	const struct ipv4_header *ip = p->data + at;

	if ((void *)(ip + 1) > p->data_end)
		return len < IPV4_LEN ? DROP(FW_DROP_TRUNCATED) : PASS_ON(FW_PASS_NOT_LINEAR);
	if (ip->version_ihl >> 4 != 4)
		return PASS_ON(FW_PASS_MALFORMED);
	__u32 header_len = (ip->version_ihl & 15) * 4;
	__u32 total_len = bpf_ntohs(ip->total_len);
	/* A super-packet of more than 65,535 octets says 0. */
	if (p->gso_size && total_len == 0)
		return PASS_ON(FW_PASS_OFFLOAD);
	if (header_len < IPV4_LEN || total_len < header_len)
		return DROP(FW_DROP_BAD_HEADER);
	if (len < total_len)
		return short_frame(hook);
	const __u32 *word = (void *)ip;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	*route = 0;
	if (header_len > IPV4_LEN) {
		int options = v4_options(frame, config.link_layer_len + at + IPV4_LEN, header_len - IPV4_LEN);
		if (options < 0)
			return PASS_ON(FW_PASS_NOT_LINEAR);
		*route = options >= OPTIONS_ROUTE;
		sum += options & 0xffff;
	}
	if (fold(sum) != 0xffff)
		return DROP(FW_DROP_BAD_HEADER_CHECKSUM);
	read_v4(ip, fields);
	return GO_ON;
}

always_inline int may_be_walked(__u8 next_header)
{
	return next_header == PROTOCOL_HOPOPT || next_header == PROTOCOL_ROUTING || next_header == PROTOCOL_OPTIONS ||
	       next_header == PROTOCOL_FRAGMENT;
}

/* Lengths, version, extension headers. A Routing header with segments left is for the user engine. */
always_inline verdict validate_v6(FRAME *frame, const struct packet *p, int hook, struct fields *fields)
{
	const struct ipv6_header *ip = p->data;

	if ((void *)(ip + 1) > p->data_end)
		return p->len < IPV6_LEN ? DROP(FW_DROP_TRUNCATED) : PASS_ON(FW_PASS_NOT_LINEAR);
	__u32 first = bpf_ntohl(ip->first);
	if (first >> 28 != 6)
		return PASS_ON(FW_PASS_MALFORMED);
	__u32 payload_len = bpf_ntohs(ip->payload_len);
	/* A super-packet of more than 65,535 octets says 0. */
	if (p->gso_size && payload_len == 0)
		return PASS_ON(FW_PASS_OFFLOAD);
	__u32 len = IPV6_LEN + payload_len;
	if (p->len < len)
		return short_frame(hook);
	fields->tos = first >> 20;
	fields->hop_limit = ip->hop_limit;
	fields->protocol = ip->next_header;
	fields->is_fragment = 0;
	fields->more_fragments = 0;
	fields->dont_fragment = 0;
	fields->fragment_offset = 0;
	fields->identification = 0;
	fields->header_len = IPV6_LEN;
	fields->payload_len = payload_len;
	if (!may_be_walked(fields->protocol))
		return GO_ON;
	struct walked walked = { .protocol = ip->next_header };
	v6_extensions(frame, &walked, len);
	if (walked.verdict != GO_ON)
		return walked.verdict;
	__u32 header_len = walked.header_len;
	/* Never true; the verifier has not seen how the walk ends. */
	if (header_len < IPV6_LEN || header_len > MAX_HEADERS_V6 + FRAGMENT_LEN || header_len > len)
		return PASS_ON(FW_PASS_MALFORMED);
	fields->header_len = header_len;
	fields->payload_len = len - header_len;
	fields->protocol = walked.protocol;
	if (walked.is_fragment) {
		/* An atomic fragment has neither offset nor more to come, and counts as one all the same. */
		fields->is_fragment = 1;
		fields->fragment_offset = walked.offset_more & ~7;
		fields->more_fragments = walked.offset_more & 1;
		fields->identification = walked.identification;
	}
	return GO_ON;
}

/* Whether it is an ICMP error, which has a packet inside. */
always_inline verdict look_for_error(const struct packet *p, const struct fields *fields, int to_v6, int *is_error)
{
	__u8 protocol = to_v6 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6;

	*is_error = 0;
	if (fields->protocol != protocol || !has_transport(fields) || fields->payload_len == 0)
		return GO_ON;
	const __u8 *type = octets_at(p, fields->header_len, sizeof(*type));
	if (!type)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	*is_error = to_v6 ? is_error_v4(*type) : is_error_v6(*type);
	return GO_ON;
}

/* RFC 791 section 3.2, RFC 8200 section 4.5: offset and length are possible in IPv4, and no ICMP message is in pieces. */
always_inline verdict check_fragment(const struct fields *fields, int to_v6)
{
	__u32 header_len = to_v6 ? 0 : IPV4_LEN;

	if (!fields->is_fragment)
		return GO_ON;
	if (fields->more_fragments && (fields->payload_len % 8 || fields->payload_len == 0))
		return DROP(FW_DROP_BAD_FRAGMENT);
	if (fields->fragment_offset + fields->payload_len + header_len > IPV4_MAX)
		return DROP(FW_DROP_BAD_FRAGMENT);
	if (fields->protocol == (to_v6 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6) &&
	    (fields->fragment_offset || fields->more_fragments))
		return DROP(FW_DROP_FRAGMENTED_ICMP);
	return GO_ON;
}

#endif
