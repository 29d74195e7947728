//! What mode `nat-pt` has beside what mode `nat64` has (RFC 2766).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

use fordway_xlat::addr::classify;
use fordway_xlat::nat64::Addresses;
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::pool::CLIENTS;
use crate::diagnostic::Sink;
use crate::findings::clashing;
use crate::keys::common::PREFIX4;
use crate::keys::form::{BOOLEAN, Plain, integer, list, texts, time};
use crate::keys::{Key, Keys, Places, Section, Written, keys, usual};
use crate::problem::{Problem, Problems, Value};
use crate::value;

const POOL: &str = "write a list of IPv4 networks such as [\"192.0.2.0/26\"]";
const NETS: &str = "write a list of IPv4 networks such as [\"198.51.100.0/24\"]";
const BINDINGS: &str = "write a list such as [[\"192.0.2.10\", \"2001:db8::5\"]]";

/// An IPv4 address and an IPv6 host.
const BINDING: Plain<(Ipv4Addr, Ipv6Addr)> = Plain {
    read: binding,
    write: |(v4, v6)| toml::Value::from(vec![v4.to_string(), v6.to_string()]),
    named: ("pair of addresses", "pairs of addresses", "V4=V6"),
    schema: || texts(2),
};

keys! {
    /// Addresses that IPv6 hosts get for themselves, and the gateway for DNS.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NatPt {
        /// IPv4 addresses for IPv6 hosts, one each, for as long as they are in use. Of networks up to /30, the first
        /// and the last address are left out
        addresses: Vec<Ipv4Net> = list(PREFIX4, POOL), or(Vec::new());
        /// IPv6 hosts that get an address
        clients("address_clients"): Vec<Ipv6Net> = CLIENTS, or(Vec::new(), "all"), if(!clients.is_empty());
        /// Static bindings of an IPv4 address to an IPv6 host
        bindings("address_bindings"): Vec<(Ipv4Addr, Ipv6Addr)> = list(BINDING, BINDINGS), or(Vec::new()),
            if(!bindings.is_empty());
        /// How long a binding waits for its first session
        hold: Duration = time(1_000, 86_400_000), or(Duration::from_secs(60));
        /// How long a binding without BIB entries is kept
        idle: Duration = time(1_000, 30 * 86_400_000), or(Duration::from_secs(600));
        /// IPv4 networks whose hosts may begin sessions, with bound addresses and with forwarded ports
        initiators: Vec<Ipv4Net> = list(PREFIX4, NETS), or(Vec::new(), "all"), if(!initiators.is_empty());
        /// The DNS ALG
        dns: Option<NatPtDns>, flat();
    }
}

keys! {
    /// The DNS ALG.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NatPtDns {
        /// IPv4 networks whose questions for names are translated. Questions of other hosts pass unchanged
        clients("dns_clients"): Vec<Ipv4Net> = list(PREFIX4, NETS), or(Vec::new(), "all"), if(!clients.is_empty());
        /// TTL of what is bound for a while; 1 for clients that can't live with 0 (RFC 2766 section 4.1)
        ttl("dns_ttl"): u32 = integer(0..=60, "seconds"), or(0);
        /// Addresses in one answer, each of which takes one of the pool (RFC 4966 section 4.4)
        most_addresses("dns_addresses"): usize = integer(1..=16, "addresses"), or(1);
        /// New bindings that one IPv4 client may cause in a minute
        most_bindings("dns_bindings"): u32 = integer(1..=1_000_000, "bindings"), or(64);
    }
}

impl Default for NatPtDns {
    fn default() -> NatPtDns {
        usual()
    }
}

/// `dns_alg`, and what belongs to it.
impl Keys for Option<NatPtDns> {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<NatPtDns>, bool) {
        let on = section.read(sink, "dns_alg", value::boolean).is_none_or(Spanned::into_inner);
        if on {
            let (dns, complete) = NatPtDns::read(section, sink);
            return (Some(dns), complete);
        }
        for key in NatPtDns::keys() {
            let why = "this key belongs to the gateway for DNS, which is off";
            section.refuse(sink, key.name, why, "leave it out, or leave dns_alg out");
        }
        (None, true)
    }

    fn write(&self, to: &mut Written) {
        to.put("dns_alg", self.is_some().into());
        if let Some(dns) = self {
            dns.write(to);
        }
    }

    fn keys() -> Vec<Key> {
        let mut keys = vec![Key::usual("dns_alg", &BOOLEAN, &true, "The DNS ALG")];
        keys.extend(NatPtDns::keys());
        keys
    }
}

/// There in mode `nat-pt`.
impl Keys for Option<NatPt> {
    fn read(section: &mut Section<'_, '_>, sink: &mut Sink) -> (Option<NatPt>, bool) {
        if section.word("mode") != Some("nat-pt") {
            return (None, true);
        }
        let (nat_pt, complete) = NatPt::read(section, sink);
        (Some(nat_pt), complete)
    }

    fn write(&self, to: &mut Written) {
        if let Some(nat_pt) = self {
            nat_pt.write(to);
        }
    }

    /// None: those of mode `nat64`.
    fn keys() -> Vec<Key> {
        Vec::new()
    }
}

impl NatPt {
    /// The core's settings. `outgoing`: hosts send from these addresses, too.
    #[cfg(feature = "nat-pt")]
    pub(super) fn core(&self, outgoing: bool) -> Option<Addresses> {
        Some(Addresses {
            pool: self.addresses.clone(),
            clients: self.clients.clone(),
            fixed: self.bindings.clone(),
            outgoing,
            initiators: self.initiators.clone(),
            hold: self.hold,
        })
    }

    /// None: the core was built without NAT-PT.
    #[cfg(not(feature = "nat-pt"))]
    pub(super) fn core(&self, _outgoing: bool) -> Option<Addresses> {
        None
    }

    /// The networks that are routed into the interface.
    pub fn networks(&self) -> impl Iterator<Item = Ipv4Net> {
        let fixed = self.bindings.iter().map(|(addr, _)| Ipv4Net::from(*addr));
        self.addresses.iter().copied().chain(fixed)
    }
}

/// A binding that stays: an IPv4 address and an IPv6 host.
fn binding(v: &Value<'_>) -> Result<(Ipv4Addr, Ipv6Addr), Problems> {
    let help = "write [\"192.0.2.10\", \"2001:db8::5\"]: an IPv4 address, then the IPv6 host";
    let wrong = |message: &str| Problems::from(Problem::new(v.span(), message.to_owned(), help));
    let pair = v.get_ref().as_array().ok_or_else(|| wrong("this is no pair"))?;
    let [v4, v6] = &pair[..] else { return Err(wrong("a binding has 2 parts")) };
    Ok((value::host4(v4)?, value::host6(v6)?))
}

/// The IPv4 networks that are routed to it, and where they stand.
pub(crate) fn networks(at: &Places, nat_pt: &NatPt) -> Vec<(Ipv4Net, Range<usize>)> {
    let addresses = at.each("addresses", &nat_pt.addresses);
    let fixed = at.each("address_bindings", &nat_pt.bindings);
    let fixed = fixed.iter().map(|it| (Ipv4Net::from(it.get_ref().0), it.span()));
    addresses.iter().map(|net| (*net.get_ref(), net.span())).chain(fixed).collect()
}

/// What has to go together. `in_pool4`: where a pool has an address of a network; `in_pool6`: whether an address stands for
/// an IPv4 host.
pub(crate) fn check(
    at: &Places,
    nat_pt: &NatPt,
    in_pool4: impl Fn(Ipv4Net) -> Option<Range<usize>>,
    in_pool6: impl Fn(Ipv6Addr) -> bool,
    sink: &mut Sink,
) {
    open_to_all(at, nat_pt, sink);
    let addresses = at.each("addresses", &nat_pt.addresses);
    let overlap = |one: &Ipv4Net, other: &Ipv4Net| one.contains(other) || other.contains(one);
    for (first, second) in clashing(&addresses, overlap) {
        let message = format!("`addresses`: {} overlaps {}", second.get_ref(), first.get_ref());
        sink.error(second.span(), message, "leave one out").beside(first.span(), "the other one");
    }
    for net in &addresses {
        let (it, span) = (net.get_ref(), net.span());
        let ends = [it.network(), it.broadcast()];
        if let Some(addr) = ends.into_iter().find(|addr| classify::illegal_v4(*addr).is_some()) {
            let message = format!("`addresses`: {addr} can't be a host's address on a wire");
            sink.error(span, message, POOL);
        }
    }
    for (net, span) in networks(at, nat_pt) {
        if let Some(pool) = in_pool4(net) {
            let message = format!("{net} is an address of hosts, and of pool4");
            let help = "give what hosts share, and what they get for themselves, addresses apart";
            sink.error(span, message, help).beside(pool, "here");
        }
    }
    let bindings = at.each("address_bindings", &nat_pt.bindings);
    for binding in &bindings {
        let host = binding.get_ref().1;
        if in_pool6(host) {
            let message =
                format!("`address_bindings`: {host} lies in pool6, which stands for IPv4 hosts");
            let help = "write the address of a host behind the translator";
            sink.error(binding.span(), message, help);
        }
    }
    for (first, second) in clashing(&bindings, |a, b| a.0 == b.0 || a.1 == b.1) {
        let (addr, host) = second.get_ref();
        let message = format!("`address_bindings`: {addr} or {host} is in two of them");
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here first");
    }
}

/// Warns where the file leaves open who may ask and begin.
fn open_to_all(at: &Places, nat_pt: &NatPt, sink: &mut Sink) {
    if nat_pt.addresses.is_empty() && nat_pt.bindings.is_empty() {
        return;
    }
    if nat_pt.dns.is_some() && at.key("dns_clients").is_none() {
        let message = "every IPv4 host may ask, and each question for a name may take an address \
                       (RFC 4966 section 3.4)";
        let help = "write dns_clients = [...]: the resolvers that may ask";
        sink.warn(at.span.clone(), message, help);
    }
    if at.key("initiators").is_none() {
        let message = "every IPv4 host may begin sessions with whatever has an address";
        sink.warn(at.span.clone(), message, "write initiators = [...]: the networks that may");
    }
}
