/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "common.h"
#include "maps.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The devices that take redirected frames, by interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FW_MAX_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

SEC("xdp")
int fordway_xdp(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct fw_counters *c = bpf_map_lookup_elem(&counters, &zero);
	if (c)
		c->unmatched += config.measure + 1;
	if (config.trace)
		return bpf_redirect_map(&devices, 1, XDP_PASS);
	return XDP_PASS;
}
