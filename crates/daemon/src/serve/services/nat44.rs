//! What is known of mode nat44.

use std::collections::BTreeMap;

use fordway_net::{Change, Nat44, sysctl};

use super::forwarding::{addresses, settings};
use crate::apply::hosts::Owned;
use crate::plan::entry::Entry;
use fordway_control::{ConntrackStats, Nat44Count, Nat44Stats, Nat44Status};

/// What an entry of mode nat44 has counted. What can't be read is left out.
pub(super) fn stats(owned: &Owned) -> Option<Nat44Stats> {
    let table = table(owned)?;
    let counted = table.counted().unwrap_or_default().into_iter();
    let counters: BTreeMap<String, Nat44Count> = counted
        .map(|it| (it.name, Nat44Count { packets: it.packets, octets: it.octets }))
        .collect();
    Some(Nat44Stats { name: table.name.clone(), counters, conntrack: conntrack() })
}

/// The nftables table of an entry of mode nat44.
fn table(owned: &Owned) -> Option<&Nat44> {
    owned.wanted().iter().find_map(|change| match change {
        Change::Nat44(table) => Some(table),
        _ => None,
    })
}

/// An entry of mode nat44 that is in force.
pub(super) fn status(owned: &Owned) -> Option<Nat44Status> {
    let Entry::Nat44(entry) = &owned.entry else { return None };
    let table = table(owned)?;
    let forward = |it: &fordway_net::Nat44Forward| {
        let protocol = if it.protocol == 6 { "tcp" } else { "udp" };
        let ((outer, port), (host, host_port)) = (it.outside, it.inside);
        format!("{protocol} {outer}:{port} to {host}:{host_port}")
    };
    Some(Nat44Status {
        name: entry.name.to_string(),
        table: table.table(),
        clients: entry.clients.clone(),
        devices: entry.devices.iter().map(ToString::to_string).collect(),
        uplinks: entry.uplinks.iter().map(ToString::to_string).collect(),
        absent: owned.absent.clone(),
        pool4: entry.pool4.iter().map(ToString::to_string).collect(),
        netmap: entry
            .netmap
            .iter()
            .map(|(inside, outside)| format!("{inside} {outside}"))
            .collect(),
        forwards: table.forwards.iter().map(forward).collect(),
        addresses: addresses(owned),
        settings: settings(owned),
    })
}

/// Connections that the host tracks: those of its own and of other tables too.
fn conntrack() -> Option<ConntrackStats> {
    let read = |name: &str| -> Option<u64> {
        let key = format!("net/netfilter/nf_conntrack_{name}").parse().ok()?;
        sysctl::read(&key).ok()?.parse().ok()
    };
    Some(ConntrackStats { connections: read("count")?, most: read("max")? })
}
