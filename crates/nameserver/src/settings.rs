//! Settings.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use fordway_certificates::Files;
use fordway_dns64::Policies;

use fordway_resolver as upstream;
use fordway_serve::{Acl, ClientLen};

/// Settings of a server; [`Server::replace`](super::Server::replace) applies others while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen, by UDP and TCP. An address need not be there yet. `[::]` means IPv6 only: with `0.0.0.0`
    /// beside it both are served. Needs a new server when it changes.
    pub listen: Vec<SocketAddr>,
    /// Where to listen for DNS over TLS (RFC 7858). Needs a new server when it changes, as does the next.
    pub listen_tls: Vec<SocketAddr>,
    /// Where to listen for DNS over HTTPS (RFC 8484), path `/dns-query`.
    pub listen_https: Vec<SocketAddr>,
    /// The certificate for both, read again when its files change.
    pub tls: Option<Files>,
    /// Threads, each with sockets of its own. Needs a new server when it changes.
    pub threads: NonZeroUsize,
    /// Whom to ask, and how. As long as this stays the same, a reload keeps cached upstream data.
    pub upstream: upstream::Settings,
    /// What is synthesised, and for whom.
    pub policies: Policies,
    /// Clients whose queries are answered.
    pub allow: Acl,
    /// Answers by UDP to one client network ([`Limits::client_len`]); `None` for as many as it asks for. The host's own
    /// loopback addresses are not limited.
    pub rate: Option<Rate>,
    /// Server cookies (RFC 7873).
    pub cookies: Cookies,
    /// Octets of memory for ready answers, which all threads share; at least 1 MiB.
    pub cache_octets: usize,
    /// Make answers anew that are asked for in the last tenth of their life, if they were before.
    pub prefetch: bool,
    /// Longest answer by UDP, in octets, whatever the client could take (RFC 6891 section 6.2.5).
    pub udp_size: u16,
    /// Other limits.
    pub limits: Limits,
}

/// Whether there are server cookies, and with which secret they are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cookies {
    /// There are none.
    Off,
    /// A secret drawn at random.
    Drawn,
    /// Secrets of 32 hexadecimal digits, a line each: the first makes cookies, all check them. Read at each start and
    /// reload.
    File(PathBuf),
}

/// How many answers a client network gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Answers per second in the long run.
    pub per_second: NonZeroU32,
    /// Answers at once after a pause.
    pub burst: NonZeroU32,
}

/// Bounds of what clients can make a server hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Queries that wait for an upstream server. Clients and zones share the places: one client network gets at most a
    /// third of them, one zone two thirds, and all get less the fewer are free. What finds no place gets SERVFAIL at once.
    pub queries: usize,
    /// TCP connections.
    pub connections: usize,
    /// Of these, those of one client network.
    pub connections_per_client: usize,
    /// How long a connection may be silent between queries, and how long a client may take for the octets of one
    /// message, in either direction (RFC 7766 section 6.2.3).
    pub idle: Duration,
    /// Which clients are of one network.
    pub client_len: ClientLen,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            queries: 10_000,
            connections: 256,
            connections_per_client: 64,
            idle: Duration::from_secs(10),
            client_len: ClientLen::default(),
        }
    }
}
