/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs of softwires and their loader share, beside fordway_abi.h. crates/bpf/src/abi.rs mirrors it.
 *
 * The loader alone writes the maps, one entry at a time, while packets flow. An address's entry is there only
 * while its bindings are; to change how an address is shared, the loader removes the entry first.
 */
#ifndef FORDWAY_SOFTWIRE_H
#define FORDWAY_SOFTWIRE_H

/* Which end of the tunnels this is (the core's Role). */
enum fw_softwire_role {
	FW_SOFTWIRE_TEP = 0,
	FW_SOFTWIRE_CLIENT = 1,
};

/* Read-only for the programs. */
struct fw_softwire_config {
	/* Of flow labels. */
	__u64 secret[2];
	/* enum fw_softwire_role. */
	__u8 role;
	/* Hop Limit of tunnel packets. */
	__u8 hop_limit;
	/* Packets may go from one client to another. */
	__u8 hairpin;
	__u8 reserved[5];
};
_Static_assert(sizeof(struct fw_softwire_config) == 24, "fw_softwire_config");

/* Value of `softwire_addresses`, whose key is an IPv4 address in network order: how it is shared (RFC 7597
 * section 5.1). No PSID: it is not shared. */
struct fw_softwire_address {
	__u8 offset_bits;
	__u8 psid_len;
	__u8 reserved[2];
};
_Static_assert(sizeof(struct fw_softwire_address) == 4, "fw_softwire_address");

/* Key of `softwire_bindings`. */
struct fw_softwire_key {
	/* In network order. */
	__u32 v4;
	/* 0 of an address that is not shared. */
	__u32 psid;
};
_Static_assert(sizeof(struct fw_softwire_key) == 8, "fw_softwire_key");

/* Value of `softwire_bindings`: a tunnel. Addresses are in network order. */
struct fw_softwire_tunnel {
	/* This end's address, and the other's. */
	__u64 here_hi;
	__u64 here_lo;
	__u64 there_hi;
	__u64 there_lo;
	/* The path MTU that a router has reported, and until when it counts (CLOCK_MONOTONIC). 0: none. */
	__u64 mtu_until_ns;
	__u32 mtu;
	/* Its key again: the kernel may give an entry that was taken out to another binding while a program still
	 * looks at it. */
	__u32 v4;
	__u32 psid;
	__u32 reserved;
};
_Static_assert(sizeof(struct fw_softwire_tunnel) == 56, "fw_softwire_tunnel");

/* The only value of `softwire_here`: the client's own end of its tunnel, in network order; all zeros while it has
 * none. */
struct fw_softwire_here {
	__u64 hi;
	__u64 lo;
};
_Static_assert(sizeof(struct fw_softwire_here) == 16, "fw_softwire_here");

#endif
