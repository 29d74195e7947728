//! Transport relays.

use std::net::Ipv4Addr;

use fordway_counters::trt;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A relay that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrtStatus {
    /// Its name.
    pub name: String,
    /// Its prefixes.
    pub pool6: Vec<String>,
    /// Number of threads.
    pub threads: usize,
    /// All of them run.
    pub whole: bool,
    /// TCP is relayed.
    pub tcp: bool,
    /// UDP is relayed.
    pub udp: bool,
    /// Whose connections are relayed.
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNet>,
    /// Where connections to servers come from; empty: as routing chooses.
    pub source4: Vec<Ipv4Addr>,
    /// TCP connections now, and at most.
    pub connections: u64,
    /// TCP connections at most.
    pub max_connections: u64,
    /// UDP sessions now, and at most.
    pub sessions: u64,
    /// UDP sessions at most.
    pub max_sessions: u64,
}

/// What a relay has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrtStats {
    /// Its name.
    pub name: String,
    /// The counters.
    #[serde(flatten)]
    pub counters: trt::Stats,
}
