//! DSTM: server, tunnel end point, clients.

use std::net::{Ipv6Addr, SocketAddrV6};

use fordway_counters::dstm::{ClientStats, LeaseView};
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DstmServerStatus {
    /// Where it listens.
    pub listen: Vec<SocketAddrV6>,
    /// Addresses that it lends.
    #[schemars(with = "Vec<String>")]
    pub pool: Vec<Ipv4Net>,
    /// Ports of each client, where addresses are shared.
    pub ports_per_client: Option<u32>,
    /// The tunnel end point's address.
    pub tep: Ipv6Addr,
    /// It has been told everything.
    pub tep_up: bool,
    /// Leases at this moment.
    pub leases: u64,
    /// How many more there can be.
    pub free: u64,
}

/// A tunnel end point that hears of a server on another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DstmTepStatus {
    /// Where it listens.
    pub listen: SocketAddrV6,
    /// Bindings at this moment.
    pub bindings: u64,
    /// Bindings at most.
    pub max_bindings: u64,
}

/// Where a client is, and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DstmClientStats {
    /// Its name and its interface's.
    pub name: String,
    /// State and counters.
    #[serde(flatten)]
    pub stats: ClientStats,
}

/// Leases that one reply tells at most.
const MAX_LEASES: usize = 100_000;

/// What is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leases {
    /// Leases, by address.
    pub leases: Vec<LeaseView>,
    /// How many there are beyond those.
    pub more: u64,
}

impl Leases {
    /// The first of many.
    #[must_use]
    pub fn of(mut leases: Vec<LeaseView>) -> Leases {
        let more = leases.len().saturating_sub(MAX_LEASES) as u64;
        leases.truncate(MAX_LEASES);
        Leases { leases, more }
    }
}
