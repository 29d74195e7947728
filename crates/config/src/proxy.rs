//! HTTP proxies, as configured: `[[proxy]]` and their `[[proxy.rule]]`.

mod backend;
pub(crate) mod check;
mod mode;
pub(crate) mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fordway_proxy::{Forwarded, Limits, LogFormat, LogTarget};
use fordway_resolver::Server;
use fordway_xlat::addr::Pool6;
use ipnet::IpNet;
use serde_json::json;

use crate::dns64::upstream;
use crate::keys::common::{CLIENT_LEN, CLIENT_LEN4, NAME, NET, POOL6, THREADS, file, listen};
use crate::keys::form::{
    BOOLEAN, Choice, Form, Given, Integer, Memory, Plain, Time, integer, list, octets, or, some,
    text, time,
};
use crate::keys::keys;
use crate::name::InterfaceName;
use crate::problem::{Problem, Problems, Value};
use crate::value;

pub use backend::{ProxyBackend, ProxyCheck, ProxyCheckKind};
pub use mode::{ProxyForward, ProxyMode, ProxyPassthrough, ProxyReverse, ProxyRoute, ProxyRule};

type Parsed<T> = Result<T, Problems>;

/// The port of a forward proxy unless another is written, and those of a site.
const PORT: u16 = 3128;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

const LISTEN: Plain<SocketAddr> = listen(|v| value::listen(v, PORT));
const LISTEN_SITE: Plain<SocketAddr> = listen(|v| value::listen(v, HTTP));
const LISTEN_TLS: Plain<SocketAddr> = listen(|v| value::listen(v, HTTPS));

const PROXY: &str = "write a name such as name = \"proxy\"";
const ADDRESSES: &str =
    "write addresses of this host such as listen = [\"2001:db8:1::1\", \"::1\"]";
const RESOLVERS: &str =
    "write servers such as resolver = [\"2001:db8::53\"], or leave it out for the system's";
const POOLS: &str = "write prefixes such as pref64 = [\"64:ff9b::/96\"]";
const FRONTS: &str = "write networks such as accept_proxy = [\"2001:db8:1::/64\"]";
const PROTOCOLS: &str = "write a list of protocols such as upgrade = [\"websocket\"]";

const RESOLVER: Plain<Server> = text(
    |v| value::parsed(v, "a server", RESOLVERS, upstream::parse),
    ("server", "[servers](#upstream-servers)", "ADDR"),
);
const TOKEN: Plain<String> = text(token, ("word", "words", "WORD"));
const PROTOCOL: Plain<String> =
    text(|v| Ok(token(v)?.to_ascii_lowercase()), ("protocol", "protocols", "NAME"));

const LOG: Plain<Option<LogTarget>> = Plain {
    read: |v| match v.get_ref().as_str() {
        Some("off") => Ok(None),
        Some("stdout") => Ok(Some(LogTarget::Stdout)),
        _ => Ok(Some(LogTarget::File(value::file(v, "/var/log/fordway/access.log")?))),
    },
    write: |log| match log {
        None => "off".into(),
        Some(LogTarget::Stdout) => "stdout".into(),
        Some(LogTarget::File(file)) => file.to_string_lossy().into_owned().into(),
    },
    named: ("`\"off\"`, `\"stdout\"`, absolute path", "", "FILE"),
    schema: || json!({"anyOf": [{"type": "string", "pattern": "^/"}, {"const": "off"}, {"const": "stdout"}]}),
};

keys! {
    /// `[[proxy]]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Proxy {
        /// Name of the proxy in logs, counters and `fordway status`
        name: InterfaceName = NAME, needed(InterfaceName::placeholder(), PROXY);
        /// For clients that know it, or in the place of a server
        mode: ProxyMode, flat();
        /// Certificate and those that vouch for it, in PEM, for clients that speak TLS. It is read again at each reload,
        /// and when its file or that of its key changes
        certificate: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/proxy.pem"))), or(None);
        /// Key of the certificate, in PEM
        key: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/fordway/proxy.key"))), or(None);
        /// Further certificates. A client gets the one that has the name that it asks for, else the first
        tls: Vec<ProxyCertificate>, tables("[[proxy.tls]]");
        /// Addresses to listen on, over TCP, with port 3128 unless another is written; in front of a site with port 80, with
        /// a certificate or with `passthrough` 443
        listen: Vec<SocketAddr> = some(LISTEN, ADDRESSES), needed(Vec::new(), ADDRESSES),
            read(|v| match (&mode, certificate.is_some() && key.is_some() || !tls.is_empty()) {
                (ProxyMode::Passthrough(_), _) => some(LISTEN_TLS, ADDRESSES).read(v),
                (ProxyMode::Forward(_), _) => some(LISTEN, ADDRESSES).read(v),
                (ProxyMode::Reverse(_), false) => some(LISTEN_SITE, ADDRESSES).read(v),
                (ProxyMode::Reverse(_), true) => some(LISTEN_TLS, ADDRESSES).read(v),
            });
        /// Networks of proxies in front of this one, which tell who the client is by the PROXY protocol, version 1 or 2.
        /// Their connections must begin so; from others a header is no request, and is refused
        accept_proxy: Vec<IpNet> = list(NET, FRONTS), or(Vec::new());
        /// Threads. `auto`: one for each processor
        threads: Option<usize> = THREADS, or(None);
        /// Servers that look names up, written as `upstream` of `[dns64]`. Without one, those of /etc/resolv.conf.
        /// /etc/hosts is read in either case first; both files are read at the start and at each reload
        resolver: Vec<Server> = list(RESOLVER, RESOLVERS), or(Vec::new());
        /// CA certificates for resolvers over TLS and HTTPS
        ca: Option<PathBuf> = Given(file(|v| value::file(v, "/etc/ssl/certs/ca-certificates.crt"))),
            or(None, "the system's");
        /// Translation prefixes of the network's NAT64, for a host without IPv4: IPv4 servers are reached through the
        /// first. Rules apply to the IPv4 address within an address of any of them
        pref64: Vec<Pool6> = list(POOL6, POOLS), or(Vec::new());
        /// Connection Attempt Delay (RFC 8305 sections 5 and 8)
        attempt_delay: Duration = time(10, 2_000), or(Duration::from_millis(250));
        /// Resolution Delay (RFC 8305 section 3)
        resolution_delay: Duration = time(0, 2_000), or(Duration::from_millis(50));
        /// Clients may speak HTTP/2: with prior knowledge, and by ALPN
        http2: bool = BOOLEAN, or(true);
        /// Name of the proxy in Via and Proxy-Status. `auto`: `fordway-` and a number that is drawn at the start. A
        /// request that bears the name already is a loop
        via: Option<String> = or("auto", TOKEN), or(None);
        /// Whether servers are told who the client is (Forwarded, RFC 7239; X-Forwarded-For, -Proto, -Host): in the place
        /// of what the client says itself, or behind it
        forwarded: Forwarded = FORWARDED, or(match mode {
            ProxyMode::Forward(_) | ProxyMode::Passthrough(_) => Forwarded::Off,
            ProxyMode::Reverse(_) => Forwarded::Replace,
        }, "`\"off\"`; of a site `\"replace\"`");
        /// Protocols to which Upgrade may lead
        upgrade: Vec<String> = list(PROTOCOL, PROTOCOLS), or(vec!["websocket".to_owned()]);
        /// What bounds it
        limits: Limits, flat();
        /// Access log. A file is opened again at each reload
        log: Option<LogTarget> = LOG, or(None);
        /// A line
        log_format: LogFormat = FORMAT, or(LogFormat::Combined);
    }
}

keys! {
    /// `[[proxy.tls]]`: one more certificate, for the names in it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProxyCertificate {
        /// Certificate and those that vouch for it, in PEM
        certificate: PathBuf = file(|v| value::file(v, "/etc/fordway/proxy.pem")),
            needed(PathBuf::new(), "write certificate = \"/etc/fordway/proxy.pem\"");
        /// Its key, in PEM
        key: PathBuf = file(|v| value::file(v, "/etc/fordway/proxy.key")),
            needed(PathBuf::new(), "write key = \"/etc/fordway/proxy.key\"");
    }
}

impl Proxy {
    /// Certificates and keys, if clients speak TLS.
    pub fn certificates(&self) -> impl Iterator<Item = (&PathBuf, &PathBuf)> {
        let first = self.certificate.as_ref().zip(self.key.as_ref());
        first.into_iter().chain(self.tls.iter().map(|it| (&it.certificate, &it.key)))
    }

    /// Whose requests are served; `None`: those of networks of this host, for a site everybody's.
    #[must_use]
    pub fn allow(&self) -> Option<&Vec<IpNet>> {
        match &self.mode {
            ProxyMode::Forward(forward) => forward.allow.as_ref(),
            ProxyMode::Reverse(reverse) => reverse.allow.as_ref(),
            ProxyMode::Passthrough(passthrough) => passthrough.allow.as_ref(),
        }
    }
}

const FORWARDED: Choice<Forwarded> = Choice(&[
    ("off", Forwarded::Off),
    ("replace", Forwarded::Replace),
    ("append", Forwarded::Append),
]);

/// Times of limits, in milliseconds.
const LIMIT: Time = time(100, DAY);
const DAY: u64 = 86_400_000;
const CONNECTIONS: Integer<usize> = integer(1..=1_000_000, "");

keys! {
    impl Limits {
        /// A header section
        "header" (header) = octets(1024..=1 << 20);
        /// A request-target
        "target" (target) = octets(256..=65_536);
        /// Field lines of a request; responses have 256 at most
        "fields" (fields) = integer(8..=256, "");
        /// Content of a request
        "body" (body) = or("unlimited", Memory(0..=1 << 50));
        /// For a header section, from its first octet, and for the TLS handshake
        "header_time" (header_time) = LIMIT;
        /// For looking a name up and connecting
        "connect_time" (connect_time) = LIMIT;
        /// Until a server begins to answer
        "response_time" (response_time) = LIMIT;
        /// In which content, or a tunnel, moves
        "idle_time" (idle_time) = LIMIT;
        /// That a client's connection waits for a request
        "keep_alive" (keep_alive) = LIMIT;
        /// Requests of one connection
        "requests" (requests) = integer(1..=1_000_000_000, "");
        /// Connections of clients
        "connections" (connections) = CONNECTIONS,
            then(|it| it.connections_per_client = it.connections_per_client.min(it.connections));
        /// Of these, those of one client network
        "connections_per_client" (connections_per_client) = CONNECTIONS;
        /// Leading bits of an IPv6 address that name a client network
        "client_len" (client_len.v6) = CLIENT_LEN;
        /// Leading bits of an IPv4 address that name one
        "client_len4" (client_len.v4) = CLIENT_LEN4;
        /// Requests at once on an HTTP/2 connection
        "streams" (streams) = integer(1..=10_000, "");
        /// Connections to servers, of all clients together, and three quarters of it of one client network; whoever needs one
        /// more gets 503
        "server_connections" (server_connections) = CONNECTIONS;
        /// Connections to servers that wait for a request
        "pool" (pool) = integer(0..=100_000, "");
        /// How long they wait
        "pool_time" (pool_time) = LIMIT;
        /// That requests and tunnels have when the proxy ends. Hosts are told of the end before; systemd is asked to wait
        /// as long, and any other service manager has to; a second SIGTERM cuts them
        "drain" (drain) = time(0, DAY);
    }
}

const FORMAT: Choice<LogFormat> = Choice(&[
    ("common", LogFormat::Common),
    ("combined", LogFormat::Combined),
    ("json", LogFormat::Json),
]);

/// A token of HTTP (RFC 9110 section 5.6.2).
fn token(v: &Value<'_>) -> Parsed<String> {
    let help = "write a word of letters, digits, '-', '_' and '.'";
    let text = value::string(v, "a word", help)?;
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    match (1..=64).contains(&text.len()) && text.bytes().all(good) {
        true => Ok(text.to_owned()),
        false => Err(Problem::new(v.span(), format!("\"{text}\" is no word of HTTP"), help).into()),
    }
}
