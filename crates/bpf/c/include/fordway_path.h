/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs that observe the kernel's packet path and their loader share. crates/bpf/src/abi.rs mirrors it. */
#ifndef FORDWAY_PATH_H
#define FORDWAY_PATH_H

/* Value of `path_totals`, per processor: how often a step was taken. */
struct fw_path_totals {
	__u64 calls;
	/* Of these with GSO packets, and the segments of these packets. */
	__u64 super_packets;
	__u64 segments;
	/* Of the packets. */
	__u64 octets;
	/* Time of a step that begins and ends, in nanoseconds. */
	__u64 ns;
};
_Static_assert(sizeof(struct fw_path_totals) == 40, "fw_path_totals");

#endif
