//! What mode `nat-pt` has beside what mode `nat64` has (RFC 2766).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

use fordway_xlat::addr::classify;
use fordway_xlat::nat64::Addresses;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;
use toml::Spanned;

use super::check::in_pools;
use super::read::Nat64Draft;
use super::tables;
use crate::diagnostic::{Diagnostic, Sink};
use crate::emit::strings;
use crate::section::{Problem, Problems, Section, Value};
use crate::sections::set;
use crate::value;

/// Addresses that IPv6 hosts get for themselves, and the gateway for DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPt {
    /// The addresses, routed into the interface.
    pub addresses: Vec<Ipv4Net>,
    /// Which IPv6 hosts get one; empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Bindings that stay.
    pub bindings: Vec<(Ipv4Addr, Ipv6Addr)>,
    /// How long a binding that was asked for by name waits for its first session.
    pub hold: Duration,
    /// Time without a session after which an address is free again.
    pub idle: Duration,
    /// Which IPv4 hosts may begin sessions; empty: all.
    pub initiators: Vec<Ipv4Net>,
    /// The gateway for DNS; `None`: off.
    pub dns: Option<NatPtDns>,
}

/// The gateway for DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatPtDns {
    /// IPv4 hosts whose questions are translated; empty: all.
    pub clients: Vec<Ipv4Net>,
    /// TTL of records with an address that is bound for a while, seconds.
    pub ttl: u32,
    /// Addresses of one answer for IPv4 hosts.
    pub most_addresses: usize,
    /// New bindings that one IPv4 host may cause in a minute.
    pub most_bindings: u32,
}

impl Default for NatPtDns {
    fn default() -> NatPtDns {
        NatPtDns { clients: Vec::new(), ttl: 0, most_addresses: 1, most_bindings: 64 }
    }
}

impl NatPt {
    /// The core's settings. `outgoing`: hosts send from these addresses, too.
    pub(super) fn core(&self, outgoing: bool) -> Addresses {
        Addresses {
            pool: self.addresses.clone(),
            clients: self.clients.clone(),
            fixed: self.bindings.clone(),
            outgoing,
            initiators: self.initiators.clone(),
            hold: self.hold,
        }
    }

    /// The networks that are routed into the interface.
    pub fn networks(&self) -> impl Iterator<Item = Ipv4Net> {
        let fixed = self.bindings.iter().map(|(addr, _)| Ipv4Net::from(*addr));
        self.addresses.iter().copied().chain(fixed)
    }
}

/// As read, with the places that checks point at.
pub(crate) struct NatPtDraft {
    pub(crate) addresses: Vec<Spanned<Ipv4Net>>,
    pub(crate) bindings: Vec<Spanned<(Ipv4Addr, Ipv6Addr)>>,
}

impl NatPtDraft {
    /// The IPv4 networks that are routed to it.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (Ipv4Net, Range<usize>)> {
        let fixed = self.bindings.iter().map(|it| (Ipv4Net::from(it.get_ref().0), it.span()));
        self.addresses.iter().map(|net| (*net.get_ref(), net.span())).chain(fixed)
    }
}

/// Keys that only mode `nat-pt` has.
pub(crate) const KEYS: [&str; 11] = [
    "addresses",
    "address_clients",
    "address_bindings",
    "hold",
    "idle",
    "initiators",
    "dns_alg",
    "dns_clients",
    "dns_ttl",
    "dns_addresses",
    "dns_bindings",
];

/// Reads what only mode `nat-pt` has.
pub(crate) fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (NatPt, NatPtDraft) {
    let nets = |example: &'static str| move |v: &Value<'_>| value::list(v, example, value::prefix4);
    let plain = |read: Option<Spanned<Vec<Spanned<Ipv4Net>>>>| -> Vec<Ipv4Net> {
        let read = read.map(Spanned::into_inner).unwrap_or_default();
        read.iter().map(|net| *net.get_ref()).collect()
    };
    let help = "write a list of IPv4 networks such as [\"192.0.2.0/26\"]";
    let addresses = section.read(sink, "addresses", nets(help));
    let addresses = addresses.map(Spanned::into_inner).unwrap_or_default();
    for net in &addresses {
        let ends = [net.get_ref().network(), net.get_ref().broadcast()];
        if let Some(addr) = ends.into_iter().find(|addr| classify::illegal_v4(*addr).is_some()) {
            let message = format!("`addresses`: {addr} can't be a host's address on a wire");
            sink.push(Diagnostic::error(net.span(), message).help(help));
        }
    }
    let clients = section.read(sink, "address_clients", tables::clients);
    let clients = clients.map(Spanned::into_inner).unwrap_or_default();
    let bindings_help = "write a list such as [[\"192.0.2.10\", \"2001:db8::5\"]]";
    let bindings =
        section.read(sink, "address_bindings", |v| value::list(v, bindings_help, binding));
    let bindings = bindings.map(Spanned::into_inner).unwrap_or_default();
    let seconds = Duration::from_secs;
    let mut nat_pt = NatPt {
        addresses: addresses.iter().map(|net| *net.get_ref()).collect(),
        clients: clients.iter().map(|net| *net.get_ref()).collect(),
        bindings: bindings.iter().map(|it| *it.get_ref()).collect(),
        hold: seconds(60),
        idle: seconds(600),
        initiators: Vec::new(),
        dns: None,
    };
    let day = seconds(24 * 3600);
    set(&mut nat_pt.hold, section.read(sink, "hold", |v| value::duration(v, seconds(1)..=day)));
    set(
        &mut nat_pt.idle,
        section.read(sink, "idle", |v| value::duration(v, seconds(1)..=30 * day)),
    );
    let help = "write a list of IPv4 networks such as [\"198.51.100.0/24\"]";
    let initiators = section.read(sink, "initiators", nets(help));
    let reachable = !addresses.is_empty() || !bindings.is_empty();
    let on = section.read(sink, "dns_alg", value::boolean).is_none_or(Spanned::into_inner);
    if on {
        let mut dns = NatPtDns::default();
        let asked = section.read(sink, "dns_clients", nets(help));
        if reachable && asked.is_none() {
            let message = "every IPv4 host may ask, and each question for a name may take an address \
                           (RFC 4966 section 3.4)";
            let help = "write dns_clients = [...]: the resolvers that may ask";
            sink.push(Diagnostic::warning(section.span(), message).help(help));
        }
        dns.clients = plain(asked);
        let ttl = section.read(sink, "dns_ttl", |v| value::integer(v, 0..=60, "seconds"));
        set(&mut dns.ttl, ttl.map(|it| Spanned::new(it.span(), *it.get_ref() as u32)));
        let most = section.read(sink, "dns_addresses", |v| value::integer(v, 1..=16, "addresses"));
        set(
            &mut dns.most_addresses,
            most.map(|it| Spanned::new(it.span(), *it.get_ref() as usize)),
        );
        let most =
            section.read(sink, "dns_bindings", |v| value::integer(v, 1..=1_000_000, "bindings"));
        set(&mut dns.most_bindings, most.map(|it| Spanned::new(it.span(), *it.get_ref() as u32)));
        nat_pt.dns = Some(dns);
    } else {
        for key in ["dns_clients", "dns_ttl", "dns_addresses", "dns_bindings"] {
            let why = "this key belongs to the gateway for DNS, which is off";
            section.refuse(sink, key, why, "leave it out, or leave dns_alg out");
        }
    }
    if reachable && initiators.is_none() {
        let message = "every IPv4 host may begin sessions with whatever has an address";
        let help = "write initiators = [...]: the networks that may";
        sink.push(Diagnostic::warning(section.span(), message).help(help));
    }
    nat_pt.initiators = plain(initiators);
    (nat_pt, NatPtDraft { addresses, bindings })
}

/// A binding that stays: an IPv4 address and an IPv6 host.
fn binding(v: &Value<'_>) -> Result<(Ipv4Addr, Ipv6Addr), Problems> {
    let help = "write [\"192.0.2.10\", \"2001:db8::5\"]: an IPv4 address, then the IPv6 host";
    let wrong = |message: &str| Problems::from(Problem::new(v.span(), message.to_owned(), help));
    let pair = v.get_ref().as_array().ok_or_else(|| wrong("this is no pair"))?;
    let [v4, v6] = &pair[..] else { return Err(wrong("a binding has 2 parts")) };
    Ok((value::host4(v4)?, value::host6(v6)?))
}

/// What has to go together.
pub(crate) fn check(
    draft: &Nat64Draft,
    nat_pt: &NatPtDraft,
    in_pool6: &impl Fn(Ipv6Addr) -> bool,
    sink: &mut Sink,
) {
    let overlap = |one: &Ipv4Net, other: &Ipv4Net| one.contains(other) || other.contains(one);
    for (index, net) in nat_pt.addresses.iter().enumerate() {
        let (it, span) = (net.get_ref(), net.span());
        let earlier = &nat_pt.addresses[..index];
        if let Some(first) = earlier.iter().find(|other| overlap(other.get_ref(), it)) {
            let message = format!("`addresses`: {it} overlaps {}", first.get_ref());
            let error = Diagnostic::error(span.clone(), message).help("leave one out");
            sink.push(error.related(first.span(), "the other one"));
        }
    }
    for (net, span) in nat_pt.networks() {
        if let Some(pool) = in_pools(draft, net) {
            let message = format!("{net} is an address of hosts, and of pool4");
            let help = "give what hosts share, and what they get for themselves, addresses apart";
            sink.push(Diagnostic::error(span, message).related(pool, "here").help(help));
        }
    }
    for (index, binding) in nat_pt.bindings.iter().enumerate() {
        let (addr, host) = binding.get_ref();
        if in_pool6(*host) {
            let message =
                format!("`address_bindings`: {host} lies in pool6, which stands for IPv4 hosts");
            let help = "write the address of a host behind the translator";
            sink.push(Diagnostic::error(binding.span(), message).help(help));
        }
        let same = |other: &&Spanned<(Ipv4Addr, Ipv6Addr)>| {
            other.get_ref().0 == *addr || other.get_ref().1 == *host
        };
        if let Some(first) = nat_pt.bindings[..index].iter().find(same) {
            let message = format!("`address_bindings`: {addr} or {host} is in two of them");
            let error = Diagnostic::error(binding.span(), message);
            sink.push(error.related(first.span(), "here first").help("leave one out"));
        }
    }
}

/// Keys of a written-out configuration.
#[derive(Default, Serialize)]
pub(crate) struct Keys {
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    address_clients: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    address_bindings: Vec<[String; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    initiators: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_alg: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dns_clients: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_ttl: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_addresses: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_bindings: Option<u32>,
}

impl Keys {
    pub(crate) fn of(nat_pt: Option<&NatPt>) -> Keys {
        let Some(it) = nat_pt else { return Keys::default() };
        let duration = |it: Duration| Some(humantime::format_duration(it).to_string());
        let dns = it.dns.as_ref();
        Keys {
            addresses: Some(strings(&it.addresses)),
            address_clients: strings(&it.clients),
            address_bindings: it
                .bindings
                .iter()
                .map(|(a, b)| [a.to_string(), b.to_string()])
                .collect(),
            hold: duration(it.hold),
            idle: duration(it.idle),
            initiators: strings(&it.initiators),
            dns_alg: Some(dns.is_some()),
            dns_clients: dns.map(|dns| strings(&dns.clients)).unwrap_or_default(),
            dns_ttl: dns.map(|dns| dns.ttl),
            dns_addresses: dns.map(|dns| dns.most_addresses as u32),
            dns_bindings: dns.map(|dns| dns.most_bindings),
        }
    }
}
