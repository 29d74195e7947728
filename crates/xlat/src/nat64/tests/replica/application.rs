//! Records of another gateway: applied in any order, and what is done with those that do not fit.

use super::*;
use proptest::prelude::*;

#[test]
fn records_that_are_applied_again_change_nothing() {
    let (mut owner, mut standby) = pair(&blocks(8));
    for number in 1..5 {
        owner.opened(number, 4000, at(0));
        owner.nat.from_v6(&udp(number, 5000), at(0), 0).unwrap();
    }
    let changes = owner.changes(at(0));
    standby.apply_all(at(0), &changes);
    let (used, blocks) = (standby.nat.occupancy(), standby.nat.blocks());
    standby.apply_all(at(1), &changes);
    assert_eq!((standby.nat.occupancy(), standby.nat.blocks()), (used, blocks));
    assert_eq!(standby.records(0, 2), owner.records(0, 3));
    standby.assert_sound();
    assert_eq!(standby.nat.blocks(), owner.nat.blocks());
    // Removals, too.
    let gone: Vec<Owned> = changes.iter().rev().map(|it| (it.0, it.1, None)).collect();
    standby.sweep(at(1));
    standby.apply_all(at(1), &gone);
    standby.apply_all(at(1), &gone);
    standby.assert_empty();
}

/// A change may overtake the part of a snapshot that it builds on.
#[test]
fn records_are_applied_in_any_order() {
    let (mut owner, mut standby) = pair(&blocks(8));
    owner.opened(1, 4000, at(0));
    owner.opened(1, 4001, at(0));
    let changes = owner.changes(at(0));
    let mut waits = 0;
    for change in changes.iter().rev() {
        waits += usize::from(standby.apply(at(0), change) == Ok(Applied::Waits));
        standby.assert_sound();
    }
    assert_eq!((waits, standby.replica.unplaced()), (2, 0));
    assert_eq!(standby.records(0, 9), owner.records(0, 9));
    assert_eq!(standby.nat.blocks()[0].used, 1);
    // Those that End removes come in the order of their keys: subscribers first.
    standby.sweep(at(0));
    for key in owner.records(0, 9).keys() {
        standby.apply(at(0), &(0, *key, None)).unwrap();
        standby.assert_sound();
    }
    standby.assert_empty();
}

#[test]
fn sessions_that_wait_are_forgotten_with_their_removal() {
    let (mut owner, mut standby) = pair(&blocks(8));
    owner.opened(1, 4000, at(0));
    let changes = owner.changes(at(0));
    let session = changes.last().unwrap();
    assert_eq!(standby.apply(at(0), session), Ok(Applied::Waits));
    standby.apply(at(0), &(0, session.1, None)).unwrap();
    assert_eq!(standby.replica.unplaced(), 0);
    standby.apply_all(at(0), &changes[..2]);
    assert_eq!(standby.nat.sessions(at(0)).count(), 0);
}

#[test]
fn a_shard_is_cleared_of_what_waits() {
    let mut owner = Gateway::owner(3, ALL, blocks(8));
    let mut standby = Gateway::new(3, ALL, blocks(8));
    for number in [3, 1, 2] {
        owner.opened(number, 4000, at(0));
        let session = owner.changes(at(0)).pop().unwrap();
        assert_eq!(standby.apply(at(0), &session), Ok(Applied::Waits));
    }
    standby.clear(1);
    assert_eq!(standby.replica.unplaced(), 2);
    assert_eq!([0, 1, 2].map(|shard| standby.take_over(shard, at(0)).len()), [1, 0, 1]);
}

/// What contradicts a later record is left over.
#[test]
fn later_records_win() {
    let (mut owner, mut standby) = pair(&blocks(8));
    owner.opened(1, 4000, at(0));
    standby.apply_all(at(0), &owner.changes(at(0)));
    // Another life of the owner, of which the standby hears from the beginning: other hosts have the block and the ports.
    let (mut other, _) = pair(&blocks(8));
    for number in 2..=12 {
        for port in 0..8 {
            other.opened(number, 4000 + port, at(0));
        }
    }
    other.opened(1, 4000, at(0));
    for change in other.changes(at(0)) {
        standby.apply(at(0), &change).unwrap();
        standby.assert_sound();
    }
    let wanted = other.records(0, 99);
    for key in owner.records(0, 9).into_keys().filter(|key| !wanted.contains_key(key)) {
        standby.apply(at(0), &(0, key, None)).unwrap();
        standby.assert_sound();
    }
    assert_eq!(standby.records(0, 99), wanted);
    assert_eq!(standby.nat.blocks(), other.nat.blocks());
}

#[test]
fn a_binding_of_another_host_ends_the_sessions() {
    let (mut owner, mut standby) = pair(&settings(dealt(Allocation::Shared)));
    owner.opened(1, 4000, at(0));
    let changes = owner.changes(at(0));
    standby.apply_all(at(0), &changes);
    let (_, key, value) = &changes[1];
    let mut value = value.clone().unwrap();
    value[15] = 2;
    standby.apply(at(0), &(0, *key, Some(value))).unwrap();
    assert_eq!(standby.nat.sessions(at(0)).count(), 0);
    assert_eq!(standby.nat.bib(at(0)).next().unwrap().binding.v6, (host(2), 4000));
    standby.assert_sound();
}

#[test]
fn a_binding_to_another_port_ends_the_one_before() {
    let (mut owner, mut standby) = pair(&settings(dealt(Allocation::Shared)));
    let (addr, port) = owner.opened(1, 4000, at(0));
    let changes = owner.changes(at(0));
    standby.apply_all(at(0), &changes);
    let (shard, mut key, value) = changes[1].clone();
    key[6..8].copy_from_slice(&(port ^ 1).to_be_bytes());
    assert_eq!(standby.apply(at(0), &(shard, key, value)), Ok(Applied::Done));
    let bound: Vec<_> = standby.nat.bib(at(0)).map(|it| it.binding.v4).collect();
    assert_eq!(bound, [(addr, port ^ 1)]);
    assert_eq!(standby.nat.sessions(at(0)).count(), 0);
    standby.assert_sound();
}

#[test]
fn what_does_not_fit_is_refused() {
    let settings = blocks(8);
    let (mut owner, mut standby) = pair(&settings);
    let local = owner.opened(1, 4000, at(0));
    let changes = owner.changes(at(0));
    let [subscriber, bib, session] = &changes[..] else { panic!("{changes:?}") };
    let fixed = StaticBib { protocol: Protocol::Tcp, v6: (host(9), 80), v4: local };
    standby.nat.add_bib(&fixed, at(0)).unwrap();
    assert_eq!(standby.apply(at(0), bib), Err(ApplyError::Conflict));
    assert_eq!(standby.apply(at(0), session), Ok(Applied::Waits));
    let foreign = |(shard, key, value): &Owned, place: usize, octet: u8| {
        let mut value = value.clone();
        value.as_mut().unwrap()[place] = octet;
        (*shard, *key, value)
    };
    // A block of 203.0.2.0/24, and one that begins beside a block.
    assert_eq!(standby.apply(at(0), &foreign(subscriber, 0, 203)), Err(ApplyError::Foreign));
    let low = subscriber.2.as_ref().unwrap()[5] + 1;
    assert_eq!(standby.apply(at(0), &foreign(subscriber, 5, low)), Err(ApplyError::Foreign));
    // An unknown flag; class and state of no session that is told.
    assert_eq!(standby.apply(at(0), &foreign(bib, 22, 2)), Err(ApplyError::Malformed));
    assert_eq!(standby.apply(at(0), &foreign(session, 0, 7)), Err(ApplyError::Malformed));
    assert_eq!(standby.apply(at(0), &foreign(session, 1, 0)), Err(ApplyError::Malformed));
    assert_eq!(standby.apply(at(0), &foreign(session, 2, 0)), Err(ApplyError::Malformed));
    // Of a shard and of a mark that there are not, and of addresses outside the pool.
    assert_eq!(standby.apply(at(0), &(1, bib.1, bib.2.clone())), Err(ApplyError::Foreign));
    let (mut marked, mut outside) = (foreign(bib, 21, 1), bib.clone());
    marked.1[7] ^= 1;
    outside.1[2] = 203;
    for change in [marked, outside] {
        assert_eq!(standby.apply(at(0), &change), Err(ApplyError::Foreign));
        standby.apply(at(0), &(0, change.1, None)).unwrap();
    }
    assert_eq!(owner.apply(at(0), bib), Err(ApplyError::Owned));
    assert_eq!(owner.records(0, 9).len(), 3);
    standby.assert_sound();
    let counted: BTreeMap<_, _> = standby.replica.refused().filter(|it| it.1 != 0).collect();
    let expected =
        [(ApplyError::Malformed, 4), (ApplyError::Foreign, 5), (ApplyError::Conflict, 1)];
    assert_eq!(counted, expected.into());
    // The next owner's records are without them.
    let gone = standby.take_over(0, at(1));
    assert_eq!(kinds(&gone), [(3, false), (2, false), (1, false)]);
    assert_eq!(standby.replica.unplaced(), 0);
}

#[test]
fn what_is_of_another_shard_or_no_prefix_is_refused() {
    let settings = Settings { subscriber_len: 64, ..blocks(8) };
    let (mut owner, mut standby) = pair(&settings);
    owner.opened(1, 4000, at(0));
    let mut changes = owner.changes(at(0));
    changes[0].1[16] = 1;
    assert_eq!(standby.apply(at(0), &changes[0]), Err(ApplyError::Foreign));

    let mut owner = Gateway::owner(2, ALL, blocks(8));
    let mut standby = Gateway::new(2, ALL, blocks(8));
    owner.opened(2, 4000, at(0));
    let mut changes = owner.changes(at(0));
    standby.apply(at(0), &changes[0]).unwrap();
    changes[1].1[5] ^= 1;
    assert_eq!(standby.apply(at(0), &changes[1]), Err(ApplyError::Foreign));
    standby.assert_sound();
}

/// Of which the next owner tells, after it has made the same.
#[test]
fn a_session_that_was_never_told_becomes_what_a_record_says() {
    let (mut former, mut next) = pair(&blocks(8));
    let local = former.opened(1, 4000, at(0));
    next.apply_all(at(0), &former.changes(at(0)));
    next.take_over(0, at(0));
    let other =
        Tuple { remote: (SERVER.0, 81), ..from_v6(Protocol::Tcp, (host(1), 4000), Segment::Syn) };
    for gateway in [&former, &next] {
        assert_eq!(gateway.nat.from_v6(&other, at(1), 0), Ok(local));
    }
    next.nat.from_v4(&answer(&other, local, Segment::SynAck), at(1), 0).unwrap();
    former.lose(0, at(1));
    former.apply_all(at(1), &next.changes(at(1)));
    let states: Vec<_> = former.nat.sessions(at(1)).filter_map(|it| it.tcp).collect();
    assert_eq!(states, [TcpState::Established; 2]);
    assert_eq!(former.records(0, 9), next.records(0, 9));
    former.assert_sound();
}

#[test]
fn full_tables_refuse_records_and_stay_sound() {
    for (sizes, error) in [
        (Sizes { bibs: 3, sessions: 64, subscribers: 64 }, ApplyError::BibFull),
        (Sizes { bibs: 64, sessions: 3, subscribers: 64 }, ApplyError::SessionsFull),
        (Sizes { bibs: 64, sessions: 64, subscribers: 3 }, ApplyError::SubscribersFull),
    ] {
        for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
            let settings = Settings { filtering, ..blocks(8) };
            let (mut owner, _) = pair(&settings);
            let mut standby = Gateway::new(1, ALL, Settings { sizes, ..settings });
            for number in 1..8 {
                owner.opened(number, 4000, at(0));
            }
            let changes = owner.changes(at(0));
            let refused: Vec<_> =
                changes.iter().filter_map(|change| standby.apply(at(0), change).err()).collect();
            assert!(refused.len() >= 4 && refused.iter().all(|it| *it == error), "{refused:?}");
            standby.assert_sound();
            // Sessions of refused entries wait, and are no owner's either.
            let now = at(1);
            let gone = standby.take_over(0, now).len();
            assert_eq!(gone + standby.records(0, 9).len(), changes.len());
            assert_eq!(standby.changes(now), []);
            standby.lose(0, now);
            standby.clear(0);
            standby.sweep(now);
            standby.assert_empty();
        }
    }
}

/// Every port of a shard is free again after its records were removed.
#[test]
fn ports_are_free_after_their_records() {
    let (mut owner, mut standby) = pair(&blocks(4));
    let fill = |gateway: &Gateway, now| {
        let all = (0..256).flat_map(|number| (0..8).map(move |port| (number, port)));
        all.filter(|(number, port)| gateway.nat.from_v6(&udp(*number, *port), now, 0).is_ok())
            .count()
    };
    let expected = fill(&owner, at(0));
    assert_eq!(expected, 1024);
    let changes = owner.changes(at(0));
    standby.apply_all(at(0), &changes);
    assert_eq!(standby.records(0, 100), owner.records(0, 100));
    standby.clear(0);
    standby.sweep(at(0));
    standby.assert_empty();
    standby.take_over(0, at(1));
    assert_eq!(fill(&standby, at(1)), expected);
}

fn hostile() -> impl Strategy<Value = (RecordKey, Option<Vec<u8>>)> {
    let octets = |most| prop::collection::vec(any::<u8>(), 0..most);
    let anything = (any::<RecordKey>(), prop::option::of(octets(70)));
    // Nearly right ones, of few addresses, so that they meet.
    let host = (0_u8..5, 0_u8..3).prop_map(|(number, port)| {
        let mut host = [0; 18];
        host[..16].copy_from_slice(&super::host(number.into()).octets());
        host[17] = port;
        host
    });
    let v4 = (0_u8..3, 0_u16..9).prop_map(|(last, port)| {
        let mut v4 = [192, 0, 2, last, 0, 0];
        v4[4..].copy_from_slice(&(1998 + port).to_be_bytes());
        v4
    });
    let protocol = prop::sample::select(vec![1_u8, 6, 17, 6]);
    let block = (v4.clone(), 0_u16..9).prop_map(|(v4, more)| {
        let low = u16::from_be_bytes([v4[4], v4[5]]) & !3;
        let high = if more < 7 { low + 3 } else { low + more };
        [v4[..4].to_vec(), low.to_be_bytes().to_vec(), high.to_be_bytes().to_vec()].concat()
    });
    let key = |parts: &[&[u8]]| {
        let mut key = [0; 24];
        let parts = parts.concat();
        key[..parts.len()].copy_from_slice(&parts);
        key
    };
    let subscriber = (host.clone(), prop::collection::vec(block, 0..4))
        .prop_map(move |(host, blocks)| (key(&[&[1], &host[..16]]), Some(blocks.concat())));
    let bib = (protocol.clone(), v4.clone(), host, 0_u8..2, octets(2)).prop_map(
        move |(protocol, v4, host, flags, more)| {
            let value = [&host[..], &[0; 4], &[flags], &more].concat();
            let value = if more.is_empty() { value } else { value[..more.len() + 20].to_vec() };
            (key(&[&[2, protocol], &v4]), Some(value))
        },
    );
    let session = (protocol, v4, 0_u8..3, 4_u8..14, 0_u8..5, 0_u8..6, prop::option::of(octets(9)))
        .prop_map(move |(protocol, v4, far, state, class, left, shift)| {
            let remote =
                if protocol == 1 { [198, 51, 100, far, 0, 0] } else { [198, 51, 100, far, 0, 80] };
            let value = [&[state, class, left, 0], &shift.unwrap_or_default()[..]].concat();
            (key(&[&[3, protocol], &v4, &remote]), Some(value))
        });
    let record = prop_oneof![1 => anything, 4 => subscriber, 5 => bib, 6 => session];
    (record, 0_u8..5).prop_map(|((key, value), removes)| (key, value.filter(|_| removes != 0)))
}

proptest! {

    /// Octets of any kind leave the tables sound, and can be removed.
    #[test]
    fn hostile_records_damage_nothing(
        records in prop::collection::vec(hostile(), 0..150),
        blocks in any::<bool>(),
        filters in any::<bool>(),
    ) {
        let allocation =
            if blocks { Allocation::Blocks { size: 4, most: 2 } } else { Allocation::Shared };
        let filtering =
            if filters { Filtering::AddressDependent } else { Filtering::EndpointIndependent };
        let sizes = Sizes { bibs: 12, sessions: 16, subscribers: 4 };
        let settings = Settings { filtering, sizes, ..settings(dealt(allocation)) };
        let mut gateway = Gateway::new(1, ALL, settings);
        for (number, (key, value)) in records.into_iter().enumerate() {
            let _ = gateway.apply(at(0), &(0, key, value));
            gateway.assert_sound();
            if number % 16 == 15 {
                gateway.sweep(at(0));
            }
        }
        let records = gateway.records(0, 7);
        for (key, value) in &records {
            // What is said to be there is: it can be applied again.
            gateway.apply(at(0), &(0, *key, Some(value.clone()))).unwrap();
        }
        prop_assert_eq!(gateway.records(0, 7), records);
        gateway.clear(0);
        for _ in 0..2 {
            gateway.sweep(at(0));
        }
        prop_assert_eq!(gateway.replica.unplaced(), 0);
        gateway.assert_empty();
    }
}

/// A standby's entries wait for what comes later, however late.
#[test]
fn a_standby_keeps_what_nothing_uses() {
    let (mut owner, mut standby) = pair(&blocks(8));
    let syn = from_v6(Protocol::Tcp, (host(2), 4000), Segment::Syn);
    owner.nat.from_v6(&syn, at(0), 0).unwrap();
    owner.opened(1, 4000, at(0));
    let changes = owner.changes(at(0));
    let (session, others) = changes.iter().partition::<Vec<_>, _>(|it| it.1[0] == 3);
    others.into_iter().for_each(|change| assert!(standby.apply(at(0), change).is_ok()));
    for now in [100, 9000, 40_000] {
        standby.sweep(at(now));
    }
    assert_eq!(standby.nat.occupancy().map(|it| it.used), [1, 0, 2]);
    assert_eq!(standby.apply(at(40_000), session[0]), Ok(Applied::Done));
    standby.take_over(0, at(50_000));
    for (now, used) in [(50_600, [1, 1, 2]), (50_602, [1, 1, 1])] {
        for _ in 0..2 {
            standby.sweep(at(now));
        }
        assert_eq!(standby.nat.occupancy().map(|it| it.used), used, "at {now} s");
    }
}

#[test]
fn records_in_no_table_are_bounded() {
    let mut gateway = Gateway::new(1, ALL, blocks(8));
    let mut key = [0; 24];
    key[..4].copy_from_slice(&[3, 17, 192, 0]);
    let mut errors = Vec::new();
    for number in 0_u32..131_080 {
        key[10..14].copy_from_slice(&number.to_be_bytes());
        let change = Change { shard: 0, key, value: Some(&[4, 0, 1, 0]) };
        let applied = gateway.replica.apply(&gateway.nat, &mut gateway.sweeper, at(0), change);
        errors.extend(applied.err());
    }
    assert_eq!((gateway.replica.unplaced(), errors), (131_072, vec![ApplyError::Unplaced; 8]));
    gateway.clear(0);
    assert_eq!(gateway.replica.unplaced(), 0);
}

/// A burst of packets that began after the grace period may still look at it.
#[test]
fn what_is_removed_during_a_grace_period_waits_for_the_next() {
    let (mut owner, mut standby) = pair(&blocks(8));
    owner.opened(1, 4000, at(0));
    let told = owner.changes(at(0));
    standby.apply_all(at(0), &told);
    standby.sweep(at(0));
    standby.sweeper.grace_begins();
    let (shard, key, _) = *told.last().unwrap();
    let removal = Change { shard, key, value: None };
    standby.replica.apply(&standby.nat, &mut standby.sweeper, at(1), removal).unwrap();
    standby.sweeper.grace_over(&standby.nat);
    assert!(!standby.sweeper.free(&standby.nat, usize::MAX));
    assert_eq!((standby.sweeper.waiting(), standby.nat.occupancy()[1].used), (1, 1));
    standby.sweeper.release(&standby.nat);
    assert_eq!((standby.sweeper.waiting(), standby.nat.occupancy()[1].used), (0, 0));
}
