/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs know of stateful translation when they are loaded, and what they need to work on its tables. */
#ifndef FORDWAY_NAT64_CONFIG_H
#define FORDWAY_NAT64_CONFIG_H

#include "common.h"
#include "fordway_nat64.h"

/* Set by the loader before the programs are verified. */
const volatile struct fw_nat64_config nat64;

/* Whether state decides on packets; at an uplink it never does. At XDP the hook says it. */
always_inline int has_state(int hook)
{
	if (is_xdp(hook))
		return hook == HOOK_XDP_NAT64;
	return hook != HOOK_UPLINK && nat64.mode == FW_NAT64_STATEFUL;
}

/* Whether IPv6 hosts get addresses on first use (dynamic4.h). */
always_inline int has_dynamic4(int hook)
{
	return hook != HOOK_UPLINK && !is_xdp(hook) && nat64.mode == FW_NAT64_DYNAMIC4;
}

/* A loop that stays one: the programs are verified faster than they would be unrolled. */
#define LOOP _Pragma("clang loop unroll(disable)") for

#endif
