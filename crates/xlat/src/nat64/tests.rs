//! The tables under the packets of a few hosts, and of many threads at once.

extern crate std;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::HashSet;

use crate::verdict::DropReason;

use super::*;

#[cfg(feature = "nat-pt")]
mod addresses;
mod changes;
mod claims;
mod crowd;
mod expect;
mod fence;
mod mappers;
mod operator;
mod parts;
mod permissions;
mod ports;
mod races;
mod recycle;
mod replica;
mod slices;

const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 7), 80);

fn host(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number)
}

fn pool(low: u16, high: u16) -> Pool {
    Pool { ranges: vec![Range { first: POOL, last: POOL, low, high }], ..Pool::default() }
}

fn settings(pool: Pool) -> Settings {
    let sizes = Sizes { bibs: 4096, sessions: 4096, subscribers: 256 };
    Settings { pools: vec![pool], sizes, ..Settings::default() }
}

fn nat(settings: Settings) -> Nat64 {
    let memory = Heap::new(&settings.sizes, [7, 11]);
    Nat64::new(settings, Arc::new(memory)).unwrap()
}

fn from_v6(protocol: Protocol, near: (Ipv6Addr, u16), segment: Segment) -> Tuple<Ipv6Addr> {
    let remote = if protocol == Protocol::Icmp { (SERVER.0, 0) } else { SERVER };
    Tuple { protocol, near, remote, segment, pool6: 0, mark: 0, packets: 1, octets: 100 }
}

fn udp(number: u16, port: u16) -> Tuple<Ipv6Addr> {
    from_v6(Protocol::Udp, (host(number), port), Segment::Other)
}

fn answer(tuple: &Tuple<Ipv6Addr>, near: (Ipv4Addr, u16), segment: Segment) -> Tuple<Ipv4Addr> {
    let Tuple { protocol, remote, pool6, mark, packets, octets, .. } = *tuple;
    Tuple { protocol, near, remote, segment, pool6, mark, packets, octets }
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(1_000_000 + seconds)
}

/// Sweeps, and gives back what it took out.
fn sweep(nat: &Nat64, sweeper: &mut Sweeper, now: Duration) -> (Swept, Vec<Event>) {
    let mut events = Vec::new();
    let swept = sweeper.sweep(nat, now, &mut |event| events.push(event));
    sweeper.release(nat);
    (swept, events)
}

#[test]
fn a_mapping_does_not_depend_on_the_other_end() {
    let nat = nat(settings(pool(1024, 65_535)));
    let first = udp(1, 5000);
    let local = nat.from_v6(&first, at(0), 0).unwrap();
    assert_eq!(local.0, POOL);
    let second = Tuple { remote: (Ipv4Addr::new(203, 0, 113, 9), 99), ..first };
    assert_eq!(nat.from_v6(&second, at(1), 0).unwrap(), local);
    // The other way: both remotes, and with endpoint-independent filtering a third.
    for remote in [first.remote, second.remote, (Ipv4Addr::new(203, 0, 113, 10), 1)] {
        let from = Tuple { remote, ..answer(&first, local, Segment::Other) };
        assert_eq!(nat.from_v4(&from, at(2), 0).unwrap().host, first.near);
    }
    assert_eq!(nat.sessions(at(2)).count(), 3);
    assert_eq!(nat.bib(at(2)).count(), 1);
}

#[test]
fn nobody_behind_an_unused_port() {
    let nat = nat(settings(pool(1024, 65_535)));
    let from = answer(&udp(1, 1), (POOL, 4000), Segment::Other);
    assert_eq!(nat.from_v4(&from, at(0), 0), Err(Refusal::Drop(DropReason::NoBib)));
}

#[test]
fn address_dependent_filtering_goes_by_the_address() {
    let filtering = Filtering::AddressDependent;
    let nat = nat(Settings { filtering, ..settings(pool(1024, 65_535)) });
    let local = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let other_port =
        Tuple { remote: (SERVER.0, 9999), ..answer(&udp(1, 5000), local, Segment::Other) };
    assert!(nat.from_v4(&other_port, at(0), 0).is_ok());
    let stranger = Tuple { remote: (Ipv4Addr::new(203, 0, 113, 1), 80), ..other_port };
    assert_eq!(nat.from_v4(&stranger, at(0), 0), Err(Refusal::Drop(DropReason::Filtered)));
}

#[test]
fn sessions_expire_and_ports_rest() {
    let nat = nat(settings(pool(2000, 2001)));
    let mut sweeper = Sweeper::new();
    let local = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let (swept, events) = sweep(&nat, &mut sweeper, at(300));
    assert_eq!((swept.sessions[1], swept.bibs[1]), (1, 1));
    assert!(
        matches!(events[..2], [Event::BibCreated(..), Event::SessionCreated(..)]),
        "{events:?}"
    );
    let (swept, events) = sweep(&nat, &mut sweeper, at(301));
    assert_eq!((swept.sessions[1], swept.hold_down), (0, 1));
    assert_eq!(nat.ended().expired[1].load(Ordering::Relaxed), 1);
    assert!(
        matches!(events[0], Event::SessionRemoved(_, SERVER, [(0, 0), (1, 100)])),
        "{events:?}"
    );
    // Its port rests: no other host gets it, the same one does.
    let (swept, _) = sweep(&nat, &mut sweeper, at(302));
    assert_eq!(swept.hold_down, 1);
    let others: Vec<_> = (2..4).map(|number| nat.from_v6(&udp(number, 5000), at(302), 0)).collect();
    assert!(others.iter().flatten().all(|other| *other != local));
    assert_eq!(nat.from_v6(&udp(1, 5000), at(303), 0), Ok(local));
}

#[test]
fn a_resting_port_is_free_after_a_while() {
    let nat = nat(settings(pool(2000, 2001)));
    let mut sweeper = Sweeper::new();
    nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    nat.from_v6(&udp(1, 5001), at(0), 0).unwrap();
    for now in [0, 301, 303] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!(nat.from_v6(&udp(2, 7), at(303), 0), Err(DropReason::PoolExhausted));
    // Their own subscriber may have them at once (RFC 6888 REQ-8).
    assert!(nat.from_v6(&udp(1, 7), at(303), 0).is_ok());
    sweep(&nat, &mut sweeper, at(500));
    sweep(&nat, &mut sweeper, at(501));
    assert!(nat.from_v6(&udp(2, 7), at(501), 0).is_ok());
}

#[test]
fn tcp_needs_a_syn_and_keeps_its_state() {
    let nat = nat(settings(pool(1024, 65_535)));
    let near = (host(1), 40_000);
    let segment = |segment| from_v6(Protocol::Tcp, near, segment);
    assert_eq!(nat.from_v6(&segment(Segment::Other), at(0), 0), Err(DropReason::NotSyn));
    let local = nat.from_v6(&segment(Segment::Syn), at(0), 0).unwrap();
    let state = |now| nat.sessions(now).next().map(|session| session.tcp.unwrap());
    assert_eq!(state(at(0)), Some(TcpState::V6Init));
    let back = |kind| answer(&segment(Segment::Other), local, kind);
    nat.from_v4(&back(Segment::SynAck), at(1), 0).unwrap();
    assert_eq!(state(at(1)), Some(TcpState::Established));
    nat.from_v6(&segment(Segment::Fin), at(2), 0).unwrap();
    nat.from_v4(&back(Segment::Fin), at(3), 0).unwrap();
    assert_eq!(state(at(3)), Some(TcpState::V4FinV6FinRcv));
    let mut sweeper = Sweeper::new();
    sweep(&nat, &mut sweeper, at(243));
    assert_eq!(nat.sessions(at(243)).count(), 1);
    sweep(&nat, &mut sweeper, at(244));
    assert_eq!(nat.sessions(at(244)).count(), 0);
    // TCP ports are free at once (RFC 6888 REQ-8).
    assert_eq!(nat.bib(at(244)).count(), 0);
}

#[test]
fn an_idle_connection_is_probed() {
    let nat = nat(settings(pool(1024, 65_535)));
    let mut sweeper = Sweeper::new();
    let near = (host(1), 40_000);
    let syn = from_v6(Protocol::Tcp, near, Segment::Syn);
    let local = nat.from_v6(&syn, at(0), 0).unwrap();
    nat.from_v4(&answer(&syn, local, Segment::SynAck), at(0), 0).unwrap();
    let (_, events) = sweep(&nat, &mut sweeper, at(7201));
    assert!(events.contains(&Event::Probe { host: near, remote: SERVER, pool6: 0 }), "{events:?}");
    assert_eq!(nat.sessions(at(7201)).next().unwrap().tcp, Some(TcpState::Trans));
    sweep(&nat, &mut sweeper, at(7442));
    assert_eq!(nat.sessions(at(7442)).count(), 0);
}

#[test]
fn an_unsolicited_syn_waits() {
    let nat = nat(settings(pool(1024, 65_535)));
    let tuple = from_v6(Protocol::Tcp, (host(1), 1), Segment::Syn);
    let syn = answer(&tuple, (POOL, 4000), Segment::Syn);
    assert_eq!(nat.from_v4(&syn, at(0), 0), Err(Refusal::Store));
    let backscatter = Tuple { segment: Segment::SynAck, ..syn };
    assert_eq!(nat.from_v4(&backscatter, at(0), 0), Err(Refusal::Drop(DropReason::NoBib)));
}

/// A session that is refused leaves no BIB entry behind, whose port would be nobody's and rest.
#[test]
fn a_refused_session_costs_no_port() {
    for quotas in [
        Quotas { ports: [0, 10, 0], sessions: 1, new_per_second: 0 },
        Quotas { ports: [0; 3], sessions: 0, new_per_second: 1 },
    ] {
        let nat = nat(Settings { quotas, ..settings(pool(2000, 3999)) });
        let mut sweeper = Sweeper::new();
        assert!(nat.from_v6(&udp(1, 1), at(0), 0).is_ok());
        for round in 0..20 {
            let now = at(3 * round);
            // One of each round is within the rate.
            let refused = (0..9).filter(|port| {
                nat.from_v6(&udp(1, 100 + 9 * round as u16 + port), now, 0).is_err()
            });
            assert!(refused.count() >= 8);
            assert!(nat.bib(now).count() as u64 <= 1 + round);
            let (swept, _) = sweep(&nat, &mut sweeper, at(3 * round + 2));
            assert_eq!(swept.hold_down, 0);
        }
    }
}

#[test]
fn quotas_hold() {
    let quotas = Quotas { ports: [0, 2, 0], sessions: 4, new_per_second: 0 };
    let nat = nat(Settings { quotas, ..settings(pool(1024, 65_535)) });
    assert!(nat.from_v6(&udp(1, 1), at(0), 0).is_ok());
    assert!(nat.from_v6(&udp(1, 2), at(0), 0).is_ok());
    assert_eq!(nat.from_v6(&udp(1, 3), at(0), 0), Err(DropReason::PortQuota));
    assert!(nat.from_v6(&udp(2, 3), at(0), 0).is_ok(), "another subscriber");
    let to = |port| Tuple { remote: (SERVER.0, port), ..udp(1, 1) };
    assert!(nat.from_v6(&to(1), at(0), 0).is_ok());
    assert!(nat.from_v6(&to(2), at(0), 0).is_ok());
    assert_eq!(nat.from_v6(&to(3), at(0), 0), Err(DropReason::SessionQuota));
    assert!(nat.from_v6(&to(2), at(0), 0).is_ok(), "established sessions go on");
    let subscriber = nat.subscribers(at(0)).find(|found| found.prefix == host(1)).unwrap();
    assert_eq!((subscriber.sessions, subscriber.ports), (4, [0, 2, 0]));
}

#[test]
fn new_sessions_have_a_rate() {
    let quotas = Quotas { new_per_second: 3, ..Quotas::default() };
    let nat = nat(Settings { quotas, ..settings(pool(1024, 65_535)) });
    let made = (0..10).filter(|port| nat.from_v6(&udp(1, *port), at(0), 0).is_ok()).count();
    assert_eq!(made, 3);
    assert!(nat.from_v6(&udp(1, 100), at(2), 0).is_ok());
    // Also those of one port. A second is eight ticks.
    let opened = [(1, 0), (2, 0), (3, 7), (4, 7), (5, 8)].map(|(remote, tick)| {
        let to = Tuple { remote: (SERVER.0, remote), ..udp(2, 1) };
        nat.from_v6(&to, Duration::from_nanos((8_000_000 + tick) << 27), 0).is_ok()
    });
    assert_eq!(opened, [true, true, true, false, true]);
}

#[test]
fn blocks_are_nobody_elses() {
    let allocation = Allocation::Blocks { size: 64, most: 2 };
    let nat = nat(settings(Pool { allocation, ..pool(1024, 1024 + 255) }));
    let mut owners = HashSet::new();
    for number in 1..=4 {
        let local = nat.from_v6(&udp(number, 9), at(0), 0).unwrap();
        assert!(owners.insert((local.1 - 1024) / 64), "two in a block");
    }
    assert_eq!(nat.from_v6(&udp(5, 9), at(0), 0), Err(DropReason::PoolExhausted));
    assert_eq!(nat.blocks(), [Occupancy { used: 4, size: 4 }]);
    let mut sweeper = Sweeper::new();
    let (_, events) = sweep(&nat, &mut sweeper, at(0));
    let assigned = |event: &&Event| matches!(event, Event::BlockAssigned(..));
    assert_eq!(events.iter().filter(assigned).count(), 4);
    let mut released = 0;
    for now in [301, 302, 1000, 1001] {
        let (_, events) = sweep(&nat, &mut sweeper, at(now));
        released += events.iter().filter(|e| matches!(e, Event::BlockReleased(..))).count();
    }
    assert_eq!((released, nat.blocks()[0].used), (4, 0));
}

#[test]
fn a_full_block_is_followed_by_another_at_the_same_address() {
    let allocation = Allocation::Blocks { size: 32, most: 3 };
    let mut wide = pool(1024, 1024 + 255);
    wide.ranges[0].last = Ipv4Addr::new(192, 0, 2, 8);
    let nat = nat(settings(Pool { allocation, ..wide }));
    let locals: Vec<_> = (0..97).map(|port| nat.from_v6(&udp(1, port), at(0), 0)).collect();
    let given: HashSet<_> = locals.iter().flatten().collect();
    assert_eq!(given.len(), 96, "each port once");
    assert_eq!(locals.iter().flatten().map(|local| local.0).collect::<HashSet<_>>().len(), 1);
    assert_eq!(locals.iter().filter(|l| **l == Err(DropReason::PoolExhausted)).count(), 1);
}

#[test]
fn an_address_may_have_several_ranges() {
    let mut gaps = pool(2000, 2007);
    gaps.ranges.push(Range { low: 3000, high: 3007, ..gaps.ranges[0] });
    let nat = nat(settings(gaps));
    let made = (0..17).filter(|port| nat.from_v6(&udp(1, *port), at(0), 0).is_ok()).count();
    assert_eq!(made, 16);
}

#[test]
fn only_so_many_ports_rest() {
    let mut settings = settings(pool(1024, 65_535));
    settings.lifetimes.hold_down_most = 5;
    let nat = nat(settings);
    for port in 0..20 {
        nat.from_v6(&udp(1, port), at(0), 0).unwrap();
    }
    let mut sweeper = Sweeper::new();
    for now in [301, 302] {
        assert_eq!(sweep(&nat, &mut sweeper, at(now)).0.hold_down, 5);
    }
}

#[test]
fn deterministic_blocks_tell_the_subscriber() {
    let clients = vec!["2001:db8:1::/112".parse().unwrap()];
    let mut wide = pool(1024, 65_535);
    wide.ranges[0].last = Ipv4Addr::new(192, 0, 2, 254);
    let pool = Pool { allocation: Allocation::Deterministic { size: 200 }, clients, ..wide };
    let nat = nat(settings(pool.clone()));
    for number in [0, 1, 77, 321, 322, 5000] {
        let local = nat.from_v6(&udp(number, 5000), at(0), 0).unwrap();
        let subscriber = pool.subscriber_of(local.0, local.1, 128).unwrap();
        assert_eq!(subscriber.addr(), host(number));
    }
}

#[test]
fn static_entries_stay_and_push_others_aside() {
    let mut settings = settings(pool(2000, 2001));
    let dynamic = nat(settings.clone());
    let taken = dynamic.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let bib = StaticBib { protocol: Protocol::Udp, v6: (host(9), 53), v4: taken };
    settings.bib = vec![bib];
    let nat = dynamic.reconfigured(settings.clone()).unwrap();
    assert_eq!(nat.make_static_bib(at(1)), []);
    let from = answer(&udp(9, 53), taken, Segment::Other);
    assert_eq!(nat.from_v4(&from, at(1), 0).unwrap().host, bib.v6);
    assert_eq!(nat.from_v6(&udp(9, 53), at(1), 0), Ok(taken));
    let mut sweeper = Sweeper::new();
    for now in [1, 400, 100_000] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert!(nat.bib(at(100_000)).any(|entry| entry.is_static && entry.binding.v6 == bib.v6));
    // Without it in the settings it goes.
    settings.bib.clear();
    let nat = nat.reconfigured(settings).unwrap();
    sweeper.review();
    sweep(&nat, &mut sweeper, at(100_001));
    assert_eq!(nat.bib(at(100_001)).count(), 0);
}

#[test]
fn what_does_not_fit_new_settings_goes_and_the_rest_stays() {
    let nat = nat(settings(pool(1024, 65_535)));
    for port in 0..200 {
        nat.from_v6(&udp(1, port), at(0), 0).unwrap();
    }
    let narrow = nat.reconfigured(settings(pool(1024, 30_000))).unwrap();
    let fits = nat.bib(at(0)).filter(|entry| entry.binding.v4.1 <= 30_000).count();
    let mut sweeper = Sweeper::new();
    sweeper.review();
    sweep(&narrow, &mut sweeper, at(1));
    sweep(&narrow, &mut sweeper, at(1));
    assert_eq!(narrow.bib(at(1)).count(), fits);
    assert_eq!(narrow.sessions(at(1)).count(), fits);
    assert!(fits > 20);
}

#[test]
fn full_tables_refuse_and_go_on() {
    let sizes = Sizes { bibs: 10, sessions: 10, subscribers: 10 };
    let nat = nat(Settings { sizes, ..settings(pool(1024, 65_535)) });
    let all: Vec<_> = (0..12).map(|port| nat.from_v6(&udp(1, port), at(0), 0)).collect();
    assert_eq!(all.iter().flatten().count(), 10);
    assert_eq!(all[10], Err(DropReason::BibFull));
    assert!(nat.from_v6(&udp(1, 3), at(1), 0).is_ok());
    assert_eq!(nat.occupancy()[1], Occupancy { used: 10, size: 10 });
    let mut sweeper = Sweeper::new();
    for now in [0, 302, 303, 430, 431] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!(nat.occupancy()[0].used, 0);
    assert_eq!((0..12).filter(|port| nat.from_v6(&udp(1, *port), at(431), 0).is_ok()).count(), 10);
}

#[test]
fn draining_keeps_what_is() {
    let nat = nat(settings(pool(1024, 65_535)));
    let local = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    nat.drain(true);
    assert_eq!(nat.from_v6(&udp(1, 2), at(0), 0), Err(DropReason::Draining));
    assert_eq!(nat.from_v6(&udp(1, 1), at(0), 0), Ok(local));
    nat.drain(false);
    assert!(nat.from_v6(&udp(1, 2), at(0), 0).is_ok());
}

/// Many threads open the same and different sessions while the sweeper lets all of them expire: never two
/// entries of a key, and in the end nothing is left over.
#[test]
fn threads_agree() {
    let nat = nat(settings(pool(1024, 8191)));
    crowd::work(&nat, false);
}

/// Threads that make, count and take back permissions.
#[test]
fn threads_agree_about_permissions() {
    let sizes = Sizes { bibs: 4096, sessions: 16_384, subscribers: 256 };
    for has_operator in [false, true] {
        let filtering = Filtering::AddressDependent;
        let nat = nat(Settings { filtering, sizes, ..settings(pool(1024, 8191)) });
        crowd::work(&nat, has_operator);
    }
}

/// The same while an operator takes entries away, and makes others.
#[test]
fn threads_agree_with_an_operator() {
    let nat = nat(settings(pool(1024, 8191)));
    crowd::work(&nat, true);
}
