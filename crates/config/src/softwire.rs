//! `mode = "softwire"`: IPv4 in IPv6 (RFC 2473, RFC 7596).

pub(crate) mod check;
pub(crate) mod ends;
mod ports;

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_softwire::{Binding, PortSet};

use crate::keys::{Key, Keys};
use crate::name::InterfaceName;

/// Hop Limit of tunnel packets where the file says nothing (RFC 2473 section 6.3: the node's own default).
pub(crate) const HOP_LIMIT: u8 = 64;

/// What only a softwire has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Softwire {
    /// Which end it is.
    pub end: SoftwireEnd,
    /// Hop Limit of tunnel packets.
    pub hop_limit: u8,
}

/// One end of softwires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoftwireEnd {
    /// The tunnel end point of many clients.
    Tep {
        /// Its address in bindings that name no other; routed into the interface.
        local: Ipv6Addr,
        /// The bindings that the file has, in its order; none that contradicts another.
        bindings: Vec<Binding>,
    },
    /// A client.
    Client(SoftwireClient),
}

/// A client of a tunnel end point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftwireClient {
    /// Its IPv4 address; `None`: it has none yet; DSTM supplies it.
    pub v4: Option<Ipv4Addr>,
    /// Its ports, if it shares the address.
    pub ports: Option<PortSet>,
    /// Its own end of the tunnel; `None`: made from the uplink's prefix.
    pub local: Option<Ipv6Addr>,
    /// The tunnel end point.
    pub remote: Ipv6Addr,
    /// The device towards the IPv6 network; `None`: found by the route to `remote`.
    pub uplink: Option<InterfaceName>,
    /// The address is lent (DSTM): what this host's packets have as their source as long as there is none, and
    /// where it is shared.
    pub early: Option<Ipv4Addr>,
}

/// The keys of both ends.
pub(crate) fn all_keys() -> Vec<Key> {
    [Softwire::keys(), ends::Tep::keys(), ends::Client::keys()].concat()
}

impl Softwire {
    /// The client's part, if this is one.
    #[must_use]
    pub fn client(&self) -> Option<&SoftwireClient> {
        match &self.end {
            SoftwireEnd::Client(client) => Some(client),
            SoftwireEnd::Tep { .. } => None,
        }
    }

    /// The part of a client that borrows its address, apart from what a lease decides.
    #[must_use]
    pub fn without_lease(&self) -> Option<Softwire> {
        let mut one = self.clone();
        let SoftwireEnd::Client(client) = &mut one.end else { return None };
        client.early?;
        (client.v4, client.ports, client.local) = (None, None, None);
        client.remote = Ipv6Addr::UNSPECIFIED;
        Some(one)
    }

    /// The bindings, with `own` as the address of a client whose own is not configured. A client without an IPv4
    /// address, or without an own address, has none.
    #[must_use]
    pub fn bindings(&self, own: Option<Ipv6Addr>) -> Vec<Binding> {
        match &self.end {
            SoftwireEnd::Tep { bindings, .. } => bindings.clone(),
            SoftwireEnd::Client(client) => {
                let (Some(v4), Some(own)) = (client.v4, client.local.or(own)) else {
                    return Vec::new();
                };
                // The table has the tunnel end point's view.
                vec![Binding { v4, ports: client.ports, remote: own, local: client.remote }]
            }
        }
    }

    /// A tunnel end point's own addresses, each once.
    #[must_use]
    pub fn locals(&self) -> Vec<Ipv6Addr> {
        let SoftwireEnd::Tep { local, bindings } = &self.end else { return Vec::new() };
        let mut all = vec![*local];
        for binding in bindings {
            if !all.contains(&binding.local) {
                all.push(binding.local);
            }
        }
        all
    }
}
