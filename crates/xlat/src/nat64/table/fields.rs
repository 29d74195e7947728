//! What the fields of entries hold, as types.

use core::net::Ipv4Addr;

/// The transport protocols of RFC 6146.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP queries; identifiers stand in the place of ports.
    Icmp,
}

impl Protocol {
    /// All of them, in the order of [`Protocol::index`].
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp];

    /// Its place in an array by protocol.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
            Protocol::Icmp => 2,
        }
    }

    /// The protocol number in IPv4, which the tables hold.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => fordway_wire::protocol::TCP,
            Protocol::Udp => fordway_wire::protocol::UDP,
            Protocol::Icmp => fordway_wire::protocol::ICMP,
        }
    }

    /// By the protocol number in IPv4.
    #[must_use]
    pub fn of(number: u8) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
    }

    /// Its name in small letters.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
        }
    }
}

/// From which side a packet comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From an IPv6 host.
    V6,
    /// From the IPv4 network.
    V4,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::V6 => Side::V4,
            Side::V4 => Side::V6,
        }
    }

    /// Its place in an array by side: IPv4, IPv6.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Side::V4 => 0,
            Side::V6 => 1,
        }
    }
}

/// The state of a TCP session; CLOSED is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TcpState {
    /// A SYN came from IPv4.
    V4Init = 6,
    /// A SYN came from IPv6.
    V6Init = 7,
    /// SYNs came from both.
    Established = 8,
    /// A FIN came from IPv4.
    V4FinRcv = 9,
    /// A FIN came from IPv6.
    V6FinRcv = 10,
    /// FINs came from both.
    V4FinV6FinRcv = 11,
    /// A RST came, or nothing for TCP_EST.
    Trans = 12,
}

impl TcpState {
    /// Every state.
    pub const ALL: [TcpState; 7] = [
        TcpState::V4Init,
        TcpState::V6Init,
        TcpState::Established,
        TcpState::V4FinRcv,
        TcpState::V6FinRcv,
        TcpState::V4FinV6FinRcv,
        TcpState::Trans,
    ];

    pub(crate) fn of(number: u8) -> Option<TcpState> {
        TcpState::ALL.into_iter().find(|state| *state as u8 == number)
    }

    /// The RFC's name in snake case, for metrics and JSON.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            TcpState::V4Init => "v4_init",
            TcpState::V6Init => "v6_init",
            TcpState::Established => "established",
            TcpState::V4FinRcv => "v4_fin_rcv",
            TcpState::V6FinRcv => "v6_fin_rcv",
            TcpState::V4FinV6FinRcv => "v4_fin_v6_fin_rcv",
            TcpState::Trans => "trans",
        }
    }
}

/// Which of the configured lifetimes counts for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timeout {
    /// UDP_DEFAULT.
    Udp = 0,
    /// ICMP_DEFAULT.
    Icmp = 1,
    /// TCP_EST.
    TcpEst = 2,
    /// TCP_TRANS.
    TcpTrans = 3,
    /// TCP_INCOMING_SYN.
    TcpIncomingSyn = 4,
}

/// The number of classes of lifetimes.
pub(crate) const TIMEOUTS: usize = 5;

/// Ports of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortBlock {
    /// The address.
    pub v4: Ipv4Addr,
    /// The first port.
    pub low: u16,
    /// The last port.
    pub high: u16,
}

impl PortBlock {
    pub(crate) fn contains(&self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }
}
