/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Mapping of addresses: explicit mappings (RFC 7757) first, then the translation prefixes (RFC 6052).
 * The core's addr.rs, addr/eam.rs, addr/pool6.rs and addr/classify.rs.
 */
#ifndef FORDWAY_ADDRESS_H
#define FORDWAY_ADDRESS_H

#include "common.h"
#include "headers.h"
#include "maps.h"
#include "pool4.h"

/* How an address was mapped. */
enum via {
	VIA_NONE,	/* no mapping covers it */
	VIA_REFUSED,	/* RFC 6052 forbids it */
	VIA_EAM,
	VIA_POOL6,
	VIA_ICMP_SOURCE,
	VIA_DYNAMIC4,	/* a dynamic mapping, looked up once the packet has been validated */
};

/* Why an IPv6 address can't be an end of a translated packet; 0: it can. */
always_inline __u32 illegal_v6(struct halves address)
{
	__u16 first = address.hi >> 48;
	/* Most are none of these. */
	if (address.hi && first < 0xfe80)
		return 0;
	if (first >= 0xff00)
		return FW_DROP_MULTICAST;
	if (first >= 0xfe80 && first <= 0xfebf)
		return FW_DROP_LINK_LOCAL;
	if (address.hi == 0) {
		if (address.lo == 1)
			return FW_DROP_LOOPBACK;
		if (address.lo >> 32 == 0 || address.lo >> 32 == 0xffff)
			return FW_DROP_MARTIAN;
	}
	return 0;
}

always_inline struct halves to_halves(const struct ipv6_address *address)
{
	struct halves out = { bpf_be64_to_cpu(address->hi), bpf_be64_to_cpu(address->lo) };
	return out;
}

always_inline void to_wire(struct halves from, struct ipv6_address *out)
{
	out->hi = bpf_cpu_to_be64(from.hi);
	out->lo = bpf_cpu_to_be64(from.lo);
}

#define WITHIN(address, net, len) (((address) ^ (net)) >> (32 - (len)) == 0)

/* RFC 6890's registry, RFC 6052 section 3.1; the core's NON_GLOBAL_V4 and GLOBAL_V4. */
always_inline int is_global_v4(__u32 a)
{
	if (a == 0xc0000009 || a == 0xc000000a)
		return 1;
	return !(WITHIN(a, 0x00000000u, 8) || WITHIN(a, 0x0a000000u, 8) || WITHIN(a, 0x64400000u, 10) ||
		 WITHIN(a, 0x7f000000u, 8) || WITHIN(a, 0xa9fe0000u, 16) || WITHIN(a, 0xac100000u, 12) ||
		 WITHIN(a, 0xc0000000u, 24) || WITHIN(a, 0xc0000200u, 24) || WITHIN(a, 0xc0586300u, 24) ||
		 WITHIN(a, 0xc0a80000u, 16) || WITHIN(a, 0xc6120000u, 15) || WITHIN(a, 0xc6336400u, 24) ||
		 WITHIN(a, 0xcb007100u, 24) || WITHIN(a, 0xe0000000u, 3));
}

always_inline __u32 suffix_mask(__u8 v4_len)
{
	return v4_len >= 32 ? 0 : 0xffffffffu >> v4_len;
}

/* How far left the suffix stands in the IPv6 address (RFC 7757 section 3.3). */
always_inline __u32 suffix_shift(const struct fw_eam *eam)
{
	return (128 - eam->v6_len) - (32 - eam->v4_len);
}

/* RFC 7757 section 3.3.1. */
always_inline void eam_embed(const struct fw_eam *eam, __u32 v4, struct halves *out)
{
	__u64 suffix = v4 & suffix_mask(eam->v4_len);
	__u32 shift = suffix_shift(eam);

	out->hi = eam->v6_hi;
	out->lo = eam->v6_lo;
	if (suffix == 0)
		return;
	if (shift >= 64) {
		out->hi |= suffix << (shift & 63);
	} else {
		out->lo |= suffix << (shift & 63);
		if (shift > 32)
			out->hi |= suffix >> (64 - shift);
	}
}

/* RFC 7757 section 3.3.2. */
always_inline __u32 eam_extract(const struct fw_eam *eam, struct halves v6)
{
	__u32 shift = suffix_shift(eam);
	__u32 mask = suffix_mask(eam->v4_len);
	__u64 suffix;

	if (mask == 0)
		return eam->v4;
	if (shift >= 64)
		suffix = v6.hi >> (shift & 63);
	else if (shift == 0)
		suffix = v6.lo;
	else
		suffix = v6.lo >> shift | v6.hi << (64 - shift);
	return eam->v4 | (suffix & mask);
}

always_inline int prefix_covers(__u64 hi, __u64 lo, __u8 len, struct halves address)
{
	if (len == 0)
		return 1;
	if (len <= 64)
		return (hi ^ address.hi) >> (64 - len) == 0;
	return hi == address.hi && (lo ^ address.lo) >> (128 - len) == 0;
}

/* A mapping of the configuration, read once. */
always_inline struct fw_eam constant_eam(const volatile struct fw_eam *from)
{
	struct fw_eam eam = {
		.v6_hi = from->v6_hi, .v6_lo = from->v6_lo,
		.v4 = from->v4, .v4_len = from->v4_len, .v6_len = from->v6_len,
	};
	return eam;
}

/* The IPv6 address of the pod whose packet is at work (pod.h). */
always_inline const struct halves *pod_address(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&this_pod, &zero);
}

always_inline int map_v4_by_eam(__u32 v4, struct halves *out)
{
	if (config.by_pod) {
		const struct halves *pod = pod_address();
		if (!pod || v4 != config.eam4[0].v4)
			return 0;
		*out = *pod;
		return 1;
	}
	if (config.eam_in_maps) {
		struct fw_eam_key4 key = { .prefix_len = 32 };
		*(__be32 *)key.addr = bpf_htonl(v4);
		const struct fw_eam *eam = bpf_map_lookup_elem(&eam4, &key);
		if (!eam)
			return 0;
		eam_embed(eam, v4, out);
		return 1;
	}
#pragma unroll
	for (__u32 i = 0; i < FW_MAX_INLINE_EAM; i++) {
		if (i >= config.eam_count)
			break;
		const struct fw_eam eam = constant_eam(&config.eam4[i]);
		if (((v4 ^ eam.v4) & ~suffix_mask(eam.v4_len)) == 0) {
			eam_embed(&eam, v4, out);
			return 1;
		}
	}
	return 0;
}

always_inline int map_v6_by_eam(struct halves v6, __u32 *out)
{
	if (config.by_pod) {
		const struct halves *pod = pod_address();
		if (!pod || v6.hi != pod->hi || v6.lo != pod->lo)
			return 0;
		*out = config.eam4[0].v4;
		return 1;
	}
	if (config.eam_in_maps) {
		struct fw_eam_key6 key = { .prefix_len = 128 };
		struct ipv6_address address;

		to_wire(v6, &address);
		__builtin_memcpy(key.addr, &address, sizeof(address));
		const struct fw_eam *eam = bpf_map_lookup_elem(&eam6, &key);
		if (!eam)
			return 0;
		*out = eam_extract(eam, v6);
		return 1;
	}
#pragma unroll
	for (__u32 i = 0; i < FW_MAX_INLINE_EAM; i++) {
		if (i >= config.eam_count)
			break;
		const struct fw_eam eam = constant_eam(&config.eam6[i]);
		if (prefix_covers(eam.v6_hi, eam.v6_lo, eam.v6_len, v6)) {
			*out = eam_extract(&eam, v6);
			return 1;
		}
	}
	return 0;
}

/*
 * RFC 6052 section 2.2. Behind a prefix of `len` bits, `len - 32` of the address's bits lie beyond the
 * octet u (bits 64 to 71).
 */
always_inline void pool6_embed(__u8 len, __u64 hi, __u64 lo, __u32 v4, struct halves *out)
{
	out->hi = hi;
	out->lo = lo;
	if (len == 96) {
		out->lo |= v4;
	} else {
		__u32 beyond = (len - 32) & 63;
		out->hi |= (__u64)v4 >> beyond;
		out->lo |= ((__u64)v4 & ((1ull << beyond) - 1)) << (56 - beyond);
	}
}

always_inline __u32 pool6_extract(__u8 len, struct halves v6)
{
	if (len == 96)
		return v6.lo;
	__u32 beyond = (len - 32) & 63;
	return (v6.hi << beyond) | (v6.lo >> (56 - beyond) & ((1ull << beyond) - 1));
}

/* Not inlined, so that it is verified once, but in programs of one function, where every call counts. */
#ifdef ONE_FUNCTION
#define MAPPING always_inline
#else
#define MAPPING __noinline
#endif

/* Maps an IPv4 address in host order. Returns an enum via. */
MAPPING int map_v4(__u32 v4, struct halves *out)
{
	if (!out)
		return VIA_NONE;
	if ((config.eam_count || config.eam_in_maps) && map_v4_by_eam(v4, out))
		return VIA_EAM;
	if (config.pool6_count == 0)
		return VIA_NONE;
	__u32 i = config.pool6_first & (FW_MAX_POOL6 - 1);
	if (config.pool6[i].global_only && !is_global_v4(v4))
		return VIA_REFUSED;
	pool6_embed(config.pool6[i].len, config.pool6[i].hi, config.pool6[i].lo, v4, out);
	return VIA_POOL6;
}

/* Maps an IPv6 address in host order. Returns the IPv4 address in the lower 32 bits, above it an enum via (8 bits) and
 * the number of the prefix. */
MAPPING __u64 map_v6_halves(__u64 hi, __u64 lo)
{
	struct halves v6 = { hi, lo };
	__u32 v4 = 0;

	if ((config.eam_count || config.eam_in_maps) && map_v6_by_eam(v6, &v4))
		return (__u64)VIA_EAM << 32 | v4;
	for (__u32 i = 0; i < FW_MAX_POOL6; i++) {
		if (i >= config.pool6_count)
			break;
		__u8 len = config.pool6[i].len;
		if (!prefix_covers(config.pool6[i].hi, config.pool6[i].lo, len, v6))
			continue;
		/* RFC 6052 section 2.2: the octet u is zero. */
		if (v6.lo >> 56)
			return (__u64)VIA_REFUSED << 32;
		v4 = pool6_extract(len, v6);
		if (config.pool6[i].global_only && !is_global_v4(v4))
			return (__u64)VIA_REFUSED << 32;
		return (__u64)config.pool6[i].number << 40 | (__u64)VIA_POOL6 << 32 | v4;
	}
	return (__u64)VIA_NONE << 32;
}

always_inline enum via map_v6(struct halves v6, __u32 *out)
{
	__u64 found = map_v6_halves(v6.hi, v6.lo);
	*out = found;
	return found >> 32 & 0xff;
}

/* The index of the prefix with this number. */
always_inline __u32 pool6_place(__u8 number)
{
	return config.pool6[number & (FW_MAX_POOL6 - 1)].place & (FW_MAX_POOL6 - 1);
}

/* Whether the address may be embedded in the prefix with this number (RFC 6052 section 3.1). */
always_inline int may_embed(__u8 number, __u32 v4)
{
	return !config.pool6[pool6_place(number)].global_only || is_global_v4(v4);
}

always_inline void embed_in_pool6(__u8 number, __u32 v4, struct halves *out)
{
	__u32 i = pool6_place(number);

	pool6_embed(config.pool6[i].len, config.pool6[i].hi, config.pool6[i].lo, v4, out);
}

always_inline int is_mapped(enum via via)
{
	return via != VIA_NONE && via != VIA_REFUSED;
}

/*
 * RFC 7757 section 4.2.2, conditions A1 to A3, and B1 to B3 with the source of the packet inside: whether a packet to
 * this IPv4 address hairpins. Any address of the pool counts; the user engine looks for its host.
 */
always_inline int hairpins(__u32 v4, enum via via)
{
	struct halves ignored = {};

	if (!config.hairpin || via != VIA_POOL6)
		return 0;
	if (is_pooled(v4))
		return 1;
	return (config.eam_count || config.eam_in_maps) && map_v4_by_eam(v4, &ignored);
}

#endif
