//! Stateful translation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Clash;

/// The counters and the occupancy of a stateful translator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nat64Stats {
    /// No new sessions are made.
    pub draining: bool,
    /// The tables, by name: `bib`, `sessions`, `subscribers`.
    pub tables: BTreeMap<String, OccupancyStats>,
    /// BIB entries by protocol; `all` are dynamic 1:1 mappings.
    pub bib: BTreeMap<String, u64>,
    /// Sessions by protocol.
    pub sessions: BTreeMap<String, u64>,
    /// TCP sessions by state.
    pub tcp_states: BTreeMap<String, u64>,
    /// Ports in hold-down.
    pub resting: u64,
    /// Each pool, in the order in which they are asked.
    pub pools: Vec<PoolStats>,
    /// BIB entries made, by protocol.
    pub bib_created: BTreeMap<String, u64>,
    /// Sessions made, by protocol.
    pub sessions_created: BTreeMap<String, u64>,
    /// Sessions that have ended, by cause and protocol: `expired`, or `withdrawn` by hand and by settings that
    /// have no place for them.
    pub sessions_ended: BTreeMap<String, BTreeMap<String, u64>>,
    /// Sessions and 1:1 mappings that a changed configuration had no place for.
    pub ended_by_reload: u64,
    /// How long packets took in the user engine that made a session.
    pub creation: LatencyStats,
    /// Connections that application level gateways watch now.
    #[serde(default)]
    pub alg_connections: u64,
    /// What each of them has done.
    #[serde(default)]
    pub algs: BTreeMap<String, BTreeMap<String, u64>>,
    /// Logs.
    pub logs: Vec<LogStats>,
    /// Of a NAT-PT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_pt: Option<NatPtStats>,
}

/// Addresses that hosts have for themselves, and the gateway for DNS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatPtStats {
    /// Addresses that are bound, of all.
    pub addresses: OccupancyStats,
    /// Those of them that were asked for by name, and not used yet.
    pub held: u64,
    /// What the gateway has done, by what; empty: it is off.
    pub dns: BTreeMap<String, u64>,
}

/// What runs of a NAT-PT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatPtStatus {
    /// Addresses that hosts get for themselves.
    pub addresses: Vec<String>,
    /// Bindings of the configuration.
    pub fixed: usize,
    /// Hosts send from addresses of their own.
    pub outgoing: bool,
    /// Which IPv4 hosts may begin; empty: all.
    pub initiators: Vec<String>,
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OccupancyStats {
    /// In use.
    pub used: u64,
    /// In all.
    pub size: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolStats {
    /// Its place among the translator's, from 0.
    pub number: usize,
    /// Its addresses and ports, as written; those of a device as they are.
    pub pool4: Vec<String>,
    /// Transport addresses of each protocol.
    pub ports: u64,
    /// Subscribers that have something of it.
    pub subscribers: u64,
    /// BIB entries of its subscribers, by protocol.
    pub bib: BTreeMap<String, u64>,
    /// Its blocks, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<OccupancyStats>,
}

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogStats {
    /// Where it goes, as configured.
    pub to: String,
    /// Records written.
    pub written: u64,
    /// Records lost.
    pub lost: u64,
}

/// How long packets took in the user engine that made a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyStats {
    /// Upper bounds of the classes, in microseconds; the last class has none.
    pub bounds_us: Vec<u64>,
    /// How many are in each class.
    pub counts: Vec<u64>,
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
}

/// What runs of a stateful translator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nat64Status {
    /// Addresses and ports of each pool, in the order in which they are asked.
    pub pools: Vec<String>,
    /// BIB entries that the operator has made.
    pub static_bib: usize,
    /// Octets of the tables when they are full.
    pub table_octets: u64,
    /// Application level gateways, with the ports of the servers that they watch.
    #[serde(default)]
    pub algs: BTreeMap<String, Vec<u16>>,
    /// The tables outlive the daemon.
    pub survives: bool,
    /// No new sessions are made.
    pub draining: bool,
    /// What the host's own use of ports is in the way of.
    pub clashes: Vec<Clash>,
    /// Of a NAT-PT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_pt: Option<NatPtStatus>,
    /// Where dynamic 1:1 mappings are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
