//! BIB, sessions and subscribers, as lists.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::packet::{End4, End6, Transport};
use super::tcp::State;

/// The Well-Known Prefix (RFC 6052 section 2.1).
pub(super) const WELL_KNOWN: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// What an operator has set, in seconds and numbers.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The IPv6 prefixes of length 96: their first 96 bits.
    pub pool6: Vec<Ipv6Addr>,
    /// The addresses of `pool4`.
    pub pool4: Vec<Ipv4Addr>,
    /// The ports of each address.
    pub ports: (u16, u16),
    /// Ports of a block and blocks of a subscriber; `None`: ports are shared.
    pub blocks: Option<(u16, usize)>,
    /// Packets from IPv4 pass only from addresses to which the host has sent.
    pub by_address: bool,
    /// IPv4 hosts may open TCP connections.
    pub accept_v4_syn: bool,
    /// Packets from IPv4 refresh sessions of UDP and ICMP.
    pub refresh_from_v4: bool,
    /// Bits that name a subscriber.
    pub subscriber_len: u8,
    /// Most BIB entries of a subscriber: TCP, UDP, ICMP; 0: any number.
    pub most_ports: [u32; 3],
    /// Most sessions of a subscriber; 0: any number.
    pub most_sessions: u32,
    /// Most new sessions in a second; 0: any number.
    pub most_new: u32,
    /// Sizes of the tables: BIB, sessions, subscribers.
    pub sizes: [usize; 3],
    /// Most ports that rest.
    pub most_resting: usize,
    /// UDP_DEFAULT in seconds.
    pub udp: u64,
    /// ICMP_DEFAULT.
    pub icmp: u64,
    /// TCP_EST.
    pub tcp_est: u64,
    /// TCP_TRANS.
    pub tcp_trans: u64,
    /// TCP_INCOMING_SYN.
    pub tcp_incoming_syn: u64,
    /// How long ports rest.
    pub port_rest: u64,
    /// How long a subscriber without BIB entries keeps its ports.
    pub subscriber: u64,
}

/// A BIB entry: (X',x) <--> (T,t).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bib {
    /// The protocol.
    pub transport: Transport,
    /// (X',x).
    pub v6: End6,
    /// (T,t).
    pub v4: End4,
    /// The operator has made it.
    pub is_static: bool,
    /// Since when it rests.
    pub resting: Option<u64>,
    /// When it was made.
    pub created: u64,
    /// Whether it has had a session.
    pub had_session: bool,
}

/// A session: (X',x),(Y',y) <--> (T,t),(Z,z).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The protocol.
    pub transport: Transport,
    /// (X',x).
    pub v6: End6,
    /// (T,t).
    pub v4: End4,
    /// (Z,z); of ICMP, z is 0.
    pub remote: End4,
    /// Which of the IPv6 prefixes Z is embedded in.
    pub pool6: usize,
    /// The state of TCP.
    pub tcp: Option<State>,
    /// When its lifetime began.
    pub since: u64,
    /// How long it is, in seconds.
    pub lifetime: u64,
    /// It was made by a SYN that is stored.
    pub is_stored_syn: bool,
}

/// A subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its prefix.
    pub prefix: Ipv6Addr,
    /// Its address, once it has needed one.
    pub v4: Option<Ipv4Addr>,
    /// When it made its last session.
    pub last_used: u64,
    /// New sessions in the current second, and in the one before.
    pub new: [(u64, u32); 2],
}

impl Rules {
    /// The first bits of an address.
    pub(super) fn prefix(&self, addr: Ipv6Addr) -> Ipv6Addr {
        let cut = 128 - u32::from(self.subscriber_len);
        Ipv6Addr::from_bits((addr.to_bits() >> cut) << cut)
    }

    /// The IPv4 address in one of the IPv6 prefixes, and which.
    pub(super) fn extract(&self, addr: Ipv6Addr) -> Option<(Ipv4Addr, usize)> {
        let bits = addr.to_bits();
        let place = self.pool6.iter().position(|prefix| prefix.to_bits() >> 32 == bits >> 32)?;
        Some((Ipv4Addr::from_bits(bits as u32), place))
    }

    /// Whether a prefix may stand for an IPv4 address (RFC 6052 section 3.1): the Well-Known Prefix may not for one that is
    /// not global, and none of the documentation's is.
    pub(super) fn may_embed(&self, pool6: usize) -> bool {
        self.pool6[pool6] != WELL_KNOWN
    }

    /// An IPv4 address in an IPv6 prefix.
    pub(super) fn embed(&self, addr: Ipv4Addr, pool6: usize) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.pool6[pool6].to_bits() | u128::from(addr.to_bits()))
    }

    /// Whether a transport address is one of the pool's.
    pub(super) fn in_pool(&self, (addr, port): End4) -> bool {
        self.pool4.contains(&addr) && (self.ports.0..=self.ports.1).contains(&port)
    }
}
