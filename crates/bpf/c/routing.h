/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's routing: where it sends packets between two hosts. An answer is kept, since one lookup costs more than all of
 * the translation: for some time while the daemon says that nothing has changed (struct fw_routing); without a daemon until
 * the kernel's clock's next tick (1 to 10 ms).
 */
#ifndef FORDWAY_ROUTING_H
#define FORDWAY_ROUTING_H

#include "common.h"
#include "maps.h"

#define AF_INET 2
#define AF_INET6 10

/* What the kernel routes by. */
struct route_key {
	/* Source and destination as in the packet; of IPv4 both are in the first word. */
	__u64 address[4];
	/* arrival(). */
	__u64 arrival;
	/* flow(): 0, but for direct forwarding (direct.h). */
	__u64 flow;
};

/* Where and as what a packet arrived: the device, AF_INET or AF_INET6, and Type of Service or Traffic Class. In one word, as
 * processors wait to load a word that was just stored in parts. */
always_inline __u64 arrival(__u32 ifindex, __u16 family, __u8 tos)
{
	return ifindex | (__u64)family << 32 | (__u64)tos << 48;
}

always_inline __u32 ifindex_of(const struct route_key *key)
{
	return key->arrival;
}

always_inline __u16 family_of(const struct route_key *key)
{
	return key->arrival >> 32;
}

always_inline __u8 tos_of(const struct route_key *key)
{
	return key->arrival >> 48;
}

/* The protocol, and source and destination port as in the packet. */
always_inline __u64 flow(__u32 protocol, __u32 ports)
{
	return (__u64)protocol << 32 | ports;
}

/* Where the kernel sends such packets. */
struct way {
	/* Into the translator's own interface. */
	__u32 is_ours;
	/* GO_ON: out of `ifindex`, which takes redirected frames; else why not. */
	verdict verdict;
	__u32 ifindex;
	/* Octets of the longest packet. */
	__u32 mtu;
	/* Asked for a cell: other destinations of it may have other answers, such as neighbours on a link. */
	__u32 by_host;
	struct hop hop;
};

/* When the kernel was asked. */
struct asked {
	/* In ticks of the kernel's clock, but as nanoseconds. */
	__u64 at;
	/* fw_routing's generation; 0: the answer is good for this tick alone. */
	__u64 generation;
};

/* An entry of a cache; other caches have more behind these. */
struct route {
	struct route_key key;
	struct asked asked;
	struct way way;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fw_routing);
} routing SEC(".maps");

/* What of fw_routing a packet needs. */
struct news {
	__u64 now;
	/* 0: nobody listens. */
	__u64 generation;
	__u64 life;
	/* Destinations alone decide; else 0. */
	const struct fw_routing *by_destination;
};

always_inline struct route_key route_key_v4(__u32 ifindex, __u8 tos, __be32 src, __be32 dst)
{
	struct route_key key = { { src | (__u64)dst << 32 }, arrival(ifindex, AF_INET, tos), 0 };
	return key;
}

always_inline struct route_key route_key_v6(__u32 ifindex, __u8 tos, const struct ipv6_address *src,
					    const struct ipv6_address *dst)
{
	struct route_key key = { { src->hi, src->lo, dst->hi, dst->lo }, arrival(ifindex, AF_INET6, tos), 0 };
	return key;
}

/* The key of a packet as it came. 0: its header is out of reach. */
always_inline int read_route_key(const struct packet *p, int to_v6, __u32 ifindex, struct route_key *key)
{
	const struct ipv4_header *v4 = p->data;
	const struct ipv6_header *v6 = p->data;

	if (to_v6) {
		if ((void *)(v4 + 1) > p->data_end)
			return 0;
		*key = route_key_v4(ifindex, v4->tos, v4->src, v4->dst);
	} else {
		if ((void *)(v6 + 1) > p->data_end)
			return 0;
		*key = route_key_v6(ifindex, bpf_ntohl(v6->first) >> 20, &v6->src, &v6->dst);
	}
	return 1;
}

/* In the place of a key's flow, because the first address of a cell is an address as well. */
#define CELL flow(0x100, 0)

#define CELL6_BITS bpf_cpu_to_be64(~0ull << (128 - FW_CELL6))

/* Of a cell. The upper bits depend on all the lower ones. fordway-bpf's routing.rs has the same hash. */
always_inline __u64 cell_hash(__u64 hi, __u64 lo)
{
	return (hi * 0x9e3779b97f4a7c15ull ^ lo * 0xc2b2ae3d27d4eb4full) * 0x165667b19e3779f9ull;
}

/* Whether longer prefixes than a cell may be routed in the cell with this hash. */
always_inline int is_fine(const struct fw_routing *routing, __u64 hash)
{
	__u64 bit = hash >> (64 - FW_FINE_BITS);

	return READ_ONCE(routing->fine[bit >> 6]) >> (bit & 63) & 1;
}

always_inline struct news read_news(__u64 now)
{
	__u32 zero = 0;
	struct news news = { .now = now };
	const struct fw_routing *found = bpf_map_lookup_elem(&routing, &zero);

	if (!found || news.now >= READ_ONCE(found->until))
		return news;
	news.generation = READ_ONCE(found->generation);
	news.life = found->life;
	if (READ_ONCE(found->by_destination))
		news.by_destination = found;
	return news;
}

/* Takes of a key what the kernel does not look at, and of its destination what others of its cell share. Whether it is a cell's
 * then, with this hash. */
always_inline int share(struct route_key *key, const struct news *news, __u64 *hash)
{
	const struct fw_routing *routing = news->by_destination;
	int is_cell;

	if (!routing)
		return 0;
	if (family_of(key) == AF_INET) {
		__u32 to = key->address[0] >> 32, cell = to & bpf_htonl(~0u << (32 - FW_CELL4));

		*hash = cell_hash(cell, 0);
		is_cell = !is_fine(routing, *hash);
		key->address[0] = (__u64)(is_cell ? cell : to) << 32;
	} else {
		key->address[0] = 0;
		key->address[1] = 0;
		*hash = cell_hash(key->address[2], key->address[3] & CELL6_BITS);
		is_cell = !is_fine(routing, *hash);
		if (is_cell)
			key->address[3] &= CELL6_BITS;
	}
	key->flow = is_cell ? CELL : 0;
	return is_cell;
}

/* Gives a cell's key the destination of `whole` again. */
always_inline void leave_cell(struct route_key *key, const struct route_key *whole)
{
	key->flow = 0;
	if (family_of(key) == AF_INET)
		key->address[0] = whole->address[0] >> 32 << 32;
	else
		key->address[3] = whole->address[3];
}

/* Whether an answer is still good. */
always_inline int is_current(const struct asked *asked, const struct news *news)
{
	return asked->at == news->now || (asked->generation && asked->generation == news->generation &&
					  news->now - asked->at < news->life);
}

always_inline int is_same_route(const struct route_key *a, const struct route_key *b)
{
	return a->address[3] == b->address[3] && a->address[2] == b->address[2] && a->address[1] == b->address[1] &&
	       a->address[0] == b->address[0] && a->arrival == b->arrival && a->flow == b->flow;
}

/* The upper bits depend on all the lower ones. */
always_inline __u64 route_hash(const struct route_key *key)
{
	__u64 mixed = key->address[0] * 0x9e3779b97f4a7c15ull ^ key->address[1] * 0xc2b2ae3d27d4eb4full ^
		      key->address[2] * 0x165667b19e3779f9ull ^ key->address[3] * 0xd6e8feb86659fd93ull ^
		      key->flow * 0xff51afd7ed558ccdull;
	return (mixed ^ mixed >> 32) * 0x9e3779b97f4a7c15ull;
}

/* Whether a device takes redirected frames: each kind of frame has its own answer. A translator's interface never does,
 * since its output does not go back into it. */
always_inline int takes_redirected(__u32 ifindex);

/* Whether the kernel has put a next hop's address in the place of the destination. */
always_inline int has_gateway(const struct bpf_fib_lookup *fib, const struct route_key *key)
{
	__u64 to[2];

	if (fib->family != family_of(key))
		return 1;
	if (family_of(key) == AF_INET)
		return fib->ipv4_dst != (__u32)(key->address[0] >> 32);
	__builtin_memcpy(to, fib->ipv6_dst, sizeof(to));
	return ((to[0] ^ key->address[2]) | (to[1] ^ key->address[3])) != 0;
}

/* Asks the kernel. Whether the answer may be kept: an unknown neighbour may answer any moment. */
always_inline int ask_routing(FRAME *frame, const struct route_key *key, struct way *way)
{
	struct bpf_fib_lookup fib = {
		.family = family_of(key),
		.l4_protocol = key->flow >> 32,
		.sport = key->flow,
		.dport = key->flow >> 16,
		.ifindex = ifindex_of(key),
	};

	/* Not 0, so that the kernel says the MTU of the route, and does not look at the length of this packet. */
	fib.tot_len = 1;
	if (family_of(key) == AF_INET) {
		fib.tos = tos_of(key);
		fib.ipv4_src = key->address[0];
		fib.ipv4_dst = key->address[0] >> 32;
	} else {
		fib.flowinfo = bpf_htonl((__u32)tos_of(key) << 20);
		__builtin_memcpy(fib.ipv6_src, &key->address[0], 16);
		__builtin_memcpy(fib.ipv6_dst, &key->address[2], 16);
	}
	long found = bpf_fib_lookup(frame, &fib, sizeof(fib), 0);
	int has_neighbour = found == BPF_FIB_LKUP_RET_NO_NEIGH || found == BPF_FIB_LKUP_RET_SUCCESS;
	/* The translator's interface may have no neighbours; the kernel names the device nevertheless. */
	way->is_ours = has_neighbour && fib.ifindex == config.tun_ifindex;
	way->by_host = has_neighbour && !way->is_ours && !has_gateway(&fib, key);
	way->verdict = PASS_ON(FW_PASS_NO_ROUTE);
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return way->is_ours || (found > 0 && found != BPF_FIB_LKUP_RET_NO_NEIGH);
	way->verdict = takes_redirected(fib.ifindex) ? GO_ON : PASS_ON(FW_PASS_NO_REDIRECT);
	way->ifindex = fib.ifindex;
	way->mtu = fib.mtu_result;
	note_hop(&way->hop, &fib);
	return 1;
}

#endif
