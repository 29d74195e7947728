//! Reading `[[proxy]]`.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::Spanned;

use super::{
    Proxy, ProxyDestination, ProxyForwarded, ProxyLimits, ProxyLog, ProxyLogFormat, ProxyMode,
    ProxyPorts, ProxyRule, ProxyServer, ProxyServerError,
};
use crate::dns64::read::{CLIENT_LEN, CLIENT_LEN4, inner, some};
use crate::dns64::{Upstream, UpstreamError};
use crate::name::InterfaceName;
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{Table, set, tables};
use crate::value;

type Parsed<T> = Result<T, Problems>;

/// The port of a forward proxy unless another is written, and those of a site.
const PORT: u16 = 3128;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// An entry as read, with the places that checks point at.
pub(crate) struct Draft {
    proxy: Option<Proxy>,
    pub(crate) name: Option<Spanned<InterfaceName>>,
    pub(crate) listen: Vec<Spanned<SocketAddr>>,
    pub(crate) allow: Vec<Spanned<IpNet>>,
    pub(crate) upstream: Vec<Spanned<ProxyServer>>,
    pub(crate) span: Range<usize>,
    /// Where only one of the two files of TLS is named.
    pub(crate) half_tls: Option<Range<usize>>,
}

impl Draft {
    /// The entry as far as it is complete.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    pub(crate) fn finish(self) -> Option<Proxy> {
        self.proxy
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Forward,
    Reverse,
}

const KINDS: [(&str, Kind); 2] = [("forward", Kind::Forward), ("reverse", Kind::Reverse)];
pub(crate) const FORWARDED: [(&str, ProxyForwarded); 3] = [
    ("off", ProxyForwarded::Off),
    ("replace", ProxyForwarded::Replace),
    ("append", ProxyForwarded::Append),
];
pub(crate) const FORMATS: [(&str, ProxyLogFormat); 3] = [
    ("common", ProxyLogFormat::Common),
    ("combined", ProxyLogFormat::Combined),
    ("json", ProxyLogFormat::Json),
];
pub(crate) const ACTIONS: [(&str, bool); 2] = [("allow", true), ("deny", false)];
pub(crate) const BALANCES: [(&str, bool); 2] = [("first", false), ("turns", true)];

pub(crate) fn proxy((table, span): Table<'_, '_>, sink: &mut crate::diagnostic::Sink) -> Draft {
    let mut section = Section::new("[[proxy]]", table, span);
    let help = "write a name such as name = \"proxy\"";
    let name = section.require(sink, "name", help, value::translator_name);
    let mut kind = Kind::Forward;
    set(&mut kind, section.read(sink, "mode", |v| value::choice(v, &KINDS)));
    let certificate =
        section.read(sink, "certificate", |v| value::file(v, "/etc/fordway/proxy.pem"));
    let key = section.read(sink, "key", |v| value::file(v, "/etc/fordway/proxy.key"));
    let half_tls = match (&certificate, &key) {
        (Some(one), None) | (None, Some(one)) => Some(one.span()),
        _ => None,
    };
    let tls: Option<(PathBuf, PathBuf)> =
        certificate.zip(key).map(|(one, other)| (one.into_inner(), other.into_inner()));
    let port = match (kind, &tls) {
        (Kind::Forward, _) => PORT,
        (Kind::Reverse, None) => HTTP,
        (Kind::Reverse, Some(_)) => HTTPS,
    };
    let help = "write addresses of this host such as listen = [\"2001:db8:1::1\", \"::1\"]";
    let listen =
        section.require(sink, "listen", help, |v| some(v, help, |v| value::listen(v, port)));
    let threads = |v| value::auto_or(v, |v| Ok(value::integer(v, 1..=64, "")? as usize));
    let threads = section.read(sink, "threads", threads).and_then(Spanned::into_inner);
    let allow = section.read(sink, "allow", |v| allow(v, kind));
    let (mode, upstream) = mode(kind, &mut section, sink);
    let help =
        "write servers such as resolver = [\"2001:db8::53\"], or leave it out for the system's";
    let resolver = section.read(sink, "resolver", |v| {
        value::list(v, help, |v| value::parsed::<Upstream, UpstreamError>(v, "a server", help))
    });
    let ca = section.read(sink, "ca", |v| value::file(v, "/etc/ssl/certs/ca-certificates.crt"));
    let help = "write prefixes such as pref64 = [\"64:ff9b::/96\"]";
    let pref64 = section.read(sink, "pref64", |v| value::list(v, help, value::pool6));
    // RFC 8305 section 8 has the limits of the first.
    let (mut attempt_delay, mut resolution_delay) =
        (Duration::from_millis(250), Duration::from_millis(50));
    let range = Duration::from_millis(10)..=Duration::from_secs(2);
    set(&mut attempt_delay, section.read(sink, "attempt_delay", |v| value::duration(v, range)));
    let range = Duration::ZERO..=Duration::from_secs(2);
    set(
        &mut resolution_delay,
        section.read(sink, "resolution_delay", |v| value::duration(v, range)),
    );
    let mut http2 = true;
    set(&mut http2, section.read(sink, "http2", value::boolean));
    let via = section.read(sink, "via", |v| value::auto_or(v, token)).and_then(Spanned::into_inner);
    let mut forwarded = match kind {
        Kind::Forward => ProxyForwarded::Off,
        Kind::Reverse => ProxyForwarded::Replace,
    };
    set(&mut forwarded, section.read(sink, "forwarded", |v| value::choice(v, &FORWARDED)));
    let help = "write a list of protocols such as upgrade = [\"websocket\"]";
    let upgrade = section.read(sink, "upgrade", |v| value::list(v, help, token));
    let limits = limits(&mut section, sink);
    let log = section.read(sink, "log", log).and_then(Spanned::into_inner);
    let mut log_format = ProxyLogFormat::Combined;
    set(&mut log_format, section.read(sink, "log_format", |v| value::choice(v, &FORMATS)));
    let span = section.span();
    section.finish(sink);
    let allowed = allow.and_then(Spanned::into_inner);
    let proxy = match (&name, &listen, mode) {
        (Some(name), Some(listen), Some(mode)) => Some(Proxy {
            name: name.get_ref().clone(),
            listen: inner(listen.get_ref()),
            threads,
            mode,
            allow: allowed.as_ref().map(|it| inner(it)),
            resolver: resolver.map(|it| inner(it.get_ref())).unwrap_or_default(),
            ca: ca.map(Spanned::into_inner),
            pref64: pref64.map(|it| inner(it.get_ref())).unwrap_or_default(),
            attempt_delay,
            resolution_delay,
            tls,
            http2,
            via,
            forwarded,
            upgrade: upgrade.map_or_else(
                || vec!["websocket".to_owned()],
                |it| it.get_ref().iter().map(|it| it.get_ref().to_ascii_lowercase()).collect(),
            ),
            limits,
            log,
            log_format,
        }),
        _ => None,
    };
    Draft {
        proxy,
        name,
        listen: listen.map(Spanned::into_inner).unwrap_or_default(),
        allow: allowed.unwrap_or_default(),
        upstream,
        span,
        half_tls,
    }
}

/// The keys of one mode; those of the other one are refused.
fn mode(
    kind: Kind,
    section: &mut Section<'_, '_>,
    sink: &mut crate::diagnostic::Sink,
) -> (Option<ProxyMode>, Vec<Spanned<ProxyServer>>) {
    match kind {
        Kind::Forward => {
            for key in ["upstream", "balance", "host", "pause"] {
                section.refuse(
                    sink,
                    key,
                    "this is a key of mode = \"reverse\"",
                    "leave it out, or write the mode",
                );
            }
            let connect_ports = section.read(sink, "connect_ports", ports);
            let ports = section.read(sink, "ports", ports);
            let mut default = true;
            set(&mut default, section.read(sink, "default", |v| value::choice(v, &ACTIONS)));
            let rules = section.read(sink, "rule", |v| tables(v, "[[proxy.rule]]"));
            let rules = rules.map(Spanned::into_inner).unwrap_or_default();
            let rules: Vec<Option<ProxyRule>> =
                rules.into_iter().map(|it| rule(it, sink)).collect();
            let rules: Option<Vec<ProxyRule>> = rules.into_iter().collect();
            let usual =
                || vec![ProxyPorts(80..=80), ProxyPorts(443..=443), ProxyPorts(1024..=u16::MAX)];
            let mode = rules.map(|rules| ProxyMode::Forward {
                connect_ports: connect_ports
                    .map_or_else(|| vec![ProxyPorts(443..=443)], Spanned::into_inner),
                ports: ports.map_or_else(usual, Spanned::into_inner),
                rules,
                default,
            });
            (mode, Vec::new())
        }
        Kind::Reverse => {
            for key in ["connect_ports", "ports", "default", "rule"] {
                section.refuse(
                    sink,
                    key,
                    "this is a key of mode = \"forward\"",
                    "leave it out: `upstream` says where requests go",
                );
            }
            let help = "write the servers of the site such as upstream = [\"192.0.2.10:80\"]";
            let upstream = section.require(sink, "upstream", help, |v| {
                some(v, help, |v| {
                    value::parsed::<ProxyServer, ProxyServerError>(v, "a server", help)
                })
            });
            let (mut balance, mut pause) = (false, Duration::from_secs(10));
            set(&mut balance, section.read(sink, "balance", |v| value::choice(v, &BALANCES)));
            let host = section.read(sink, "host", host).and_then(Spanned::into_inner);
            let range = Duration::from_millis(100)..=Duration::from_secs(3600);
            set(&mut pause, section.read(sink, "pause", |v| value::duration(v, range)));
            let upstream = upstream.map(Spanned::into_inner);
            let mode = upstream.as_ref().map(|upstream| ProxyMode::Reverse {
                upstream: inner(upstream),
                balance,
                host,
                pause,
            });
            (mode, upstream.unwrap_or_default())
        }
    }
}

fn rule((table, span): Table<'_, '_>, sink: &mut crate::diagnostic::Sink) -> Option<ProxyRule> {
    let mut section = Section::new("[[proxy.rule]]", table, span);
    let help = "write action = \"allow\" or action = \"deny\"";
    let action = section.require(sink, "action", help, |v| value::choice(v, &ACTIONS));
    let help = "write networks of clients such as client = [\"2001:db8:5::/48\"]";
    let clients = section.read(sink, "client", |v| some(v, help, value::net));
    let to = section.read(sink, "to", |v| some(v, TO_HELP, destination));
    let ports = section.read(sink, "ports", ports);
    section.finish(sink);
    Some(ProxyRule {
        clients: clients.map(|it| inner(it.get_ref())),
        to: to.map(|it| inner(it.get_ref())).unwrap_or_default(),
        ports: ports.map(Spanned::into_inner),
        allow: action?.into_inner(),
    })
}

const TO_HELP: &str = "write names, names with *. in front, and networks, such as to = [\"*.example.net\", \
                       \"192.0.2.0/24\"]";

fn destination(v: &Value<'_>) -> Parsed<ProxyDestination> {
    let text = value::string(v, "a name or a network", TO_HELP)?;
    let looks_like_net =
        text.contains(['/', ':']) || text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'.'));
    if looks_like_net {
        return value::net(v).map(ProxyDestination::Net);
    }
    let (name, below) = match text.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let name = value::server_name(name).ok_or_else(|| {
        Problem::new(v.span(), format!("\"{text}\" is neither a name nor a network"), TO_HELP)
    })?;
    Ok(if below { ProxyDestination::Below(name) } else { ProxyDestination::Name(name) })
}

/// Ports: numbers, and ranges such as `"1024-65535"`.
fn ports(v: &Value<'_>) -> Parsed<Vec<ProxyPorts>> {
    let help = "write a list of ports such as [80, 443, \"1024-65535\"]";
    let one = |v: &Value<'_>| {
        if v.get_ref().is_integer() {
            let port = value::integer(v, 1..=65_535, "")? as u16;
            return Ok(ProxyPorts(port..=port));
        }
        let text = value::string(v, "a port", help)?;
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first @ 1u16..), Ok(last)) if first <= last => Ok(ProxyPorts(first..=last)),
            _ => {
                Err(Problem::new(v.span(), format!("\"{text}\" is no port and no range"), help)
                    .into())
            }
        }
    };
    Ok(inner(&value::list(v, help, one)?))
}

/// `local`, `all`, or networks.
fn allow(v: &Value<'_>, kind: Kind) -> Parsed<Option<Vec<Spanned<IpNet>>>> {
    let (word, help) = match kind {
        Kind::Forward => {
            ("local", "write \"local\", or a list of networks such as [\"2001:db8:1::/64\"]")
        }
        Kind::Reverse => {
            ("all", "write \"all\", or a list of networks such as [\"2001:db8:1::/64\"]")
        }
    };
    match v.get_ref().as_str() {
        Some(text) if text == word => Ok(None),
        _ => value::list(v, help, value::net).map(Some),
    }
}

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

/// `keep`, or a Host.
fn host(v: &Value<'_>) -> Parsed<Option<String>> {
    let help =
        "write \"keep\" for what the client asked for, or a host such as \"www.example.net\"";
    let text = value::string(v, "a host", help)?;
    if text == "keep" {
        return Ok(None);
    }
    let bracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let good = text.parse::<ProxyServer>().is_ok()
        || bracketed.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
    match good {
        true => Ok(Some(text.to_owned())),
        false => Err(Problem::new(v.span(), format!("\"{text}\" is no host"), help).into()),
    }
}

/// `off`, `stdout`, or a file.
fn log(v: &Value<'_>) -> Parsed<Option<ProxyLog>> {
    match v.get_ref().as_str() {
        Some("off") => Ok(None),
        Some("stdout") => Ok(Some(ProxyLog::Stdout)),
        _ => Ok(Some(ProxyLog::File(value::file(v, "/var/log/fordway/access.log")?))),
    }
}

fn limits(section: &mut Section<'_, '_>, sink: &mut crate::diagnostic::Sink) -> ProxyLimits {
    let mut limits = ProxyLimits {
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
        client_len: CLIENT_LEN,
        client_len4: CLIENT_LEN4,
        streams: 100,
        server_connections: 8192,
        pool: 512,
        pool_time: Duration::from_secs(15),
        drain: Duration::from_secs(5),
    };
    let sizes: [(&'static str, &mut u32, RangeInclusive<i64>); 2] = [
        ("header", &mut limits.header, 1024..=1 << 20),
        ("target", &mut limits.target, 256..=65_536),
    ];
    for (key, place, range) in sizes {
        set(place, section.read(sink, key, |v| value::octets(v, range)));
    }
    let body = |v| match Value::get_ref(v).as_str() {
        Some("unlimited") => Ok(None),
        _ => value::memory(v, 0..=1 << 50).map(Some),
    };
    set(&mut limits.body, section.read(sink, "body", body));
    let times: [(&'static str, &mut Duration, u64); 7] = [
        ("header_time", &mut limits.header_time, 100),
        ("connect_time", &mut limits.connect_time, 100),
        ("response_time", &mut limits.response_time, 100),
        ("idle_time", &mut limits.idle_time, 100),
        ("keep_alive", &mut limits.keep_alive, 100),
        ("pool_time", &mut limits.pool_time, 100),
        ("drain", &mut limits.drain, 0),
    ];
    for (key, place, least) in times {
        let range = Duration::from_millis(least)..=Duration::from_secs(86_400);
        set(place, section.read(sink, key, |v| value::duration(v, range)));
    }
    let numbers: [(&'static str, &mut u32, RangeInclusive<i64>); 7] = [
        ("fields", &mut limits.fields, 8..=256),
        ("requests", &mut limits.requests, 1..=1_000_000_000),
        ("connections", &mut limits.connections, 1..=1_000_000),
        ("connections_per_client", &mut limits.connections_per_client, 1..=1_000_000),
        ("streams", &mut limits.streams, 1..=10_000),
        ("server_connections", &mut limits.server_connections, 1..=1_000_000),
        ("pool", &mut limits.pool, 0..=100_000),
    ];
    for (key, place, range) in numbers {
        // All ranges lie within the type.
        let number = section.read(sink, key, |v| Ok(value::integer(v, range, "")? as u32));
        set(place, number);
    }
    set(&mut limits.client_len, section.read(sink, "client_len", value::client_len));
    set(&mut limits.client_len4, section.read(sink, "client_len4", value::client_len4));
    if !section.has("connections_per_client") {
        limits.connections_per_client = limits.connections_per_client.min(limits.connections);
    }
    limits
}
