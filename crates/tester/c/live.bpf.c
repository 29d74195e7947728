/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sends the frames of a plan by itself: run by BPF_PROG_TEST_RUN over live frames (Linux 5.18), once for each frame, and in
 * between, while none is due. For devices for which a socket of AF_XDP would copy each frame into a packet buffer (veth). Frames
 * are those of plan.rs, where the reasons stand; a test compares them. */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Octets of a frame that differ from frame to frame; behind them are zeros. */
#define FRONT 80
/* The smallest frame of Ethernet, without its check sequence. */
#define LEAST 60
#define STRETCHES 8
/* Looks at the clock while nothing is due. */
#define LOOKS 8
/* Lateness is counted by its leading bits: so many behind the first. */
#define PRECISION 5
#define BUCKETS ((64 - PRECISION + 1) << PRECISION)

/* The device to send through. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} device SEC(".maps");

struct stretch {
	__u64 first, start, period, fraction;
};

struct template {
	__u64 front[FRONT / 8];
	__u64 length, udp, sum;
};

/* The fronts of translated frames, then those of native ones. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct template);
} templates SEC(".maps");

/* Enumerated tuples in the order in which they are sent: number of the template (32 bits), source port, destination port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} tuples SEC(".maps");

/* What is sent: written by the tester before. All words, as `plan/order.rs` lays them out. `tuples` is the number of enumerated
 * ones, 0 if ports are random; `noted`: they are those that were noted, whose tags name no pair of networks; `natives`: number of
 * the first native template. */
struct order {
	__u64 start, total, burst, share, seed, trial, direction, networks, batch, tuples, noted, natives, stretches;
	struct stretch stretch[STRETCHES];
};
struct order order;

/* What was sent. */
struct done {
	__u64 next, last, aborted, worst;
	__u64 sent[2];
	__u64 lateness[BUCKETS];
};
struct done done;
/* Runs since the last frame. */
__u64 quiet;

static __always_inline __u64 mixed(__u64 number)
{
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ULL;
	number = (number ^ number >> 27) * 0x94d049bb133111ebULL;
	return number ^ number >> 31;
}

/* When a frame is due, ns after the start. */
static __always_inline __u64 due(__u64 number)
{
	__u64 ns = 0;

	for (int i = 0; i < STRETCHES; i++) {
		struct stretch *it = &order.stretch[i];
		__u64 behind = number - it->first;

		if ((__u64)i >= order.stretches || number < it->first)
			break;
		ns = it->start + behind * it->period + (behind * it->fraction >> 32);
	}
	return ns;
}

static __always_inline void note_lateness(__u64 ns)
{
	__u32 bits = 0;
	__u64 left = ns >> PRECISION;

	/* Number of bits behind the leading ones. */
#pragma unroll
	for (int step = 32; step; step >>= 1)
		if (left >> step) {
			left >>= step;
			bits += step;
		}
	bits += left ? 1 : 0;
	__u32 bucket = (bits << PRECISION) + (__u32)(bits ? ns >> (bits - 1) & ((1 << PRECISION) - 1) : ns);

	if (bucket < BUCKETS)
		done.lateness[bucket]++;
	if (ns > done.worst)
		done.worst = ns;
}

/* Octets are written and read as words of different lengths. */
typedef __be16 __attribute__((may_alias)) word16;
typedef __u32 __attribute__((may_alias)) word32;
typedef __u64 __attribute__((may_alias)) word64;

/* Puts a word of 16 bits into the front, and adds it to the sum. */
#define PUT(front, at, value, sum)                              \
	do {                                                    \
		__u16 word_ = (value);                          \
		*(word16 *)((__u8 *)(front) + (at)) = bpf_htons(word_); \
		sum += word_;                                   \
	} while (0)

/* What differs from frame to frame. */
struct frame {
	__u64 time;
	__u32 sequence, pair, native, ports;
};

/* Pseudorandom ports: the source's in the upper half. */
static __always_inline __u32 drawn(__u64 number)
{
	__u64 bits = mixed(order.seed ^ mixed(number + 0x9e3779b97f4a7c15ULL));
	__u32 source = 1024 + ((bits >> 32) * 64512 >> 32), target = 1 + ((bits & 0xffffffff) * 49151 >> 32);

	return source << 16 | target;
}

/* Fills the front of a frame whose UDP header is at `udp`. */
static __always_inline void build(__u64 *front, const __u32 udp, __u64 sum, const struct frame *it)
{
	__u64 time = it->time;

	PUT(front, udp, it->ports >> 16, sum);
	PUT(front, udp + 2, it->ports, sum);
	/* The magic is in the template, and in its sum. */
	PUT(front, udp + 10, order.trial, sum);
	PUT(front, udp + 12, it->native << 15 | order.direction << 14 | it->pair, sum);
	PUT(front, udp + 14, it->sequence >> 16, sum);
	PUT(front, udp + 16, it->sequence, sum);
	PUT(front, udp + 18, time >> 48, sum);
	PUT(front, udp + 20, time >> 32, sum);
	PUT(front, udp + 22, time >> 16, sum);
	PUT(front, udp + 24, time, sum);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	__u16 checksum = ~sum;

	*(word16 *)((__u8 *)front + udp + 6) = bpf_htons(checksum ? checksum : 0xffff);
}

static __always_inline int put(struct xdp_md *ctx, const __u64 *front, __u64 length)
{
	/* Memory comes back with the length of its last frame. */
	int more = (int)length - (int)(ctx->data_end - ctx->data);

	if (more && bpf_xdp_adjust_tail(ctx, more))
		return -1;
	__u8 *octets = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	if ((void *)(octets + FRONT) <= end) {
		for (int i = 0; i < FRONT / 8; i++)
			((word64 *)octets)[i] = front[i];
		return 0;
	}
	if ((void *)(octets + LEAST) > end)
		return -1;
	for (int i = 0; i < LEAST / 4; i++)
		((word32 *)octets)[i] = ((const word32 *)front)[i];
	/* A short frame: the rest of the front, which is zeros, up to its end. */
	for (int i = LEAST; i < FRONT; i++) {
		__u8 *octet = octets + i;

		asm volatile("" : "+r"(octet));
		if ((void *)(octet + 1) > end)
			break;
		*octet = 0;
	}
	return 0;
}

/* A frame that could not be made. */
static __always_inline int aborted(void)
{
	done.aborted++;
	return XDP_ABORTED;
}

SEC("xdp")
int transmit(struct xdp_md *ctx)
{
	__u64 number = done.next;

	if (number >= order.total)
		return XDP_DROP;
	__u64 now = bpf_ktime_get_ns();
	__u64 time = order.burst ? now : order.start + due(number);

	if (order.burst && now < order.start)
		return XDP_DROP;
	/* Frames leave with the rest of their batch: after one, the others of it must not be held by waiting. */
	if (time > now && quiet >= order.batch)
		for (int i = 0; i < LOOKS && time > now; i++)
			now = bpf_ktime_get_ns();
	if (time > now) {
		quiet++;
		return XDP_DROP;
	}
	quiet = 0;
	__u64 before = number * order.share / 100;
	struct frame frame = { .time = time };
	__u32 index = 0;

	done.next = number + 1;
	frame.native = (number + 1) * order.share / 100 <= before;
	frame.sequence = frame.native ? number - before : before;
	if (order.tuples && !frame.native) {
		__u32 place = frame.sequence % (__u32)order.tuples;
		__u64 *tuple = bpf_map_lookup_elem(&tuples, &place);

		if (!tuple)
			return aborted();
		index = *tuple >> 32;
		frame.pair = order.noted ? 0 : index;
		frame.ports = *tuple;
	} else {
		frame.pair = frame.sequence % ((__u32)order.networks ?: 1);
		index = frame.pair + (frame.native ? order.natives : 0);
		frame.ports = drawn(number);
	}
	struct template *template = bpf_map_lookup_elem(&templates, &index);
	__u64 front[FRONT / 8];

	if (!template)
		return aborted();
	for (int i = 0; i < FRONT / 8; i++)
		front[i] = template->front[i];
	if (template->udp == 34)
		build(front, 34, template->sum, &frame);
	else
		build(front, 54, template->sum, &frame);
	if (put(ctx, front, template->length))
		return aborted();
	if (!order.burst)
		note_lateness(now - time);
	done.last = now;
	done.sent[frame.native]++;
	return bpf_redirect_map(&device, 0, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
