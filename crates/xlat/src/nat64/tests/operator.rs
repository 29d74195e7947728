//! What an operator sees and does by hand, and what the sweeper tells of itself.

use super::*;

#[test]
fn a_sweep_counts_what_there_is() {
    let nat = nat(settings(pool(1024, 65_535)));
    for number in 1..=5 {
        let near = (host(number), 40_000);
        let segment = |segment| from_v6(Protocol::Tcp, near, segment);
        let local = nat.from_v6(&segment(Segment::Syn), at(0), 0).unwrap();
        if number > 2 {
            let back = answer(&segment(Segment::Other), local, Segment::SynAck);
            nat.from_v4(&back, at(0), 0).unwrap();
        }
        nat.from_v6(&udp(number, 5000), at(0), 0).unwrap();
    }
    let (swept, _) = sweep(&nat, &mut Sweeper::new(), at(1));
    let mut tcp_states = [0; 7];
    for (state, number) in [(TcpState::V6Init, 2), (TcpState::Established, 3)] {
        tcp_states[TcpState::ALL.iter().position(|other| *other == state).unwrap()] = number;
    }
    let bibs = [5, 5, 0, 0];
    let pools = vec![PoolUse { subscribers: 5, ports: [5, 5, 0] }];
    let rest = swept.clone();
    let expected = Swept { bibs, sessions: [5, 5, 0], tcp_states, subscribers: 5, pools, ..rest };
    assert_eq!(swept, expected);
    assert_eq!((swept.hold_down, swept.waiting), (0, 0));
}

#[test]
fn what_a_killed_sweeper_had_taken_out_is_given_back() {
    let lifetimes = Lifetimes {
        hold_down: Duration::ZERO,
        subscriber: Duration::from_secs(1),
        ..Lifetimes::default()
    };
    let nat = nat(Settings { lifetimes, ..settings(pool(1024, 65_535)) });
    nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let used = || nat.occupancy().map(|occupancy| occupancy.used);
    let mut killed = Sweeper::new();
    for _ in 0..2 {
        assert_eq!(killed.sweep(&nat, at(400), &mut |_| {}).waiting, 3);
    }
    assert_eq!(used(), [1; 3]);
    let mut sweeper = Sweeper::new();
    sweeper.sweep(&nat, at(400), &mut |_| {});
    sweeper.release(&nat);
    assert_eq!(used(), [0; 3]);
}

#[test]
fn entries_of_the_operator_and_others() {
    let nat = nat(settings(pool(1024, 65_535)));
    let added = StaticBib { protocol: Protocol::Udp, v6: (host(1), 53), v4: (POOL, 5353) };
    nat.add_bib(&added, at(0)).unwrap();
    assert_eq!(nat.add_bib(&added, at(0)), Ok(()), "it is there");
    let other = StaticBib { v4: (POOL, 5354), ..added };
    assert!(
        matches!(nat.add_bib(&other, at(0)), Err(BibError::Bound(bound)) if bound.v4 == added.v4)
    );
    // One that traffic has made becomes static.
    let local = nat.from_v6(&udp(2, 5000), at(0), 0).unwrap();
    let kinds = || {
        let mut kinds: Vec<_> =
            nat.bib(at(0)).map(|bib| (bib.binding.v6, bib.is_static, bib.is_added)).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(), [((host(1), 53), true, true), ((host(2), 5000), false, false)]);
    let same = StaticBib { protocol: Protocol::Udp, v6: (host(2), 5000), v4: local };
    nat.add_bib(&same, at(0)).unwrap();
    assert_eq!(kinds(), [((host(1), 53), true, true), ((host(2), 5000), true, true)]);
}

#[test]
fn entries_of_the_configuration_take_no_other_of_its_own_away() {
    let entry = |number, port| StaticBib {
        protocol: Protocol::Udp,
        v6: (host(number), 5000),
        v4: (POOL, port),
    };
    let nat = nat(settings(pool(1024, 65_535)));
    let used = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let same_host = entry(1, if used.1 == 2000 { 2001 } else { 2000 });
    let (kept, same_port) = (entry(2, 80), entry(3, 80));
    let other = nat.reconfigured(Settings {
        bib: vec![same_host, kept, same_port],
        ..settings(pool(1024, 65_535))
    });
    let nat = other.unwrap();
    let failed = nat.make_static_bib(at(1));
    assert!(
        matches!(&failed[..], [(wanted, BibError::Taken(by))] if *wanted == same_port && by.v6 == kept.v6),
        "{failed:?}"
    );
    let mut ends: Vec<_> = nat.bib(at(1)).map(|bib| (bib.binding.v6, bib.binding.v4.1)).collect();
    ends.sort_unstable();
    assert_eq!(ends, [((host(1), 5000), same_host.v4.1), ((host(2), 5000), 80)]);
}

#[test]
fn ports_are_taken_from_eight_ranges_of_an_address() {
    let ranges = (0..9).map(|number| Range {
        first: POOL,
        last: POOL,
        low: 2000 + 10 * number,
        high: 2001 + 10 * number,
    });
    let nat = nat(settings(Pool { ranges: ranges.collect(), ..Pool::default() }));
    let mut ports = HashSet::new();
    for port in 5000..5016 {
        let local = nat.from_v6(&udp(1, port), at(0), 0).unwrap();
        assert!(ports.insert(local.1));
    }
    let ended = nat.from_v6(&udp(1, 5016), at(0), 0);
    assert_eq!(ended, Err(DropReason::PoolExhausted));
    // The ninth is another host's.
    assert!(nat.from_v6(&udp(2, 5000), at(0), 0).is_ok());
}

#[test]
fn dynamic_addresses_of_before_are_put_back() {
    let nat = nat(settings(pool(1024, 65_535)));
    let addr = |last| Ipv4Addr::new(203, 0, 113, last);
    let put = |number, last| nat.put_dynamic4(host(number), addr(last), Duration::ZERO, at(0));
    assert_eq!(put(1, 1), Ok(()));
    assert_eq!(put(1, 1), Ok(()), "it is there");
    assert!(matches!(put(1, 2), Err(BibError::Bound(bound)) if bound.v4.0 == addr(1)));
    assert!(put(2, 1).is_err(), "somebody else's");
    let bibs: Vec<_> = nat.bib(at(0)).map(|bib| (bib.binding.v6.0, bib.binding.v4.0)).collect();
    assert_eq!(bibs, [(host(1), addr(1))]);
}

#[test]
fn kept_syns_are_counted_until_they_are_due() {
    let mut syns = Syns::default();
    assert!(syns.is_empty());
    assert_eq!((syns.len(), syns.next_due()), (0, None));
    for (port, due) in [(1, 6), (2, 7), (1, 8)] {
        assert!(syns.store(&[0; 40], ((POOL, port), SERVER), None, at(due)));
    }
    assert!(!syns.is_empty());
    assert_eq!((syns.len(), syns.next_due()), (2, Some(at(6))));
    assert!(syns.due(at(5)).is_none());
    assert_eq!(syns.due(at(6)).unwrap().ends, ((POOL, 1), SERVER));
    assert_eq!((syns.len(), syns.next_due()), (1, Some(at(7))));
}

#[test]
fn a_clock_that_went_back_makes_nothing_old() {
    let nat = nat(settings(pool(1024, 65_535)));
    nat.from_v6(&udp(1, 5000), at(10), 0).unwrap();
    // Another thread's clock was read a moment before.
    sweep(&nat, &mut Sweeper::new(), at(9));
    assert_eq!(nat.sessions(at(9)).count(), 1);
    let bib = nat.bib(at(9)).next().unwrap();
    assert_eq!((bib.age, bib.idle), (Duration::ZERO, Duration::ZERO));
    assert_eq!(nat.subscribers(at(9)).next().unwrap().age, Duration::ZERO);
}
