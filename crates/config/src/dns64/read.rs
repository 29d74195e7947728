//! Reading `[dns64]`.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::upstream::UpstreamError;
use super::{Dns64, Dns64Policy, Reverse, Upstream};
use crate::diagnostic::{Diagnostic, Sink};
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::{Table, set, tables};
use crate::value;

type Parsed<T> = Result<T, Problems>;
type Read<T> = Option<Spanned<Vec<Spanned<T>>>>;

/// The port of DNS.
const PORT: u16 = 53;

/// RFC 6147 section 5.1.4: IPv4-mapped addresses are nobody's.
pub(crate) const MAPPED: Ipv6Net =
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);

/// The section as read, with the places that checks point at.
pub(crate) struct Draft {
    dns64: Option<Dns64>,
    pub(crate) span: Range<usize>,
    pub(crate) listen: Vec<Spanned<SocketAddr>>,
    pub(crate) upstream: Vec<Spanned<Upstream>>,
    pub(crate) pool6: Vec<Spanned<Pool6>>,
    /// There is a `pool6`, whether it could be read or not.
    pub(crate) pool6_written: bool,
    pub(crate) ranges: Vec<Spanned<(Ipv4Net, Pool6)>>,
    pub(crate) reverse_domain: Option<Range<usize>>,
    pub(crate) allow: Vec<Spanned<IpNet>>,
    pub(crate) ca: Option<Range<usize>>,
    pub(crate) trust_anchor: Option<Range<usize>>,
    pub(crate) burst: Option<Range<usize>>,
    pub(crate) deadline: Option<Range<usize>>,
    pub(crate) policies: Vec<PolicyDraft>,
}

/// A `[[dns64.policy]]` as read.
pub(crate) struct PolicyDraft {
    policy: Option<Dns64Policy>,
    pub(crate) clients: Vec<Spanned<IpNet>>,
    pub(crate) pool6: Vec<Spanned<Pool6>>,
    pub(crate) ranges: Vec<Spanned<(Ipv4Net, Pool6)>>,
    /// Keys that mean nothing where nothing is synthesised.
    pub(crate) of_synthesis: Vec<(&'static str, Range<usize>)>,
    pub(crate) span: Range<usize>,
}

impl Draft {
    /// The section as far as it is complete.
    pub(crate) fn dns64(&self) -> Option<&Dns64> {
        self.dns64.as_ref()
    }

    pub(crate) fn finish(self) -> Option<Dns64> {
        self.dns64
    }
}

impl PolicyDraft {
    /// Whether something is synthesised for these clients.
    pub(crate) fn enable(&self) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.enable)
    }
}

pub(crate) fn dns64((table, span): Table<'_, '_>, sink: &mut Sink) -> Draft {
    let mut section = Section::new("[dns64]", table, span);
    let help = "write addresses of this host such as listen = [\"2001:db8:1::1\", \"::1\"]";
    let listen =
        section.require(sink, "listen", help, |v| some(v, help, |v| value::listen(v, PORT)));
    let help =
        "write servers such as upstream = [\"192.0.2.53\", \"tls://2001:db8::53#dns.example\"]";
    let upstream = section.require(sink, "upstream", help, |v| {
        some(v, help, |v| value::parsed::<Upstream, UpstreamError>(v, "a server", help))
    });
    let example = "/etc/ssl/certs/ca-certificates.crt";
    let ca = section.read(sink, "ca", |v| value::file(v, example));
    let threads = section.read(sink, "threads", threads);
    let synthesis = Synthesis::read(&mut section, sink);
    let mut reverse = Reverse::default();
    set(&mut reverse, section.read(sink, "reverse", |v| value::choice(v, &REVERSES)));
    let reverse_domain = section.read(sink, "reverse_domain", value::dns_name);
    let names = "write a list of names such as [\"nat64.example.net\"]";
    let nat64_names = section.read(sink, "nat64_names", |v| value::list(v, names, value::dns_name));
    let allow_private = section
        .read(sink, "allow_private", |v| value::auto_or(v, value::boolean))
        .and_then(Spanned::into_inner);
    let allow = section.read(sink, "allow", allow);
    let mut validate = false;
    set(&mut validate, section.read(sink, "validate", value::boolean));
    let example = "/usr/share/dns/root.key";
    let trust_anchor = section.read(sink, "trust_anchor", |v| value::file(v, example));
    let spans = [ca.as_ref().map(Spanned::span), trust_anchor.as_ref().map(Spanned::span)];
    let reverse_domain_at = reverse_domain.as_ref().map(Spanned::span);
    let limits = Limits::read(&mut section, sink);
    let policies = section.read(sink, "policy", |v| tables(v, "[[dns64.policy]]"));
    let policies = policies.map(Spanned::into_inner).unwrap_or_default();
    let policies: Vec<PolicyDraft> = policies.into_iter().map(|it| policy(it, sink)).collect();
    let (span, pool6_written) = (section.span(), section.has("pool6"));
    section.finish(sink);
    let read_policies: Option<Vec<_>> = policies.iter().map(|it| it.policy.clone()).collect();
    let dns64 = match (&listen, &upstream, read_policies) {
        (Some(listen), Some(upstream), Some(policies)) => Some(Dns64 {
            listen: inner(listen.get_ref()),
            upstream: inner(upstream.get_ref()),
            ca: ca.map(Spanned::into_inner),
            threads: threads.and_then(Spanned::into_inner),
            pool6: synthesis.pool6.as_ref().map(|it| inner(it.get_ref())),
            ranges: synthesis.ranges.as_ref().map(|it| inner(it.get_ref())).unwrap_or_default(),
            exclude: synthesis.exclude.map_or(vec![MAPPED], |it| inner(it.get_ref())),
            exclude_a: synthesis.exclude_a.map(|it| inner(it.get_ref())).unwrap_or_default(),
            exempt: synthesis.exempt.map(|it| inner(it.get_ref())).unwrap_or_default(),
            reverse,
            reverse_domain: reverse_domain.map(Spanned::into_inner),
            nat64_names: nat64_names.map(|it| inner(it.get_ref())).unwrap_or_default(),
            allow_private,
            allow: allow.as_ref().and_then(|it| it.get_ref().as_ref()).map(|it| inner(it)),
            validate,
            trust_anchor: trust_anchor.map(Spanned::into_inner),
            cache: limits.cache,
            timeout: limits.timeout,
            deadline: limits.deadline,
            attempts: limits.attempts,
            rate: limits.rate,
            burst: limits.burst,
            udp_size: limits.udp_size,
            tcp_clients: limits.tcp_clients,
            tcp_idle: limits.tcp_idle,
            client_len: limits.client_len,
            client_len4: limits.client_len4,
            policies,
        }),
        _ => None,
    };
    let [ca, trust_anchor] = spans;
    Draft {
        dns64,
        span,
        listen: listen.map(Spanned::into_inner).unwrap_or_default(),
        upstream: upstream.map(Spanned::into_inner).unwrap_or_default(),
        pool6: synthesis.pool6.map(Spanned::into_inner).unwrap_or_default(),
        pool6_written,
        ranges: synthesis.ranges.map(Spanned::into_inner).unwrap_or_default(),
        reverse_domain: reverse_domain_at,
        allow: allow.and_then(Spanned::into_inner).unwrap_or_default(),
        ca,
        trust_anchor,
        burst: limits.burst_at,
        deadline: limits.deadline_at,
        policies,
    }
}

/// The keys that `[dns64]` and its policies share.
struct Synthesis {
    pool6: Read<Pool6>,
    ranges: Read<(Ipv4Net, Pool6)>,
    exclude: Read<Ipv6Net>,
    exclude_a: Read<Ipv4Net>,
    exempt: Read<Name>,
}

impl Synthesis {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> Synthesis {
        let pool6 = "write prefixes such as pool6 = [\"64:ff9b::/96\"], or leave it out for those of \
                     the translators";
        let exclude = "write a list of IPv6 prefixes such as [\"::ffff:0:0/96\"]";
        let exclude_a = "write a list of IPv4 networks such as [\"198.51.100.0/24\"]";
        let exempt = "write a list of names such as [\"example.net\"]";
        Synthesis {
            pool6: section.read(sink, "pool6", |v| some(v, pool6, value::pool6)),
            ranges: section.read(sink, "ranges", |v| value::list(v, RANGES_HELP, range)),
            exclude: section.read(sink, "exclude", |v| value::list(v, exclude, value::prefix6)),
            exclude_a: section
                .read(sink, "exclude_a", |v| value::list(v, exclude_a, value::prefix4)),
            exempt: section.read(sink, "exempt", |v| value::list(v, exempt, value::dns_name)),
        }
    }
}

const RANGES_HELP: &str = "write a list of pairs: [[\"198.51.100.0/24\", \"2001:db8:65::/96\"]]";

/// An IPv4 network and its prefix.
fn range(v: &Value<'_>) -> Parsed<(Ipv4Net, Pool6)> {
    let pair = v.get_ref().as_array().map(|pair| &pair[..]);
    let Some([v4, pool6]) = pair else {
        let message = "this is no pair of an IPv4 network and a translation prefix";
        return Err(Problem::new(v.span(), message, RANGES_HELP).into());
    };
    Ok((value::prefix4(v4)?, value::pool6(pool6)?))
}

fn policy((table, span): Table<'_, '_>, sink: &mut Sink) -> PolicyDraft {
    let mut section = Section::new("[[dns64.policy]]", table, span);
    let help = "write whom it is for, such as client = [\"2001:db8:5::/48\"]";
    let clients = section.require(sink, "client", help, |v| some(v, help, value::net));
    let mut enable = true;
    set(&mut enable, section.read(sink, "enable", value::boolean));
    let read = Synthesis::read(&mut section, sink);
    let span = section.span();
    section.finish(sink);
    let places = [
        ("pool6", read.pool6.as_ref().map(Spanned::span)),
        ("ranges", read.ranges.as_ref().map(Spanned::span)),
        ("exclude", read.exclude.as_ref().map(Spanned::span)),
        ("exclude_a", read.exclude_a.as_ref().map(Spanned::span)),
        ("exempt", read.exempt.as_ref().map(Spanned::span)),
    ];
    let of_synthesis = places.into_iter().filter_map(|(key, at)| Some((key, at?))).collect();
    let policy = clients.as_ref().map(|clients| Dns64Policy {
        clients: inner(clients.get_ref()),
        enable,
        pool6: read.pool6.as_ref().map(|it| inner(it.get_ref())),
        ranges: read.ranges.as_ref().map(|it| inner(it.get_ref())),
        exclude: read.exclude.map(|it| inner(it.get_ref())),
        exclude_a: read.exclude_a.map(|it| inner(it.get_ref())),
        exempt: read.exempt.map(|it| inner(it.get_ref())),
    });
    PolicyDraft {
        policy,
        clients: clients.map(Spanned::into_inner).unwrap_or_default(),
        pool6: read.pool6.map(Spanned::into_inner).unwrap_or_default(),
        ranges: read.ranges.map(Spanned::into_inner).unwrap_or_default(),
        of_synthesis,
        span,
    }
}

/// What the server and its requests may take.
struct Limits {
    cache: u64,
    timeout: Duration,
    deadline: Duration,
    deadline_at: Option<Range<usize>>,
    attempts: u8,
    rate: Option<u32>,
    burst: u32,
    burst_at: Option<Range<usize>>,
    udp_size: u16,
    tcp_clients: u32,
    tcp_idle: Duration,
    client_len: u8,
    client_len4: u8,
}

/// Memory that the caches may take.
const CACHE: RangeInclusive<i64> = 1 << 20..=16 << 30;

/// Which clients are of one network: what sites have of IPv6 (RFC 6177), and what is routed by itself of IPv4.
pub(crate) const CLIENT_LEN: u8 = 56;
pub(crate) const CLIENT_LEN4: u8 = 24;

/// Answers at once.
const MAX_BURST: u32 = 1_000_000;

impl Limits {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> Limits {
        let mut limits = Limits {
            cache: 32 << 20,
            timeout: Duration::from_secs(2),
            deadline: Duration::from_secs(5),
            deadline_at: None,
            attempts: 3,
            rate: Some(5000),
            burst: 10_000,
            burst_at: None,
            // What passes every IPv6 path in one piece: 1280 octets less the headers.
            udp_size: 1232,
            tcp_clients: 256,
            tcp_idle: Duration::from_secs(10),
            client_len: CLIENT_LEN,
            client_len4: CLIENT_LEN4,
        };
        let try_range = Duration::from_millis(100)..=Duration::from_secs(10);
        let deadline_range = Duration::from_millis(100)..=Duration::from_secs(60);
        let idle_range = Duration::from_secs(1)..=Duration::from_secs(300);
        // All ranges lie within the types.
        let attempts = |v: &Value<'_>| Ok(value::integer(v, 1..=8, "")? as u8);
        let burst = |v: &Value<'_>| Ok(value::integer(v, 1..=i64::from(MAX_BURST), "")? as u32);
        let udp_size = |v: &Value<'_>| Ok(value::octets(v, 512..=4096)? as u16);
        let tcp_clients = |v: &Value<'_>| Ok(value::integer(v, 1..=65_535, "")? as u32);
        set(&mut limits.cache, section.read(sink, "cache", |v| value::memory(v, CACHE)));
        let timeout = section.read(sink, "timeout", |v| value::duration(v, try_range));
        set(&mut limits.timeout, timeout);
        let deadline = section.read(sink, "deadline", |v| value::duration(v, deadline_range));
        limits.deadline_at = deadline.as_ref().map(Spanned::span);
        // Two tries and a half: servers that answer late are heard while others are asked.
        limits.deadline = limits.timeout * 5 / 2;
        set(&mut limits.deadline, deadline);
        set(&mut limits.attempts, section.read(sink, "attempts", attempts));
        set(&mut limits.rate, section.read(sink, "rate", value::rate));
        let burst = section.read(sink, "burst", burst);
        limits.burst_at = burst.as_ref().map(Spanned::span);
        match limits.rate {
            Some(rate) if burst.is_none() => limits.burst = rate.saturating_mul(2).min(MAX_BURST),
            Some(_) => set(&mut limits.burst, burst),
            None => {}
        }
        set(&mut limits.udp_size, section.read(sink, "udp_size", udp_size));
        set(&mut limits.tcp_clients, section.read(sink, "tcp_clients", tcp_clients));
        let idle = section.read(sink, "tcp_idle", |v| value::duration(v, idle_range));
        set(&mut limits.tcp_idle, idle);
        let len = section.read(sink, "client_len", value::client_len);
        set(&mut limits.client_len, len);
        let len = section.read(sink, "client_len4", value::client_len4);
        set(&mut limits.client_len4, len);
        limits
    }
}

pub(crate) const REVERSES: [(&str, Reverse); 2] =
    [("cname", Reverse::Cname), ("local", Reverse::Local)];

/// `auto`, or a number of threads.
pub(crate) fn threads(v: &Value<'_>) -> Parsed<Option<usize>> {
    value::auto_or(v, |v| Ok(value::integer(v, 1..=64, "")? as usize))
}

/// `local`, or networks.
pub(crate) fn allow(v: &Value<'_>) -> Parsed<Option<Vec<Spanned<IpNet>>>> {
    let help = "write \"local\", or a list of networks such as [\"2001:db8:1::/64\"]";
    match v.get_ref().as_str() {
        Some("local") => Ok(None),
        _ => value::list(v, help, value::net).map(Some),
    }
}

/// A list that is not empty.
pub(crate) fn some<'t, 'i, T>(
    v: &'t Value<'i>,
    help: &str,
    item: impl Fn(&'t Value<'i>) -> Parsed<T>,
) -> Parsed<Vec<Spanned<T>>> {
    let list = value::list(v, help, item)?;
    match list.is_empty() {
        true => Err(Problem::new(v.span(), "the list is empty", help).into()),
        false => Ok(list),
    }
}

/// The values without their places.
pub(crate) fn inner<T: Clone>(items: &[Spanned<T>]) -> Vec<T> {
    items.iter().map(|item| item.get_ref().clone()).collect()
}

/// Says that a key has no effect.
pub(crate) fn no_effect(span: Range<usize>, message: impl Into<String>, sink: &mut Sink) {
    sink.push(Diagnostic::warning(span, message).help("leave it out"));
}
