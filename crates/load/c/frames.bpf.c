/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Frames, sent one after the other, between one pair of hosts or many, and counted where they arrive. */
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
/* The frames that take turns: how many, their lengths, at least the smallest that Ethernet has, and their first octets. The
 * rest is zeros, which are sent as they are. */
#define LEAST 60
#define FRONT 96
#define FRAMES 64
const volatile __u32 frames;
const volatile __u32 lengths[FRAMES];
__u32 fronts[FRAMES][FRONT / 4];
__u32 turn;

/* Hosts in whose name frames are sent, or to which, one after the other; 0 or 1: frames stay as they are. */
const volatile __u32 hosts;
/* Offset of the last four octets of their address, which are those of the first host: the number of a host is added. */
const volatile __u32 host_at;
/* Offsets of the checksums that cover the address; 0: there is no second one. */
const volatile __u32 checksums_at[2];
__u32 host;

/* What the receiver counts: UDP of one family to one port, its octets of payload only where they are asked for. */
const volatile __u32 v4, port, sized;
__u64 packets, octets;

/* Adds to what a checksum covers (RFC 1624). Whole words are added, so the order of octets does not matter. */
static __always_inline void cover(__u8 *octets, void *end, __u32 at, __u32 sum)
{
	__u16 *checksum = (void *)(octets + at);

	if ((void *)(checksum + 1) > end)
		return;
	sum += (__u16)~*checksum;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*checksum = ~sum;
}

/* Puts the next host into a frame. */
static __always_inline void next_host(__u8 *octets, void *end)
{
	__u16 *address = (void *)(octets + host_at);
	__u32 number = host;

	if ((void *)(address + 2) > end)
		return;
	host = number + 1 < hosts ? number + 1 : 0;
	/* The bits of the number are zero in the first host's address: nothing is carried. */
	__u16 high = bpf_htons(number >> 16), low = bpf_htons(number);
	address[0] += high;
	address[1] += low;
	cover(octets, end, checksums_at[0], (__u32)high + low);
	if (checksums_at[1])
		cover(octets, end, checksums_at[1], (__u32)high + low);
}

/* Writes the headers of a frame anew, as it comes back changed when its memory is used again, and redirects it. */
SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u32 own = 0;
	if (frames > 1) {
		own = turn;
		turn = own + 1 < frames ? own + 1 : 0;
		own &= FRAMES - 1;
		/* The kernel hands in the longest each time. */
		int more = (int)lengths[own] - (int)(ctx->data_end - ctx->data);
		if (more && bpf_xdp_adjust_tail(ctx, more))
			return XDP_ABORTED;
	}
	__u32 *front = fronts[own];
	__u32 *words = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if ((void *)words + LEAST > end)
		return XDP_ABORTED;
#pragma unroll
	for (__u32 i = 0; i < LEAST / 4; i++)
		words[i] = front[i];
	for (__u32 i = LEAST / 4; i < FRONT / 4; i++) {
		void *after = words + i + 1;
		/* The compiler must not move the end instead, with which no program may reckon. */
		asm volatile("" : "+r"(after));
		if (after > end)
			break;
		words[i] = front[i];
	}
	if (hosts > 1)
		next_host((void *)words, end);
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
	if (sized)
		__sync_fetch_and_add(&octets, bpf_ntohs(datagram->len) - sizeof(*datagram));
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
