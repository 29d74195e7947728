//! One binding: an IPv4 address, or ports of one, and the tunnel that leads to its client.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::port_set::PortSet;

/// A binding (RFC 7596 section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binding {
    /// The client's IPv4 address.
    pub v4: Ipv4Addr,
    /// The ports of the address that are the client's; `None`: all of them, and every protocol.
    pub ports: Option<PortSet>,
    /// The client's (B4's) IPv6 address: where its end of the tunnel is.
    pub remote: Ipv6Addr,
    /// The tunnel end point's IPv6 address.
    pub local: Ipv6Addr,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { v4, ports, remote, local } = self;
        write!(f, "{v4}")?;
        if let Some(ports) = ports {
            write!(f, " {ports}")?;
        }
        write!(f, " at {remote} by {local}")
    }
}
