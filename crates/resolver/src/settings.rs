//! Settings of a resolver.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hickory_proto::rr::Name;

/// What a resolver is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The servers; which is asked first is decided by how fast they answer.
    pub servers: Vec<Server>,
    /// Domains that have servers of their own; of several that a name is in, the longest counts.
    pub domains: Vec<Domain>,
    /// Certificates of the authorities of servers asked by TLS and HTTPS, in PEM; default: the system's.
    pub ca: Option<PathBuf>,
    /// How long one try waits for its answer.
    pub timeout: Duration,
    /// How many tries a question gets, over all servers.
    pub attempts: usize,
    /// How long a question may take altogether.
    pub deadline: Duration,
    /// How many octets of answers are kept.
    pub cache_octets: usize,
    /// Show servers by UDP the cookies that they have given (RFC 7873).
    pub cookies: bool,
    /// How long answers are given after they have expired, if servers fail (RFC 8767); zero: not at all.
    pub stale: Duration,
    /// How long servers may take before a stale answer is given.
    pub stale_after: Duration,
    /// How many different questions may be under way at once; more are refused. Clients and zones share them: one client
    /// network has at most a third, one zone two thirds, and all have less the fewer are free.
    pub in_flight: usize,
    /// Validate signatures (RFC 4035), from these anchors.
    pub validate: Option<TrustAnchors>,
}

impl Settings {
    /// Settings for these servers: 2 s for a try, 3 tries, 5 s altogether, 32 MiB of cache, 4096 questions under way, no
    /// stale answers, no validation.
    pub fn new(servers: Vec<Server>) -> Self {
        Self {
            servers,
            domains: Vec::new(),
            ca: None,
            timeout: Duration::from_secs(2),
            attempts: 3,
            deadline: Duration::from_secs(5),
            cache_octets: 32 << 20,
            cookies: true,
            stale: Duration::ZERO,
            stale_after: Duration::from_millis(1800),
            in_flight: 4096,
            validate: None,
        }
    }
}

/// Names with servers of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The names, each with all below it.
    pub names: Vec<Name>,
    /// The servers; which is asked first is decided by how fast they answer.
    pub servers: Vec<Server>,
    /// Validate their answers, if [`Settings::validate`] has those of others validated. Without it they count as unsigned
    /// (a negative trust anchor, RFC 7646).
    pub validate: bool,
}

/// An upstream server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Where it listens. An address of link-local scope carries its scope.
    pub address: SocketAddr,
    /// How it is asked.
    pub protocol: Protocol,
}

impl Server {
    /// A server asked by UDP.
    pub fn udp(address: SocketAddr) -> Self {
        Self { address, protocol: Protocol::Udp }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, protocol } = self;
        match protocol {
            Protocol::Udp => write!(f, "{address}"),
            Protocol::Tcp => write!(f, "tcp://{address}"),
            Protocol::Tls { name: None } => write!(f, "tls://{address}"),
            Protocol::Tls { name: Some(name) } => write!(f, "tls://{address}#{name}"),
            Protocol::Https { name: None, path } => write!(f, "https://{address}{path}"),
            Protocol::Https { name: Some(name), path } => {
                write!(f, "https://{address}{path}#{name}")
            }
        }
    }
}

/// How a server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// UDP; TCP for what is truncated (RFC 7766 section 5).
    Udp,
    /// TCP alone.
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls {
        /// The name in the server's certificate; default: its address.
        name: Option<String>,
    },
    /// DNS over HTTPS (RFC 8484), HTTP/2.
    Https {
        /// The name in the server's certificate and in the request; default: its address.
        name: Option<String>,
        /// The path, `/dns-query` as a rule.
        path: String,
    },
}

/// Where trust begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TrustAnchors {
    /// The root's keys as they were known when this program was built.
    BuiltIn,
    /// Keys (DNSKEY) or their digests (DS) from a file in zone format (RFC 1035 section 5).
    File(PathBuf),
}
