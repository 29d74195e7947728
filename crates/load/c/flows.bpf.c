/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Flows by the hundred thousand: the sender, and the programs at both ends. They keep no state but what the
 * tester wants to know: all that an answer needs is in the packet that it answers.
 *
 *   send (client)          serve (server)           receive (client)
 *   SYN          ──────►   SYN-ACK       ──────►    ACK  ──────► (server) done
 *   data         ──────►   data, echoed  ──────►    done
 *   FIN          ──────►   FIN-ACK       ──────►    ACK  ──────► (server) done
 *   datagram     ──────►   done, or echoed ─────►   done
 *
 * A frame that is not the tester's is passed to the kernel.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define always_inline static __always_inline

/* Octets from the frame's begin to the transport part; an IPv4 header has no options. */
#define FRONT(v4) (ETH_HLEN + ((v4) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
/* Octets of an IP header in front of its addresses. */
#define BEFORE_ADDRESSES(v4) \
	((v4) ? offsetof(struct iphdr, saddr) : offsetof(struct ipv6hdr, saddr))
/* The source address's own 16 bits: the end of an IPv4 address, or of the /64 prefix of an IPv6 address. */
#define HOST_AT (ETH_HLEN + 14)
/* Most octets of addresses, TCP header and payload together. */
#define MOST_SUMMED 96
/* Length of a segment that opens a connection: it has one option. */
#define OPENING_LEN (sizeof(struct tcphdr) + 4)
/* Four options without meaning (RFC 9293 section 3.2). */
#define NOTHING 0x01010101

/* The flags of TCP (RFC 9293 section 3.1). */
enum flag {
	FIN = 0x01,
	SYN = 0x02,
	RST = 0x04,
	PSH = 0x08,
	ACK = 0x10,
};

/* The path, known when the programs are loaded. "Near" is the client's end, "far" is the server's. */
const volatile __u32 near_device, near_v4, far_device, far_v4, udp, echo;
/* The flows: see Walk. */
const volatile __u32 mask, sources, stride, first_port, first_target_port;
/* A flow's number is above so many bits of a sequence number; the first one of every server. */
const volatile __u32 sequence_bits, server_sequence;
/* Octets of payload of a datagram, and of a segment with data. */
const volatile __u32 payload;

/* What is sent in this phase: a frame in which all that differs from flow to flow is zero, the sums of its transport part
 * with the pseudo-header and of its IPv4 header, and what is added to the first sequence number of a flow. */
__u64 template[MOST_SUMMED / 8], transport_sum, header_sum, sequence;

/* The flow whose turn it is, the flow at which the phase ends, the distance from one flow to the next, the number of
 * flows that may be under way at once, and the number of the phase, from 1. */
__u64 next, until, step, window, phase;

/* Packets sent; flows that got to their end in this phase, each once; flows that were under way for too long and are no
 * longer waited for; the time of the last end, ns of CLOCK_MONOTONIC. */
__u64 sent, done, forgiven, last;

/* Packets of flows that had got to their end in this phase already; with a wrong checksum; of no flow of this tester or
 * of an unexpected length; from another outer transport address than those of their flow before. */
__u64 again, wrong, stray, moved;

/* Resets and answers that the client got, packets that reached the server, and runs of the sender that found its window
 * full. */
__u64 reset, answers, reached, waited;

struct flow {
	/* The phase in which the flow last got to its end. */
	__u32 phase;
	__u32 reserved;
	/* The source as the server sees it: 32 bits of the address, port, target port. 0: not seen yet. */
	__u64 seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

always_inline void count(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/* Folds a sum of 16-bit words (RFC 1071). */
always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether memory at a place and behind it is the frame's. */
always_inline bool is_inside(void *place, __u32 length, void *end)
{
	void *after = place + length;
	/* The compiler must not move the end instead, with which no program may reckon. */
	asm volatile("" : "+r"(after));
	return after <= end;
}

/* Writes a frame anew, as it comes back changed when its memory is used again. What precedes a TCP header's end is copied
 * without further checks. */
always_inline bool write_template(void *frame, void *end, bool v4)
{
	__u32 least = FRONT(v4) + sizeof(struct tcphdr);
	if (!is_inside(frame, least, end))
		return false;
	*(__u16 *)frame = *(__u16 *)template;
#pragma unroll
	for (__u32 at = 2; at < FRONT(false) + sizeof(struct tcphdr); at += 4) {
		if (at < least)
			*(__u32 *)(frame + at) = *(__u32 *)((void *)template + at);
	}
	for (__u32 at = least; at < sizeof(template) - 4; at += 4) {
		if (!is_inside(frame + at, 4, end))
			break;
		*(__u32 *)(frame + at) = *(__u32 *)((void *)template + at);
	}
	return true;
}

/* Sends one packet of the flow whose turn it is. The frame is dropped, which costs next to nothing, when no flow is left,
 * when the window is full, and when the flow has got to its end in this phase already. */
SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u64 turn = next, sum = transport_sum;
	if (turn >= until)
		return XDP_DROP;
	if ((__s64)(sent - done - forgiven) >= (__s64)window) {
		count(&waited);
		return XDP_DROP;
	}
	next = turn + step;
	__u32 number = turn;
	struct flow *flow = bpf_map_lookup_elem(&flows, &number);
	if (!flow || flow->phase == phase)
		return XDP_DROP;

	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (!(near_v4 ? write_template(frame, end, true) : write_template(frame, end, false)))
		return XDP_ABORTED;
	__be16 *ports = frame + FRONT(near_v4);
	struct tcphdr *tcp = (void *)ports;
	if ((void *)(tcp + 1) > end)
		return XDP_ABORTED;

	__u32 mixed = number * stride & mask, host = mixed & ((1 << sources) - 1);
	__u32 port = first_port + (mixed >> sources), target_port = first_target_port + host;
	host += 1;
	if (!udp)
		number = (number << sequence_bits) + sequence;
	ports[0] = bpf_htons(port);
	ports[1] = bpf_htons(target_port);
	*(__be16 *)(frame + HOST_AT) = bpf_htons(host);
	*(__be32 *)(ports + (udp ? 4 : 2)) = bpf_htonl(number);
	sum += port + target_port + host + (number >> 16) + (number & 0xffff);
	if (udp) {
		/* A datagram's sum is never zero, which would mean that there is none (RFC 768). */
		ports[3] = bpf_htons((__u16)~fold(sum) ?: 0xffff);
	} else {
		tcp->check = bpf_htons(~fold(sum));
	}
	if (near_v4)
		((struct iphdr *)(frame + ETH_HLEN))->check = bpf_htons(~fold(header_sum + host));
	count(&sent);
	return bpf_redirect(near_device, 0);
}

/* Whether a checksum over the addresses, of which protocol and length are the rest of the pseudo-header, and the
 * transport part is right. Both lie side by side, and are whole words. */
always_inline bool is_right(void *frame, void *end, bool v4, __u32 length)
{
	__u64 sum = bpf_htons((udp ? IPPROTO_UDP : IPPROTO_TCP) + length);
	__u32 *words = frame + ETH_HLEN + BEFORE_ADDRESSES(v4);
	__u32 count = (FRONT(v4) - ETH_HLEN - BEFORE_ADDRESSES(v4) + length) / 4;
	for (__u32 i = 0; i < MOST_SUMMED / 4 && i < count; i++) {
		if (!is_inside(words + i, 4, end))
			return false;
		sum += words[i];
	}
	return fold(sum) == 0xffff;
}

/* Exchanges source and target and sends the packet back. It is redirected to the device rather than sent by XDP_TX: a veth
 * forgets such frames unless its peer has a program, too. */
always_inline int send_back(void *frame, bool v4, __u32 device)
{
	struct ethhdr *eth = frame;
	__be16 *ports = frame + FRONT(v4);
	__u32 *addresses = frame + ETH_HLEN + BEFORE_ADDRESSES(v4);
	__u32 words = v4 ? 1 : 4;
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	__be16 port = ports[0];
	ports[0] = ports[1];
	ports[1] = port;
#pragma unroll
	for (__u32 i = 0; i < 4; i++) {
		if (i < words) {
			__u32 address = addresses[i];
			addresses[i] = addresses[words + i];
			addresses[words + i] = address;
		}
	}
	return bpf_redirect(device, 0);
}

/* Turns a segment into its answer, which is sent back then: it acknowledges `further` sequence numbers, and begins at `first`.
 * `option`: the segment's one option, which an answer does not have, or null. */
always_inline void answer(struct tcphdr *tcp, __u32 *option, __be32 first, __u32 further, __u8 flags)
{
	__be32 acknowledged = bpf_htonl(bpf_ntohl(tcp->seq) + further);
	__u16 *flag_word = (__u16 *)tcp + 6;
	__u16 changed = (*flag_word & bpf_htons(0xff00)) | bpf_htons(flags);
	/* RFC 1624 section 3: the old words, complemented, are added to the new ones. */
	__u64 sum = (__u16)~tcp->check;
	sum += (__u64)(__u32)~tcp->seq + (__u32)~tcp->ack_seq + (__u16)~*flag_word;
	sum += (__u64)first + acknowledged + changed;
	if (option) {
		sum += (__u64)(__u32)~*option + NOTHING;
		*option = NOTHING;
	}
	tcp->seq = first;
	tcp->ack_seq = acknowledged;
	*flag_word = changed;
	tcp->check = ~fold(sum);
}

/* Keeps the source of the flow's first packet, and counts later ones that come from another. */
always_inline void note_source(struct flow *flow, void *frame, __u32 ports)
{
	/* Of an IPv6 address, the half of the prefix that differs from source to source. */
	__u64 source = (__u64)(*(__u32 *)(frame + HOST_AT - 2)) << 32 | ports;
	if (flow->seen == 0)
		flow->seen = source;
	else if (flow->seen != source)
		count(&moved);
}

/* Notes that a flow got to its end, once per phase. */
always_inline int is_done(struct flow *flow)
{
	__u32 now = phase;
	if (__sync_lock_test_and_set(&flow->phase, now) == now) {
		count(&again);
	} else {
		count(&done);
		last = bpf_ktime_get_ns();
	}
	return XDP_DROP;
}

always_inline int counted(__u64 *counter)
{
	count(counter);
	return XDP_DROP;
}

/* What arrives at an end, through whose device answers go back. */
always_inline int arrive(struct xdp_md *ctx, bool v4, __u32 device, bool at_server)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = frame;
	struct iphdr *ip = frame + ETH_HLEN;
	struct ipv6hdr *ipv6 = frame + ETH_HLEN;
	struct tcphdr *tcp = frame + FRONT(v4);
	__be16 *ports = (void *)tcp;
	__u32 length, number;

	/* A client's packets go to the ports of the flows, and answers come from them. All else is the kernel's. */
	if ((void *)(tcp + 1) > end || eth->h_proto != bpf_htons(v4 ? ETH_P_IP : ETH_P_IPV6) ||
	    (v4 ? ip->protocol : ipv6->nexthdr) != (udp ? IPPROTO_UDP : IPPROTO_TCP) ||
	    (v4 && *(__u8 *)ip != 0x45) ||
	    (__u32)bpf_ntohs(ports[at_server]) - first_target_port >= 1U << sources)
		return XDP_PASS;

	/* A datagram, and its echo, have the number in the payload. Of TCP, a client's sequence number names the flow, and
	 * so does what an answer acknowledges. */
	number = udp ? *(__be32 *)(ports + 4) : at_server ? tcp->seq : tcp->ack_seq;
	number = bpf_ntohl(number) >> (udp ? 0 : sequence_bits);
	struct flow *flow = bpf_map_lookup_elem(&flows, &number);
	length = v4 ? bpf_ntohs(ip->tot_len) - sizeof(*ip) : bpf_ntohs(ipv6->payload_len);
	if (!flow || (udp ? length != sizeof(struct udphdr) + payload :
			    length != sizeof(*tcp) && length != OPENING_LEN &&
				    length != sizeof(*tcp) + payload))
		return counted(&stray);
	/* A datagram without a checksum is right in IPv4 (RFC 768): every host takes it. */
	if (!(udp && v4 && ports[3] == 0) && !is_right(frame, end, v4, length))
		return counted(&wrong);
	count(at_server ? &reached : &answers);
	if (at_server)
		note_source(flow, frame, *(__u32 *)ports);
	if (udp)
		return at_server && echo ? send_back(frame, v4, device) : is_done(flow);

	__u8 flags = ((__u8 *)tcp)[13];
	__u32 *option = NULL;
	if (at_server) {
		if (flags & SYN)
			answer(tcp, NULL, bpf_htonl(server_sequence), 1, SYN | ACK);
		else if (flags & RST)
			return is_done(flow);
		else if (flags & FIN)
			answer(tcp, NULL, tcp->ack_seq, 1, FIN | ACK);
		else if (echo && flags & PSH)
			answer(tcp, NULL, tcp->ack_seq, payload, PSH | ACK);
		else
			return is_done(flow);
	} else if (flags & RST) {
		return counted(&reset);
	} else if (flags & SYN) {
		option = (void *)(tcp + 1);
		if ((void *)(option + 1) > end)
			return counted(&stray);
		answer(tcp, option, tcp->ack_seq, 1, ACK);
	} else if (flags & FIN) {
		answer(tcp, NULL, tcp->ack_seq, 1, ACK);
	} else {
		return is_done(flow);
	}
	return send_back(frame, v4, device);
}

SEC("xdp")
int serve(struct xdp_md *ctx)
{
	return far_v4 ? arrive(ctx, true, far_device, true) : arrive(ctx, false, far_device, true);
}

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	return near_v4 ? arrive(ctx, true, near_device, false) :
			 arrive(ctx, false, near_device, false);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
