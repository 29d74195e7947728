//! What an operator sets of stateful NAT64, as validated types.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use ipnet::Ipv6Net;

use crate::nat64::alg::Alg;
use crate::nat64::nat_pt::{Addresses, dns::Dns};
use crate::nat64::table::{Protocol, Sizes};

use super::{Pool, Shards};

/// Which packets from IPv4 pass to a BIB entry (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filtering {
    /// From everywhere: endpoint-independent filtering (RFC 6888 REQ-7).
    #[default]
    EndpointIndependent,
    /// From addresses to which the host has sent.
    AddressDependent,
}

/// Lifetimes (RFC 6146 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// UDP sessions: UDP_DEFAULT.
    pub udp: Duration,
    /// ICMP Query sessions: ICMP_DEFAULT.
    pub icmp: Duration,
    /// Established TCP sessions: TCP_EST.
    pub tcp_est: Duration,
    /// TCP sessions that begin or end: TCP_TRANS.
    pub tcp_trans: Duration,
    /// Unsolicited SYNs: TCP_INCOMING_SYN.
    pub tcp_incoming_syn: Duration,
    /// Port hold-down: how long a port of UDP or ICMP is not given to another subscriber (RFC 6888 REQ-8).
    pub hold_down: Duration,
    /// Ports in hold-down at most; beyond, a port is free as soon as its last session has ended.
    pub hold_down_most: u32,
    /// Subscribers without a BIB entry: how long they keep their address and ports.
    pub subscriber: Duration,
    /// Dynamic 1:1 mappings without a packet.
    pub dynamic4: Duration,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        let seconds = Duration::from_secs;
        Lifetimes {
            udp: seconds(300),
            icmp: seconds(60),
            tcp_est: seconds(7200),
            tcp_trans: seconds(240),
            tcp_incoming_syn: seconds(6),
            hold_down: seconds(120),
            hold_down_most: u32::MAX,
            subscriber: seconds(600),
            dynamic4: seconds(7440),
        }
    }
}

/// Limits for each subscriber (RFC 6888 REQ-4 and REQ-5); 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// BIB entries by protocol: TCP, UDP, ICMP.
    pub ports: [u32; 3],
    /// Sessions.
    pub sessions: u32,
    /// New sessions in a second.
    pub new_per_second: u32,
}

/// A BIB entry that the operator makes: a port forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBib {
    /// The protocol.
    pub protocol: Protocol,
    /// (X',x).
    pub v6: (Ipv6Addr, u16),
    /// (T,t).
    pub v4: (Ipv4Addr, u16),
}

/// Dynamic 1:1 mappings of a stateless translator: each IPv6 host gets an IPv4 address on first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic4 {
    /// The addresses.
    pub pool: Vec<ipnet::Ipv4Net>,
    /// Which IPv6 hosts; empty: all.
    pub clients: Vec<Ipv6Net>,
}

impl Dynamic4 {
    /// Whether the address is one of the pool's.
    #[must_use]
    pub fn contains(&self, addr: Ipv4Addr) -> bool {
        self.pool.iter().any(|net| net.contains(&addr))
    }
}

/// What a stateful translator does beside [`Config`](crate::Config).
#[derive(Clone, Debug)]
pub struct Settings {
    /// `pool4`: the first pool that takes a host is the host's.
    pub pools: Vec<Pool>,
    /// Filtering of packets from IPv4.
    pub filtering: Filtering,
    /// IPv4 hosts may open TCP connections to what is in the BIB.
    pub accept_v4_syn: bool,
    /// Packets from IPv4 refresh sessions of UDP and ICMP, too (RFC 6146 section 3.5.1; RFC 4787 REQ-6a leaves it
    /// open).
    pub refresh_from_v4: bool,
    /// Lifetimes.
    pub lifetimes: Lifetimes,
    /// How many bits of an IPv6 address name a subscriber, 1 to 128.
    pub subscriber_len: u8,
    /// Limits.
    pub quotas: Quotas,
    /// BIB entries of the configuration.
    pub bib: Vec<StaticBib>,
    /// Dynamic 1:1 mappings, of a stateless translator; then nothing else of this counts but lifetimes and sizes.
    pub dynamic4: Option<Dynamic4>,
    /// Application level gateways.
    pub algs: Vec<Arc<dyn Alg>>,
    /// More ports whose packets kernel programs pass to the user engine.
    pub more_left_ports: Vec<u16>,
    /// The DNS ALG, for messages in the path of packets (RFC 2766 section 4).
    pub dns: Option<Dns>,
    /// Addresses of hosts: NAT-PT.
    pub addresses: Option<Addresses>,
    /// Of the tables.
    pub sizes: Sizes,
    /// The cluster's shards; `None`: this gateway is alone, and owns everything.
    pub shards: Option<Arc<Shards>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pools: Vec::new(),
            filtering: Filtering::default(),
            accept_v4_syn: true,
            refresh_from_v4: true,
            lifetimes: Lifetimes::default(),
            subscriber_len: 128,
            quotas: Quotas::default(),
            bib: Vec::new(),
            dynamic4: None,
            algs: Vec::new(),
            more_left_ports: Vec::new(),
            dns: None,
            addresses: None,
            sizes: Sizes::default(),
            shards: None,
        }
    }
}

impl Settings {
    /// Ports of TCP and UDP whose packets kernel programs pass to the user engine: those of ALGs.
    #[must_use]
    pub fn left_ports(&self) -> Vec<u16> {
        let watched = self.algs.iter().flat_map(|alg| alg.ports().iter().copied());
        let mut ports: Vec<u16> = watched.chain(self.more_left_ports.iter().copied()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}
