//! What has to go together in a stateful translator.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::ops::Range;

use fordway_xlat::nat64::{Allocation, Protocol, StaticBib};
use ipnet::{Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::pool4::{Pool4Source, Ports};
use super::{Nat64, Pool4, PoolAt, alg, lifetimes, log, nat_pt, places_of, pool};
use crate::diagnostic::Sink;
use crate::keys::Places;

/// Pools of one translator: their numbers have 16 bits in the tables, and each packet of a new host asks
/// one after the other.
const MAX_POOLS: usize = 1000;

/// Blocks of a pool: which are given is remembered in a bit of each.
const MAX_BLOCKS: u64 = 1 << 28;

/// The IPv4 networks that are routed to a stateful translator: those of its pools, and of its BIB.
pub(crate) fn networks(at: &Places, nat64: &Nat64) -> Vec<(Ipv4Net, Range<usize>)> {
    let pools = places_of(&nat64.pools, at);
    let pools = pools.iter().flat_map(|pool| &pool.pool4).flat_map(|pool4| {
        let nets = pool4.get_ref().networks().into_iter();
        nets.map(|net| (net, pool4.span()))
    });
    let bib = at.each("bib", &nat64.bib);
    let bib = bib.iter().map(|bib| (Ipv4Net::from(bib.get_ref().v4.0), bib.span()));
    let bound = nat64.nat_pt.iter().flat_map(|nat_pt| nat_pt::networks(at, nat_pt));
    pools.chain(bib).chain(bound).collect()
}

/// Checks a stateful translator.
pub(crate) fn nat64(at: &Places, nat64: &Nat64, sink: &mut Sink) {
    let in_pool6 = |v6| nat64.pool6.iter().any(|pool6| pool6.contains(v6));
    pool::check(at, &nat64.pools, nat64.nat_pt.is_some(), sink);
    alg::check(at, &nat64.gateways, sink);
    for (log, at) in nat64.logs.iter().zip(at.tables("log")) {
        log::check(at, log, sink);
    }
    let it = &nat64.lifetimes;
    let given = [
        ("udp", it.udp),
        ("icmp", it.icmp),
        ("tcp_est", it.tcp_est),
        ("tcp_trans", it.tcp_trans),
        ("tcp_incoming_syn", it.tcp_incoming_syn),
        ("port_rest", it.hold_down),
    ];
    lifetimes::check(at, &given, nat64.allow_short_lifetimes, sink);
    let pools = places_of(&nat64.pools, at);
    if let Some(first) = pools.get(MAX_POOLS) {
        let message = format!("more than {MAX_POOLS} pools");
        let help = "hosts with the same addresses can share a pool: clients is a list";
        sink.error(first.span.clone(), message, help);
        return;
    }
    overlapping_pools(&pools, sink);
    for (index, pool) in pools.iter().enumerate() {
        parts_of_subscribers(pool, nat64.subscriber_len, sink);
        never_asked(&pools[..index], pool, sink);
        match pool.pool.allocation {
            Allocation::Shared => {}
            Allocation::Blocks { size, .. } => blocks(pool, size, sink),
            Allocation::Deterministic { size } => {
                deterministic(pool, size, nat64.subscriber_len, sink);
            }
        }
    }
    let bib = at.each("bib", &nat64.bib);
    duplicate_bib(&bib, sink);
    if let Some(nat_pt) = &nat64.nat_pt {
        nat_pt::check(at, nat_pt, |net| in_pools(&pools, net), in_pool6, sink);
    }
    for bib in &bib {
        if in_pool6(bib.get_ref().v6.0) {
            let message =
                format!("`bib`: {} lies in pool6, which stands for IPv4 hosts", bib.get_ref().v6.0);
            sink.error(bib.span(), message, "write the address of a host behind the translator");
        }
        forward_in_a_block(bib, &pools, sink);
    }
}

/// Where pool4 has an address of a network.
fn in_pools(pools: &[PoolAt<'_>], net: Ipv4Net) -> Option<Range<usize>> {
    let mut all = pools.iter().flat_map(|pool| &pool.pool4);
    let common = |entry: &&Spanned<Pool4>| {
        entry
            .get_ref()
            .addresses()
            .is_some_and(|(first, last)| first <= net.broadcast() && net.network() <= last)
    };
    all.find(common).map(Spanned::span)
}

fn overlapping_pools(pools: &[PoolAt<'_>], sink: &mut Sink) {
    let all: Vec<&Spanned<Pool4>> = pools.iter().flat_map(|pool| &pool.pool4).collect();
    for (second, first) in overlaps(&all) {
        let (first, second) = (all[first], all[second]);
        let message = format!(
            "`pool4`: {} and {} have addresses with ports in common",
            second.get_ref(),
            first.get_ref()
        );
        sink.error(second.span(), message, "give each its own addresses, or its own ports of them")
            .beside(first.span(), "the other one");
    }
}

/// The entries that overlap one before them, and which one: places in `all`. In the order of addresses, so
/// that each is compared with its neighbours only.
fn overlaps(all: &[&Spanned<Pool4>]) -> BTreeMap<usize, usize> {
    // Devices, whose addresses are not known here, stand together.
    let begins = |at: usize| all[at].get_ref().addresses().map(|(first, _)| first);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| begins(*at));
    let mut found: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open: Vec<usize> = Vec::new();
    for at in order {
        let (it, begins) = (all[at].get_ref(), begins(at));
        open.retain(|earlier| match (all[*earlier].get_ref().addresses(), begins) {
            (Some((_, last)), Some(first)) => first <= last,
            (earlier, first) => earlier.is_none() && first.is_none(),
        });
        for other in open.iter().copied().filter(|other| all[*other].get_ref().overlaps(it)) {
            let (first, second) = (at.min(other), at.max(other));
            found.entry(second).and_modify(|known| *known = first.min(*known)).or_insert(first);
        }
        open.push(at);
    }
    found
}

/// A pool is given to subscribers; what is less than one can't have a pool.
fn parts_of_subscribers(pool: &PoolAt<'_>, subscriber_len: u8, sink: &mut Sink) {
    for net in pool.clients.iter().filter(|net| net.get_ref().prefix_len() > subscriber_len) {
        let message = format!(
            "`clients`: {} is only a part of a subscriber, which has a /{subscriber_len}",
            net.get_ref()
        );
        let help =
            format!("write a prefix of at most {subscriber_len} bits, or a greater subscriber_len");
        sink.error(net.span(), message, help);
    }
}

/// The first pool that takes a host is its pool.
fn never_asked(earlier: &[PoolAt<'_>], pool: &PoolAt<'_>, sink: &mut Sink) {
    for net in &pool.clients {
        let covers = |it: &&PoolAt<'_>| {
            let takes = |client: &Spanned<Ipv6Net>| client.get_ref().contains(net.get_ref());
            (it.pool.mark.is_none() || it.pool.mark == pool.pool.mark)
                && (it.pool.clients.is_empty() || it.clients.iter().any(takes))
        };
        let Some(first) = earlier.iter().find(covers) else { continue };
        let message = format!("`clients`: an earlier pool takes all of {}", net.get_ref());
        sink.warn(
            net.span(),
            message,
            "write pools for longer prefixes before those for shorter ones",
        )
        .beside(first.span.clone(), "the first that takes a host is its pool");
    }
}

/// Blocks of a pool, where all addresses are written down.
fn count(pool: &PoolAt<'_>, size: u16) -> Option<u64> {
    pool.pool4.iter().try_fold(0u64, |sum, entry| {
        let (first, last) = entry.get_ref().addresses()?;
        let addresses = u64::from(last.to_bits() - first.to_bits()) + 1;
        Some(sum + addresses * u64::from(entry.get_ref().ports.count() / u32::from(size)))
    })
}

fn blocks(pool: &PoolAt<'_>, size: u16, sink: &mut Sink) {
    for entry in &pool.pool4 {
        let Ports { low, .. } = entry.get_ref().ports;
        let ports = entry.get_ref().ports.count();
        let rest = ports % u32::from(size);
        if ports < u32::from(size) {
            let message =
                format!("`pool4`: {} has {ports} ports, and a block has {size}", entry.get_ref());
            sink.error(entry.span(), message, "write more ports, or smaller blocks");
        } else if rest != 0 {
            let message = format!(
                "`pool4`: the last {rest} ports of each address of {} are in no block of {size}",
                entry.get_ref()
            );
            let last = u32::from(low) + ports - rest - 1;
            sink.warn(entry.span(), message, format!("write {low}-{last}, or another size"));
        }
        if low % 2 == 1 {
            let message = format!(
                "`pool4`: blocks that begin with an odd port, {low}: even and odd ports are given in \
                 pairs (RFC 4787 REQ-4)"
            );
            sink.warn(entry.span(), message, format!("begin with {}", u32::from(low) + 1));
        }
    }
    if let Some(number) = count(pool, size).filter(|number| *number > MAX_BLOCKS) {
        let message = format!("`pool4`: {number} blocks are more than can be remembered");
        let help = format!("write fewer addresses or greater blocks: {MAX_BLOCKS} are possible");
        sink.error(pool.span.clone(), message, help);
    }
}

/// RFC 7422: each subscriber of the client prefix has its block.
fn deterministic(pool: &PoolAt<'_>, size: u16, subscriber_len: u8, sink: &mut Sink) {
    blocks(pool, size, sink);
    let device =
        pool.pool4.iter().find(|entry| matches!(entry.get_ref().source, Pool4Source::Interface(_)));
    if let Some(device) = device {
        let message = "`deterministic`: the addresses of a device may change, and with them whose \
                       ports are whose";
        sink.error(device.span(), message, "write the addresses, or port_blocks instead");
        return;
    }
    let [client] = pool.clients.as_slice() else {
        let message = "`deterministic`: a subscriber's ports are computed from its place in the pool's \
                       client prefix, so there must be one";
        let help = "write clients = [\"2001:db8:1::/48\"] in a [[translator.pool]] of its own";
        sink.error(pool.allocation.clone(), message, help);
        return;
    };
    let (client, span) = (client.get_ref(), client.span());
    let bits = u32::from(subscriber_len.saturating_sub(client.prefix_len()));
    let subscribers = 1u128.checked_shl(bits).unwrap_or(u128::MAX);
    let Some(number) = count(pool, size) else { return };
    if subscribers <= u128::from(number) {
        return;
    }
    let many = |bits: u32| match bits {
        0..=63 => (1u64 << bits).to_string(),
        _ => format!("2^{bits}"),
    };
    let message = format!(
        "`deterministic`: {client} has {} subscribers (each a /{subscriber_len}, see subscriber_len), \
         and the pool has {number} blocks of {size} ports",
        many(bits)
    );
    let mut help = "add addresses, make blocks smaller, or write a longer client prefix".to_owned();
    if number > 0 {
        let longest = u32::from(subscriber_len) - number.ilog2();
        help.push_str(&format!("; this pool is enough for a /{longest}"));
    }
    sink.error(span, message, help);
}

/// One BIB entry for each transport address, on either side (RFC 6146 section 3.1).
fn duplicate_bib(bib: &[Spanned<StaticBib>], sink: &mut Sink) {
    let mut v4: HashMap<(Protocol, (Ipv4Addr, u16)), Range<usize>> = HashMap::new();
    let mut v6 = HashMap::new();
    for bib in bib {
        let entry = bib.get_ref();
        let first = match v4.insert((entry.protocol, entry.v4), bib.span()) {
            Some(first) => Some((first, format!("{}:{}", entry.v4.0, entry.v4.1))),
            None => v6
                .insert((entry.protocol, entry.v6), bib.span())
                .map(|first| (first, format!("[{}]:{}", entry.v6.0, entry.v6.1))),
        };
        let Some((first, what)) = first else { continue };
        let message = format!("`bib`: {} {what} is in two entries", entry.protocol.label());
        sink.error(
            bib.span(),
            message,
            "leave one out: the BIB has one entry for a transport address (RFC 6146)",
        )
        .beside(first, "here first");
    }
}

/// A port that one host has by its block and another by a forward.
fn forward_in_a_block(bib: &Spanned<StaticBib>, pools: &[PoolAt<'_>], sink: &mut Sink) {
    let (address, port) = bib.get_ref().v4;
    let holds = |entry: &&Spanned<Pool4>| {
        let entry = entry.get_ref();
        let within =
            entry.addresses().is_some_and(|(first, last)| (first..=last).contains(&address));
        within && entry.ports.contains(port)
    };
    let blocks = pools.iter().filter(|pool| pool.pool.allocation != Allocation::Shared);
    let Some(entry) = blocks.flat_map(|pool| &pool.pool4).find(holds) else { return };
    let message = format!(
        "`bib`: {address}:{port} lies in the ports that are given in blocks, so a log of blocks names \
         another subscriber for it"
    );
    sink.warn(bib.span(), message, "take a port outside, such as one below 1024")
        .beside(entry.span(), "these");
}
