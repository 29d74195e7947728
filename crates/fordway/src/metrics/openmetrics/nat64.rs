//! What only stateful translators have: `fordway_nat64_*`.

use std::collections::BTreeMap;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Encoded, counter, put};
use crate::report::{LatencyStats, Nat64Stats, PoolStats, Stats};

/// Of each translator that has it, its name and its part.
fn all(stats: &Stats) -> impl Iterator<Item = (&str, &Nat64Stats)> {
    stats.translators.iter().filter_map(|it| Some((it.name.as_str(), it.nat64.as_ref()?)))
}

pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    tables(stats, encoder)?;
    pools(stats, encoder)?;
    counters(stats, encoder)?;
    algs(stats, encoder)?;
    logs(stats, encoder)?;
    let help = "Time that packets took in the user engine that made a session";
    let name = "nat64_session_creation_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (translator, nat64) in all(stats) {
        let labels = [("translator", translator)];
        histogram(&mut family.encode_family(&labels)?, &nat64.creation)?;
    }
    Ok(())
}

type Map = BTreeMap<String, u64>;

fn tables(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Pick = fn(&crate::report::OccupancyStats) -> u64;
    let families: [(&str, &str, Pick); 2] = [
        ("nat64_table_entries", "Entries of a table that are in use", |table| table.used),
        ("nat64_table_size", "Entries that a table holds", |table| table.size),
    ];
    for (name, help, pick) in families {
        let mut family = gauge(encoder, name, help)?;
        for (translator, nat64) in all(stats) {
            for (table, occupancy) in &nat64.tables {
                let labels = [("translator", translator), ("table", table)];
                set(&mut family, &labels, pick(occupancy))?;
            }
        }
    }
    type PickMap = fn(&Nat64Stats) -> &Map;
    let families: [(&str, &str, &str, PickMap); 3] = [
        ("nat64_bib", "BIB entries, by protocol; all: dynamic 1:1 mappings", "protocol", |nat64| {
            &nat64.bib
        }),
        ("nat64_sessions", "Sessions, by protocol", "protocol", |nat64| &nat64.sessions),
        ("nat64_tcp_sessions", "TCP sessions, by state", "state", |nat64| &nat64.tcp_states),
    ];
    for (name, help, label, pick) in families {
        let mut family = gauge(encoder, name, help)?;
        for (translator, nat64) in all(stats) {
            for (word, count) in pick(nat64) {
                set(&mut family, &[("translator", translator), (label, word)], *count)?;
            }
        }
    }
    type PickNatPt = fn(&crate::report::NatPtStats) -> u64;
    let families: [(&str, &str, PickNatPt); 3] = [
        ("nat_pt_addresses", "Addresses that hosts can have for themselves", |it| {
            it.addresses.size
        }),
        ("nat_pt_bound", "Addresses that are bound to a host", |it| it.addresses.used),
        ("nat_pt_held", "Addresses that were asked for by name and not used yet", |it| it.held),
    ];
    for (name, help, pick) in families {
        let mut family = gauge(encoder, name, help)?;
        for (translator, nat64) in all(stats) {
            if let Some(nat_pt) = &nat64.nat_pt {
                set(&mut family, &[("translator", translator)], pick(nat_pt))?;
            }
        }
    }
    let mut family = gauge(encoder, "nat64_resting_ports", "Ports that nobody gets yet")?;
    for (translator, nat64) in all(stats) {
        set(&mut family, &[("translator", translator)], nat64.resting)?;
    }
    let mut family = gauge(encoder, "nat64_draining", "1: no new sessions are made")?;
    for (translator, nat64) in all(stats) {
        set(&mut family, &[("translator", translator)], u64::from(nat64.draining))?;
    }
    Ok(())
}

fn pools(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Pick = fn(&PoolStats) -> Option<u64>;
    let families: [(&str, &str, Pick); 4] = [
        ("nat64_pool_ports", "Ports that a pool has for each protocol", |pool| Some(pool.ports)),
        ("nat64_pool_subscribers", "Subscribers that have something of a pool", |pool| {
            Some(pool.subscribers)
        }),
        ("nat64_pool_blocks", "Blocks of ports that a pool has", |pool| {
            pool.blocks.map(|blocks| blocks.size)
        }),
        ("nat64_pool_blocks_used", "Blocks of ports that subscribers have", |pool| {
            pool.blocks.map(|blocks| blocks.used)
        }),
    ];
    for (name, help, pick) in families {
        let mut family = gauge(encoder, name, help)?;
        for (translator, nat64) in all(stats) {
            for pool in &nat64.pools {
                let number = pool.number.to_string();
                let labels = [("translator", translator), ("pool", number.as_str())];
                if let Some(count) = pick(pool) {
                    set(&mut family, &labels, count)?;
                }
            }
        }
    }
    let help = "Ports of a pool that are bound, by protocol";
    let mut family = gauge(encoder, "nat64_pool_bib", help)?;
    for (translator, nat64) in all(stats) {
        for pool in &nat64.pools {
            let number = pool.number.to_string();
            for (protocol, count) in &pool.bib {
                let labels = [
                    ("translator", translator),
                    ("pool", number.as_str()),
                    ("protocol", protocol.as_str()),
                ];
                set(&mut family, &labels, *count)?;
            }
        }
    }
    Ok(())
}

fn counters(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type PickMap = fn(&Nat64Stats) -> &Map;
    let families: [(&str, &str, PickMap); 2] = [
        ("nat64_bib_created", "BIB entries made", |nat64| &nat64.bib_created),
        ("nat64_sessions_created", "Sessions made", |nat64| &nat64.sessions_created),
    ];
    for (name, help, pick) in families {
        let mut family = counter(encoder, name, help)?;
        for (translator, nat64) in all(stats) {
            for (protocol, count) in pick(nat64) {
                put(&mut family, &[("translator", translator), ("protocol", protocol)], *count)?;
            }
        }
    }
    let help = "Sessions that have ended, by cause";
    let what = "What the gateway for DNS of a NAT-PT has done, in messages";
    let mut family = counter(encoder, "nat_pt_dns", what)?;
    for (translator, nat64) in all(stats) {
        for (what, count) in nat64.nat_pt.iter().flat_map(|it| &it.dns) {
            put(&mut family, &[("translator", translator), ("what", what)], *count)?;
        }
    }
    let mut family = counter(encoder, "nat64_sessions_ended", help)?;
    for (translator, nat64) in all(stats) {
        for (cause, counts) in &nat64.sessions_ended {
            for (protocol, count) in counts {
                let labels = [("translator", translator), ("protocol", protocol), ("cause", cause)];
                put(&mut family, &labels, *count)?;
            }
        }
    }
    let help = "Sessions and 1:1 mappings that a changed configuration had no place for";
    let mut family = counter(encoder, "nat64_ended_by_reload", help)?;
    for (translator, nat64) in all(stats) {
        put(&mut family, &[("translator", translator)], nat64.ended_by_reload)?;
    }
    Ok(())
}

fn algs(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let help = "Connections that application level gateways watch";
    let mut family = gauge(encoder, "nat64_alg_connections", help)?;
    for (translator, nat64) in all(stats) {
        set(&mut family, &[("translator", translator)], nat64.alg_connections)?;
    }
    let help = "What application level gateways have done";
    let mut family = counter(encoder, "nat64_alg_events", help)?;
    for (translator, nat64) in all(stats) {
        for (alg, events) in &nat64.algs {
            for (event, count) in events {
                let labels = [("translator", translator), ("alg", alg), ("event", event)];
                put(&mut family, &labels, *count)?;
            }
        }
    }
    Ok(())
}

fn logs(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Pick = fn(&crate::report::LogStats) -> u64;
    let families: [(&str, &str, Pick); 2] = [
        ("nat64_log_records", "Records written to a log", |log| log.written),
        ("nat64_log_lost", "Records that a log has lost", |log| log.lost),
    ];
    for (name, help, pick) in families {
        let mut family = counter(encoder, name, help)?;
        for (translator, nat64) in all(stats) {
            // Several logs may have one place.
            let mut places: BTreeMap<&str, u64> = BTreeMap::new();
            for log in &nat64.logs {
                *places.entry(&log.to).or_default() += pick(log);
            }
            for (to, count) in places {
                put(&mut family, &[("translator", translator), ("to", to)], count)?;
            }
        }
    }
    Ok(())
}

fn histogram(encoder: &mut MetricEncoder<'_>, latency: &LatencyStats) -> Encoded {
    let bounds = latency.bounds_us.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.counts.iter().copied()).collect();
    let count = latency.counts.iter().sum();
    let sum = latency.sum_ns as f64 / 1e9;
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

pub(super) fn gauge<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, std::fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

pub(super) fn set(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> Encoded {
    // No count of ours comes near what a signed number holds.
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    ConstGauge::new(value).encode(family.encode_family(&labels)?)
}
