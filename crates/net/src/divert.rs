//! Packets to addresses of this host that are a translator's.
//!
//! Where a translator shares an address with its host, the ports of the packet tell
//! whose it is. nftables looks at them before routing: what is the translator's gets
//! a mark, which a policy rule before the local table's sends into the interface
//! ([`crate::Change::EarlyRule`]). So the packet is routed like any other that is
//! forwarded, with all that belongs to it: hop limit, path MTU, connection tracking,
//! the chains of the hook "forward".
//!
//! The host comes first. What one of its sockets waits for, and the answers to its
//! own pings, are left to it even on a port of the translator.

mod rules;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::netfilter::{Netfilter, Present};

/// Which packets are a translator's, on addresses that are the host's too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divert {
    /// The translator's interface.
    pub device: String,
    /// Its index.
    pub ifindex: u32,
    /// The mark that its packets get. No other packet should have it.
    pub mark: u32,
    /// Ports that the translator gives to hosts behind it, unless a socket of this
    /// host uses them.
    pub ports: Vec<DivertedPorts>,
    /// Ports that are forwarded, whoever listens on this host.
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

    /// Looks for the table.
    pub(crate) fn find(&self) -> Result<Option<Found>> {
        let present = Netfilter::v4(|it| it.find(&self.table()))?;
        Ok(present.map(|present| Found { ours: present.is_ours(), present }))
    }

    /// Makes the table, or puts it at once in the place of an earlier one of this
    /// program.
    pub(crate) fn make(&self) -> Result<()> {
        Netfilter::v4(|netfilter| match netfilter.replace_own(&rules::table(self, true)) {
            // Perhaps the kernel can't be asked to reassemble: then fragments but the
            // first are lost, which is better than everything.
            Err(error) if error.errno().is_some_and(|errno| MISSING.contains(&errno)) => {
                netfilter.replace_own(&rules::table(self, false)).map_err(|_| error)
            }
            result => result,
        })
    }

    pub(crate) fn delete(&self) -> Result<()> {
        Netfilter::v4(|it| it.delete(&self.table()))
    }
}

/// What a kernel says to an expression that it does not have.
const MISSING: [i32; 3] = [libc::ENOENT, libc::EOPNOTSUPP, libc::EPROTONOSUPPORT];

/// A table that is there.
#[derive(Debug)]
pub(crate) struct Found {
    /// This program has made it.
    pub(crate) ours: bool,
    present: Present,
}

impl Found {
    /// Whether it is as `divert` wants it.
    pub(crate) fn is(&self, divert: &Divert) -> bool {
        let mut tables =
            [true, false].map(|reassemble| rules::table(divert, reassemble)).into_iter();
        tables.any(|table| self.present.is(&table))
    }
}
