//! Checks of entries of mode `nat44` that need more than one value.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use super::read::Draft;
use crate::check::duplicates;
use crate::diagnostic::{Diagnostic, Sink};
use crate::nat64::{Pool4, Pool4Source};

/// Addresses of `pool4` that are set up on a device, at most: each is one of the host's own.
const ASSIGNED: u64 = 256;

/// Checks an entry.
pub(crate) fn nat44(draft: &Draft, sink: &mut Sink) {
    duplicates("clients", &draft.clients, sink);
    devices(draft, sink);
    pool4(draft, sink);
    netmap(draft, sink);
    forwards(draft, sink);
}

/// A device is either inside or outside.
fn devices(draft: &Draft, sink: &mut Sink) {
    for device in &draft.devices {
        let name = device.get_ref();
        if let Some(uplink) = draft.uplinks.iter().find(|it| it.get_ref() == name) {
            let message = format!("`devices`: {name} is the uplink");
            sink.push(
                Diagnostic::error(device.span(), message).related(uplink.span(), "here").help(
                    "write the devices that the hosts are behind, or leave devices out for any",
                ),
            );
        }
    }
}

fn pool4(draft: &Draft, sink: &mut Sink) {
    let assign = draft.nat44.as_ref().is_none_or(|nat44| nat44.assign);
    let mut addresses = 0u64;
    for (index, pool) in draft.pool4.iter().enumerate() {
        let earlier = draft.pool4[..index].iter().find(|it| it.get_ref().overlaps(pool.get_ref()));
        if let Some(earlier) = earlier {
            let message = format!("`pool4`: {} overlaps {}", pool.get_ref(), earlier.get_ref());
            let help = "give each port of each address once";
            let diagnostic = Diagnostic::error(pool.span(), message);
            sink.push(diagnostic.related(earlier.span(), "the other one").help(help));
        }
        match &pool.get_ref().source {
            Pool4Source::Interface(_) if draft.pool4.len() > 1 => {
                let message = "`pool4`: the addresses of a device can't be mixed with others";
                let help = "write the device's ports alone, or addresses alone";
                sink.push(Diagnostic::error(pool.span(), message).help(help));
            }
            Pool4Source::Interface(name)
                if !draft.uplinks.iter().any(|it| it.get_ref() == name) =>
            {
                let message = format!("`pool4`: {name} is no uplink of this translator");
                let help = "hosts get the address of the device that packets leave by";
                sink.push(Diagnostic::error(pool.span(), message).help(help));
            }
            Pool4Source::Interface(_) => {}
            Pool4Source::Addresses { first, last } => addresses += count(*first, *last),
        }
    }
    if assign && addresses > ASSIGNED {
        let span = draft.pool4.first().map_or(draft.span.clone(), toml::Spanned::span);
        let message = format!(
            "`pool4`: {addresses} addresses can't all be set up on the uplink; {ASSIGNED} can"
        );
        let help = "add assign = false, and have the network route them to this host";
        sink.push(Diagnostic::error(span, message).help(help));
    }
}

fn count(first: Ipv4Addr, last: Ipv4Addr) -> u64 {
    u64::from(last.to_bits().saturating_sub(first.to_bits())) + 1
}

/// Mapped networks are nobody else's.
fn netmap(draft: &Draft, sink: &mut Sink) {
    for (index, mapped) in draft.netmap.iter().enumerate() {
        let (inside, outside) = mapped.get_ref();
        let overlaps = |a: &ipnet::Ipv4Net, b: &ipnet::Ipv4Net| a.contains(b) || b.contains(a);
        for earlier in &draft.netmap[..index] {
            let (other_inside, other_outside) = earlier.get_ref();
            if overlaps(inside, other_inside) || overlaps(outside, other_outside) {
                let message = format!("`netmap`: {inside} or {outside} is mapped twice");
                let diagnostic = Diagnostic::error(mapped.span(), message);
                sink.push(diagnostic.related(earlier.span(), "here first").help("leave one out"));
            }
        }
        let outer = |pool: &&toml::Spanned<Pool4>| {
            pool.get_ref().networks().iter().any(|net| overlaps(net, outside))
        };
        if let Some(pool) = draft.pool4.iter().find(outer) {
            let message = format!("`netmap`: {outside} is in pool4, too");
            let diagnostic = Diagnostic::error(mapped.span(), message);
            let help = "take addresses that belong to these hosts alone";
            sink.push(diagnostic.related(pool.span(), "here").help(help));
        }
    }
}

/// A port goes to one host.
fn forwards(draft: &Draft, sink: &mut Sink) {
    for (index, forward) in draft.forwards.iter().enumerate() {
        let it = forward.get_ref();
        let same = |other: &&toml::Spanned<super::Forward>| {
            let other = other.get_ref();
            (other.protocol, other.port, other.address) == (it.protocol, it.port, it.address)
        };
        if let Some(earlier) = draft.forwards[..index].iter().find(same) {
            let message = format!("`forward`: port {} is forwarded twice", it.port);
            let diagnostic = Diagnostic::error(forward.span(), message);
            sink.push(diagnostic.related(earlier.span(), "here first").help("leave one out"));
        }
    }
    let clients: Vec<RangeInclusive<Ipv4Addr>> = draft
        .clients
        .iter()
        .map(|net| net.get_ref().network()..=net.get_ref().broadcast())
        .collect();
    for forward in &draft.forwards {
        let to = forward.get_ref().to.0;
        if !clients.is_empty() && !clients.iter().any(|net| net.contains(&to)) {
            let message = format!("`forward`: {to} is in none of the clients' networks");
            let help = "its answers pass untranslated unless they come back this way; add its network \
                        to clients";
            sink.push(Diagnostic::warning(forward.span(), message).help(help));
        }
    }
}
