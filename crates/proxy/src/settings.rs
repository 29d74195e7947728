//! Settings.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use fordway_certificates::Files;
use fordway_xlat::addr::Pool6;

use super::authority::Authority;
use super::rules::{Destination, Ports, Rules};
use fordway_resolver as upstream;
use fordway_serve::{Acl, ClientLen};

/// Settings of a proxy; [`Server::replace`](super::Server::replace) applies others while it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Its name, for people.
    pub name: String,
    /// Where to listen. An address need not be there yet; `[::]` means IPv6 only. Needs a new server when it changes.
    pub listen: Vec<SocketAddr>,
    /// Threads, each with sockets and connections of its own. Needs a new server when it changes.
    pub threads: NonZeroUsize,
    /// For clients that know it, or in the place of a server.
    pub mode: Mode,
    /// Clients whose requests are served.
    pub allow: Acl,
    /// The resolver of names; `None`: the servers of /etc/resolv.conf. /etc/hosts comes first.
    pub resolver: Option<upstream::Settings>,
    /// IPv4 addresses are reached through the first of these; all are looked through. For a host behind NAT64.
    pub pref64: Vec<Pool6>,
    /// Every prefix that leads to IPv4 from here, `pref64` and those of translators on this host among them: an address
    /// in one stands for the IPv4 address in it.
    pub translated: Vec<Pool6>,
    /// How connections to servers are begun.
    pub eyeballs: Eyeballs,
    /// Certificates for clients, who speak TLS then. The first is for those who ask for no name, or for one that none has.
    pub tls: Vec<Files>,
    /// Proxies in front of this one, which tell the client's address by the PROXY protocol; they must.
    pub accept_proxy: Acl,
    /// Clients may speak HTTP/2.
    pub http2: bool,
    /// The proxy's name in Via and Proxy-Status; `None`: `fordway-` and a number.
    pub via: Option<String>,
    /// Whether servers get the client's address.
    pub forwarded: Forwarded,
    /// Protocols that a connection may go over to by Upgrade, in lower case.
    pub upgrade: Vec<String>,
    /// What bounds it.
    pub limits: Limits,
    /// The access log.
    pub log: Option<Log>,
}

/// Forward, reverse or passthrough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// For clients: to whatever server they ask for.
    Forward(Forward),
    /// For a site: to its servers.
    Reverse(Reverse),
    /// For sites whose servers speak TLS with clients themselves.
    Passthrough(Passthrough),
}

impl Mode {
    /// How servers are chosen and asked.
    pub(super) fn backend(&self) -> Option<&Backend> {
        match self {
            Mode::Forward(_) => None,
            Mode::Reverse(reverse) => Some(&reverse.backend),
            Mode::Passthrough(passthrough) => Some(&passthrough.backend),
        }
    }
}

/// What clients may ask of a forward proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Ports that CONNECT reaches.
    pub connect_ports: Ports,
    /// Ports that other requests reach.
    pub ports: Ports,
    /// Destinations.
    pub rules: Rules,
}

/// The servers of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverse {
    /// The first that works serves; with [`Backend::balance`] all take turns. Not empty.
    pub upstream: Vec<Authority>,
    /// What servers get as Host; `None`: what the client sent.
    pub host: Option<String>,
    /// How they are chosen and asked.
    pub backend: Backend,
}

/// Sites by the names that TLS clients ask for (Server Name Indication, RFC 6066 section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passthrough {
    /// The servers of each site.
    pub routes: Vec<Route>,
    /// How they are chosen and asked.
    pub backend: Backend,
}

/// One site behind a [`Passthrough`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its names: [`Destination::Name`], or [`Destination::Below`] for all below a name. The longest that fits decides.
    pub names: Vec<Destination>,
    /// Its servers; not empty.
    pub upstream: Vec<Authority>,
}

/// How the servers of a site are chosen and asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Requests go to all servers in turn.
    pub balance: bool,
    /// How long a server that could not be reached is not tried, while there is another.
    pub pause: Duration,
    /// What servers are told of the client in front of everything else.
    pub send_proxy: SendProxy,
    /// Checks of servers besides requests.
    pub check: Option<Check>,
}

/// The PROXY protocol towards servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendProxy {
    /// None.
    #[default]
    Off,
    /// Version 1, a line of text.
    V1,
    /// Version 2, octets.
    V2,
}

/// An active check of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What has to succeed.
    pub kind: CheckKind,
    /// Time between two checks of a server.
    pub interval: Duration,
    /// Time that one may take.
    pub timeout: Duration,
    /// So many in a row make a server usable again.
    pub rise: u32,
    /// So many failures in a row make it unusable.
    pub fall: u32,
}

/// What a check has to achieve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// A connection.
    Tcp,
    /// A TLS handshake, whatever the certificate; with this name, else the server's.
    Tls {
        /// Name to ask for.
        name: Option<String>,
    },
    /// A response to GET.
    Http {
        /// Path, with a query or without.
        path: String,
        /// Host; by default that of requests, else the server's.
        host: Option<String>,
        /// Statuses that are good.
        status: RangeInclusive<u16>,
    },
}

/// RFC 8305.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eyeballs {
    /// Connection Attempt Delay (section 5).
    pub attempt: Duration,
    /// Resolution Delay (section 3).
    pub resolution: Duration,
}

impl Default for Eyeballs {
    fn default() -> Eyeballs {
        Eyeballs { attempt: Duration::from_millis(250), resolution: Duration::from_millis(50) }
    }
}

/// What servers are told about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forwarded {
    /// Nothing; what the client sends about itself passes.
    #[default]
    Off,
    /// Its address, and nothing that it sends about itself.
    Replace,
    /// Its address, behind what it sends: for proxies behind others.
    Append,
}

/// What bounds clients and servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Octets of a header section, of requests and responses.
    pub header: usize,
    /// Octets of a request-target.
    pub target: usize,
    /// Field lines of a header section.
    pub fields: usize,
    /// Octets of a request's content; `None`: any number.
    pub body: Option<u64>,
    /// Time for a request's header section, from its first octet; and for a TLS handshake.
    pub header_time: Duration,
    /// Time for looking a name up and connecting.
    pub connect_time: Duration,
    /// Time in which a server begins to answer.
    pub response_time: Duration,
    /// Time in which something comes or goes, of content and in tunnels.
    pub idle_time: Duration,
    /// Time that a client's connection may wait for its next request.
    pub keep_alive: Duration,
    /// Requests of one connection.
    pub requests: u64,
    /// Connections of clients.
    pub connections: usize,
    /// Of these, those of one client network.
    pub connections_per_client: usize,
    /// Which clients are of one network.
    pub client_len: ClientLen,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// Connections to servers, of all threads together.
    pub server_connections: usize,
    /// Connections to servers that wait for their next request, of all threads together.
    pub pool: usize,
    /// How long they wait.
    pub pool_time: Duration,
    /// How long requests and tunnels may go on when the proxy ends.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header: 32 << 10,
            target: 8 << 10,
            fields: 100,
            body: Some(1 << 30),
            header_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(10),
            response_time: Duration::from_secs(60),
            idle_time: Duration::from_secs(60),
            keep_alive: Duration::from_secs(60),
            requests: 100_000,
            connections: 4096,
            connections_per_client: 512,
            client_len: ClientLen::default(),
            streams: 100,
            server_connections: 8192,
            pool: 512,
            pool_time: Duration::from_secs(15),
            drain: Duration::from_secs(5),
        }
    }
}

/// An access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Where.
    pub target: LogTarget,
    /// How.
    pub format: LogFormat,
}

/// Where an access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, which is opened again with each reload.
    File(PathBuf),
}

/// What a line looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// The Common Log Format.
    Common,
    /// With Referer and User-Agent.
    #[default]
    Combined,
    /// An object of JSON, with times and servers.
    Json,
}
