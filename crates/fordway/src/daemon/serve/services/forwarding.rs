//! What is known of modes nat44 and dual-stack.

use std::collections::BTreeMap;
use std::fs;

use fordway_net::{Change, Nat44, sysctl};

use crate::daemon::apply::hosts::Owned;
use crate::daemon::plan::entry::Entry;
use crate::daemon::serve::status::applied;
use fordway_control::{
    ConntrackStats, DualStackStats, DualStackStatus, Nat44Count, Nat44Stats, Nat44Status,
};

/// An entry of mode dual-stack that is in force.
pub(super) fn dual_stack_status(owned: &Owned) -> Option<DualStackStatus> {
    let Entry::DualStack(entry) = &owned.entry else { return None };
    Some(DualStackStatus {
        name: entry.name.to_string(),
        devices: entry.devices.iter().map(ToString::to_string).collect(),
        absent: owned.absent.clone(),
        addresses: addresses(owned),
        settings: settings(owned),
    })
}

/// What an entry of mode nat44 has counted. What can't be read is left out.
pub(super) fn nat44_stats(owned: &Owned) -> Option<Nat44Stats> {
    let table = table(owned)?;
    let counted = table.counted().unwrap_or_default().into_iter();
    let counters: BTreeMap<String, Nat44Count> = counted
        .map(|it| (it.name, Nat44Count { packets: it.packets, octets: it.octets }))
        .collect();
    Some(Nat44Stats { name: table.name.clone(), counters, conntrack: conntrack() })
}

/// What the host has forwarded, for an entry of mode dual-stack.
pub(super) fn dual_stack_stats(owned: &Owned) -> Option<DualStackStats> {
    let Entry::DualStack(entry) = &owned.entry else { return None };
    Some(DualStackStats {
        name: entry.name.to_string(),
        v4: of_header_lines("/proc/thread-self/net/snmp", "Ip:", "ForwDatagrams"),
        v6: of_lines("/proc/thread-self/net/snmp6", "Ip6OutForwDatagrams"),
    })
}

/// The nftables table of an entry of mode nat44.
fn table(owned: &Owned) -> Option<&Nat44> {
    owned.wanted().iter().find_map(|change| match change {
        Change::Nat44(table) => Some(table),
        _ => None,
    })
}

/// An entry of mode nat44 that is in force.
pub(super) fn nat44_status(owned: &Owned) -> Option<Nat44Status> {
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

fn addresses(owned: &Owned) -> Vec<String> {
    applied(owned.wanted(), |it| matches!(it, Change::Address(_)))
}

fn settings(owned: &Owned) -> Vec<String> {
    applied(owned.wanted(), |it| matches!(it, Change::Sysctl { .. }))
}

/// Connections that the host tracks: those of its own and of other tables too.
fn conntrack() -> Option<ConntrackStats> {
    let read = |name: &str| -> Option<u64> {
        let key = format!("net/netfilter/nf_conntrack_{name}").parse().ok()?;
        sysctl::read(&key).ok()?.parse().ok()
    };
    Some(ConntrackStats { connections: read("count")?, most: read("max")? })
}

/// A number of a file in which a line of names stands over a line of numbers.
fn of_header_lines(path: &str, title: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().filter(|line| line.starts_with(title));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|it| it == name)?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// A number of a file in which each line has a name and a number.
fn of_lines(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
