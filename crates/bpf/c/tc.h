/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs at tc hooks share: access to a frame, which frames they take, and their return codes. Each object
 * defines `handle`, which decides on a packet.
 */
#ifndef FORDWAY_TC_H
#define FORDWAY_TC_H

#include "common.h"
#include "direct.h"
#include "frame_tc.h"
#include "maps.h"
#include "outcome.h"

#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

/* Segments keep their size, and the checksum status stays. */
#define ROOM_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* The kernel has refused a change (out of memory) after others were made, which can't be undone. */
#define BROKEN DROP(FW_DROP_NO_HEADROOM)

/* For a trace. */
always_inline __u8 snap(struct __sk_buff *skb, __u8 *to)
{
	__u32 len = skb->len - config.link_layer_len;

	if (len > FW_TRACE_SNAP)
		len = FW_TRACE_SNAP;
	return LOAD_SOME(skb, config.link_layer_len, to, len, FW_TRACE_SNAP) ? 0 : len;
}

/* Whether the packet would be longer than its device allows now. The configuration has the MTU at the time of loading,
 * and nothing checks the length behind an uplink's egress. */
always_inline int exceeds_device(struct __sk_buff *skb, __u32 wire_len)
{
	__u32 mtu = 0;

	bpf_check_mtu(skb, 0, &mtu, 0, 0);
	return mtu && wire_len > mtu;
}

/* Cuts off the padding of a short Ethernet frame behind the `len` octets of the packet. Not of a super-packet, which the
 * kernel would no longer take for one. */
always_inline verdict cut_tail(struct __sk_buff *skb, const struct packet *p, __u32 len)
{
	if (p->len <= len)
		return GO_ON;
	if (p->gso_size || bpf_skb_change_tail(skb, config.link_layer_len + len, 0))
		return PASS_ON(FW_PASS_RESIZE);
	return GO_ON;
}

/* Sets the Ethernet type of a frame that has changed its family. */
always_inline long set_frame_type(struct __sk_buff *skb, __u16 ethertype)
{
	__be16 type = bpf_htons(ethertype);

	if (config.link_layer_len != ETHERNET_LEN)
		return 0;
	return bpf_skb_store_bytes(skb, ETHERNET_LEN - 2, &type, 2, 0);
}

/* Takes one packet from beginning to end; to_v6: it is of IPv4. */
always_inline verdict handle(struct __sk_buff *skb, int to_v6, int hook);

/* Notes the begin. 0: the frame is too short, or there are no counters. */
always_inline int begin_journey(struct __sk_buff *skb, struct journey *journey)
{
	__u32 zero = 0;

	journey->counters = bpf_map_lookup_elem(&counters, &zero);
	if (!journey->counters || skb->len < config.link_layer_len)
		return 0;
	if (config.measure)
		journey->started = bpf_ktime_get_ns();
	return 1;
}

/* At the ingress of a gateway's devices. Functions of their own, so that the verifier sees one result: it would look at much of
 * the program several times, once for each way there. */
__noinline int handle_v4(struct __sk_buff *skb)
{
	return handle(skb, 1, HOOK_INGRESS);
}

__noinline int handle_v6(struct __sk_buff *skb)
{
	return handle(skb, 0, HOOK_INGRESS);
}

/* Packets of either family arrive from the interface `ifindex`, or go on in place, or leave directly. */
always_inline int arrive_from(struct __sk_buff *skb, int hook, __u32 ifindex)
{
	verdict v;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		v = hook == HOOK_INGRESS ? handle_v4(skb) : handle(skb, 1, hook);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		v = hook == HOOK_INGRESS ? handle_v6(skb) : handle(skb, 0, hook);
	else
		return TC_ACT_UNSPEC;
	if (v == GO_ON && hook == HOOK_INGRESS && config.direct)
		return forward(skb);
	if (v == GO_ON && hook == HOOK_INGRESS && config.in_place)
		return TC_ACT_UNSPEC;
	if (v == GO_ON)
		return bpf_redirect(ifindex, BPF_F_INGRESS);
	if (v == HAND_OVER)
		return TC_ACT_REDIRECT;
	return VERDICT_KIND(v) == DROP(0) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Leaves a packet, whose header begins at octet `at`, one hop, so that the next router drops it and tells its sender. */
always_inline long spend_hop_limit(struct __sk_buff *skb, __u32 at)
{
	__u32 ttl_at = at + offsetof(struct ipv4_header, ttl);
	/* The IPv4 checksum covers it together with the octet behind it. */
	union {
		__u8 octets[2];
		__be16 word;
	} old, spent = { .octets = { 1 } };

	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return bpf_skb_store_bytes(skb, at + offsetof(struct ipv6_header, hop_limit), &spent, 1, BPF_F_RECOMPUTE_CSUM);
	if (bpf_skb_load_bytes(skb, ttl_at, &old, 2))
		return -1;
	spent.octets[1] = old.octets[1];
	return bpf_l3_csum_replace(skb, at + offsetof(struct ipv4_header, checksum), old.word, spent.word, 2) ||
	       bpf_skb_store_bytes(skb, ttl_at, &spent, 1, 0);
}

/* At the interface's egress: whether a packet came out of the interface and was routed back into it. It would go round. */
always_inline int is_back(const struct __sk_buff *skb)
{
	return skb->ingress_ifindex == skb->ifindex;
}

/* A packet that is back ends here. The kernel gets it with one hop left, and sends the error as for any other packet: an
 * error of the user engine would be routed back as well. `link_layer_len`: of this frame. At an uplink the others of the object
 * have another header, and a trace would show this one from a wrong octet on: there it is counted alone. */
__noinline int end_loop(struct __sk_buff *skb, __u32 link_layer_len)
{
	int to_v6 = skb->protocol == bpf_htons(ETH_P_IP);
	int as_others = link_layer_len == config.link_layer_len;
	struct journey journey = { .octets = skb->len - link_layer_len };

	if (!begin_journey(skb, &journey))
		return TC_ACT_SHOT;
	if (as_others)
		begin_trace(skb, &journey, skb->gso_size);
	count(&journey, DROP(FW_DROP_LOOP), to_v6 ? FW_V4_TO_V6 : FW_V6_TO_V4, 0);
	if (as_others)
		end_trace(skb, &journey, DROP(FW_DROP_LOOP));
	return spend_hop_limit(skb, link_layer_len) ? TC_ACT_SHOT : bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/*
 * In front of routing: whether a frame is for this host, and for the device itself. One with a VLAN tag belongs to another
 * interface. What is not is counted: if there is nothing else, the program is at the wrong device.
 */
always_inline int is_for_device(const struct __sk_buff *skb)
{
	__u32 zero = 0;

	if (!skb->vlan_present && skb->pkt_type == PACKET_HOST)
		return 1;
	struct fw_counters *c = bpf_map_lookup_elem(&counters, &zero);
	if (c && skb->vlan_present)
		c->tagged++;
	else if (c && skb->pkt_type == PACKET_OTHERHOST)
		c->elsewhere++;
	return 0;
}

/* At an uplink, packets of the translator that are not translated are redirected to the interface, and so to the user
 * engine. */
always_inline int leave_uplink(verdict v)
{
	switch (VERDICT_KIND(v)) {
	case PASS_ON(0):
		return bpf_redirect(config.tun_ifindex, 0);
	case DROP(0):
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
}

/* Egress of an uplink. Frames with a VLAN tag belong to another interface, whose own hooks they have passed. */
always_inline int at_uplink_egress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return TC_ACT_UNSPEC;
	return leave_uplink(handle(skb, 1, HOOK_UPLINK));
}

/* Ingress of an uplink: frames for this host. */
always_inline int at_uplink_ingress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || skb->vlan_present || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	return leave_uplink(handle(skb, 0, HOOK_UPLINK));
}

#endif
