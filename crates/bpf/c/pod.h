/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A CLAT at a pod's own device, without a process: what the programs can't translate is dropped and counted in the pod's
 * entry. All pods of a node share the programs. At each pod's device stands a stub of a few instructions (sys.rs), which
 * writes the key of the pod's entry to cb[0] and cb[1] and continues here by a tail call.
 */
#ifndef FORDWAY_POD_H
#define FORDWAY_POD_H

#include "common.h"
#include "maps.h"
#include "tc.h"

/* RFC 4861 section 4: the types of Neighbor Discovery, and the only hop limit that they arrive with. */
#define ND_FIRST 133
#define ND_LAST 137
#define ND_HOP_LIMIT 255

/* The pod's entry; its address becomes that of map_v4() and map_v6() for this packet. */
always_inline struct fw_pod *begin_pod(const struct __sk_buff *skb)
{
	__u64 key = (__u64)skb->cb[1] << 32 | skb->cb[0];
	__u32 zero = 0;
	struct halves *address = bpf_map_lookup_elem(&this_pod, &zero);
	struct fw_pod *pod = bpf_map_lookup_elem(&pods, &key);

	if (!pod || !address)
		return 0;
	address->hi = pod->clat_hi;
	address->lo = pod->clat_lo;
	return pod;
}

/* Whether the packet is for the CLAT. */
always_inline int is_for_pod(struct __sk_buff *skb, const struct fw_pod *pod)
{
	struct ipv6_address dst;

	return !bpf_skb_load_bytes(skb, config.link_layer_len + offsetof(struct ipv6_header, dst), &dst, sizeof(dst)) &&
	       dst.lo == bpf_cpu_to_be64(pod->clat_lo) && dst.hi == bpf_cpu_to_be64(pod->clat_hi);
}

/* Whether the kernel has to see a packet to the CLAT's address: it answers for the address on the link. */
always_inline int is_neighbor_discovery(struct __sk_buff *skb)
{
	struct ipv6_header ip;
	__u8 type;

	return !bpf_skb_load_bytes(skb, config.link_layer_len, &ip, sizeof(ip)) &&
	       !bpf_skb_load_bytes(skb, config.link_layer_len + IPV6_LEN, &type, sizeof(type)) &&
	       ip.next_header == PROTOCOL_ICMPV6 && ip.hop_limit == ND_HOP_LIMIT && type >= ND_FIRST && type <= ND_LAST;
}

/* Counts the outcome. Several processors may have packets of one pod. */
always_inline int leave_pod(struct fw_pod *pod, verdict v, int direction)
{
	switch (VERDICT_KIND(v)) {
	case GO_ON:
		__sync_fetch_and_add(&pod->translated[direction], 1);
		return TC_ACT_UNSPEC;
	case PASS_ON(0):
		__sync_fetch_and_add(&pod->passed_on[VERDICT_REASON(v) & 31], 1);
		return TC_ACT_SHOT;
	case DROP(0):
		__sync_fetch_and_add(&pod->drops[VERDICT_REASON(v) & 127], 1);
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
}

/* Egress of a pod's device. IPv4 with another source than the CLAT's leaves as it is. */
always_inline int at_pod_egress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return TC_ACT_UNSPEC;
	struct fw_pod *pod = begin_pod(skb);
	if (!pod)
		return TC_ACT_UNSPEC;
	return leave_pod(pod, handle(skb, 1, HOOK_UPLINK), FW_V4_TO_V6);
}

/* Ingress of a pod's device. The CLAT's address takes answers from the prefix and ICMPv6 errors, and nothing else: what
 * filters packets to the pod's own address may not know this one. */
always_inline int at_pod_ingress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || skb->vlan_present || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	struct fw_pod *pod = begin_pod(skb);
	if (!pod || !is_for_pod(skb, pod))
		return TC_ACT_UNSPEC;
	verdict v = handle(skb, 0, HOOK_UPLINK);
	if (VERDICT_KIND(v) != UNMATCHED || is_neighbor_discovery(skb))
		return leave_pod(pod, v, FW_V6_TO_V4);
	__sync_fetch_and_add(&pod->foreign, 1);
	return TC_ACT_SHOT;
}

#endif
