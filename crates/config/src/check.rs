//! Checks that need more than one value.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::Range;

use fordway_xlat::addr::{Eam, EamTable, Pool6};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use toml::Spanned;

use crate::advertise;
use crate::cluster;
use crate::diagnostic::Sink;
use crate::dns64;
use crate::draft::Drafts;
use crate::dstm;
use crate::engine::Attach;
use crate::findings::{duplicates, twice, well_known_prefix};
use crate::keys::{Places, Read};
use crate::mode::{Clat, Mode, Pref64, Siit};
use crate::name::InterfaceName;
use crate::nat44::{self, Nat44};
use crate::nat64;
use crate::proxy;
use crate::sections::{Metrics, MetricsToken};
use crate::softwire::{self, Softwire};
use crate::translator::{self, Translator};
use crate::trt;

/// Checks every translator, and all of them against each other.
pub(crate) fn across(drafts: &Drafts, sink: &mut Sink) {
    for draft in &drafts.translators {
        let Read { value: translator, at, .. } = draft;
        let pool6 = pool6(draft);
        duplicates("pool6", &pool6, sink);
        duplicates("routes4", &at.each("routes4", &translator.routes4), sink);
        let eam = at.each("eam", &translator.eam);
        duplicate_eam(draft, &eam, sink);
        overlapping_eam(draft, &eam, sink);
        well_known_prefix(&pool6, sink);
        translator::check::engine(draft, sink);
        mtu(draft, sink);
        match &translator.mode {
            Mode::Siit(siit) => siit_alone(draft, siit, &eam, sink),
            Mode::Clat(clat) => clat_alone(draft, clat, sink),
            Mode::Nat64(nat64) => nat64::check::nat64(at, nat64, sink),
            Mode::Softwire(softwire) => softwire::check::softwire(softwire, at, sink),
        }
        for nat44 in &drafts.nat44 {
            past_nat44(draft, nat44, sink);
        }
    }
    for draft in &drafts.nat44 {
        nat44::check::nat44(draft, sink);
    }
    for draft in &drafts.dual_stack {
        nat44::dual_stack::check(draft, sink);
    }
    duplicate_names(drafts, sink);
    overlapping_routes(&drafts.translators, sink);
    services(drafts, sink);
}

/// The translation prefixes that stand in an entry; also the one of a CLAT.
fn pool6(draft: &Read<Translator>) -> Vec<Spanned<Pool6>> {
    let at = &draft.at;
    match &draft.value.mode {
        Mode::Siit(siit) => at.each("pool6", &siit.pool6),
        Mode::Nat64(nat64) => at.each("pool6", &nat64.pool6),
        Mode::Clat(clat) => {
            let fixed = clat.pref64.fixed();
            fixed.and_then(|pref64| at.of("pref64", pref64)).into_iter().collect()
        }
        Mode::Softwire(_) => Vec::new(),
    }
}

fn siit_alone(draft: &Read<Translator>, siit: &Siit, eam: &[Spanned<Eam>], sink: &mut Sink) {
    let has_prefix = draft.at.has("pool6");
    if let Some(dynamic4) = &siit.dynamic4 {
        nat64::dynamic4::check(&draft.at, dynamic4, has_prefix, eam, sink);
    } else if !has_prefix && !draft.at.has("eam") {
        let message = "neither `pool6` nor `eam` is set: no address could be translated";
        let help = "write pool6 = [\"64:ff9b::/96\"], or eam = [[IPV4, IPV6]], or both";
        sink.error(draft.at.span.clone(), message, help);
    }
}

fn clat_alone(draft: &Read<Translator>, clat: &Clat, sink: &mut Sink) {
    let at = &draft.at;
    if let Some(span) = at.key("always").filter(|_| clat.pref64.fixed().is_some()) {
        let message =
            "`always` belongs to pref64 = \"auto\": a CLAT with a fixed prefix never steps aside";
        sink.error(span, message, "leave it out");
    }
    // Its own IPv6 address is no IPv4-embedded one.
    if let (Some(v6), Some(pref64)) = (clat.v6, clat.pref64.fixed())
        && let Some(span) = at.key("v6").filter(|_| pref64.contains(v6))
    {
        let message = format!("`v6`: {v6} lies in pref64 {pref64}, which stands for IPv4");
        sink.error(span, message, "take an address of the uplink's network, or leave v6 out");
    }
    // One that sets itself up has to be allowed to.
    if at.key("pref64").is_some() && clat.pref64 == Pref64::Auto && !draft.value.manage {
        let message =
            "`pref64` = \"auto\" needs `manage`: addresses and routes follow what is found";
        let help =
            "leave manage = false out, or write the prefix that the addresses and routes are for";
        sink.error(at.span.clone(), message, help);
    }
}

fn mtu(draft: &Read<Translator>, sink: &mut Sink) {
    let Translator { lowest_ipv6_mtu, mtu, .. } = draft.value;
    if let (Some(span), Some(mtu)) = (draft.at.key("lowest_ipv6_mtu"), mtu)
        && lowest_ipv6_mtu > mtu
    {
        let message = format!("`lowest_ipv6_mtu` is above `mtu`: {mtu} octets is what fits");
        sink.warn(span, message, format!("write {mtu}"));
    }
}

/// What stands beside the translators, against them and against each other.
fn services(drafts: &Drafts, sink: &mut Sink) {
    let complete =
        || drafts.translators.iter().filter(|draft| draft.complete).map(|draft| &draft.value);
    let clat = |draft: &&Read<Translator>| draft.complete && draft.value.clat().is_none();
    // As written: an entry that is incomplete must not make others look wrong.
    let gateways = drafts.translators.iter().filter(clat);
    let mut prefixes: Vec<Pool6> = gateways.flat_map(pool6).map(|pool6| *pool6.get_ref()).collect();
    let clats = complete().filter_map(|it| it.clat()?.pref64.fixed().copied());
    trt::check::trt(&drafts.trt, &prefixes, &clats.collect::<Vec<_>>(), sink);
    prefixes.extend(drafts.trt.iter().flat_map(|it| &it.value.pool6).copied());
    let metrics = drafts.metrics.as_ref().map_or(&[][..], |metrics| &metrics.value.listen);
    if let Some(read) = &drafts.metrics {
        let listen = read.at.each("listen", &read.value.listen);
        duplicates("listen", &listen, sink);
        dns64::check::covered(&listen, sink);
        exposed(read, &listen, sink);
    }
    if let Some(draft) = &drafts.dns64 {
        let unread = |draft: &Read<Translator>| {
            !draft.complete || draft.at.has("pool6") && draft.value.pool6().is_empty()
        };
        let unread = drafts.unread
            || drafts.translators.iter().any(unread)
            || drafts.trt.iter().any(|draft| draft.value.pool6.is_empty());
        dns64::check::dns64(draft, &prefixes, unread, sink);
        let dns64::Dns64 { listen, listen_tls, listen_https, .. } = &draft.value;
        let all = [("listen", listen), ("listen_tls", listen_tls), ("listen_https", listen_https)];
        for listen in all.into_iter().flat_map(|(key, listen)| draft.at.each(key, listen)) {
            let taken = |it: &&SocketAddr| dns64::check::same_place(**it, *listen.get_ref());
            if let Some(metrics) = metrics.iter().find(taken) {
                let message =
                    format!("`listen`: {} is taken by [metrics], for {metrics}", listen.get_ref());
                sink.error(listen.span(), message, "write another port in one of the two");
            }
        }
        let written = dns64::check::written_prefixes(draft).into_iter();
        prefixes.extend(written.map(|(_, pool6)| pool6.into_inner()));
    }
    let names: Vec<_> = drafts.translators.iter().filter_map(name).collect();
    let surroundings = advertise::check::Surroundings {
        prefixes: &prefixes,
        translators: names.iter().collect(),
        uplinks: complete().filter_map(|it| it.clat()?.uplink.as_ref()).collect(),
    };
    advertise::check::advertise(&drafts.advertise, &surroundings, sink);
    let dns64 = drafts.dns64.iter().flat_map(|it| it.value.connections());
    let dns64 = dns64.map(|it| (*it, "[dns64]"));
    let metrics = metrics.iter().map(|it| (*it, "[metrics]"));
    let taken: Vec<_> = dns64.chain(metrics).collect();
    proxy::check::proxies(&drafts.proxies, &taken, sink);
    let is_tep = |draft: &Read<Translator>| matches!(draft.value.softwire(), Some(it) if it.client().is_none());
    let translators = drafts.translators.iter().filter_map(|it| Some((name(it)?, is_tep(it))));
    let of_kernel = drafts.nat44.iter().filter_map(|it| it.at.of("name", &it.value.name));
    let of_kernel =
        of_kernel.chain(drafts.dual_stack.iter().filter_map(|it| it.at.of("name", &it.value.name)));
    let softwires = drafts.translators.iter().filter_map(softwire_of);
    let around = dstm::check::Surroundings {
        translators: translators.chain(of_kernel.map(|name| (name, false))).collect(),
        bindings: softwires.flat_map(softwire::check::bindings).collect(),
    };
    if let Some(draft) = &drafts.cluster {
        cluster::check::cluster(draft, &drafts.translators, &drafts.trt, drafts.unread, sink);
    }
    let (server, tep) = (drafts.dstm_server.as_ref(), drafts.dstm_tep.as_ref());
    dstm::check::dstm(server, tep, &drafts.dstm_clients, &around, sink);
}

/// Metrics beyond loopback are for those who show a token. TLS keeps it from those who listen on the way, and no reader out.
fn exposed(read: &Read<Metrics>, listen: &[Spanned<SocketAddr>], sink: &mut Sink) {
    let Metrics { certificate, key, token_file, .. } = &read.value;
    if let (Some(one), None) | (None, Some(one)) = (read.at.key("certificate"), read.at.key("key"))
    {
        let message = "a certificate needs its key, and a key its certificate";
        sink.error(one, message, "write `certificate` and `key`");
    }
    let Some(beyond) = listen.iter().find(|it| !it.get_ref().ip().is_loopback()) else { return };
    let address = beyond.get_ref();
    match (certificate.is_some() || key.is_some(), token_file) {
        (_, None) if !read.at.has("token_file") => {
            let message = format!("`listen`: {address} is beyond loopback, and everybody may read");
            let help = "write token_file = \"/etc/fordway/metrics.token\", or token_file = \"none\" if only those \
                        reach the address who may read";
            sink.error(beyond.span(), message, help);
        }
        (false, Some(MetricsToken::File(_))) => {
            let message = format!("`listen`: the token passes to {address} without TLS");
            sink.warn(beyond.span(), message, "write `certificate` and `key`");
        }
        _ => {}
    }
}

/// The softwire of a translator.
fn softwire_of(draft: &Read<Translator>) -> Option<(&Softwire, &Places)> {
    match &draft.value.mode {
        Mode::Softwire(softwire) => Some((softwire, &draft.at)),
        _ => None,
    }
}

/// What is taken at the ingress of NAT44's uplink on its way to a client has not passed NAT44's rules.
fn past_nat44(draft: &Read<Translator>, nat44: &Read<Nat44>, sink: &mut Sink) {
    let translator = &draft.value;
    let Some(softwire) = softwire_of(draft).filter(|_| translator.attach == Attach::Ingress) else {
        return;
    };
    let own = softwire::check::networks4(softwire).into_iter().map(|it| it.0);
    let is_client =
        |net: Ipv4Net| nat44.value.clients.iter().any(|it| it.contains(&net) || net.contains(it));
    if !own.chain(translator.routes4.iter().copied()).any(is_client) {
        return;
    }
    let uplinks = nat44.at.each("uplink", &nat44.value.uplinks);
    let shared = uplinks.iter().find(|uplink| translator.devices.contains(uplink.get_ref()));
    if let Some(uplink) = shared {
        let message = format!(
            "`devices`: {} is the uplink of a NAT44 whose clients are behind this softwire; what comes in there for \
             their own addresses passes NAT44's rules by",
            uplink.get_ref()
        );
        sink.warn(
            draft.at.span.clone(),
            message,
            "name only the device towards the clients in devices",
        )
        .beside(uplink.span(), "its uplink");
    }
}

fn name(draft: &Read<Translator>) -> Option<Spanned<InterfaceName>> {
    draft.at.of("name", &draft.value.name)
}

fn duplicate_names(drafts: &Drafts, sink: &mut Sink) {
    let names = drafts.translators.iter().filter_map(name);
    let names = names.chain(drafts.nat44.iter().filter_map(|it| it.at.of("name", &it.value.name)));
    let names =
        names.chain(drafts.dual_stack.iter().filter_map(|it| it.at.of("name", &it.value.name)));
    let mut names: Vec<_> = names.collect();
    names.sort_by_key(|name| name.span().start);
    for (first, second) in twice(&names, |name| name) {
        let message = format!("two translators are called \"{}\"", second.get_ref());
        let help = "give each its own name; the interfaces get them";
        sink.error(second.span(), message, help).beside(first.span(), "the first one");
    }
}

/// RFC 7757 section 5: a prefix in two mappings makes the mapping ambiguous.
fn duplicate_eam(draft: &Read<Translator>, eam: &[Spanned<Eam>], sink: &mut Sink) {
    let v4 = twice(eam, Eam::v4).map(|(first, it)| (first, it, IpNet::from(it.get_ref().v4())));
    let v6 = twice(eam, Eam::v6).map(|(first, it)| (first, it, IpNet::from(it.get_ref().v6())));
    for (first, second, prefix) in v4.chain(v6) {
        let message = format!("`eam`: {prefix} is in two mappings (RFC 7757 section 5)");
        let help = "leave one out, or make one prefix longer to have it take precedence";
        sink.error(second.span(), message, help).beside(first.span(), "here first");
    }
    let Some(clat) = draft.value.clat() else { return };
    let taken = |eam: &&Spanned<Eam>| {
        eam.get_ref().v4() == Ipv4Net::from(clat.v4)
            || clat.v6.is_some_and(|v6| eam.get_ref().v6() == Ipv6Net::from(v6))
    };
    for eam in eam.iter().filter(taken) {
        let message = "`eam`: the CLAT's own mapping, `v4` and `v6`, has this prefix already";
        sink.error(eam.span(), message, "leave this mapping out");
    }
}

/// RFC 7757 section 5: overlapping mappings are allowed, but there and back may differ.
fn overlapping_eam(draft: &Read<Translator>, eam: &[Spanned<Eam>], sink: &mut Sink) {
    let Ok(table) = EamTable::new(eam.iter().map(|eam| *eam.get_ref())) else {
        return;
    };
    let places: HashMap<Eam, Range<usize>> =
        eam.iter().map(|eam| (*eam.get_ref(), eam.span())).collect();
    let place = |eam: &Eam| places.get(eam).cloned().unwrap_or(draft.at.span.clone());
    let mut seen = HashSet::new();
    for overlap in table.overlaps() {
        // Two mappings that overlap in both families are one finding.
        if !seen.insert((overlap.outer, overlap.inner)) {
            continue;
        }
        let both = overlap.outer.v4().contains(&overlap.inner.v4())
            && overlap.outer.v6().contains(&overlap.inner.v6());
        if both {
            continue;
        }
        let message = format!(
            "`eam`: this mapping overlaps {} in one family only: an address may come back as \
             another (RFC 7757 section 5)",
            overlap.outer
        );
        sink.warn(
            place(&overlap.inner),
            message,
            "right for an exception from an algorithmic mapping; else choose prefixes apart",
        )
        .beside(place(&overlap.outer), "the shorter prefix");
    }
}

/// A network that is routed into a translator's interface, and where it is written.
#[derive(Debug)]
struct Routed {
    net: IpNet,
    span: Range<usize>,
    /// Index of the translator, and the metric of its routes.
    owner: (usize, u32),
    /// Its addresses are given to hosts by the translator, which needs to have them all.
    given: bool,
}

/// One network can't be routed into two interfaces.
fn overlapping_routes(drafts: &[Read<Translator>], sink: &mut Sink) {
    let all: Vec<Routed> =
        drafts.iter().enumerate().flat_map(|(index, draft)| routed(index, draft)).collect();
    for (second, first) in clashes(&all) {
        let (first, second) = (&all[first], &all[second]);
        let message = match second.net {
            net if first.net == net => format!("two translators want {net} routed to them"),
            net => format!("{net} overlaps {} of another translator", first.net),
        };
        let help = match second.net {
            IpNet::V4(_) if second.given => "give each translator addresses of its own",
            IpNet::V4(_) => "set routes4 or metric in one of them",
            IpNet::V6(_) => "give each translator a prefix of its own",
        };
        sink.error(second.span.clone(), message, help).beside(first.span.clone(), "the other one");
    }
}

/// The networks that clash with one before them, and which one: places in `all`. Looks for each network's
/// supernets of the lengths that occur, so that 100,000 mappings take no longer than reading them.
fn clashes(all: &[Routed]) -> BTreeMap<usize, usize> {
    let mut places: HashMap<IpNet, Vec<usize>> = HashMap::new();
    let mut lengths = BTreeSet::new();
    for (index, it) in all.iter().enumerate() {
        lengths.insert((it.net.addr().is_ipv6(), it.net.prefix_len()));
        let places = places.entry(it.net).or_default();
        // One of each translator stands for all of it.
        if !places.iter().any(|place| all[*place].stands_for(it)) {
            places.push(index);
        }
    }
    let mut found: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, it) in all.iter().enumerate() {
        let is_v6 = it.net.addr().is_ipv6();
        for (_, len) in lengths.range((is_v6, 0)..=(is_v6, it.net.prefix_len())) {
            let outer =
                IpNet::new(it.net.addr(), *len).ok().and_then(|net| places.get(&net.trunc()));
            for other in outer.into_iter().flatten().copied().filter(|at| all[*at].clashes(it)) {
                let (first, second) = (index.min(other), index.max(other));
                found.entry(second).and_modify(|it| *it = first.min(*it)).or_insert(first);
            }
        }
    }
    found
}

impl Routed {
    fn stands_for(&self, other: &Routed) -> bool {
        (self.owner, self.given) == (other.owner, other.given)
    }

    /// Whether it clashes with `inner`, a network in its own or the same.
    fn clashes(&self, inner: &Routed) -> bool {
        let is_route = |it: &Routed| it.net.addr().is_ipv4() && !it.given;
        // Translation prefixes, mappings, and addresses that are given: neither may contain the other.
        // Other IPv4 networks are routes as any other: the longest wins, then the metric.
        let as_routes = is_route(self) || is_route(inner);
        self.owner.0 != inner.owner.0
            && (!as_routes || self.net == inner.net && self.owner.1 == inner.owner.1)
    }
}

fn routed(index: usize, draft: &Read<Translator>) -> Vec<Routed> {
    let Read { value: translator, at, complete } = draft;
    if !complete {
        return Vec::new();
    }
    let owner = (index, translator.metric);
    let route = |net: IpNet, span: Range<usize>| Routed { net, span, owner, given: false };
    let given = |net: Ipv4Net, span| Routed { given: true, ..route(net.into(), span) };
    let mut routes4 = at.each("routes4", &translator.routes4);
    if !at.has("routes4") {
        routes4 =
            translator.routes4.iter().map(|net| Spanned::new(at.span.clone(), *net)).collect();
    }
    let mut all: Vec<Routed> =
        routes4.iter().map(|net| route((*net.get_ref()).into(), net.span())).collect();
    let eam = at.each("eam", &translator.eam);
    let prefixes = pool6(draft);
    let prefixes = prefixes.iter().map(|pool6| route(pool6.get_ref().net().into(), pool6.span()));
    match &translator.mode {
        Mode::Siit(siit) => {
            all.extend(prefixes);
            all.extend(eam.iter().map(|eam| route(eam.get_ref().v4().into(), eam.span())));
            let pool = siit.dynamic4.iter().flat_map(|it| at.each("dynamic4", &it.pool));
            all.extend(pool.map(|net| given(*net.get_ref(), net.span())));
        }
        Mode::Nat64(nat64) => {
            all.extend(prefixes);
            let nets = nat64::check::networks(at, nat64).into_iter();
            all.extend(nets.map(|(net, span)| given(net, span)));
        }
        Mode::Softwire(softwire) => {
            let nets = softwire::check::networks4((softwire, at)).into_iter();
            all.extend(nets.map(|(net, span)| given(net, span)));
            let nets = softwire::check::networks6((softwire, at)).into_iter();
            all.extend(nets.map(|(net, span)| route(net.into(), span)));
        }
        Mode::Clat(clat) => {
            if let Some(v6) = clat.v6 {
                let span = at.key("v6").unwrap_or_else(|| at.span.clone());
                all.push(route(Ipv6Net::from(v6).into(), span));
            }
            all.extend(eam.iter().map(|eam| route(eam.get_ref().v6().into(), eam.span())));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn routed_net() -> impl Strategy<Value = Routed> {
        // Few bits, so that many networks meet.
        let v4 = (any::<u8>(), 24u8..=28).prop_map(|(last, len)| {
            IpNet::V4(Ipv4Net::new([192, 0, 2, last].into(), len).unwrap().trunc())
        });
        let v6 = (any::<u8>(), 120u8..=124).prop_map(|(last, len)| {
            let bits = 0x2001_0db8u128 << 96 | u128::from(last);
            IpNet::V6(Ipv6Net::new(bits.into(), len).unwrap().trunc())
        });
        let net = prop_oneof![v4, v6];
        (net, 0usize..3, 1u32..3, any::<bool>()).prop_map(|(net, owner, metric, given)| Routed {
            net,
            span: 0..0,
            // A translator has one metric.
            owner: (owner, metric.min(owner as u32 + 1)),
            given: given && net.addr().is_ipv4(),
        })
    }

    /// The rule, for two networks in whatever order.
    fn clash(a: &Routed, b: &Routed) -> bool {
        a.owner.0 != b.owner.0
            && match (a.net, b.net) {
                (IpNet::V6(one), IpNet::V6(other)) => one.contains(&other) || other.contains(&one),
                (IpNet::V4(one), IpNet::V4(other)) if a.given && b.given => {
                    one.contains(&other) || other.contains(&one)
                }
                (IpNet::V4(one), IpNet::V4(other)) => one == other && a.owner.1 == b.owner.1,
                _ => false,
            }
    }

    proptest! {
        #[test]
        fn clashes_are_those_of_comparing_each_with_each(all in vec(routed_net(), 0..40)) {
            let found = clashes(&all);
            for (second, first) in &found {
                prop_assert!(first < second && clash(&all[*first], &all[*second]));
            }
            // Of several that stand for one translator, the first is compared.
            let is_first = |at: usize| {
                !all[..at].iter().any(|it| it.net == all[at].net && it.stands_for(&all[at]))
            };
            for second in (0..all.len()).filter(|at| is_first(*at)) {
                let first = all[..second].iter().position(|first| clash(first, &all[second]));
                prop_assert_eq!(found.get(&second).copied(), first);
            }
        }
    }
}
