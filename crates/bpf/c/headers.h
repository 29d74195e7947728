/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading and making IP headers, the same for outer and inner ones. */
#ifndef FORDWAY_HEADERS_H
#define FORDWAY_HEADERS_H

#include "checksum.h"
#include "common.h"
#include "maps.h"

/* Longest IPv4 packet that leaves with DF clear (RFC 7915 section 5.1, "Flags"). */
#define DF_CLEAR_MAX 1260

/* It is not a later fragment, so a transport header follows. */
always_inline int has_transport(const struct fields *fields)
{
	return fields->fragment_offset == 0;
}

always_inline void read_v4(const struct ipv4_header *ip, struct fields *fields)
{
	__u16 fragment = bpf_ntohs(ip->fragment);

	fields->header_len = (ip->version_ihl & 15) * 4;
	fields->payload_len = bpf_ntohs(ip->total_len) - fields->header_len;
	fields->fragment_offset = (fragment & IPV4_OFFSET) * 8;
	fields->identification = bpf_ntohs(ip->identification);
	fields->more_fragments = (fragment & IPV4_MF) != 0;
	fields->dont_fragment = (fragment & IPV4_DF) != 0;
	fields->is_fragment = fields->more_fragments || fields->fragment_offset;
	fields->tos = ip->tos;
	fields->hop_limit = ip->ttl;
	fields->protocol = ip->protocol;
}

/* The drop reason of an IPv4 address (host order) that must not be source or destination; 0: it may. */
always_inline __u32 illegal_v4(__u32 address)
{
	__u8 first = address >> 24;
	/* Most are none of these. */
	if (first != 0 && first < 224 && first != 127 && first != 169)
		return 0;
	if (address == 0xffffffff)
		return FW_DROP_BROADCAST;
	if (first == 127)
		return FW_DROP_LOOPBACK;
	if (address >> 16 == 0xa9fe)
		return FW_DROP_LINK_LOCAL;
	if (first >= 224 && first <= 239)
		return FW_DROP_MULTICAST;
	if (first == 0 || first >= 240)
		return FW_DROP_MARTIAN;
	return 0;
}

always_inline __u8 traffic_class(__u8 octet)
{
	return config.set_traffic_class ? config.traffic_class : octet;
}

/* RFC 7915 section 4.1: all but the addresses. Returns the octets written. */
always_inline __u32 write_v6(struct ipv6_header *ip, struct fragment_header *fragment, const struct fields *from,
			     __u8 next_header, __u8 hop_limit)
{
	ip->first = bpf_htonl(6u << 28 | (__u32)traffic_class(from->tos) << 20);
	ip->hop_limit = hop_limit;
	if (!from->is_fragment) {
		ip->payload_len = bpf_htons(from->payload_len);
		ip->next_header = next_header;
		return IPV6_LEN;
	}
	/* The length of a packet inside an error may be anything. */
	__u32 payload_len = from->payload_len + FRAGMENT_LEN;
	ip->payload_len = bpf_htons(payload_len > 0xffff ? 0xffff : payload_len);
	ip->next_header = PROTOCOL_FRAGMENT;
	fragment->next_header = next_header;
	fragment->reserved = 0;
	fragment->offset_more = bpf_htons(from->fragment_offset | from->more_fragments);
	fragment->identification = bpf_htonl(from->identification);
	return IPV6_LEN + FRAGMENT_LEN;
}

/* RFC 7915 section 5.1. */
always_inline void write_v4(struct ipv4_header *ip, const struct fields *from, __u16 total_len, __u16 identification,
			    __u8 dont_fragment, __u8 ttl, __u8 protocol, __u32 src, __u32 dst)
{
	__u16 fragment = from->fragment_offset / 8;

	if (dont_fragment)
		fragment |= IPV4_DF;
	if (from->more_fragments)
		fragment |= IPV4_MF;
	ip->version_ihl = 0x45;
	ip->tos = traffic_class(from->tos);
	ip->total_len = bpf_htons(total_len);
	ip->identification = bpf_htons(identification);
	ip->fragment = bpf_htons(fragment);
	ip->ttl = ttl;
	ip->protocol = protocol;
	ip->checksum = 0;
	ip->src = bpf_htonl(src);
	ip->dst = bpf_htonl(dst);
	__u64 sum = (__u64)bpf_htons(0x4500 | ip->tos) + ip->total_len + ip->identification + ip->fragment +
		    bpf_htons((__u16)ttl << 8 | protocol) + ip->src + ip->dst;
	ip->checksum = ~fold(sum);
}

/* The Next Header of the translated packet; a negative number: not translated. The core's
 * v4_to_v6::check_protocol. */
always_inline int protocol_to_v6(__u8 protocol)
{
	switch (protocol) {
	case PROTOCOL_ICMP:
		return PROTOCOL_ICMPV6;
	case PROTOCOL_IGMP:
	case PROTOCOL_HOPOPT:
	case PROTOCOL_ROUTING:
	case PROTOCOL_FRAGMENT:
	case PROTOCOL_OPTIONS:
	case PROTOCOL_ICMPV6:
		return -1;
	default:
		return protocol;
	}
}

/* The core's v6_to_v4::check_protocol. */
always_inline int protocol_to_v4(__u8 next_header)
{
	switch (next_header) {
	case PROTOCOL_ICMPV6:
		return PROTOCOL_ICMP;
	case PROTOCOL_ICMP:
	case PROTOCOL_IGMP:
		return -1;
	default:
		return next_header;
	}
}

/* RFC 7915 sections 4.2 and 5.2: the type of an echo message; negative: it is none. */
always_inline int echo_type(__u8 type, int to_v6)
{
	if (type == (to_v6 ? V4_ECHO : V6_ECHO_REQUEST))
		return to_v6 ? V6_ECHO_REQUEST : V4_ECHO;
	if (type == (to_v6 ? V4_ECHO_REPLY : V6_ECHO_REPLY))
		return to_v6 ? V6_ECHO_REPLY : V4_ECHO_REPLY;
	return -1;
}

/* Whether an ICMP message is an error. RFC 1122 section 3.2.2. */
always_inline int is_error_v4(__u8 type)
{
	return type == V4_UNREACHABLE || type == V4_SOURCE_QUENCH || type == V4_REDIRECT ||
	       type == V4_TIME_EXCEEDED || type == V4_PARAMETER_PROBLEM;
}

/* RFC 4443 section 2.1. */
always_inline int is_error_v6(__u8 type)
{
	return type < 128;
}

/* RFC 7915 section 5.1.1: what may not follow a Fragment Header. */
always_inline int is_extension(__u8 next_header)
{
	switch (next_header) {
	case PROTOCOL_HOPOPT:
	case PROTOCOL_ROUTING:
	case PROTOCOL_FRAGMENT:
	case PROTOCOL_AH:
	case PROTOCOL_OPTIONS:
	case PROTOCOL_MOBILITY:
	case PROTOCOL_HIP:
	case PROTOCOL_SHIM6:
	case 253:
	case 254:
		return 1;
	default:
		return 0;
	}
}

/* Programs keep state for unfragmented TCP, UDP and ICMP. `protocol`: by its number in IPv4. */
always_inline verdict is_carried(const struct fields *fields, __u8 protocol)
{
	if (fields->is_fragment)
		return PASS_ON(FW_PASS_NAT64_FRAGMENT);
	if (protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP && protocol != PROTOCOL_ICMP)
		return PASS_ON(FW_PASS_TRANSPORT);
	return GO_ON;
}

#endif
