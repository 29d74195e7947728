//! Packets as the model sees them: tuples, and what a TCP segment says.

use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv4 transport address.
pub type End4 = (Ipv4Addr, u16);

/// An IPv6 transport address.
pub type End6 = (Ipv6Addr, u16);

/// The transport protocols, each with its own BIB and session table (RFC 6146 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP queries.
    Icmp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Icmp];
}

/// A packet of TCP, of UDP, or an ICMP echo message. Of the latter, both ports are the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<A> {
    /// Its protocol.
    pub transport: Transport,
    /// Where from.
    pub src: (A, u16),
    /// Where to.
    pub dst: (A, u16),
    /// Flags of TCP; of ICMP, 1 for a reply.
    pub flags: u8,
    /// Mark of the packet.
    pub mark: u32,
}

/// An ICMPv4 error: its addresses, and the packet inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted4 {
    /// Who sends it.
    pub router: Ipv4Addr,
    /// To whom.
    pub to: Ipv4Addr,
    /// What it is about.
    pub inner: Datagram<Ipv4Addr>,
}

/// An ICMPv6 error, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted6 {
    /// Who sends it.
    pub router: Ipv6Addr,
    /// To whom.
    pub to: Ipv6Addr,
    /// What it is about.
    pub inner: Datagram<Ipv6Addr>,
}
