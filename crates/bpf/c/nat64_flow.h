/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Between a packet and its state: determining the incoming tuple (RFC 6146 section 3.4), and computing the
 * outgoing one (section 3.6). The core's tuple.rs and nat64/packet/mapper.rs.
 */
#ifndef FORDWAY_NAT64_FLOW_H
#define FORDWAY_NAT64_FLOW_H

#include "address.h"
#include "common.h"
#include "headers.h"
#include "nat64.h"
#include "nat64_port.h"
#include "nat64_shard.h"
#include "work.h"

/* Ports of TCP and UDP, and the identifier of an ICMP query; the latter stands in both. */
struct ports {
	__be16 src;
	__be16 dst;
};

/* Reads the transport header at `at`, whose length was checked before. */
always_inline verdict read_ports(const struct packet *p, __u32 at, const struct fields *fields, __u8 protocol,
				 struct ports *ports, struct flow *flow)
{
	const __u8 *transport = octets_at(p, at, UDP_LEN);
	__u32 len = protocol == PROTOCOL_TCP ? TCP_LEN : UDP_LEN;

	if (fields->payload_len < len)
		return PASS_ON(FW_PASS_MALFORMED);
	if (!transport)
		return PASS_ON(FW_PASS_NOT_LINEAR);
	flow->protocol = protocol;
	flow->segment = SEGMENT_OTHER;
	if (protocol == PROTOCOL_TCP) {
		if ((void *)(transport + TCP_LEN) > p->data_end)
			return PASS_ON(FW_PASS_NOT_LINEAR);
		flow->segment = segment_of(transport[TCP_FLAGS_AT]);
	}
	const __be16 *words = (const void *)transport;
	if (protocol == PROTOCOL_ICMP) {
		ports->src = ports->dst = words[ICMP_IDENTIFIER_AT / 2];
		return GO_ON;
	}
	ports->src = words[0];
	ports->dst = words[1];
	if (is_left_port(bpf_ntohs(ports->src)) || is_left_port(bpf_ntohs(ports->dst)))
		return PASS_ON(FW_PASS_ALG);
	return GO_ON;
}

/* Begins a search. */
always_inline void begin_flow(struct flow *flow, int direction, __u32 mark)
{
	flow->direction = direction;
	flow->mark = nat64.by_mark ? mark : 0;
	flow->now = now_in_ticks();
	flow->created = 0;
	flow->bib = 0;
	flow->session = 0;
}

/* Plans the change of the port or identifier. Its offset is from the transport header on. */
always_inline void port_to_plan(const struct flow *flow, int to_v6, struct ports ports, struct plan *plan)
{
	int is_query = flow->protocol == PROTOCOL_ICMP;

	/* Source ports from IPv6, destination ports from IPv4. */
	plan->port_at = is_query ? ICMP_IDENTIFIER_AT : to_v6 ? 2 : 0;
	plan->port_from = to_v6 ? ports.dst : ports.src;
	plan->port_to = bpf_htons(to_v6 ? flow->host_port : flow->local_port);
}

/* A packet from IPv6 to (Z,z): finds T. */
always_inline verdict flow_v6_to_v4(const struct packet *p, __u32 at, const struct fields *fields, __u8 protocol,
				    struct halves host, __u32 remote, __u8 pool6, __u32 mark, __u32 *local,
				    struct work *work)
{
	struct flow *flow = &work->flow;
	struct ports ports = {};
	verdict v = read_ports(p, at, fields, protocol, &ports, flow);

	if (v != GO_ON)
		return v;
	begin_flow(flow, FW_V6_TO_V4, mark);
	flow->host = host;
	flow->host_port = bpf_ntohs(ports.src);
	flow->remote = remote;
	flow->remote_port = protocol == PROTOCOL_ICMP ? 0 : bpf_ntohs(ports.dst);
	flow->pool6 = pool6;
	v = nat64.shards ? enter_shard(flow, shard_of_host(host)) : GO_ON;
	if (v != GO_ON)
		return v;
	/* RFC 6146 section 3.8. */
	if (pool4_of(remote, flow->remote_port, protocol) != POOL4_NONE)
		return PASS_ON(FW_PASS_NAT64_HAIRPIN);
	v = from_v6(flow);
	/* The stack is short, so functions that call others are called from here. Another processor may make the entry
	 * first. */
	if (v == NEEDS_BIB) {
		v = reserve_bib(flow);
		if (v == GO_ON)
			v = settle_bib(flow, choose_port(flow));
		if (v == GO_ON)
			v = NEEDS_SESSION;
		else if (v == AGAIN)
			v = from_v6(flow);
	}
	if (v == NEEDS_SESSION) {
		v = open_session(flow);
		if (v == AGAIN)
			v = from_v6(flow);
	}
	if (v > UNMATCHED)
		v = LEAVE;
	*local = flow->local;
	port_to_plan(flow, 0, ports, &work->plan);
	return v;
}

/* A packet from IPv4 to (T,t): finds X', and the prefix of pool6 in which its source is embedded. If `kept` is not GO_ON
 * and the packet has a session, it is passed to the user engine, which refreshes the session. */
always_inline verdict flow_v4_to_v6(const struct packet *p, __u32 at, const struct fields *fields, __u32 remote,
				    __u32 local, __u32 mark, verdict kept, struct work *work)
{
	struct flow *flow = &work->flow;
	struct ports ports = {};
	verdict v = read_ports(p, at, fields, fields->protocol, &ports, flow);

	if (v != GO_ON)
		return v;
	begin_flow(flow, FW_V4_TO_V6, mark);
	flow->local = local;
	flow->local_port = bpf_ntohs(ports.dst);
	flow->remote = remote;
	flow->remote_port = fields->protocol == PROTOCOL_ICMP ? 0 : bpf_ntohs(ports.src);
	flow->pool6 = 0;
	v = nat64.shards ? enter_shard(flow, shard_of_v4(local, flow->local_port)) : GO_ON;
	if (v != GO_ON)
		return v;
	/* A source in the pool is forged. */
	if (pool4_of(remote, flow->remote_port, fields->protocol) != POOL4_NONE)
		return PASS_ON(FW_PASS_NAT64_HAIRPIN);
	if (kept != GO_ON && find_session(flow) > 0)
		return kept;
	v = from_v4(flow);
	if (v == NEEDS_SESSION) {
		v = open_session(flow);
		if (v == AGAIN)
			v = from_v4(flow);
	}
	if (v > UNMATCHED)
		v = LEAVE;
	port_to_plan(flow, 1, ports, &work->plan);
	return v == GO_ON ? kept : v;
}

/* Counts new entries, and the packet in its session. */
always_inline void count_state(struct fw_counters *c, verdict v, __u32 octets, const struct work *work)
{
	__u32 protocol = protocol_index(&work->flow);

	if (work->flow.created & CREATED_BIB)
		c->bibs_created[protocol]++;
	if (work->flow.created & CREATED_SESSION)
		c->sessions_created[protocol]++;
	if (v == GO_ON)
		count_in_session(&work->flow, work->plan.segments, octets);
}

#endif
