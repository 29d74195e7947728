//! Which records there are, and when they change.

use super::*;

#[test]
fn connections_are_told_from_establishment_to_their_end() {
    let mut gateway = single(Replicated::default());
    let syn = from_v6(Protocol::Tcp, (host(1), 4000), Segment::Syn);
    let local = gateway.nat.from_v6(&syn, at(0), 0).unwrap();
    gateway.nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    assert_eq!(kinds(&gateway.changes(at(0))), [(1, true)], "the subscriber");
    gateway.nat.from_v4(&answer(&syn, local, Segment::SynAck), at(1), 0).unwrap();
    assert_eq!(kinds(&gateway.changes(at(1))), [(2, true), (3, true)]);
    for (segment, told) in [(Segment::Other, 0), (Segment::Fin, 1), (Segment::Other, 0)] {
        gateway.segment(1, 4000, segment, at(2));
        assert_eq!(kinds(&gateway.changes(at(2))), vec![(3, true); told], "{segment:?}");
    }
    gateway.nat.from_v4(&answer(&syn, local, Segment::Fin), at(3), 0).unwrap();
    assert_eq!(kinds(&gateway.changes(at(3))), [(3, true)]);
    gateway.sweep(at(300));
    assert_eq!(kinds(&gateway.changes(at(300))), [(3, false), (2, false)]);
    // The subscriber goes when it is forgotten.
    for now in [400, 700, 1400] {
        gateway.sweep(at(now));
    }
    assert_eq!(kinds(&gateway.changes(at(1400))), [(1, false)]);
}

#[test]
fn a_host_is_another_subscriber_with_another_mark() {
    let marked = |mark| Pool { mark: Some(mark), ..dealt(Allocation::Blocks { size: 8, most: 2 }) };
    let mut settings = settings(marked(5));
    settings.pools.push(pool(3000, 3063));
    settings.pools[1].mark = Some(6);
    settings.pools[1].ranges[0].first = Ipv4Addr::new(192, 0, 2, 0);
    let (mut owner, mut standby) = pair(&settings);
    for (mark, port) in [(5, 4000), (6, 4001)] {
        owner.nat.from_v6(&Tuple { mark, ..udp(1, port) }, at(0), 0).unwrap();
    }
    let changes = owner.changes(at(0));
    assert_eq!(changes.len(), 6);
    standby.apply_all(at(0), &changes);
    assert_eq!(standby.records(0, 9), owner.records(0, 9));
    let of = |gateway: &Gateway| {
        let mut all: Vec<_> =
            gateway.nat.subscribers(at(0)).map(|it| (it.mark, it.ports)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(of(&standby), [(5, [0, 1, 0]), (6, [0, 1, 0])]);
    assert_eq!(standby.take_over(0, at(1)), []);
    assert_eq!(standby.changes(at(1)), []);
}

#[test]
fn other_protocols_are_told_by_option() {
    for (replicated, sessions) in [
        (Replicated { udp: true, icmp: false }, [1, 0]),
        (Replicated { udp: false, icmp: true }, [0, 1]),
        (Replicated::default(), [0, 0]),
    ] {
        let mut gateway = single(replicated);
        gateway.nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
        let ping = from_v6(Protocol::Icmp, (host(1), 7), Segment::Other);
        gateway.nat.from_v6(&ping, at(0), 0).unwrap();
        let told = gateway.changes(at(0));
        let of = |protocol: Protocol| {
            told.iter().filter(|it| it.1[0] == 3 && it.1[1] == protocol.number()).count()
        };
        assert_eq!([of(Protocol::Udp), of(Protocol::Icmp)], sessions);
        assert_eq!(told.iter().filter(|it| it.1[0] == 2).count(), sessions.iter().sum());
    }
}

/// Packets every 25 minutes are no change; half an hour without one is one.
#[test]
fn packets_that_refresh_a_session_are_no_change() {
    let mut gateway = single(ALL);
    gateway.opened(1, 4000, at(0));
    assert_eq!(gateway.changes(at(0)).len(), 3);
    let mut now = 0;
    for _ in 0..40 {
        now += 1500;
        assert_eq!(gateway.changes(at(now)), [], "at {now} s");
        gateway.segment(1, 4000, Segment::Other, at(now));
        gateway.sweep(at(now));
    }
    for _ in 0..3 {
        now += 1801;
        assert_eq!(kinds(&gateway.changes(at(now))), [(3, true)]);
        assert_eq!(gateway.changes(at(now + 60)), []);
    }
    gateway.segment(1, 4000, Segment::Other, at(now));
    assert_eq!(gateway.changes(at(now)).len(), 1);
}

/// However long a standby has waited, at the take-over a session has what was left of its lifetime.
#[test]
fn a_standby_does_not_age_and_a_take_over_goes_on() {
    let (mut owner, mut standby) = pair(&settings(dealt(Allocation::Shared)));
    let local = owner.opened(1, 4000, at(0));
    owner.opened(2, 4000, at(0));
    standby.apply_all(at(0), &owner.changes(at(0)));
    let mut now = 0;
    while now < 40_000 {
        now += 1500;
        owner.segment(1, 4000, Segment::Other, at(now));
        owner.sweep(at(now));
        standby.apply_all(at(now), &owner.changes(at(now)));
        let (swept, events) = standby.sweep(at(now));
        assert_eq!(
            (swept.sessions[0], events),
            (owner.nat.sessions(at(now)).count() as u64, vec![])
        );
    }
    assert_eq!(standby.nat.sessions(at(now)).count(), 1, "the idle one has ended at its owner");
    assert_eq!(standby.take_over(0, at(now)), []);
    let remaining = |now| standby.nat.sessions(at(now)).next().map(|it| it.remaining.as_secs());
    assert_eq!(remaining(now), Some(7200));
    assert_eq!(remaining(now + 7000), Some(200));
    let (_, events) = standby.sweep(at(now + 7201));
    let probe = Event::Probe { host: (host(1), 4000), remote: SERVER, pool6: 0 };
    assert_eq!(events, [probe], "it ages, and was reported by its first owner");
    let (_, events) = standby.sweep(at(now + 7500));
    assert!(matches!(events[0], Event::SessionRemoved(binding, ..) if binding.v4 == local));
    standby.assert_sound();
}

/// What is left is told in half hours, rounded up: nothing expires early.
#[test]
fn an_idle_session_has_little_left() {
    let (mut owner, mut standby) = pair(&settings(dealt(Allocation::Shared)));
    owner.opened(1, 4000, at(0));
    for now in [0, 2000, 4000, 6000] {
        standby.apply_all(at(now), &owner.changes(at(now)));
    }
    standby.take_over(0, at(6100));
    let left = standby.nat.sessions(at(6100)).next().unwrap().remaining.as_secs();
    assert_eq!(left, 1800);
    assert_eq!(owner.nat.sessions(at(6100)).next().unwrap().remaining.as_secs(), 1100);
}

/// Entries of the tables that a scan has not seen end are used anew.
#[test]
fn an_entry_that_is_used_anew_is_another_record() {
    let sizes = Sizes { bibs: 1, sessions: 1, subscribers: 1 };
    let mut gateway = Gateway::owner(1, ALL, Settings { sizes, ..blocks(8) });
    gateway.opened(1, 4000, at(0));
    assert_eq!(kinds(&gateway.changes(at(0))), [(1, true), (2, true), (3, true)]);
    for now in [7300, 8000, 8700, 8701] {
        gateway.sweep(at(now));
    }
    gateway.opened(2, 4000, at(8701));
    let changes = gateway.changes(at(8701));
    let expected = [(3, false), (2, false), (1, false), (1, true), (2, true), (3, true)];
    assert_eq!(kinds(&changes), expected);
}

/// A round, unlike a scan, looks at sessions alone: BIB entries follow from them.
#[test]
fn a_fresh_session_takes_the_place_of_all_that_an_entry_was() {
    let sizes = Sizes { bibs: 1, sessions: 2, subscribers: 1 };
    let mut gateway = Gateway::owner(1, ALL, Settings { sizes, ..blocks(8) });
    for port in [53, 54] {
        let remote = (SERVER.0, port);
        gateway.nat.from_v6(&Tuple { remote, ..udp(1, 4000) }, at(0), 0).unwrap();
    }
    assert_eq!(gateway.changes(at(0)).len(), 4);
    for now in [400, 800, 1200, 1201] {
        gateway.sweep(at(now));
    }
    gateway.nat.from_v6(&udp(2, 4000), at(1201), 0).unwrap();
    let (mut told, waits) = gateway.changed(at(1201));
    assert!(!waits);
    told.sort_by_key(|change| change.2.is_some());
    let expected =
        [(3, false), (3, false), (2, false), (1, false), (1, true), (2, true), (3, true)];
    assert_eq!(kinds(&told), expected);
}

/// A round takes note of them, in entries that were never used when it began.
#[test]
fn sessions_that_are_made_during_a_round_are_told() {
    const LAST: u16 = 200;
    let mut gateway = single(ALL);
    let open = |nat: &Nat64, port| {
        nat.from_v6(&Tuple { remote: (SERVER.0, port), ..udp(1, 4000) }, at(0), 0).unwrap();
    };
    open(&gateway.nat, 1);
    let mut told = Vec::new();
    let Gateway { nat, replica, .. } = &mut gateway;
    let tell = &mut |change: Change<'_>| {
        if told.is_empty() {
            (2..=LAST).for_each(|port| open(nat, port));
        }
        told.push(owned(change));
    };
    assert!(replica.look_at_changed(nat, at(0), u32::MAX, tell).is_complete);
    told.extend(gateway.changed(at(0)).0);
    let sessions = kinds(&told).into_iter().filter(|kind| *kind == (3, true));
    assert_eq!(sessions.count(), usize::from(LAST));
}

/// Its first session is in the entry, and has the key, of one that was told.
#[test]
fn a_round_finds_another_binding_at_the_same_address_and_port() {
    let sizes = Sizes { bibs: 1, sessions: 2, subscribers: 1 };
    let settings = Settings { sizes, filtering: Filtering::EndpointIndependent, ..blocks(1) };
    let mut gateway = Gateway::owner(1, ALL, settings);
    let local = gateway.nat.from_v6(&udp(1, 4000), at(0), 0).unwrap();
    assert_eq!(gateway.changed(at(0)).0.len(), 3);
    for has_two in [false, true] {
        gateway.nat.remove_bib(Protocol::Udp, local, at(1)).unwrap();
        gateway.sweep(at(1));
        let tuple = udp(1, 4001 + u16::from(has_two));
        assert_eq!(gateway.nat.from_v6(&tuple, at(1), 0), Ok(local));
        if has_two {
            let other = Tuple { remote: (SERVER.0, 54), ..answer(&tuple, local, Segment::Other) };
            gateway.nat.from_v4(&other, at(1), 0).unwrap();
        }
        let (told, waits) = gateway.changed(at(1));
        let mut expected = vec![(3, false), (2, false), (2, true), (3, true)];
        expected.extend(has_two.then_some((3, true)));
        assert_eq!((kinds(&told), waits), (expected, false));
        assert_eq!(gateway.changes(at(1)), []);
    }
}

/// Whose next binding is not told.
#[test]
fn a_binding_in_the_entry_of_another_ends_its_record() {
    let sizes = Sizes { bibs: 1, sessions: 2, subscribers: 1 };
    let mut gateway = Gateway::owner(1, Replicated::default(), Settings { sizes, ..blocks(8) });
    gateway.opened(1, 4000, at(0));
    gateway.changes(at(0));
    for now in [7300, 8000, 8700, 8701] {
        gateway.sweep(at(now));
    }
    gateway.nat.from_v6(&udp(2, 4000), at(8701), 0).unwrap();
    let (told, is_complete) = gateway.scan(at(8701), u32::MAX);
    let expected = [(3, false), (2, false), (1, false), (1, true)];
    assert_eq!((kinds(&told), is_complete), (expected.to_vec(), true), "in one scan");
}

#[test]
fn a_binding_to_another_port_in_the_same_entry_is_another_record() {
    let sizes = Sizes { bibs: 2, sessions: 2, subscribers: 2 };
    let mut gateway = Gateway::owner(1, ALL, Settings { sizes, ..blocks(8) });
    let fixed = |v4| StaticBib { protocol: Protocol::Tcp, v6: (host(9), 80), v4 };
    let resting = fixed((Ipv4Addr::new(192, 0, 2, 15), 2063));
    gateway.nat.add_bib(&resting, at(0)).unwrap();
    let before = gateway.opened(1, 4000, at(0));
    gateway.changes(at(0));
    // Its entry is the last one that is free, and its port is an operator's.
    for v4 in [before, resting.v4] {
        gateway.nat.remove_bib(Protocol::Tcp, v4, at(0)).unwrap();
        for _ in 0..2 {
            gateway.sweep(at(0));
        }
    }
    gateway.nat.add_bib(&fixed(before), at(0)).unwrap();
    assert_ne!(gateway.opened(1, 4000, at(0)), before);
    let told = gateway.changes(at(0));
    assert_eq!(kinds(&told), [(3, false), (2, false), (2, true), (3, true)]);
}

#[test]
fn a_session_ends_alone_or_with_its_binding() {
    let mut gateway = single(Replicated::default());
    let local = gateway.opened(1, 4000, at(0));
    let more = |port, segment| {
        let syn = from_v6(Protocol::Tcp, (host(1), 4000), segment);
        Tuple { remote: (SERVER.0, port), ..syn }
    };
    gateway.nat.from_v6(&more(81, Segment::Syn), at(0), 0).unwrap();
    let answer = answer(&more(81, Segment::Syn), local, Segment::SynAck);
    gateway.nat.from_v4(&answer, at(0), 0).unwrap();
    assert_eq!(gateway.changes(at(0)).len(), 4);
    // One idles away beside the other, and that one beside what is not told.
    for now in [2000, 4000, 6000] {
        gateway.nat.from_v6(&more(81, Segment::Other), at(now), 0).unwrap();
        gateway.changes(at(now));
    }
    gateway.sweep(at(7201));
    gateway.sweep(at(7601));
    assert_eq!(kinds(&gateway.changes(at(7601))), [(3, false)]);
    gateway.sweep(at(13_201));
    gateway.nat.from_v6(&more(82, Segment::Syn), at(13_600), 0).unwrap();
    gateway.sweep(at(13_601));
    assert_eq!(gateway.nat.bib(at(13_601)).count(), 1);
    assert_eq!(kinds(&gateway.changes(at(13_601))), [(3, false), (2, false)]);
}

#[test]
fn another_prefix_is_a_change_and_what_an_entry_is_not_said_to_be() {
    let mut gateway = single(ALL);
    let first = udp(1, 9);
    gateway.nat.from_v6(&first, at(0), 0).unwrap();
    let told = gateway.changes(at(0));
    assert_eq!(told[1].2.as_ref().unwrap()[22], 0, "nobody has announced it");
    gateway.nat.from_v6(&Tuple { pool6: 1, ..first }, at(0), 0).unwrap();
    let told = gateway.changes(at(0));
    assert_eq!((kinds(&told), told[0].2.as_ref().unwrap()[3]), (vec![(3, true)], 1));
}

#[test]
fn a_further_block_is_told() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    for (ports, octets) in [(0..8, 8), (8..9, 16)] {
        for port in ports {
            gateway.nat.from_v6(&udp(1, port), at(0), 0).unwrap();
        }
        let told = gateway.changes(at(0));
        assert_eq!((kinds(&told), told[0].2.as_ref().unwrap().len()), (vec![(1, true)], octets));
    }
}

/// Its earlier entry is looked at after the one that it has now.
#[test]
fn a_host_that_comes_back_in_another_entry_is_told_anew() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    for number in [2, 1] {
        gateway.nat.from_v6(&udp(number, 9), at(0), 0).unwrap();
    }
    assert_eq!(kinds(&gateway.changes(at(0))), [(1, true); 2]);
    // The entry that is given first is the one that was freed first.
    for now in [200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000] {
        if now <= 1000 {
            gateway.nat.from_v6(&udp(1, 9), at(now), 0).unwrap();
        }
        gateway.sweep(at(now));
    }
    assert_eq!(gateway.nat.subscribers(at(2000)).count(), 0);
    gateway.nat.from_v6(&udp(1, 9), at(2000), 0).unwrap();
    let (told, _) = gateway.scan(at(2000), u32::MAX);
    assert_eq!(kinds(&told), [(1, false), (1, false), (1, true)], "in one scan");
}

/// Of which no session was told.
#[test]
fn a_binding_that_was_taken_over_ends_when_its_entry_is_used_anew() {
    let sizes = Sizes { bibs: 1, sessions: 2, subscribers: 2 };
    for other in [udp(2, 9), from_v6(Protocol::Tcp, (host(1), 4000), Segment::Syn)] {
        let mut owner = Gateway::owner(1, Replicated::default(), blocks(8));
        let mut standby = Gateway::new(1, Replicated::default(), Settings { sizes, ..blocks(8) });
        let (addr, port) = owner.opened(1, 4000, at(0));
        let mut changes = owner.changes(at(0));
        // Another port of the block than the one that it will have.
        changes[1].1[6..8].copy_from_slice(&(port ^ 1).to_be_bytes());
        standby.apply_all(at(0), &changes[..2]);
        standby.take_over(0, at(0));
        standby.nat.remove_bib(Protocol::Tcp, (addr, port ^ 1), at(0)).unwrap();
        for _ in 0..2 {
            standby.sweep(at(0));
        }
        assert!(standby.nat.from_v6(&other, at(0), 0).is_ok_and(|it| it != (addr, port ^ 1)));
        let told = standby.changes(at(0));
        assert!(kinds(&told).contains(&(2, false)), "{told:?}");
    }
}

/// A round comes to it before it comes to what is left of the entry's earlier subscriber.
#[test]
fn a_fresh_session_of_a_subscriber_in_the_entry_of_another_waits() {
    let sizes = Sizes { bibs: 2, sessions: 2, subscribers: 1 };
    let mut gateway = Gateway::owner(1, ALL, Settings { sizes, ..blocks(8) });
    for port in [1, 2] {
        gateway.nat.from_v6(&udp(1, port), at(0), 0).unwrap();
    }
    assert_eq!(gateway.changed(at(0)).0.len(), 5);
    for now in [400, 800, 1200, 1201] {
        gateway.sweep(at(now));
    }
    for port in [1, 2] {
        gateway.nat.from_v6(&udp(2, port), at(1201), 0).unwrap();
    }
    let (mut told, waits) = gateway.changed(at(1201));
    assert!(waits, "{:?}", kinds(&told));
    let (more, waits) = gateway.changed(at(1201));
    assert!(!waits && !more.is_empty());
    told.extend(more);
    assert_eq!(told.len(), 5 + 5);
    assert_eq!(gateway.records(0, 9).len(), 5);
    assert_eq!(gateway.changes(at(1201)), []);
}

#[test]
fn what_packets_and_the_sweeper_change_is_told_without_a_scan() {
    let mut gateway = single(Replicated::default());
    let from_host = |segment| from_v6(Protocol::Tcp, (host(1), 4000), segment);
    let syn = from_host(Segment::Syn);
    let local = gateway.nat.from_v6(&syn, at(0), 0).unwrap();
    gateway.nat.from_v6(&udp(1, 53), at(0), 0).unwrap();
    assert_eq!(kinds(&gateway.changed(at(0)).0), [(1, true)], "neither has a record");
    let down = |segment| answer(&syn, local, segment);
    gateway.nat.from_v4(&down(Segment::SynAck), at(1), 0).unwrap();
    assert_eq!(kinds(&gateway.changed(at(1)).0), [(2, true), (3, true)]);
    gateway.nat.from_v6(&from_host(Segment::Other), at(2), 0).unwrap();
    assert_eq!(gateway.changed(at(2)).0, [], "its state is the same");
    gateway.nat.from_v4(&down(Segment::Fin), at(3), 0).unwrap();
    assert_eq!(kinds(&gateway.changed(at(3)).0), [(3, true)]);
    gateway.nat.keep_shift((local, SERVER), [7, 8]);
    assert_eq!(kinds(&gateway.changed(at(3)).0), [(3, true)]);
    gateway.nat.from_v6(&from_host(Segment::Fin), at(4), 0).unwrap();
    assert_eq!(kinds(&gateway.changed(at(4)).0), [(3, true)]);
    for now in [400, 401] {
        gateway.sweep(at(now));
    }
    assert_eq!(kinds(&gateway.changed(at(401)).0), [(3, false), (2, false)]);
}

/// A word for all sessions.
#[derive(Debug)]
struct OneWord(OwnGates, [AtomicU64; 1]);

impl Gates for OneWord {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn changed(&self) -> &[AtomicU64] {
        &self.1
    }
}

#[test]
fn sessions_that_share_a_bit_are_all_looked_at() {
    let gates = OneWord(OwnGates::new(1), [AtomicU64::new(0)]);
    let shards = Some(Arc::new(Shards::with(Dealt(1), gates)));
    let mut gateway = Gateway::of(nat(Settings { shards, ..blocks(8) }), ALL);
    gateway.take_over(0, at(0));
    for number in 0..150 {
        gateway.nat.from_v6(&udp(1 + number / 10, 1 + number), at(0), 0).unwrap();
    }
    let sessions = |told: &[Owned]| told.iter().filter(|it| it.1[0] == 3).count();
    let mut told = Vec::new();
    while {
        let tell = &mut |change: Change<'_>| told.push(owned(change));
        !gateway.replica.look_at_changed(&gateway.nat, at(0), 4, tell).is_complete
    } {}
    assert_eq!(sessions(&told), 150);
}

/// A slice is bounded, and slices find what one scan finds.
#[test]
fn scans_have_bounded_slices() {
    let (mut whole, mut sliced) = (single(ALL), single(ALL));
    for gateway in [&whole, &sliced] {
        for number in 1..20 {
            gateway.opened(number, 4000, at(0));
        }
    }
    let expected: BTreeMap<_, _> =
        whole.changes(at(0)).into_iter().map(|it| (it.1, it.2)).collect();
    let mut found = BTreeMap::new();
    for round in 0.. {
        let mut looked = 0;
        let tell = &mut |change: Change<'_>| {
            let (_, key, value) = owned(change);
            found.insert(key, value);
        };
        let scanned = sliced.replica.scan(&sliced.nat, &mut sliced.sweeper, at(0), 7, tell);
        looked += scanned.looked;
        if scanned.is_complete {
            assert_eq!(round, (19 * 3) / 7, "19 of each kind");
            break;
        }
        assert_eq!(looked, 7);
    }
    assert_eq!(found, expected);
}
