//! The DNS64 server (RFC 6147), as configured: `[dns64]` and its `[[dns64.policy]]`.

pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod read;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use upstream::{Upstream, UpstreamError, UpstreamProtocol};

/// `[dns64]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns64 {
    /// Where questions are taken, over UDP and TCP; not empty.
    pub listen: Vec<SocketAddr>,
    /// Whom questions are passed on to; not empty.
    pub upstream: Vec<Upstream>,
    /// CA certificates for upstream servers over TLS and HTTPS; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Threads; `None`: one for each processor.
    pub threads: Option<usize>,
    /// Prefixes of synthesised addresses, in the order in which they stand in answers; `None`: those of the
    /// translators.
    pub pool6: Option<Vec<Pool6>>,
    /// IPv4 networks that have prefixes of their own (RFC 6147 section 5.1.7), one pair for each prefix; the
    /// longest network that has an address counts.
    pub ranges: Vec<(Ipv4Net, Pool6)>,
    /// AAAA records that count as none (RFC 6147 section 5.1.4).
    pub exclude: Vec<Ipv6Net>,
    /// A records of which nothing is synthesised.
    pub exclude_a: Vec<Ipv4Net>,
    /// Names for which, and below which, nothing is synthesised.
    pub exempt: Vec<Name>,
    /// What is answered to PTR questions for synthesised addresses (RFC 6147 section 5.3.1).
    pub reverse: Reverse,
    /// The domain of the names of [`Reverse::Local`]; `None`: `nat64.invalid`.
    pub reverse_domain: Option<Name>,
    /// The names of the translator, for hosts that look for them (RFC 7050 section 3.1.1).
    pub nat64_names: Vec<Name>,
    /// 64:ff9b::/96 may stand for IPv4 addresses that are not global (against RFC 6052 section 3.1); `None`: as
    /// the translators have it.
    pub allow_private: Option<bool>,
    /// Who may ask; `None`: who is in a network of the host's, and the host itself.
    pub allow: Option<Vec<IpNet>>,
    /// Answers of upstream servers are validated (DNSSEC).
    pub validate: bool,
    /// The trust anchor; `None`: the root's keys, as built in.
    pub trust_anchor: Option<PathBuf>,
    /// Octets for answers that are remembered.
    pub cache: u64,
    /// Time that an upstream server has for one try.
    pub timeout: Duration,
    /// Time that a client waits at most.
    pub deadline: Duration,
    /// Tries of one question, over all upstream servers.
    pub attempts: u8,
    /// Answers over UDP to one client network in a second; `None`: no limit.
    pub rate: Option<u32>,
    /// How many of them at once.
    pub burst: u32,
    /// Octets of the longest answer over UDP.
    pub udp_size: u16,
    /// TCP connections at once.
    pub tcp_clients: u32,
    /// Time after which a TCP connection without a question is closed.
    pub tcp_idle: Duration,
    /// Leading bits of an IPv6 address that name a client network.
    pub client_len: u8,
    /// Leading bits of an IPv4 address that name one.
    pub client_len4: u8,
    /// What differs for some clients.
    pub policies: Vec<Dns64Policy>,
}

/// `[[dns64.policy]]`: what differs for some clients. Where a key is absent, what `[dns64]` says holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns64Policy {
    /// Networks of clients; the policy with the longest one that has a client is the client's.
    pub clients: Vec<IpNet>,
    /// Something is synthesised at all.
    pub enable: bool,
    /// As [`Dns64::pool6`].
    pub pool6: Option<Vec<Pool6>>,
    /// As [`Dns64::ranges`].
    pub ranges: Option<Vec<(Ipv4Net, Pool6)>>,
    /// As [`Dns64::exclude`].
    pub exclude: Option<Vec<Ipv6Net>>,
    /// As [`Dns64::exclude_a`].
    pub exclude_a: Option<Vec<Ipv4Net>>,
    /// As [`Dns64::exempt`].
    pub exempt: Option<Vec<Name>>,
}

/// What is answered to PTR questions for synthesised addresses (RFC 6147 section 5.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reverse {
    /// A CNAME to the name of the IPv4 address below in-addr.arpa, with what is found there.
    #[default]
    Cname,
    /// A name of the server's own, for each address.
    Local,
}
