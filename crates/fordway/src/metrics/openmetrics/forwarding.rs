//! What only modes `nat44` and `dual-stack` have: `fordway_nat44_*` and `fordway_forwarded`.

use prometheus_client::encoding::DescriptorEncoder;

use super::services::now;
use super::{Encoded, counter, put};
use crate::report::{COUNTERS, Nat44Count, Stats};

pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    if !stats.nat44.is_empty() {
        nat44(stats, encoder)?;
    }
    if stats.dual_stack.is_empty() {
        return Ok(());
    }
    let help = "Packets that the whole host has forwarded, by IP version";
    let mut family = counter(encoder, "forwarded", help)?;
    for one in &stats.dual_stack {
        for (version, count) in [("4", one.v4), ("6", one.v6)] {
            if let Some(count) = count {
                let labels = [("translator", one.name.as_str()), ("ip_version", version)];
                put(&mut family, &labels, count)?;
            }
        }
    }
    Ok(())
}

fn nat44(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Pick = fn(&Nat44Count) -> u64;
    let directions: [(&str, &str, Pick); 2] = [
        ("nat44_packets", "Packets, by direction", |it| it.packets),
        ("nat44_octets", "Octets of these packets", |it| it.octets),
    ];
    for (name, help, pick) in directions {
        let mut family = counter(encoder, name, help)?;
        for one in &stats.nat44 {
            for direction in ["out", "in"] {
                let count = one.counters.get(direction).map_or(0, pick);
                let labels = [("translator", one.name.as_str()), ("direction", direction)];
                put(&mut family, &labels, count)?;
            }
        }
    }
    let kinds = [
        ("nat44_connections", "Connections, by the way in which they came about", "how", false),
        ("nat44_drops", "Packets dropped, by reason", "reason", true),
    ];
    for (name, help, label, drops) in kinds {
        let mut family = counter(encoder, name, help)?;
        for one in &stats.nat44 {
            let counters = COUNTERS.iter().filter(|(name, _, _)| !matches!(*name, "out" | "in"));
            for (name, _, _) in counters.filter(|(_, dropped, _)| *dropped == drops) {
                let count = one.counters.get(*name).map_or(0, |it| it.packets);
                put(&mut family, &[("translator", one.name.as_str()), (label, name)], count)?;
            }
        }
    }
    let conntrack = stats.nat44.iter().find_map(|one| one.conntrack);
    let Some(conntrack) = conntrack else { return Ok(()) };
    let gauges = [
        ("conntrack_connections", "Connections that the host tracks", conntrack.connections),
        ("conntrack_most", "Connections that the host can track", conntrack.most),
    ];
    for (name, help, value) in gauges {
        now(encoder, name, help, value)?;
    }
    Ok(())
}
