//! Checks of entries of mode `nat44` that need more than one value.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::{MOST, Nat44};
use crate::diagnostic::Sink;
use crate::findings::{clashing, duplicates, twice};
use crate::keys::Read;
use crate::nat64::{Pool4, Pool4Source, lifetimes};

/// Addresses of `pool4`, `netmap` and `forward` that are set up on a device, at most: each is one of the host's own.
const ASSIGNED: u64 = 256;

/// Checks an entry of mode `nat44`.
pub(crate) fn nat44(draft: &Read<Nat44>, sink: &mut Sink) {
    let Read { value: nat44, at, .. } = draft;
    duplicates("clients", &at.each("clients", &nat44.clients), sink);
    if let Some(span) = at.key("clients").filter(|_| nat44.clients.len() > MOST) {
        let message = format!("`clients`: {} entries; {MOST} are possible", nat44.clients.len());
        sink.error(span, message, "write larger networks, or make a second translator");
    }
    devices(draft, sink);
    pool4(draft, sink);
    netmap(draft, sink);
    forwards(draft, sink);
    if let Some(it) = &nat44.lifetimes {
        let given = [
            ("udp", it.udp),
            ("icmp", it.icmp),
            ("tcp_est", it.tcp_est),
            ("tcp_trans", it.tcp_trans),
        ];
        lifetimes::check(at, &given, nat44.allow_short_lifetimes, sink);
    }
}

/// A device is either inside or outside.
fn devices(draft: &Read<Nat44>, sink: &mut Sink) {
    let Read { value: nat44, at, .. } = draft;
    let uplinks = at.each("uplink", &nat44.uplinks);
    for device in at.each("devices", &nat44.devices) {
        let name = device.get_ref();
        if let Some(uplink) = uplinks.iter().find(|it| it.get_ref() == name) {
            let message = format!("`devices`: {name} is the uplink");
            sink.error(
                device.span(),
                message,
                "write the devices that the hosts are behind, or leave devices out for any",
            )
            .beside(uplink.span(), "here");
        }
    }
}

fn pool4(draft: &Read<Nat44>, sink: &mut Sink) {
    let Read { value: nat44, at, .. } = draft;
    let all = at.each("pool4", &nat44.pool4);
    let mut addresses = 0u64;
    for (first, second) in clashing(&all, Pool4::overlaps) {
        let message = format!("`pool4`: {} overlaps {}", second.get_ref(), first.get_ref());
        let help = "give each port of each address once";
        sink.error(second.span(), message, help).beside(first.span(), "the other one");
    }
    for pool in &all {
        match &pool.get_ref().source {
            Pool4Source::Interface(_) if all.len() > 1 => {
                let message = "`pool4`: the addresses of a device can't be mixed with others";
                let help = "write the device's ports alone, or addresses alone";
                sink.error(pool.span(), message, help);
            }
            Pool4Source::Interface(name) if !nat44.uplinks.contains(name) => {
                let message = format!("`pool4`: {name} is no uplink of this translator");
                let help = "hosts get the address of the device that packets leave by";
                sink.error(pool.span(), message, help);
            }
            Pool4Source::Interface(_) => {}
            Pool4Source::Addresses { first, last } => addresses += count(*first, *last),
        }
    }
    let mapped =
        nat44.netmap.iter().map(|(_, outside)| count(outside.network(), outside.broadcast()));
    let forwarded: BTreeSet<Ipv4Addr> =
        nat44.forwards.iter().filter_map(|forward| forward.address).collect();
    addresses += mapped.sum::<u64>() + forwarded.len() as u64;
    if nat44.assign && addresses > ASSIGNED {
        let keys = ["pool4", "netmap", "forward"].into_iter().find_map(|key| at.key(key));
        let message = format!(
            "`assign`: {addresses} addresses can't all be set up on the uplink; {ASSIGNED} can"
        );
        let help = "add assign = false, and have the network route them to this host";
        sink.error(keys.unwrap_or(at.span.clone()), message, help);
    }
}

fn count(first: Ipv4Addr, last: Ipv4Addr) -> u64 {
    u64::from(last.to_bits().saturating_sub(first.to_bits())) + 1
}

/// Mapped networks overlap with no other addresses.
fn netmap(draft: &Read<Nat44>, sink: &mut Sink) {
    let Read { value: nat44, at, .. } = draft;
    let (all, pools) = (at.each("netmap", &nat44.netmap), at.each("pool4", &nat44.pool4));
    for (index, mapped) in all.iter().enumerate() {
        let (inside, outside) = mapped.get_ref();
        let overlaps = |a: &ipnet::Ipv4Net, b: &ipnet::Ipv4Net| a.contains(b) || b.contains(a);
        for earlier in &all[..index] {
            let (other_inside, other_outside) = earlier.get_ref();
            if overlaps(inside, other_inside) || overlaps(outside, other_outside) {
                let message = format!("`netmap`: {inside} or {outside} is mapped twice");
                sink.error(mapped.span(), message, "leave one out")
                    .beside(earlier.span(), "here first");
            }
        }
        let outer = |pool: &&toml::Spanned<Pool4>| {
            pool.get_ref().networks().iter().any(|net| overlaps(net, outside))
        };
        if let Some(pool) = pools.iter().find(outer) {
            let message = format!("`netmap`: {outside} is in pool4, too");

            let help = "take addresses that belong to these hosts alone";
            sink.error(mapped.span(), message, help).beside(pool.span(), "here");
        }
    }
}

/// A port goes to one host.
fn forwards(draft: &Read<Nat44>, sink: &mut Sink) {
    let Read { value: nat44, at, .. } = draft;
    let all = at.each("forward", &nat44.forwards);
    for (first, second) in twice(&all, |it| (it.protocol, it.port, it.address)) {
        let message = format!("`forward`: port {} is forwarded twice", second.get_ref().port);
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here first");
    }
    let clients = &nat44.clients;
    for forward in &all {
        let to = forward.get_ref().to.0;
        if !clients.is_empty() && !clients.iter().any(|net| net.contains(&to)) {
            let message = format!("`forward`: {to} is in none of the clients' networks");
            let help = "its answers pass untranslated unless they come back this way; add its network \
                        to clients";
            sink.warn(forward.span(), message, help);
        }
    }
}
