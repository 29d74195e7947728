//! Other software that sees forwarded packets, and whether it has come to need a setting of the whole host.
//!
//! The first program that needs forwarding switches it on. Later ones, such as container engines, find it on and
//! record nothing. But they leave nftables chains, or iptables tables, that see forwarded packets.

use std::collections::BTreeSet;
use std::{fs, io};

use crate::netfilter::{Ip, Netfilter};
use crate::{Error, Result, SysctlKey};

/// Who sees forwarded packets, by name, where `key` is the host's forwarding; this program's own tables are left out.
pub(super) fn who_forward(key: &SysctlKey) -> Result<BTreeSet<String>> {
    if *key != SysctlKey::forwarding_v4() && *key != SysctlKey::forwarding_v6() {
        return Ok(BTreeSet::new());
    }
    let ip = if *key == SysctlKey::forwarding_v6() { Ip::V6 } else { Ip::V4 };
    let hooks = &[libc::NF_INET_FORWARD, libc::NF_INET_POST_ROUTING];
    // Without nftables no program has a chain there.
    let mut found = BTreeSet::from_iter(chains_at(ip, hooks).unwrap_or_default());
    found.extend(tables_of(ip, &["nat", "filter"]).unwrap_or_default());
    Ok(found)
}

/// Rules that a forwarded packet passes: base chains of nftables at the hooks `prerouting`, `forward` and `postrouting`, and
/// tables of iptables at these; by name, without this program's own tables. An error if that can't be told.
pub fn rules_for_forwarded() -> Result<BTreeSet<String>> {
    let hooks = &[libc::NF_INET_PRE_ROUTING, libc::NF_INET_FORWARD, libc::NF_INET_POST_ROUTING];
    let mut found = BTreeSet::new();
    for ip in [Ip::V4, Ip::V6] {
        match chains_at(ip, hooks) {
            Ok(chains) => found.extend(chains),
            // The kernel has no nftables.
            Err(error) if error.errno().is_some_and(|it| NO_NFTABLES.contains(&it)) => {}
            Err(error) => return Err(error),
        }
        let tables = tables_of(ip, &["raw", "mangle", "nat", "filter"])
            .map_err(|source| Error::netfilter("list tables of iptables", source, None))?;
        found.extend(tables);
    }
    Ok(found)
}

/// How a kernel without nftables answers.
const NO_NFTABLES: [i32; 3] = [libc::EINVAL, libc::EPROTONOSUPPORT, libc::EOPNOTSUPP];

fn chains_at(ip: Ip, hooks: &[i32]) -> Result<Vec<String>> {
    Netfilter::open(ip, |it| it.chains_at(hooks))
}

/// Those of these tables of iptables that are there. The kernel has the list only with iptables.
fn tables_of(ip: Ip, wanted: &[&str]) -> io::Result<Vec<String>> {
    let family = if ip == Ip::V6 { "ip6" } else { "ip" };
    let names = match fs::read_to_string(format!("/proc/thread-self/net/{family}_tables_names")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names?,
    };
    let found = names.lines().filter(|it| wanted.contains(it));
    Ok(found.map(|table| format!("table {table} of {family}tables")).collect())
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
