/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Transport headers (RFC 7915 sections 4.5 and 5.5); the core's transport.rs and icmp.rs. */
#ifndef FORDWAY_TRANSPORT_H
#define FORDWAY_TRANSPORT_H

#include "checksum.h"
#include "common.h"
#include "frame.h"
#include "headers.h"
#include "maps.h"
#include "nat64_config.h"

/* Octets of the TCP header at `at`; 0: its length is impossible. */
always_inline __u32 tcp_header_len(const struct packet *p, __u32 at, __u32 payload_len)
{
	const __u8 *tcp = octets_at(p, at, TCP_LEN);

	if (!tcp)
		return 0;
	__u32 len = (tcp[TCP_OFFSET_AT] >> 4) * 4;
	return len >= TCP_LEN && len <= payload_len ? len : 0;
}

/* find_mss() of mss.h; stateless translation at XDP has pair.h's. */
always_inline verdict find_mss(FRAME *frame, __u32 at, __u32 len, __u32 limit, __u32 *place, __be16 *from, __be16 *to);

/*
 * The value of the MSS option of a SYN that is above what fits (RFC 9293 section 3.7.1) is lowered.
 * Where it stands is put into `plan`, relative to the transport header.
 */
always_inline verdict clamp_mss(FRAME *frame, const struct packet *p, __u32 at, __u32 payload_len, struct plan *plan)
{
	/* The loader has checked that both are large enough. */
	__u32 limit4 = config.mtu4 - 40, limit6 = config.mtu6 - 60;
	__u32 limit = limit4 < limit6 ? limit4 : limit6;
	const __u8 *tcp = octets_at(p, at, TCP_LEN);

	if (limit > 0xffff)
		return GO_ON;
	if (!tcp)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	if (!(tcp[TCP_FLAGS_AT] & TCP_SYN))
		return GO_ON;
	return find_mss(frame, config.link_layer_len + at, tcp_header_len(p, at, payload_len), limit, &plan->field_at,
			&plan->field_from, &plan->field_to);
}

/* A field of two octets in the transport header. */
always_inline verdict read_field(const struct packet *p, __u32 at, __be16 *out)
{
	const __be16 *field = octets_at(p, at, sizeof(*field));

	if (!field)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	*out = *field;
	return GO_ON;
}

/*
 * Whether a checksum field holds the sum of its pseudo-header: then it is partial, and a device is to
 * complete it. (Or, once in 65,536 packets, it is complete and equal by chance.)
 */
always_inline int looks_partial(__be16 checksum, __u64 addresses, __u8 protocol, __u32 payload_len)
{
	__u64 pseudo = addresses + sum_number(protocol) + sum_number(payload_len);
	return checksum == fold(pseudo);
}

always_inline verdict udp_to_plan(const struct packet *p, __u32 at, const struct fields *fields, __u64 addresses,
				  int to_v6, int hook, struct plan *plan)
{
	const struct udp_header *udp = octets_at(p, at, sizeof(*udp));

	if (!udp)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	__be16 checksum = udp->checksum, length = udp->length;
	if (checksum == 0) {
		if (!to_v6 || config.udp_checksum_zero == FW_UDP_ZERO_PASS)
			return GO_ON;
		/* The user engine drops it, and informs sender and log. */
		if (config.udp_checksum_zero == FW_UDP_ZERO_DROP || fields->is_fragment)
			return PASS_ON(FW_PASS_UDP_CHECKSUM);
		if (p->gso_size || is_xdp(hook) || bpf_ntohs(length) != fields->payload_len)
			return PASS_ON(FW_PASS_UDP_CHECKSUM);
		plan->checksum_mode = CHECKSUM_COMPUTE;
		return GO_ON;
	}
	/*
	 * A complete checksum is written, not updated by the kernel's helper: that would take a partial
	 * checksum of a packet inside (a tunnel's) for this one.
	 */
	if (looks_partial(checksum, addresses, PROTOCOL_UDP, fields->payload_len)) {
		plan->checksum_mode = CHECKSUM_UPDATE;
	} else if (bpf_ntohs(length) != fields->payload_len && !fields->is_fragment) {
		/* It may be partial with another length, which the user engine finds out. */
		return PASS_ON(FW_PASS_UDP_CHECKSUM);
	} else {
		plan->checksum_mode = CHECKSUM_WRITE;
		plan->checksum = checksum;
	}
	return GO_ON;
}

/* UDP-Lite (RFC 3828) and DCCP (RFC 4340): no device completes their checksums. */
always_inline verdict checksum_written(const struct packet *p, __u32 at, const struct fields *fields, __u64 addresses,
				       struct plan *plan)
{
	__be16 checksum;
	verdict v = read_field(p, at + UDP_CHECKSUM_AT, &checksum);
	if (v != GO_ON)
		return v;
	if (looks_partial(checksum, addresses, fields->protocol, fields->payload_len))
		return PASS_ON(FW_PASS_TRANSPORT);
	plan->checksum_mode = CHECKSUM_WRITE;
	plan->checksum = checksum;
	return GO_ON;
}

/*
 * Plans the change of the transport header at `at`, whose addresses have the sum `addresses`. Not for ICMP. Offsets in
 * `plan` are from the transport header on.
 */
always_inline verdict transport_to_plan(FRAME *frame, const struct packet *p, __u32 at, const struct fields *fields,
					__u64 addresses, int to_v6, int hook, struct plan *plan)
{
	__be16 checksum;
	verdict v = GO_ON;

	if (!has_transport(fields))
		return GO_ON;
	switch (fields->protocol) {
	case PROTOCOL_TCP:
		if (fields->payload_len < (fields->more_fragments ? TCP_CHECKSUM_AT + 2 : TCP_LEN))
			return DROP(FW_DROP_TRUNCATED);
		if (config.mss_clamp)
			v = clamp_mss(frame, p, at, fields->payload_len, plan);
		plan->checksum_at = TCP_CHECKSUM_AT;
		plan->checksum_mode = CHECKSUM_UPDATE;
		break;
	case PROTOCOL_UDP:
		if (fields->payload_len < UDP_LEN)
			return DROP(FW_DROP_TRUNCATED);
		plan->checksum_at = UDP_CHECKSUM_AT;
		v = udp_to_plan(p, at, fields, addresses, to_v6, hook, plan);
		break;
	case PROTOCOL_UDP_LITE:
	case PROTOCOL_DCCP:
		if (fields->payload_len < UDP_CHECKSUM_AT + 2)
			return DROP(FW_DROP_TRUNCATED);
		plan->checksum_at = UDP_CHECKSUM_AT;
		v = checksum_written(p, at, fields, addresses, plan);
		break;
	case PROTOCOL_SCTP:
		/* Its CRC covers no addresses; but a sender may have left it to a device. */
		if (is_xdp(hook) && fields->payload_len >= SCTP_LEN) {
			v = read_field(p, at + SCTP_CHECKSUM_AT, &checksum);
			if (v == GO_ON && checksum == 0)
				return PASS_ON(FW_PASS_PARTIAL_CHECKSUM);
		}
		return v;
	default:
		return GO_ON;
	}
	if (v != GO_ON)
		return v;
	/* Frames reach XDP before a partial checksum is completed. What is to be written is known to be
	 * complete. */
	if (is_xdp(hook) && plan->checksum_mode == CHECKSUM_UPDATE) {
		v = read_field(p, at + plan->checksum_at, &checksum);
		if (v == GO_ON && looks_partial(checksum, addresses, fields->protocol, fields->payload_len))
			return PASS_ON(FW_PASS_PARTIAL_CHECKSUM);
	}
	return v;
}

/*
 * Whether a UDP super-packet may be a tunnel's: VXLAN, VXLAN-GPE, Geneve, MPLS, and Linux's older port of VXLAN. Its
 * segments are packets inside, each with a tunnel header of its own, and it looks like one of UDP datagrams, since
 * programs are not shown what kind of super-packet it is. The kernel cuts it before the user engine gets it.
 */
always_inline int may_be_tunnel(const struct packet *p, __u32 at)
{
	const struct udp_header *udp = octets_at(p, at, sizeof(*udp));

	if (!udp)
		return 1;
	switch (bpf_ntohs(udp->dst)) {
	case 4789:
	case 4790:
	case 6081:
	case 6635:
	case 8472:
		return 1;
	default:
		return 0;
	}
}

/* Octets of the transport header of each segment of a super-packet. 0: it can't be translated as one. */
always_inline __u32 segment_header_len(const struct packet *p, __u32 at, const struct fields *fields)
{
	if (fields->is_fragment)
		return 0;
	if (fields->protocol == PROTOCOL_UDP)
		return may_be_tunnel(p, at) ? 0 : UDP_LEN;
	if (fields->protocol == PROTOCOL_TCP)
		return tcp_header_len(p, at, fields->payload_len);
	return 0;
}

always_inline __u32 segment_count(__u32 payload_len, __u32 header_len, __u32 gso_size)
{
	__u32 segments = (payload_len - header_len + gso_size - 1) / gso_size;
	return segments ? segments : 1;
}

/*
 * How many packets it is on the wire. Of a super-packet, `len` becomes the octets of the longest, which has an IP header
 * of `header_len` octets. 0: it can't be translated as one.
 */
always_inline int count_segments(const struct packet *p, const struct fields *fields, __u32 header_len, __u32 *len,
				 struct plan *plan)
{
	plan->segments = 1;
	if (!p->gso_size)
		return 1;
	__u32 transport = segment_header_len(p, fields->header_len, fields);
	if (!transport)
		return 0;
	*len = header_len + transport + p->gso_size;
	plan->segments = segment_count(fields->payload_len, transport, p->gso_size);
	return 1;
}

/* Plans the change of an ICMP query (RFC 7915 sections 4.2 and 5.2). `pseudo`: the sum of the pseudo-header, 0 for
 * ICMPv4. */
always_inline verdict query_to_plan(const struct packet *p, __u32 at, const struct fields *fields, __u64 pseudo,
				    int to_v6, int hook, struct plan *plan)
{
	const struct icmp_header *icmp = octets_at(p, at, sizeof(*icmp));

	if (fields->payload_len < ICMP_LEN)
		return DROP(FW_DROP_TRUNCATED);
	if (!icmp)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	int type = echo_type(icmp->type, to_v6);
	if (type < 0)
		return DROP(FW_DROP_ICMP_TYPE);
	/* The checksum of a message of zeros has a special rule, and only the user engine sees all of the message. */
	if (type == V4_ECHO_REPLY && icmp->code == 0 && icmp->rest == 0)
		return PASS_ON(FW_PASS_TRANSPORT);
	/* Incomplete: without a pseudo-header (ICMPv4), and with one. */
	if (is_xdp(hook) && (icmp->checksum == 0 || icmp->checksum == fold(pseudo)))
		return PASS_ON(FW_PASS_PARTIAL_CHECKSUM);
	plan->checksum_at = ICMP_CHECKSUM_AT;
	plan->checksum_mode = CHECKSUM_UPDATE;
	plan->field_at = 0;
	plan->field_from = bpf_htons((__u16)icmp->type << 8 | icmp->code);
	plan->field_to = bpf_htons((__u16)type << 8 | icmp->code);
	return GO_ON;
}

/* Computes how the checksum changes, once addresses and ports are known. */
always_inline void finish_transport(int hook, struct sums sums, struct plan *plan)
{
	/* Stateless translation at XDP has it from the pair of hosts. */
	if (hook != HOOK_XDP)
		plan->difference = addresses_difference(sums.old, sums.new);
	if (plan->checksum_mode != CHECKSUM_WRITE)
		return;
	__u32 difference = plan->difference;
	if (plan->port_from != plan->port_to)
		difference += sum_difference(plan->port_from, plan->port_to);
	plan->checksum = never_zero(plan->protocol, update_checksum(plan->checksum, difference));
}

#endif
