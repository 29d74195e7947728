//! What is known of mode dual-stack.

use std::fs;

use fordway_net::Change;

use crate::apply::hosts::Owned;
use crate::plan::entry::Entry;
use crate::serve::status::applied;
use fordway_control::{DualStackStats, DualStackStatus};

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

/// What the host has forwarded, for an entry of mode dual-stack.
pub(super) fn dual_stack_stats(owned: &Owned) -> Option<DualStackStats> {
    let Entry::DualStack(entry) = &owned.entry else { return None };
    Some(DualStackStats {
        name: entry.name.to_string(),
        v4: of_header_lines("/proc/thread-self/net/snmp", "Ip:", "ForwDatagrams"),
        v6: of_lines("/proc/thread-self/net/snmp6", "Ip6OutForwDatagrams"),
    })
}

pub(super) fn addresses(owned: &Owned) -> Vec<String> {
    applied(owned.wanted(), |it| matches!(it, Change::Address(_)))
}

pub(super) fn settings(owned: &Owned) -> Vec<String> {
    applied(owned.wanted(), |it| matches!(it, Change::Sysctl { .. }))
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
