//! Settings.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::time::Duration;

use fordway_serve::Acl;
use fordway_xlat::addr::Pool6;
use fordway_xlat::{IcmpErrors, TrafficClass};

/// Settings of a relay; [`Server::replace`](super::Server::replace) applies others while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, for logs and for the host's set-up. Needs a new server when it changes.
    pub name: String,
    /// Prefixes of the addresses that stand for IPv4 servers; not empty.
    pub pool6: Vec<Pool6>,
    /// Threads, each with sockets of its own. Needs a new server when it changes.
    pub threads: NonZeroUsize,
    /// TCP is relayed. Needs a new server when it changes.
    pub tcp: bool,
    /// UDP is relayed. Needs a new server when it changes.
    pub udp: bool,
    /// Whose connections are relayed (RFC 3142 section 7).
    pub allow: Acl,
    /// IPv4 destinations that are refused.
    pub refuse4: Acl,
    /// 64:ff9b::/96 may stand for IPv4 addresses that are not global (against RFC 6052 section 3.1).
    pub allow_private: bool,
    /// IPv4 addresses of this host may be reached.
    pub allow_own: bool,
    /// The IPv4 addresses of this host.
    pub own4: HashSet<Ipv4Addr>,
    /// IPv4 addresses of this host that connections to servers come from: each client network has one of them. Empty:
    /// the one that routing chooses.
    pub source4: Vec<Ipv4Addr>,
    /// Traffic Class and Type of Service. [`TrafficClass::Copy`]: as the client has it, of its SYN, and of each of its
    /// datagrams and those that answer them. ECN is left to each side's TCP, and copied in datagrams.
    pub class: TrafficClass,
    /// What becomes of urgent data.
    pub urgent: Urgent,
    /// A connection without octets is probed after so long; `None`: never.
    pub keepalive: Option<Duration>,
    /// ICMPv6 errors that each thread sends.
    pub icmp: IcmpErrors,
    /// Other limits.
    pub limits: Limits,
}

/// What becomes of TCP's urgent data (RFC 3142 section 5, RFC 6093).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgent {
    /// The marked octet is sent as urgent on the other side.
    Carry,
    /// It stays in its place, without a mark.
    Inline,
    /// It is left out.
    Discard,
}

/// Bounds of what others can make a relay hold, over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections of clients.
    pub connections: usize,
    /// UDP sessions: pairs of a client's port and a server's port.
    pub sessions: usize,
    /// Of both, those of one client network.
    pub per_client: usize,
    /// Leading bits of an IPv6 address that name a client network.
    pub client_len: u8,
    /// How long a server has to take a connection.
    pub connect: Duration,
    /// How long a connection may be without octets.
    pub idle: Duration,
    /// Idle time once one side has ended its direction.
    pub half_closed: Duration,
    /// How long a UDP session may be without datagrams.
    pub udp_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 65_536,
            sessions: 65_536,
            per_client: 4_096,
            client_len: 64,
            connect: Duration::from_secs(30),
            // RFC 5382 REQ-5: established 2 hours 4 minutes, others 4 minutes.
            idle: Duration::from_secs(7_440),
            half_closed: Duration::from_secs(240),
            // RFC 4787 REQ-5.
            udp_idle: Duration::from_secs(300),
        }
    }
}
