/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Direct forwarding: a packet that was taken at the ingress of a gateway's device leaves at once by the device to which
 * the kernel would route it, past the stack's receive path, netfilter and routing. The kernel's tables decide (routing.h), as for
 * a packet that arrives from the translator's interface; the kernel also writes the link-layer header, and so probes
 * neighbours as it does for its own packets. What the tables don't send to a known neighbour arrives from the interface,
 * and the stack routes it.
 */
#ifndef FORDWAY_DIRECT_H
#define FORDWAY_DIRECT_H

#include "common.h"
#include "frame_tc.h"
#include "maps.h"
#include "route_cache.h"

/* Whether the transport header begins with the ports. */
always_inline int begins_with_ports(__u32 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_UDP_LITE ||
	       protocol == PROTOCOL_DCCP || protocol == PROTOCOL_SCTP;
}

/* What the kernel routes the packet by, as it is now: rules and multipath routes may look at protocol and ports. 0: the
 * header is out of reach, or has options, which are for the stack. */
always_inline int read_flow(struct __sk_buff *skb, int is_v4, struct route_key *key)
{
	__u32 header_len = is_v4 ? IPV4_LEN : IPV6_LEN;
	struct packet p = {};

	if (!reach(skb, &p, header_len + sizeof(__u32)) || !read_route_key(&p, is_v4, config.tun_ifindex, key))
		return 0;
	const struct ipv4_header *v4 = p.data;
	const struct ipv6_header *v6 = p.data;
	int is_fragment = is_v4 && v4->fragment & bpf_htons(IPV4_MF | IPV4_OFFSET);
	if (is_v4 && v4->version_ihl != 0x45)
		return 0;
	__u32 protocol = is_v4 ? v4->protocol : v6->next_header;
	const __u32 *ports = octets_at(&p, header_len, sizeof(*ports));
	key->flow = flow(protocol, ports && !is_fragment && begins_with_ports(protocol) ? *ports : 0);
	return 1;
}

/* Octets of the longest segment of a TCP or UDP super-packet on the wire, of which the IP header has `header_len`; a tunnel's
 * has an IPv4 header behind it. 0: it can't be told. */
always_inline __u32 segment_len(struct __sk_buff *skb, __u32 header_len, __u32 protocol)
{
	__u8 octet;

	if (protocol == PROTOCOL_IPV4) {
		struct ipv4_header inner;

		if (bpf_skb_load_bytes(skb, config.link_layer_len + header_len, &inner, sizeof(inner)))
			return 0;
		header_len += (inner.version_ihl & 15) * 4;
		protocol = inner.protocol;
	}
	if (protocol == PROTOCOL_UDP)
		return header_len + UDP_LEN + skb->gso_size;
	if (protocol != PROTOCOL_TCP ||
	    bpf_skb_load_bytes(skb, config.link_layer_len + header_len + TCP_OFFSET_AT, &octet, sizeof(octet)))
		return 0;
	return header_len + (octet >> 4) * 4 + skb->gso_size;
}

/* Forwards a packet that has been translated. Packets with a mark are the stack's, because rules may route by it. */
__noinline int forward(struct __sk_buff *skb)
{
	int is_v4 = skb->protocol == bpf_htons(ETH_P_IP);
	__u32 zero = 0, len = skb->len - config.link_layer_len;
	struct route_key key;

	if (!skb->mark && (is_v4 ? read_flow(skb, 1, &key) : read_flow(skb, 0, &key))) {
		if (skb->gso_size)
			len = segment_len(skb, is_v4 ? IPV4_LEN : IPV6_LEN, key.flow >> 32);
		const struct way *way = way_of(skb, &key);
		if (len && way && way->verdict == GO_ON && len <= way->mtu)
			return bpf_redirect_neigh(way->ifindex, (void *)&way->hop.neighbour,
						  sizeof(way->hop.neighbour), 0);
	}
	struct fw_counters *c = bpf_map_lookup_elem(&counters, &zero);
	if (c)
		c->routed++;
	return bpf_redirect(config.tun_ifindex, BPF_F_INGRESS);
}

#endif
