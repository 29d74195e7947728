//! Stateful NAT64 and dynamic mappings, as configured: mode `nat64`, and `dynamic4` of mode `siit`.

pub(crate) mod alg;
pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod lifetimes;
mod log;
pub(crate) mod nat_pt;
mod pool4;
pub(crate) mod read;
mod settings;
pub(crate) mod tables;

use std::path::PathBuf;
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use fordway_xlat::nat64::{Allocation, Filtering, Lifetimes, Quotas, Sizes, StaticBib};
use ipnet::{Ipv4Net, Ipv6Net};

pub use alg::{Gateway, Gateways};
pub use log::{LogEvent, LogTarget, NatLog};
pub use nat_pt::{NatPt, NatPtDns};
pub use pool4::{Pool4, Pool4Error, Pool4Source, Ports};

/// What only the stateful modes have: `nat64` (RFC 6146), and `nat-pt` (RFC 2766) on top of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat64 {
    /// Translation prefixes, routed into the interface.
    pub pool6: Vec<Pool6>,
    /// IPv4 addresses and ports, and whose they are, in the order in which they are asked. The one of
    /// the key `pool4` is for every host and comes last.
    pub pools: Vec<Pool>,
    /// BIB entries of the configuration: port forwards.
    pub bib: Vec<StaticBib>,
    /// Filtering of packets from IPv4.
    pub filtering: Filtering,
    /// IPv4 hosts may open TCP connections to what is in the BIB.
    pub accept_v4_syn: bool,
    /// Packets from IPv4 refresh sessions of UDP and ICMP, too.
    pub refresh_from_v4: bool,
    /// Lifetimes.
    pub lifetimes: Lifetimes,
    /// Lifetimes below the RFCs' least are taken.
    pub allow_short_lifetimes: bool,
    /// How many bits of an IPv6 address name a subscriber, 1 to 128.
    pub subscriber_len: u8,
    /// Limits for each subscriber.
    pub quotas: Quotas,
    /// Application level gateways.
    pub gateways: Gateways,
    /// Of the tables.
    pub sizes: Sizes,
    /// Where sessions, bindings and blocks are logged.
    pub logs: Vec<NatLog>,
    /// Of mode `nat-pt`.
    pub nat_pt: Option<NatPt>,
}

/// A pool: the key `pool4`, or a `[[translator.pool]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Addresses and ports.
    pub pool4: Vec<Pool4>,
    /// Hosts that get them; empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Packets that get them: those with this mark; `None`: all.
    pub mark: Option<u32>,
    /// How ports are given.
    pub allocation: Allocation,
}

impl Pool {
    /// Whether it is for every host: the key `pool4`.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.clients.is_empty() && self.mark.is_none()
    }
}

/// Dynamic 1:1 mappings of mode `siit`: `dynamic4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dynamic4 {
    /// The addresses, routed into the interface.
    pub pool: Vec<Ipv4Net>,
    /// Which IPv6 hosts get one; empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Time without a packet after which an address is free again.
    pub idle: Duration,
    /// Where mappings are kept across restarts; `None`: nowhere.
    pub file: Option<PathBuf>,
}
