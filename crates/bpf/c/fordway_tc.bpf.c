/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "common.h"
#include "maps.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

always_inline int placeholder(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct fw_counters *c = bpf_map_lookup_elem(&counters, &zero);
	if (c)
		c->unmatched += config.measure + 1;
	struct fw_eam_key4 key = { .prefix_len = 32 };
	if (config.eam_in_maps && bpf_map_lookup_elem(&eam4, &key))
		return TC_ACT_UNSPEC;
	struct fw_eam_key6 key6 = { .prefix_len = 128 };
	if (config.eam_in_maps && bpf_map_lookup_elem(&eam6, &key6))
		return TC_ACT_UNSPEC;
	if (config.trace) {
		struct fw_event *e = bpf_ringbuf_reserve(&trace, sizeof(*e), 0);
		if (e)
			bpf_ringbuf_discard(e, 0);
	}
	return TC_ACT_UNSPEC;
}

SEC("tc")
int fordway_interface(struct __sk_buff *skb)
{
	return placeholder(skb);
}

SEC("tc")
int fordway_uplink_egress(struct __sk_buff *skb)
{
	return placeholder(skb);
}

SEC("tc")
int fordway_uplink_ingress(struct __sk_buff *skb)
{
	return placeholder(skb);
}
