/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Hands the tester's frames to its sockets, with the time at which they arrived; passes everything else to the kernel: ARP,
 * Neighbor Discovery, pings, ICMP errors, fragments. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The first two octets behind the UDP header of a frame of the tester. */
const volatile __u16 magic;

/* The device's queues, and the socket of each. The length is set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Frames that came to a queue without a socket. */
__u64 missed;

/* What stands in front of a frame in the socket's memory: the time of arrival (CLOCK_MONOTONIC, ns), and its complement, by
 * which the reader knows that it is one. */
struct arrival {
	__u64 time;
	__u64 complement;
};

/* Where the payload of an unfragmented UDP datagram without options begins, from the frame's start; 0: it is something else. */
static __always_inline __u32 payload_offset(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct ipv6hdr *ipv6 = data + ETH_HLEN;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		/* More fragments, or an offset. */
		if ((void *)(ip + 1) > end || ip->ihl != 5 || ip->frag_off & bpf_htons(0x3fff))
			return 0;
		return ip->protocol == IPPROTO_UDP ? ETH_HLEN + sizeof(*ip) + sizeof(struct udphdr) : 0;
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6) && (void *)(ipv6 + 1) <= end)
		return ipv6->nexthdr == IPPROTO_UDP ? ETH_HLEN + sizeof(*ipv6) + sizeof(struct udphdr) : 0;
	return 0;
}

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 at = payload_offset(data, end);
	__u16 *first = data + at;

	if (!at || (void *)(first + 1) > end || *first != bpf_htons(magic))
		return XDP_PASS;
	/* A device without room in front of frames delivers them without a time: the reader takes its own. */
	if (!bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct arrival))) {
		struct arrival *arrival = (void *)(long)ctx->data_meta;

		if ((void *)(arrival + 1) > (void *)(long)ctx->data)
			return XDP_ABORTED;
		arrival->time = bpf_ktime_get_ns();
		arrival->complement = ~arrival->time;
	}
	__u32 queue = ctx->rx_queue_index;

	if (!bpf_map_lookup_elem(&sockets, &queue)) {
		__sync_fetch_and_add(&missed, 1);
		return XDP_DROP;
	}
	return bpf_redirect_map(&sockets, queue, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
