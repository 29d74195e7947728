/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Where the kernel spends time on packets: programs at its tracepoints count packets, and one that runs many times a second
 * on each processor counts where it is. They change nothing. crates/bpf/src/path.rs says what each step is.
 */
#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "fordway_path.h"

/* Of the kernel's softirqs. */
#define NET_RX_SOFTIRQ 3

/* The fields that are read of the kernel's structures; libbpf finds where they are in the running kernel. */
struct sk_buff {
	unsigned int len;
	unsigned int end;
	unsigned char *head;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
} __attribute__((preserve_access_index));

/* In the order of `STEPS` in path.rs. */
enum step {
	STEP_GRO,
	STEP_RECEIVED,
	STEP_QUEUED,
	STEP_SENT,
	STEP_DRIVER,
	STEP_DROPPED,
	STEP_SOFTIRQ,
	STEPS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct fw_path_totals);
} path_totals SEC(".maps");

/* When the softirq of this processor began. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} path_began SEC(".maps");

/* Samples by the kernel's instruction. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} path_samples SEC(".maps");

static __always_inline int count(__u32 step, const struct sk_buff *skb)
{
	struct fw_path_totals *totals = bpf_map_lookup_elem(&path_totals, &step);
	const struct skb_shared_info *shared;

	if (!totals)
		return 0;
	shared = (const struct skb_shared_info *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	totals->calls++;
	totals->octets += BPF_CORE_READ(skb, len);
	if (BPF_CORE_READ(shared, gso_size)) {
		totals->super_packets++;
		totals->segments += BPF_CORE_READ(shared, gso_segs);
	}
	return 0;
}

#define OBSERVE(tracepoint, step)                                             \
	SEC("tp_btf/" #tracepoint)                                            \
	int path_##tracepoint(__u64 *arguments)                               \
	{                                                                     \
		return count(step, (const struct sk_buff *)arguments[0]);     \
	}

OBSERVE(napi_gro_receive_entry, STEP_GRO)
OBSERVE(netif_receive_skb, STEP_RECEIVED)
OBSERVE(netif_rx, STEP_QUEUED)
OBSERVE(net_dev_queue, STEP_SENT)
OBSERVE(net_dev_start_xmit, STEP_DRIVER)
OBSERVE(kfree_skb, STEP_DROPPED)

SEC("tp_btf/softirq_entry")
int path_softirq_entry(__u64 *arguments)
{
	__u32 key = 0;
	__u64 *began = bpf_map_lookup_elem(&path_began, &key);

	if (began && arguments[0] == NET_RX_SOFTIRQ)
		*began = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int path_softirq_exit(__u64 *arguments)
{
	__u32 key = 0, step = STEP_SOFTIRQ;
	__u64 *began = bpf_map_lookup_elem(&path_began, &key);
	struct fw_path_totals *totals = bpf_map_lookup_elem(&path_totals, &step);

	/* One that was running at the start has no beginning. */
	if (!began || !totals || arguments[0] != NET_RX_SOFTIRQ || !*began)
		return 0;
	totals->calls++;
	totals->ns += bpf_ktime_get_ns() - *began;
	*began = 0;
	return 0;
}

SEC("perf_event")
int path_sample(struct bpf_perf_event_data *context)
{
	__u64 place = 0, one = 1, *samples;

	/* Fails in a program of user space, which counts as address 0. */
	if (bpf_get_stack(context, &place, sizeof(place), 0) < 0)
		place = 0;
	samples = bpf_map_lookup_elem(&path_samples, &place);
	if (samples)
		(*samples)++;
	else
		bpf_map_update_elem(&path_samples, &place, &one, BPF_NOEXIST);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
