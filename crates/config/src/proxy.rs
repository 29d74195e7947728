//! HTTP proxies, as configured: `[[proxy]]` and their `[[proxy.rule]]`.

pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod read;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use ipnet::IpNet;

use crate::dns64::Upstream;
use crate::name::InterfaceName;

pub use server::{ProxyServer, ProxyServerError};

/// `[[proxy]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Its name.
    pub name: InterfaceName,
    /// Where it listens; not empty.
    pub listen: Vec<SocketAddr>,
    /// Threads; `None`: one for each processor.
    pub threads: Option<usize>,
    /// For clients, or for a site.
    pub mode: ProxyMode,
    /// Whose requests are served; `None`: those of networks of this host, for a site everybody's.
    pub allow: Option<Vec<IpNet>>,
    /// Servers that look names up; empty: the system's.
    pub resolver: Vec<Upstream>,
    /// CA certificates for resolvers over TLS and HTTPS; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// IPv4 servers are reached through the first of these.
    pub pref64: Vec<Pool6>,
    /// Connection Attempt Delay (RFC 8305 section 5).
    pub attempt_delay: Duration,
    /// Resolution Delay (RFC 8305 section 3).
    pub resolution_delay: Duration,
    /// Certificate and key of a proxy whose clients speak TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Clients may speak HTTP/2.
    pub http2: bool,
    /// The name in Via; `None`: one that is made.
    pub via: Option<String>,
    /// What servers are told about the client.
    pub forwarded: ProxyForwarded,
    /// Protocols for Upgrade, in lower case.
    pub upgrade: Vec<String>,
    /// What bounds it.
    pub limits: ProxyLimits,
    /// Where requests are written down.
    pub log: Option<ProxyLog>,
    /// What a line looks like.
    pub log_format: ProxyLogFormat,
}

/// What a proxy is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// `mode = "forward"`.
    Forward {
        /// Ports that CONNECT reaches.
        connect_ports: Vec<ProxyPorts>,
        /// Ports that other requests reach.
        ports: Vec<ProxyPorts>,
        /// `[[proxy.rule]]`, in order.
        rules: Vec<ProxyRule>,
        /// Whether destinations without a rule are allowed.
        default: bool,
    },
    /// `mode = "reverse"`.
    Reverse {
        /// The servers of the site; not empty.
        upstream: Vec<ProxyServer>,
        /// They take turns.
        balance: bool,
        /// The Host that they get; `None`: the client's.
        host: Option<String>,
        /// How long one that could not be reached is left alone.
        pause: Duration,
    },
}

/// A port, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyPorts(pub RangeInclusive<u16>);

impl fmt::Display for ProxyPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

/// `[[proxy.rule]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRule {
    /// Clients that it is for; `None`: all.
    pub clients: Option<Vec<IpNet>>,
    /// Destinations that it is about; empty: all.
    pub to: Vec<ProxyDestination>,
    /// Ports that it is about; `None`: all.
    pub ports: Option<Vec<ProxyPorts>>,
    /// Whether it allows.
    pub allow: bool,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProxyDestination {
    /// A name.
    Name(String),
    /// All names below one: `*.example.net`.
    Below(String),
    /// Addresses.
    Net(IpNet),
}

impl fmt::Display for ProxyDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyDestination::Name(name) => f.write_str(name),
            ProxyDestination::Below(name) => write!(f, "*.{name}"),
            ProxyDestination::Net(net) => write!(f, "{net}"),
        }
    }
}

/// What servers are told about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyForwarded {
    /// Nothing.
    Off,
    /// Its address, in the place of what it says itself.
    Replace,
    /// Its address, behind what it says itself.
    Append,
}

/// What bounds a proxy: octets, numbers, times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ProxyLimits {
    pub header: u32,
    pub target: u32,
    pub fields: u32,
    /// `None`: any length.
    pub body: Option<u64>,
    pub header_time: Duration,
    pub connect_time: Duration,
    pub response_time: Duration,
    pub idle_time: Duration,
    pub keep_alive: Duration,
    pub requests: u32,
    pub connections: u32,
    pub connections_per_client: u32,
    pub client_len: u8,
    pub client_len4: u8,
    pub streams: u32,
    pub server_connections: u32,
    pub pool: u32,
    pub pool_time: Duration,
    pub drain: Duration,
}

/// An access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyLog {
    /// `"stdout"`.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// What a line of it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProxyLogFormat {
    Common,
    Combined,
    Json,
}
