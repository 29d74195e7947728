//! Checks that need more than one value.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use fordway_xlat::addr::{Eam, EamTable, Pool6};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use toml::Spanned;

use crate::diagnostic::{Diagnostic, Sink};
use crate::draft::Drafts;
use crate::nat64;
use crate::translator::Draft;
use crate::types::Mode;

/// Checks every translator, and all of them against each other.
pub(crate) fn across(drafts: &Drafts, sink: &mut Sink) {
    for draft in &drafts.translators {
        duplicate_pool6(draft, sink);
        duplicate_eam(draft, sink);
        overlapping_eam(draft, sink);
        addresses(draft, sink);
        if let Some(nat64) = &draft.nat64 {
            let in_pool6 = |v6| draft.pool6.iter().any(|pool6| pool6.get_ref().contains(v6));
            nat64::check::nat64(nat64, in_pool6, sink);
        }
        if let Some(dynamic4) = &draft.dynamic4 {
            nat64::check::dynamic4(dynamic4, &draft.eam, sink);
        }
    }
    duplicate_names(&drafts.translators, sink);
    overlapping_routes(&drafts.translators, sink);
}

fn duplicate_names(drafts: &[Draft], sink: &mut Sink) {
    let names: Vec<_> = drafts.iter().filter_map(|draft| draft.name.as_ref()).collect();
    each_duplicate(
        &names,
        |name| name.get_ref().clone(),
        |first, second| {
            let message = format!("two translators are called \"{}\"", second.get_ref());
            sink.push(
                Diagnostic::error(second.span(), message)
                    .related(first.span(), "the first one")
                    .help("give each its own name; the interfaces get them"),
            );
        },
    );
}

fn duplicate_pool6(draft: &Draft, sink: &mut Sink) {
    let all: Vec<_> = draft.pool6.iter().collect();
    each_duplicate(
        &all,
        |pool6| *pool6.get_ref(),
        |first, second| {
            let message = format!("`pool6`: {} is listed twice", second.get_ref());
            sink.push(
                Diagnostic::error(second.span(), message)
                    .related(first.span(), "here first")
                    .help("leave one out"),
            );
        },
    );
}

/// RFC 7757 section 5: a prefix in two mappings makes the mapping ambiguous.
fn duplicate_eam(draft: &Draft, sink: &mut Sink) {
    let mut report = |first: &Spanned<Eam>, second: &Spanned<Eam>, prefix: IpNet| {
        let message = format!("`eam`: {prefix} is in two mappings (RFC 7757 section 5)");
        sink.push(
            Diagnostic::error(second.span(), message)
                .related(first.span(), "here first")
                .help("leave one out, or make one prefix longer to have it take precedence"),
        );
    };
    let all: Vec<_> = draft.eam.iter().collect();
    each_duplicate(
        &all,
        |eam| eam.get_ref().v4(),
        |first, second| {
            report(first, second, second.get_ref().v4().into());
        },
    );
    each_duplicate(
        &all,
        |eam| eam.get_ref().v6(),
        |first, second| {
            report(first, second, second.get_ref().v6().into());
        },
    );
    let Some(clat) = draft.translator().and_then(|translator| translator.clat()) else {
        return;
    };
    let taken = |eam: &&Spanned<Eam>| {
        eam.get_ref().v4() == Ipv4Net::from(clat.v4)
            || clat.v6.is_some_and(|v6| eam.get_ref().v6() == Ipv6Net::from(v6))
    };
    for eam in draft.eam.iter().filter(taken) {
        let message = "`eam`: the CLAT's own mapping, `v4` and `v6`, has this prefix already";
        sink.push(Diagnostic::error(eam.span(), message).help("leave this mapping out"));
    }
}

/// RFC 7757 section 5: overlapping mappings are allowed, but there and back may differ.
fn overlapping_eam(draft: &Draft, sink: &mut Sink) {
    let Ok(table) = EamTable::new(draft.eam.iter().map(|eam| *eam.get_ref())) else {
        return;
    };
    let places: HashMap<Eam, Range<usize>> =
        draft.eam.iter().map(|eam| (*eam.get_ref(), eam.span())).collect();
    let place = |eam: &Eam| places.get(eam).cloned().unwrap_or(draft.span.clone());
    let mut seen = Vec::new();
    for overlap in table.overlaps() {
        // Two mappings that overlap in both families are one finding.
        if seen.contains(&overlap) {
            continue;
        }
        seen.push(overlap);
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
        sink.push(
            Diagnostic::warning(place(&overlap.inner), message)
                .related(place(&overlap.outer), "the shorter prefix")
                .help("right for an exception from an algorithmic mapping; else choose prefixes apart"),
        );
    }
}

/// A CLAT's own IPv6 address is no IPv4-embedded one.
fn addresses(draft: &Draft, sink: &mut Sink) {
    let clat = draft.translator().and_then(|translator| translator.clat());
    let Some((clat, v6)) = clat.and_then(|clat| Some((clat, clat.v6?))) else {
        return;
    };
    if clat.pref64.contains(v6) {
        let message = format!("`v6`: {v6} lies in pref64 {}, which stands for IPv4", clat.pref64);
        let span = draft.v6.clone().unwrap_or(draft.span.clone());
        let help = "take an address of the uplink's network, or leave v6 out";
        sink.push(Diagnostic::error(span, message).help(help));
    }
}

/// A network that is routed into a translator's interface, and where it is written.
struct Routed {
    net: IpNet,
    span: Range<usize>,
    /// Index of the translator, and the metric of its routes.
    owner: (usize, u32),
    /// Its addresses are given to hosts by the translator, which needs to have them all.
    given: bool,
}

/// One network can't be routed into two interfaces.
fn overlapping_routes(drafts: &[Draft], sink: &mut Sink) {
    let all: Vec<Routed> =
        drafts.iter().enumerate().flat_map(|(index, draft)| routed(index, draft)).collect();
    for (index, second) in all.iter().enumerate() {
        let clash = all[..index].iter().find(|first| {
            first.owner.0 != second.owner.0
                && match (first.net, second.net) {
                    // Translation prefixes and mappings: neither may contain the other. IPv4
                    // networks are routes as any other: the longest wins, then the metric.
                    (IpNet::V6(a), IpNet::V6(b)) => a.contains(&b) || b.contains(&a),
                    (IpNet::V4(a), IpNet::V4(b)) if first.given && second.given => {
                        a.contains(&b) || b.contains(&a)
                    }
                    (IpNet::V4(a), IpNet::V4(b)) => a == b && first.owner.1 == second.owner.1,
                    _ => false,
                }
        });
        let Some(first) = clash else { continue };
        let message = match second.net {
            net if first.net == net => format!("two translators want {net} routed to them"),
            net => format!("{net} overlaps {} of another translator", first.net),
        };
        let help = match second.net {
            IpNet::V4(_) if second.given => "give each translator addresses of its own",
            IpNet::V4(_) => "set routes4 or metric in one of them",
            IpNet::V6(_) => "give each translator a prefix of its own",
        };
        sink.push(
            Diagnostic::error(second.span.clone(), message)
                .related(first.span.clone(), "the other one")
                .help(help),
        );
    }
}

fn routed(index: usize, draft: &Draft) -> Vec<Routed> {
    let Some(translator) = draft.translator() else {
        return Vec::new();
    };
    let owner = (index, translator.metric);
    let route = |net: IpNet, span: Range<usize>| Routed { net, span, owner, given: false };
    let given = |net: Ipv4Net, span| Routed { given: true, ..route(net.into(), span) };
    let v4 = draft.routes4.iter().map(|net| route((*net.get_ref()).into(), net.span()));
    let mut all: Vec<Routed> = v4.collect();
    match &translator.mode {
        Mode::Siit { .. } | Mode::Nat64(_) => {
            let pool6 = |pool6: &Spanned<Pool6>| route(pool6.get_ref().net().into(), pool6.span());
            all.extend(draft.pool6.iter().map(pool6));
            let eam = |eam: &Spanned<Eam>| route(eam.get_ref().v4().into(), eam.span());
            all.extend(draft.eam.iter().map(eam));
            if let Some(nat64) = &draft.nat64 {
                let nets = nat64.networks().into_iter();
                all.extend(nets.map(|(net, span)| given(net, span)));
            }
            let dynamic4 = draft.dynamic4.iter().flat_map(|dynamic4| &dynamic4.pool);
            all.extend(dynamic4.map(|net| given(*net.get_ref(), net.span())));
        }
        Mode::Clat(clat) => {
            if let Some(v6) = clat.v6 {
                let span = draft.v6.clone().unwrap_or(draft.span.clone());
                all.push(route(Ipv6Net::from(v6).into(), span));
            }
            let eam = |eam: &Spanned<Eam>| route(eam.get_ref().v6().into(), eam.span());
            all.extend(draft.eam.iter().map(eam));
        }
    }
    all
}

/// Calls `report` with the first and each later item of the same key.
fn each_duplicate<T: Copy, K: Hash + Eq>(
    items: &[T],
    key: impl Fn(T) -> K,
    mut report: impl FnMut(T, T),
) {
    let mut first: HashMap<K, T> = HashMap::new();
    for &item in items {
        match first.get(&key(item)) {
            Some(&earlier) => report(earlier, item),
            None => drop(first.insert(key(item), item)),
        }
    }
}
