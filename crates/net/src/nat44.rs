//! Translation of IPv4 addresses by the kernel (NAT44): an nftables table of our own.
//!
//! The table's chains have priorities right behind the usual ones, so that an operator's own rules run first: a
//! connection that they translate is not translated here, and a packet that they drop is not counted. Rules of other
//! programs are not changed.
//!
//! ```text
//! prerouting  (dstnat + 5)  forwarded ports, mapped networks: the destination
//! forward     (filter + 5)  leaving ──► limits ──► MSS ──► counted
//!                           arriving ─► unsolicited? ─► MSS ─► counted
//! postrouting (srcnat + 5)  leaving ──► mapped network, or pool, or the device's address
//!                           hairpin ──► the address that was asked
//! ```
//!
//! Of [`Nat44::own`] packets only those of this host are translated, by a single rule. While it [`Nat44::waits`], they bypass
//! conntrack, and so that rule, by a chain `output (raw + 5)`. The rule is there already: with the first one of a network
//! namespace the kernel sets conntrack up, which takes longer than to replace a rule.

#[cfg(feature = "nat44")]
mod rules;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::Result;
pub use crate::netfilter::Choice as Nat44Choice;
use crate::netfilter::{Count, Ip, Netfilter, Policy, Table};

/// What is translated, and to what. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nat44 {
    /// Its name, of which the table gets its own.
    pub name: String,
    /// Networks whose hosts are translated.
    pub clients: Vec<Ipv4Net>,
    /// Devices by which their packets come in; none: any.
    pub devices: Vec<String>,
    /// Devices by which packets leave translated.
    pub uplinks: Vec<String>,
    /// Addresses and ports that hosts get; none: the addresses of the uplink.
    pub pools: Vec<Nat44Pool>,
    /// Without pools: the ports; `None`: all.
    pub ports: Option<(u16, u16)>,
    /// How addresses and ports are chosen.
    pub choice: Nat44Choice,
    /// Networks that are translated address by address, both ways: of clients, and outside.
    pub netmap: Vec<(Ipv4Net, Ipv4Net)>,
    /// Ports that are forwarded to hosts.
    pub forwards: Vec<Nat44Forward>,
    /// Clients reach forwarded ports at the outer address, too (RFC 4787 section 6).
    pub hairpin: bool,
    /// Connections from outside to addresses of clients are dropped unless they were forwarded.
    pub drop_unsolicited: bool,
    /// TCP segment sizes are lowered to what the route takes.
    pub mss_clamp: bool,
    /// Connections that a client may have at a time.
    pub most_sessions: Option<u32>,
    /// Connections that a client may open in a second.
    pub most_per_second: Option<u32>,
    /// New connections are logged by the kernel.
    pub log: bool,
    /// Only what this host itself sends from addresses of `clients` by the uplinks is translated, to the uplink's address;
    /// nothing is counted.
    #[serde(default)]
    pub own: bool,
    /// With `own`: nothing is translated yet. It leaves as it is, and is not remembered, so that it can be translated when it
    /// is sent again.
    #[serde(default)]
    pub waits: bool,
}

/// Addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nat44Pool {
    /// The first address.
    pub first: Ipv4Addr,
    /// The last address.
    pub last: Ipv4Addr,
    /// Ports, and identifiers of ICMP queries, of each; both ends belong to them.
    pub ports: (u16, u16),
}

/// A port that is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nat44Forward {
    /// The transport protocol's number: TCP or UDP.
    pub protocol: u8,
    /// Where it is asked.
    pub outside: (Ipv4Addr, u16),
    /// Where it goes.
    pub inside: (Ipv4Addr, u16),
}

/// What the table has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// What: `out`, `in`, `sessions`, `forwarded`, `hairpin`, `mapped`; dropped: `unsolicited`, `invalid`,
    /// `sessions_limit`, `rate_limit`.
    pub name: String,
    /// Packets; of what concerns connections, their number.
    pub packets: u64,
    /// Octets of these packets.
    pub octets: u64,
}

impl Nat44 {
    /// Name of the nftables table, of family `ip`.
    #[must_use]
    pub fn table(&self) -> String {
        format!("fordway-nat44-{}", self.name)
    }

    /// What has been counted; nothing if the table is not there.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netfilter`], [`crate::Error::Answer`].
    pub fn counted(&self) -> Result<Vec<Counted>> {
        let counters = Netfilter::open(Ip::V4, |it| it.counters(&self.table()))?.into_iter();
        let counted =
            counters.map(|(name, Count { packets, octets })| Counted { name, packets, octets });
        Ok(counted.collect())
    }
}

impl Policy for Nat44 {
    fn name(&self) -> String {
        self.table()
    }

    #[cfg(feature = "nat44")]
    fn contents(&self) -> Vec<Table> {
        vec![rules::table(self)]
    }

    /// None: nothing asks for one. A table that another build has left is found by its name and deleted.
    #[cfg(not(feature = "nat44"))]
    fn contents(&self) -> Vec<Table> {
        Vec::new()
    }
}
