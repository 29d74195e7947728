//! Stateful translation in numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::daemon::{Clash, sentences};

/// The counters and the occupancy of a stateful translator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nat64Stats {
    /// No new sessions are made.
    pub(crate) draining: bool,
    /// The tables, by name: `bib`, `sessions`, `subscribers`.
    pub(crate) tables: BTreeMap<String, OccupancyStats>,
    /// BIB entries by protocol; `all` are dynamic 1:1 mappings.
    pub(crate) bib: BTreeMap<String, u64>,
    /// Sessions by protocol.
    pub(crate) sessions: BTreeMap<String, u64>,
    /// TCP sessions by state.
    pub(crate) tcp_states: BTreeMap<String, u64>,
    /// Ports that rest.
    pub(crate) resting: u64,
    /// Each pool, in the order in which they are asked.
    pub(crate) pools: Vec<PoolStats>,
    /// BIB entries made, by protocol.
    pub(crate) bib_created: BTreeMap<String, u64>,
    /// Sessions made, by protocol.
    pub(crate) sessions_created: BTreeMap<String, u64>,
    /// Sessions that have ended, by cause and protocol: `expired`, or `withdrawn` by hand and by settings that
    /// have no place for them.
    pub(crate) sessions_ended: BTreeMap<String, BTreeMap<String, u64>>,
    /// Sessions and 1:1 mappings that a changed configuration had no place for.
    pub(crate) ended_by_reload: u64,
    /// How long packets took in the user engine that made a session.
    pub(crate) creation: LatencyStats,
    /// Connections that application level gateways watch now.
    #[serde(default)]
    pub(crate) alg_connections: u64,
    /// What each of them has done.
    #[serde(default)]
    pub(crate) algs: BTreeMap<String, BTreeMap<String, u64>>,
    /// Logs.
    pub(crate) logs: Vec<LogStats>,
    /// Of a NAT-PT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nat_pt: Option<NatPtStats>,
}

/// Addresses that hosts have for themselves, and the gateway for DNS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NatPtStats {
    /// Addresses that are bound, of all.
    pub(crate) addresses: OccupancyStats,
    /// Those of them that were asked for by name, and not used yet.
    pub(crate) held: u64,
    /// What the gateway has done, by what; empty: it is off.
    pub(crate) dns: BTreeMap<String, u64>,
}

/// What runs of a NAT-PT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NatPtStatus {
    /// Addresses that hosts get for themselves.
    pub(crate) addresses: Vec<String>,
    /// Bindings of the configuration.
    pub(crate) fixed: usize,
    /// Hosts send from addresses of their own.
    pub(crate) outgoing: bool,
    /// Which IPv4 hosts may begin; empty: all.
    pub(crate) initiators: Vec<String>,
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OccupancyStats {
    /// In use.
    pub(crate) used: u64,
    /// In all.
    pub(crate) size: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolStats {
    /// Its place among the translator's, from 0.
    pub(crate) number: usize,
    /// Its addresses and ports, as written; those of a device as they are.
    pub(crate) pool4: Vec<String>,
    /// Transport addresses of each protocol.
    pub(crate) ports: u64,
    /// Subscribers that have something of it.
    pub(crate) subscribers: u64,
    /// BIB entries of its subscribers, by protocol.
    pub(crate) bib: BTreeMap<String, u64>,
    /// Its blocks, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blocks: Option<OccupancyStats>,
}

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogStats {
    /// Where it goes, as configured.
    pub(crate) to: String,
    /// Records written.
    pub(crate) written: u64,
    /// Records lost.
    pub(crate) lost: u64,
}

/// How long packets took in the user engine that made a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LatencyStats {
    /// Upper bounds of the classes, in microseconds; the last class has none.
    pub(crate) bounds_us: Vec<u64>,
    /// How many are in each class.
    pub(crate) counts: Vec<u64>,
    /// All of them together, in nanoseconds.
    pub(crate) sum_ns: u64,
}

/// What runs of a stateful translator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nat64Status {
    /// Addresses and ports of each pool, in the order in which they are asked.
    pub(crate) pools: Vec<String>,
    /// BIB entries that the operator has made.
    pub(crate) static_bib: usize,
    /// Octets of the tables when they are full.
    pub(crate) table_octets: u64,
    /// Application level gateways, with the ports of the servers that they watch.
    #[serde(default)]
    pub(crate) algs: BTreeMap<String, Vec<u16>>,
    /// The tables outlive the daemon.
    pub(crate) survives: bool,
    /// No new sessions are made.
    pub(crate) draining: bool,
    /// What the host's own use of ports is in the way of.
    pub(crate) clashes: Vec<Clash>,
    /// Of a NAT-PT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nat_pt: Option<NatPtStatus>,
    /// Where dynamic 1:1 mappings are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

impl NatPtStatus {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let use_of = match self.outgoing {
            true => "for what begins on either side",
            false => "for what IPv4 hosts begin",
        };
        let addresses = match self.addresses.as_slice() {
            [] => "none but those that are bound for ever".to_owned(),
            nets => format!("{}, {use_of}", nets.join(" ")),
        };
        let initiators = match self.initiators.as_slice() {
            [] => "every IPv4 host".to_owned(),
            nets => nets.join(" "),
        };
        vec![
            ("addresses", addresses),
            ("bindings", self.fixed.to_string()),
            ("may begin", initiators),
            ("historic", "NAT-PT has faults that can't be mended (RFC 4966)".to_owned()),
        ]
    }
}

impl Nat64Status {
    /// What to show, with labels.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<(&str, String)> =
            self.pools.iter().map(|pool| ("pool4", pool.clone())).collect();
        if let Some(nat_pt) = &self.nat_pt {
            lines.extend(nat_pt.lines());
        }
        if self.static_bib > 0 {
            lines.push(("static BIB", self.static_bib.to_string()));
        }
        let survives = match self.survives {
            true => "in the kernel, sessions outlive the daemon",
            false => "in the daemon",
        };
        let mebibytes = self.table_octets.div_ceil(1 << 20);
        lines.push(("tables", format!("{mebibytes} MiB when full, {survives}")));
        for (alg, ports) in &self.algs {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            lines.push(("gateway", format!("{alg}, servers on port {}", ports.join(", "))));
        }
        if let Some(file) = &self.file {
            lines.push(("kept in", file.clone()));
        }
        if self.draining {
            lines.push(("draining", "no new sessions".to_owned()));
        }
        lines.extend(sentences(&self.clashes).into_iter().map(|clash| ("clash", clash)));
        lines
    }
}
