//! Which IPv4 transport addresses are the translator's: an index of the settings, since every packet needs it, and an
//! operator may have configured ten thousand port forwards.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::nat64::nat_pt::Addresses;
use crate::nat64::table::Protocol;

use super::Settings;

/// The first and the last of ports.
type Ports = (u16, u16);

const ALL: Ports = (0, u16::MAX);

/// The translator's transport addresses.
#[derive(Debug)]
pub(crate) struct Owned {
    /// Those of the pools.
    pools: Spans,
    /// Addresses that hosts get for themselves.
    bindable: Spans,
    /// Those of BIB entries that the operator has written, in order.
    bound: Vec<(Ipv4Addr, u8, u16)>,
}

/// Consecutive addresses, with the same ports of each.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    last: u32,
    /// First and last ports, in order and apart from each other.
    ports: Vec<Ports>,
}

/// Spans in order, none over another.
#[derive(Debug, Default)]
struct Spans(Vec<Span>);

impl Owned {
    pub(crate) fn new(settings: &Settings) -> Owned {
        let ranges = settings.pools.iter().flat_map(|pool| &pool.ranges);
        let pools = ranges.map(|range| (range.first, range.last, (range.low, range.high)));
        let bindable = settings.addresses.iter().flat_map(Addresses::ranges);
        let bindable = bindable.map(|(first, last)| (first, last, ALL));
        let bound = settings.bib.iter().map(|bib| (bib.v4.0, bib.protocol.number(), bib.v4.1));
        let mut bound: Vec<_> = bound.collect();
        bound.sort_unstable();
        Owned { pools: Spans::of(pools), bindable: Spans::of(bindable), bound }
    }

    /// Whether a transport address is the translator's.
    pub(crate) fn has(&self, protocol: Protocol, addr: Ipv4Addr, port: u16) -> bool {
        self.pools.has(addr, port)
            || self.bound.binary_search(&(addr, protocol.number(), port)).is_ok()
            || self.is_bindable(addr)
    }

    /// Whether an address is the translator's, with some port.
    pub(crate) fn has_address(&self, addr: Ipv4Addr) -> bool {
        let next = self.bound.partition_point(|bound| bound.0 < addr);
        self.pools.of_address(addr).is_some()
            || self.bound.get(next).is_some_and(|bound| bound.0 == addr)
            || self.is_bindable(addr)
    }

    /// Whether an address is one that hosts get for themselves.
    pub(crate) fn is_bindable(&self, addr: Ipv4Addr) -> bool {
        self.bindable.of_address(addr).is_some()
    }
}

impl Spans {
    /// From first and last addresses, and first and last ports, in any order and over each other.
    fn of(ranges: impl Iterator<Item = (Ipv4Addr, Ipv4Addr, Ports)>) -> Spans {
        // Where which ports begin (1) and end (-1).
        let mut changes: BTreeMap<u64, Vec<(Ports, i32)>> = BTreeMap::new();
        for (first, last, ports) in ranges.filter(|(first, last, _)| first <= last) {
            changes.entry(u64::from(first.to_bits())).or_default().push((ports, 1));
            changes.entry(u64::from(last.to_bits()) + 1).or_default().push((ports, -1));
        }
        let mut spans: Vec<Span> = Vec::new();
        let mut open: BTreeMap<Ports, i32> = BTreeMap::new();
        let mut from = 0;
        for (at, changed) in changes {
            if !open.is_empty() {
                let ports = merged(open.keys().copied());
                let (first, last) = (from as u32, (at - 1) as u32);
                match spans.last_mut() {
                    Some(before)
                        if before.last.checked_add(1) == Some(first) && before.ports == ports =>
                    {
                        before.last = last;
                    }
                    _ => spans.push(Span { first, last, ports }),
                }
            }
            for (ports, change) in changed {
                let number = open.entry(ports).or_default();
                *number += change;
                if *number == 0 {
                    open.remove(&ports);
                }
            }
            from = at;
        }
        Spans(spans)
    }

    fn of_address(&self, addr: Ipv4Addr) -> Option<&Span> {
        let addr = addr.to_bits();
        let span = self.0.get(self.0.partition_point(|span| span.last < addr))?;
        (span.first <= addr).then_some(span)
    }

    fn has(&self, addr: Ipv4Addr, port: u16) -> bool {
        self.of_address(addr).is_some_and(|span| {
            let ports = span.ports.get(span.ports.partition_point(|ports| ports.1 < port));
            ports.is_some_and(|ports| ports.0 <= port)
        })
    }
}

/// Ports in order of their first, without gaps where there are none.
fn merged(ports: impl Iterator<Item = Ports>) -> Vec<Ports> {
    let mut all: Vec<Ports> = Vec::new();
    for (low, high) in ports {
        match all.last_mut() {
            Some(before) if low <= before.1.saturating_add(1) => before.1 = before.1.max(high),
            _ => all.push((low, high)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_of_bib_entries_are_known_one_by_one() {
        let bib = |last: u8, port| super::super::settings::StaticBib {
            protocol: Protocol::Tcp,
            v6: (core::net::Ipv6Addr::LOCALHOST, port),
            v4: (Ipv4Addr::new(192, 0, 2, last), port),
        };
        let bib = alloc::vec![bib(9, 80), bib(3, 22), bib(9, 443), bib(5, 80)];
        let owned = Owned::new(&Settings { bib, ..Settings::default() });
        for last in 0..12 {
            let addr = Ipv4Addr::new(192, 0, 2, last);
            assert_eq!(owned.has_address(addr), [3, 5, 9].contains(&last), "{addr}");
            for port in [22, 80, 443] {
                let is_own = [(3, 22), (5, 80), (9, 80), (9, 443)].contains(&(last, port));
                assert_eq!(owned.has(Protocol::Tcp, addr, port), is_own, "{addr} {port}");
                assert!(!owned.has(Protocol::Udp, addr, port));
            }
        }
    }

    #[test]
    fn ranges_that_meet_are_one_if_their_ports_are_the_same() {
        let addr = |last| Ipv4Addr::new(192, 0, 2, last);
        let ranges = [(0, 1, 80), (2, 2, 80), (3, 5, 443), (7, 8, 443)];
        let spans =
            Spans::of(ranges.map(|(a, b, port)| (addr(a), addr(b), (port, port))).into_iter());
        let found = spans.0.iter().map(|span| (span.first as u8, span.last as u8, span.ports[0].0));
        assert_eq!(found.collect::<Vec<_>>(), [(0, 2, 80), (3, 5, 443), (7, 8, 443)]);
    }

    proptest! {
        /// Few addresses and ports, so that ranges meet, overlap and leave gaps.
        #[test]
        fn the_index_says_what_a_search_says(
            ranges in proptest::collection::vec((0_u8..12, 0_u8..12, 0_u16..9, 0_u16..9), 0..8),
            at_the_end in any::<bool>(),
        ) {
            let base = if at_the_end { u32::MAX - 11 } else { 0 };
            let addr = |at: u8| Ipv4Addr::from_bits(base + u32::from(at));
            let port = |port: u16| if port == 8 { u16::MAX } else { port };
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(a, b, low, high)| (a.min(b), a.max(b), port(low.min(high)), port(low.max(high))))
                .collect();
            let spans = Spans::of(ranges.iter().map(|(a, b, low, high)| (addr(*a), addr(*b), (*low, *high))));
            for at in 0..12 {
                let over = || ranges.iter().filter(|range| (range.0..=range.1).contains(&at));
                prop_assert_eq!(spans.of_address(addr(at)).is_some(), over().next().is_some());
                for number in (0..10).chain([u16::MAX - 1, u16::MAX]) {
                    let has = over().any(|range| (range.2..=range.3).contains(&number));
                    prop_assert_eq!(spans.has(addr(at), number), has, "{} {}", at, number);
                }
            }
        }
    }
}
