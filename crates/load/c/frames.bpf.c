/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* One frame, sent again and again, and counted where it arrives. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The device that the sender redirects to. */
const volatile __u32 device;
/* The frame: at least the smallest that Ethernet has, and whole words. */
#define LEAST 60
#define MOST 96
__u32 frame[MOST / 4];

/* What the receiver counts: UDP of one family to one port. */
const volatile __u32 v4, port;
__u64 packets;

/* Writes the whole frame anew, as it comes back changed when its memory is used again, and redirects it. */
SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u32 *words = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if ((void *)words + LEAST > end)
		return XDP_ABORTED;
#pragma unroll
	for (__u32 i = 0; i < LEAST / 4; i++)
		words[i] = frame[i];
	for (__u32 i = LEAST / 4; i < MOST / 4; i++) {
		void *after = words + i + 1;
		/* The compiler must not move the end instead, with which no program may reckon. */
		asm volatile("" : "+r"(after));
		if (after > end)
			break;
		words[i] = frame[i];
	}
	return bpf_redirect(device, 0);
}

/* Counts and drops; everything else is passed on. */
SEC("xdp")
int receive(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	struct ipv6hdr *ipv6 = data + ETH_HLEN;
	struct udphdr *datagram = v4 ? (void *)(ip + 1) : (void *)(ipv6 + 1);
	if ((void *)(datagram + 1) > end ||
	    eth->h_proto != bpf_htons(v4 ? ETH_P_IP : ETH_P_IPV6) ||
	    (v4 ? ip->protocol : ipv6->nexthdr) != IPPROTO_UDP || datagram->dest != bpf_htons(port))
		return XDP_PASS;
	__sync_fetch_and_add(&packets, 1);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
