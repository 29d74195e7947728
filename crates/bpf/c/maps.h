/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The maps that every object has. */
#ifndef FORDWAY_MAPS_H
#define FORDWAY_MAPS_H

#include "common.h"

/* Set by the loader before the programs are verified. */
const volatile struct fw_config config;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_counters);
} counters SEC(".maps");

/* Explicit mappings. The loader sets the size; without such mappings it does not create the maps. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct fw_eam_key4);
	__type(value, struct fw_eam);
} eam4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct fw_eam_key6);
	__type(value, struct fw_eam);
} eam6 SEC(".maps");

/* The pods of a node, by their keys; and of this processor the address of the pod whose packet is at work. Only the programs
 * of pods have them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_MAX_PODS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct fw_pod);
} pods SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct halves);
} this_pod SEC(".maps");

/* struct fw_event; made only while a trace runs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} trace SEC(".maps");

#endif
