/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Kernel interface and small helpers. Only uapi headers: nothing depends on the running kernel's types. */
#ifndef FORDWAY_COMMON_H
#define FORDWAY_COMMON_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "fordway_abi.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2

#define always_inline static __always_inline

#endif
