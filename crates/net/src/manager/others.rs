//! Whether other software has come to need a setting of the whole host.
//!
//! The first program that needs forwarding switches it on. Later ones, such as container engines, find it on and
//! record nothing. But they leave nftables chains, or iptables tables, that see forwarded packets.

use std::collections::BTreeSet;
use std::fs;

use crate::netfilter::{Ip, Netfilter};
use crate::{Result, SysctlKey};

/// Who sees forwarded packets, by name, where `key` is the host's forwarding; this program's own tables are left out.
pub(super) fn who_forward(key: &SysctlKey) -> Result<BTreeSet<String>> {
    if *key != SysctlKey::forwarding_v4() && *key != SysctlKey::forwarding_v6() {
        return Ok(BTreeSet::new());
    }
    let v6 = *key == SysctlKey::forwarding_v6();
    let ask = |it: &mut Netfilter| it.chains_of_forwarded();
    let mut found = BTreeSet::new();
    // Without nftables no program has a chain there.
    if let Ok(chains) = Netfilter::open(if v6 { Ip::V6 } else { Ip::V4 }, ask) {
        found.extend(chains);
    }
    let names = if v6 { "ip6_tables_names" } else { "ip_tables_names" };
    let tables = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
    let forwarding = tables.lines().filter(|it| matches!(*it, "nat" | "filter"));
    found.extend(
        forwarding.map(|table| format!("table {table} of {}tables", if v6 { "ip6" } else { "ip" })),
    );
    Ok(found)
}

/// Who has begun to need it since `known` did. Only for a setting that would be switched off.
pub(super) fn who_needs(
    key: &SysctlKey,
    before: &str,
    known: &BTreeSet<String>,
) -> Result<Option<String>> {
    if before != "0" {
        return Ok(None);
    }
    Ok(who_forward(key)?.difference(known).next().cloned())
}
