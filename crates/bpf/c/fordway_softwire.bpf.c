/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The programs of softwires at tc hooks: IPv4 packets into their tunnels, and out of them (RFC 2473, RFC 7596).
 * Taken is what needs nothing but a header put in front or taken off; packets of shared addresses need ports
 * besides. All else goes on as it came: nothing is dropped here, since the core answers most of what it drops.
 */
#define FORDWAY_SOFTWIRE

#include "common.h"
#include "maps.h"
#include "outcome.h"
#include "softwire_decapsulate.h"
#include "softwire_encapsulate.h"
#include "tc.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* One packet, from beginning to end. */
always_inline verdict handle(struct __sk_buff *skb, int into, int hook)
{
	struct packet p = { .len = skb->len - config.link_layer_len, .gso_size = skb->gso_size };
	struct journey journey = { .octets = p.len };
	__u32 zero = 0, segments = 1;
	verdict v = PASS_ON(FW_PASS_NOT_LINEAR);

	journey.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!journey.counters || skb->len < config.link_layer_len)
		return UNMATCHED;
	if (config.measure)
		journey.started = bpf_ktime_get_ns();
	begin_trace(skb, &journey, skb->gso_size);
	if (reach(skb, &p, (into ? 0 : IPV6_LEN) + IPV4_LEN))
		v = into ? encapsulate(skb, &p, hook, &segments) : decapsulate(skb, &p, hook, &segments);
	count(&journey, v, into ? FW_V4_TO_V6 : FW_V6_TO_V4, segments);
	end_trace(skb, &journey, v);
	return v;
}

/* Egress of the softwire's own interface: what was routed into it comes out of it. */
SEC("tc")
int fordway_softwire_interface(struct __sk_buff *skb)
{
	verdict v;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		v = handle(skb, 1, HOOK_INTERFACE);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		v = handle(skb, 0, HOOK_INTERFACE);
	else
		return TC_ACT_UNSPEC;
	if (v == GO_ON)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return VERDICT_KIND(v) == DROP(0) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Egress of a client's uplink: what has its IPv4 address leaves in its tunnel. */
SEC("tc")
int fordway_softwire_uplink_egress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return TC_ACT_UNSPEC;
	return leave_uplink(handle(skb, 1, HOOK_UPLINK));
}

/* Ingress of a client's uplink: what its tunnel end point has sent comes out of the tunnel. */
SEC("tc")
int fordway_softwire_uplink_ingress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || skb->vlan_present || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	return leave_uplink(handle(skb, 0, HOOK_UPLINK));
}
