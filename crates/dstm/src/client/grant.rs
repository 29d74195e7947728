//! What a client has on lease.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use fordway_softwire::PortSet;

use crate::lease::Slot;

/// The lease of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address.
    pub v4: Ipv4Addr,
    /// Its ports; `None`: all.
    pub ports: Option<PortSet>,
    /// The other end of the tunnel.
    pub tep: Ipv6Addr,
    /// The server.
    pub server: SocketAddrV6,
    /// When it ends, in the client's own ms.
    pub until: u64,
    /// When it was granted or renewed last.
    pub since: u64,
}

impl Grant {
    /// The address and its ports.
    #[must_use]
    pub fn slot(&self) -> Slot {
        Slot { v4: self.v4, ports: self.ports }
    }

    /// Whether both have the same tunnel.
    pub(super) fn is_like(&self, other: &Grant) -> bool {
        (self.v4, self.ports, self.tep) == (other.v4, other.ports, other.tep)
    }
}
