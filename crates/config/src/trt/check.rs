//! What has to go together in `[[trt]]`.

use std::collections::HashMap;

use fordway_xlat::addr::Pool6;
use ipnet::Ipv6Net;
use toml::Spanned;

use super::read::Draft;
use crate::check::{duplicates, well_known_prefix};
use crate::diagnostic::{Diagnostic, Sink};
use crate::dns64::read::no_effect;
use crate::name::InterfaceName;

/// Checks all entries. `translated`: the prefixes of translators; `clats`: those that CLATs send IPv4 to.
pub(crate) fn trt(drafts: &[Draft], translated: &[Pool6], clats: &[Pool6], sink: &mut Sink) {
    names(drafts, sink);
    prefixes(drafts, translated, clats, sink);
    for draft in drafts {
        duplicates("pool6", &draft.pool6, sink);
        duplicates("allow", &draft.allow, sink);
        duplicates("refuse4", &draft.refuse4, sink);
        duplicates("source4", &draft.source4, sink);
        well_known_prefix(&draft.pool6, sink);
        for net in draft.allow.iter().filter(|net| net.get_ref().prefix_len() == 0) {
            let message = format!(
                "`allow`: {} is everybody: an open relay (RFC 3142 section 7)",
                net.get_ref()
            );
            let help = "write the networks of the clients, or \"local\"";
            sink.push(Diagnostic::warning(net.span(), message).help(help));
        }
        let Some(trt) = draft.trt() else { continue };
        if !trt.tcp && !trt.udp {
            let message = "neither TCP nor UDP is relayed";
            let help = "leave tcp or udp out, or the whole entry";
            sink.push(Diagnostic::error(draft.span.clone(), message).help(help));
        }
        if let Some(span) = &draft.udp_idle
            && !trt.udp
        {
            no_effect(span.clone(), "`udp_idle` has no effect: UDP is not relayed", sink);
        }
    }
}

fn names(drafts: &[Draft], sink: &mut Sink) {
    let mut first: HashMap<InterfaceName, &Draft> = HashMap::new();
    for draft in drafts {
        let Some(trt) = draft.trt() else { continue };
        if let Some(earlier) = first.get(&trt.name) {
            let place =
                |it: &Draft| it.name.as_ref().map_or_else(|| it.span.clone(), Spanned::span);
            let message = format!("two relays are called \"{}\"", trt.name);
            sink.push(
                Diagnostic::error(place(draft), message)
                    .related(place(earlier), "the first one")
                    .help("write a name of its own into each"),
            );
        } else {
            first.insert(trt.name.clone(), draft);
        }
    }
}

/// A packet is taken by one: a relay or a translator.
fn prefixes(drafts: &[Draft], translated: &[Pool6], clats: &[Pool6], sink: &mut Sink) {
    let overlap = |one: Ipv6Net, other: Ipv6Net| one.contains(&other) || other.contains(&one);
    let mut earlier: Vec<(usize, &Spanned<Pool6>)> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        for pool6 in &draft.pool6 {
            let net = pool6.get_ref().net();
            let other = earlier
                .iter()
                .find(|(owner, it)| *owner != index && overlap(it.get_ref().net(), net));
            if let Some((_, other)) = other {
                let message = format!("`pool6`: {net} overlaps that of another relay");
                sink.push(
                    Diagnostic::error(pool6.span(), message)
                        .related(other.span(), "the other one")
                        .help("give each relay a prefix of its own"),
                );
            }
            if let Some(other) = translated.iter().find(|it| overlap(it.net(), net)) {
                let message = format!("`pool6`: {net} overlaps {} of a translator", other.net());
                let help = "give each a prefix of its own";
                sink.push(Diagnostic::error(pool6.span(), message).help(help));
            }
            // What the relay sends to IPv4 would come back to it as IPv6, and so on.
            if clats.iter().any(|it| overlap(it.net(), net)) {
                let message = format!("`pool6`: a CLAT of this host sends IPv4 to {net}: a loop");
                let help = "run the CLAT on another host, or give it another gateway's prefix";
                sink.push(Diagnostic::error(pool6.span(), message).help(help));
            }
            earlier.push((index, pool6));
        }
    }
}
