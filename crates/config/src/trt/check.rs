//! What has to go together in `[[trt]]`.

use fordway_xlat::addr::Pool6;
use ipnet::Ipv6Net;
use toml::Spanned;

use super::Trt;
use crate::diagnostic::Sink;
use crate::findings::{duplicates, no_effect, twice, well_known_prefix};
use crate::keys::Read;

/// Checks all entries. `translated`: the prefixes of translators; `clats`: those that CLATs send IPv4 to.
pub(crate) fn trt(drafts: &[Read<Trt>], translated: &[Pool6], clats: &[Pool6], sink: &mut Sink) {
    names(drafts, sink);
    prefixes(drafts, translated, clats, sink);
    for draft in drafts {
        let Read { value: trt, at, .. } = draft;
        let pool6 = at.each("pool6", &trt.pool6);
        duplicates("pool6", &pool6, sink);
        let allow = at.each("allow", trt.allow.as_deref().unwrap_or_default());
        duplicates("allow", &allow, sink);
        duplicates("refuse4", &at.each("refuse4", &trt.refuse4), sink);
        duplicates("source4", &at.each("source4", &trt.source4), sink);
        well_known_prefix(&pool6, sink);
        for net in allow.iter().filter(|net| net.get_ref().prefix_len() == 0) {
            let message = format!(
                "`allow`: {} is everybody: an open relay (RFC 3142 section 7)",
                net.get_ref()
            );
            sink.warn(net.span(), message, "write the networks of the clients, or \"local\"");
        }
        if !draft.complete {
            continue;
        }
        if !trt.tcp && !trt.udp {
            let message = "neither TCP nor UDP is relayed";
            sink.error(at.span.clone(), message, "leave tcp or udp out, or the whole entry");
        }
        if let Some(span) = at.key("udp_idle").filter(|_| !trt.udp) {
            no_effect(span, "`udp_idle` has no effect: UDP is not relayed", sink);
        }
    }
}

fn names(drafts: &[Read<Trt>], sink: &mut Sink) {
    let name = |draft: &Read<Trt>| {
        let place = draft.at.key("name").unwrap_or_else(|| draft.at.span.clone());
        Spanned::new(place, draft.value.name.clone())
    };
    let names: Vec<_> = drafts.iter().filter(|draft| draft.complete).map(name).collect();
    for (first, second) in twice(&names, |name| name) {
        let message = format!("two relays are called \"{}\"", second.get_ref());
        let help = "write a name of its own into each";
        sink.error(second.span(), message, help).beside(first.span(), "the first one");
    }
}

/// A packet is taken by one: a relay or a translator.
fn prefixes(drafts: &[Read<Trt>], translated: &[Pool6], clats: &[Pool6], sink: &mut Sink) {
    let overlap = |one: Ipv6Net, other: Ipv6Net| one.contains(&other) || other.contains(&one);
    let mut earlier: Vec<(usize, Spanned<Pool6>)> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        for pool6 in draft.at.each("pool6", &draft.value.pool6) {
            let net = pool6.get_ref().net();
            let other = earlier
                .iter()
                .find(|(owner, it)| *owner != index && overlap(it.get_ref().net(), net));
            if let Some((_, other)) = other {
                let message = format!("`pool6`: {net} overlaps that of another relay");
                sink.error(pool6.span(), message, "give each relay a prefix of its own")
                    .beside(other.span(), "the other one");
            }
            if let Some(other) = translated.iter().find(|it| overlap(it.net(), net)) {
                let message = format!("`pool6`: {net} overlaps {} of a translator", other.net());
                sink.error(pool6.span(), message, "give each a prefix of its own");
            }
            // What the relay sends to IPv4 would come back to it as IPv6, and so on.
            if clats.iter().any(|it| overlap(it.net(), net)) {
                let message = format!("`pool6`: a CLAT of this host sends IPv4 to {net}: a loop");
                let help = "run the CLAT on another host, or give it another gateway's prefix";
                sink.error(pool6.span(), message, help);
            }
            earlier.push((index, pool6));
        }
    }
}
