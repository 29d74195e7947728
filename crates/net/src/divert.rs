//! Packets to addresses of this host that are a translator's.
//!
//! Where a translator shares an address with its host, the ports of the packet tell whose it is. nftables looks at
//! them before routing: what is the translator's gets a mark, which a policy rule before the local table's sends into
//! the interface ([`crate::Change::EarlyRule`]). So the packet is routed like any other that is forwarded, with all
//! that belongs to it: hop limit, path MTU, connection tracking, the chains of the hook "forward".
//!
//! The host takes precedence: packets for one of its sockets, and replies to its own pings, are delivered to it even
//! on a port of the translator.

mod rules;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::netfilter::{Policy, Table};

/// Which packets are a translator's, on addresses that are the host's too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divert {
    /// The translator's interface.
    pub device: String,
    /// Its index.
    pub ifindex: u32,
    /// The mark that its packets get. No other packet should have it.
    pub mark: u32,
    /// Ports that the translator gives to hosts behind it, unless a socket of this host uses them.
    pub ports: Vec<DivertedPorts>,
    /// Ports that are forwarded, even if a socket of this host listens on them.
    pub forwards: Vec<DivertedPort>,
}

/// Ports, and identifiers of ICMP queries, of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DivertedPorts {
    /// The address.
    pub address: Ipv4Addr,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// A port of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DivertedPort {
    /// The address.
    pub address: Ipv4Addr,
    /// The transport protocol's number: TCP, UDP or ICMP.
    pub protocol: u8,
    /// The port; with ICMP the identifier.
    pub port: u16,
}

impl Divert {
    /// Name of the nftables table, of family `ip`.
    #[must_use]
    pub fn table(&self) -> String {
        format!("fordway-{}", self.device)
    }

    pub(crate) fn normalise(&mut self) {
        self.ports.sort_unstable();
        self.ports.dedup();
        self.forwards.sort_unstable();
        self.forwards.dedup();
    }
}

impl Policy for Divert {
    fn name(&self) -> String {
        self.table()
    }

    /// A kernel that can't be asked to reassemble loses all fragments but the first, which is better than all
    /// packets.
    fn contents(&self) -> Vec<Table> {
        [true, false].map(|reassemble| rules::table(self, reassemble)).into()
    }
}
