/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The programs of softwires at tc hooks: IPv4 packets into their tunnels, and out of them (RFC 2473, RFC 7596).
 * They take packets that only need a header added or removed; packets of shared addresses need ports as well. Other
 * packets go on as they arrived. Nothing is dropped here, because the core sends an ICMP error about most of what it
 * drops.
 */
#include "frame_tc.h"

#include "outcome.h"
#include "pass_rate.h"
#include "route_cache.h"
#include "softwire_decapsulate.h"
#include "softwire_encapsulate.h"
#include "tc.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * In front of routing: whether the packet would be routed into the interface. Most traffic needs no lookup: only packets
 * with a client's address enter a tunnel, and only plain tunnel packets are decapsulated here.
 */
always_inline int is_routed_to_us(struct __sk_buff *skb, const struct packet *p, int to_v6)
{
	const struct ipv4_header *v4 = p->data;
	const struct ipv6_header *v6 = p->data;
	struct route_key key;
	__be32 client;

	if (!read_route_key(p, to_v6, skb->ifindex, &key))
		return 0;
	if (to_v6) {
		if ((void *)(v4 + 1) > p->data_end)
			return 0;
		client = softwire.role == FW_SOFTWIRE_TEP ? v4->dst : v4->src;
		if (!bpf_map_lookup_elem(&softwire_addresses, &client))
			return 0;
	} else if ((void *)(v6 + 1) > p->data_end || v6->next_header != PROTOCOL_IPV4) {
		return 0;
	}
	return is_routed_here(skb, &key);
}

/* One packet, from beginning to end; to_v6: into a tunnel. */
always_inline verdict handle(struct __sk_buff *skb, int to_v6, int hook)
{
	struct packet p = { .len = skb->len - config.link_layer_len, .gso_size = skb->gso_size };
	struct journey journey = { .octets = p.len };
	verdict v = PASS_ON(FW_PASS_NOT_LINEAR);
	__u32 segments = 1;

	if (!begin_journey(skb, &journey))
		return UNMATCHED;
	int reached = reach(skb, &p, (to_v6 ? 0 : IPV6_LEN) + IPV4_LEN);
	if (hook == HOOK_INGRESS && !(reached && is_routed_to_us(skb, &p, to_v6))) {
		journey.counters->unmatched++;
		return UNMATCHED;
	}
	begin_trace(skb, &journey, skb->gso_size);
	if (reached)
		v = to_v6 ? encapsulate(skb, &p, hook, &segments) : decapsulate(skb, &p, hook, &segments);
	v = limit_passes(v, to_v6, hook);
	count(&journey, v, to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, segments);
	end_trace(skb, &journey, v);
	return v;
}

/* From one client to another, IPv4 may be routed back (RFC 7596 section 6.2): it comes out of one tunnel and enters another. */
always_inline int goes_round(const struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IPV6) && is_back(skb);
}

/* Egress of the softwire's own interface: what was routed into it comes out of it. */
SEC("tc")
int fordway_softwire_interface(struct __sk_buff *skb)
{
	if (goes_round(skb))
		return end_loop(skb, config.link_layer_len);
	return arrive_from(skb, HOOK_INTERFACE, skb->ifindex);
}

/* The same of a client at its uplink, whose interface leads to the user engine alone. */
SEC("tc")
int fordway_softwire_uplink_interface(struct __sk_buff *skb)
{
	return goes_round(skb) ? end_loop(skb, 0) : TC_ACT_UNSPEC;
}

/* Egress of a client's uplink: what has its IPv4 address leaves in its tunnel. */
SEC("tc")
int fordway_softwire_uplink_egress(struct __sk_buff *skb)
{
	return at_uplink_egress(skb);
}

/* Ingress of a client's uplink: what its tunnel end point has sent comes out of the tunnel. */
SEC("tc")
int fordway_softwire_uplink_ingress(struct __sk_buff *skb)
{
	return at_uplink_ingress(skb);
}

/* Ingress of a gateway's devices: what would be routed into the interface is taken before that, and arrives from the
 * interface, goes on in place or leaves directly. All else goes on as it came. */
SEC("tc")
int fordway_softwire_ingress(struct __sk_buff *skb)
{
	if (!is_for_device(skb))
		return TC_ACT_UNSPEC;
	return arrive_from(skb, HOOK_INGRESS, config.tun_ifindex);
}
