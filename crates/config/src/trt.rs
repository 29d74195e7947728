//! A transport relay translator (TRT, RFC 3142), as configured: `[[trt]]`.

pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod read;

use std::net::Ipv4Addr;
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use fordway_xlat::{IcmpErrors, TrafficClass};
use ipnet::{IpNet, Ipv4Net};

use crate::name::InterfaceName;

/// One `[[trt]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trt {
    /// Its name. There is no interface of it, but a table of nftables.
    pub name: InterfaceName,
    /// Prefixes of the addresses that stand for IPv4 servers; not empty.
    pub pool6: Vec<Pool6>,
    /// Threads; `None`: one for each processor.
    pub threads: Option<usize>,
    /// TCP is relayed.
    pub tcp: bool,
    /// UDP is relayed.
    pub udp: bool,
    /// Packets of this host itself are relayed, too.
    pub own_traffic: bool,
    /// Whose connections are relayed; `None`: of who is in a network of the host's, and of the host itself.
    pub allow: Option<Vec<IpNet>>,
    /// IPv4 destinations that are refused.
    pub refuse4: Vec<Ipv4Net>,
    /// 64:ff9b::/96 may stand for IPv4 addresses that are not global (against RFC 6052 section 3.1).
    pub allow_private: bool,
    /// IPv4 addresses of this host may be reached.
    pub allow_own: bool,
    /// IPv4 addresses of this host that connections come from; empty: the one that routing chooses.
    pub source4: Vec<Ipv4Addr>,
    /// Traffic Class and Type of Service.
    pub traffic_class: TrafficClass,
    /// What becomes of urgent data.
    pub urgent: UrgentData,
    /// A connection without octets is probed after so long; `None`: never.
    pub keepalive: Option<Duration>,
    /// Whether and how often ICMPv6 errors are sent.
    pub icmp_errors: IcmpErrors,
    /// TCP connections at once.
    pub max_connections: u32,
    /// UDP sessions at once.
    pub max_sessions: u32,
    /// Of both, those of one client network.
    pub max_per_client: u32,
    /// Leading bits of an IPv6 address that name a client network.
    pub client_len: u8,
    /// How long a server has to take a connection.
    pub connect_timeout: Duration,
    /// How long a connection may be without octets.
    pub tcp_idle: Duration,
    /// The same if one side has ended its direction.
    pub half_closed_idle: Duration,
    /// How long a UDP session may be without datagrams.
    pub udp_idle: Duration,
    /// Mark of packets that are delivered to the relay.
    pub mark: u32,
    /// Routing table with the local routes of the prefixes.
    pub table: u32,
}

/// What becomes of TCP's urgent data (RFC 3142 section 5, RFC 6093).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UrgentData {
    /// It is sent as urgent on the other side.
    #[default]
    Carry,
    /// It stays in its place, without a mark.
    Inline,
    /// It is left out.
    Discard,
}
