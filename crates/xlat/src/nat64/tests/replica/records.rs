//! Which records there are and when they change; what is done with those that do not fit.

use super::*;
use proptest::prelude::*;

fn single(replicated: Replicated) -> Gateway {
    Gateway::owner(1, replicated, settings(dealt(Allocation::Shared)))
}

fn blocks(size: u16) -> Settings {
    settings(dealt(Allocation::Blocks { size, most: 2 }))
}

/// An owner of one shard, and its standby.
fn pair(settings: &Settings) -> (Gateway, Gateway) {
    (Gateway::owner(1, ALL, settings.clone()), Gateway::new(1, ALL, settings.clone()))
}

fn kinds(changes: &[Owned]) -> Vec<(u8, bool)> {
    changes.iter().map(|(_, key, value)| (key[0], value.is_some())).collect()
}

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
    assert_eq!(standby.apply(at(0), &(7, bib.1, bib.2.clone())), Err(ApplyError::Foreign));
    assert_eq!(owner.apply(at(0), bib), Err(ApplyError::Owned));
    assert_eq!(owner.records(0, 9).len(), 3);
    standby.assert_sound();
    let counted: BTreeMap<_, _> = standby.replica.refused().filter(|it| it.1 != 0).collect();
    let expected =
        [(ApplyError::Malformed, 4), (ApplyError::Foreign, 3), (ApplyError::Conflict, 1)];
    assert_eq!(counted, expected.into());
    // The next owner's records are without them.
    let gone = standby.take_over(0, at(1));
    assert_eq!(kinds(&gone), [(3, false), (2, false), (1, false)]);
    assert_eq!(standby.replica.unplaced(), 0);
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
            standby.replica.lose(&standby.nat, &mut standby.sweeper, now, 0);
            standby.clear(0);
            standby.sweep(now);
            standby.assert_empty();
        }
    }
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

/// A gateway owns one shard, and is the standby of another, whose records take an entry of which it has to tell the
/// end.
#[test]
fn shards_share_the_tables() {
    let sizes = Sizes { bibs: 2, sessions: 2, subscribers: 2 };
    let settings = blocks(8);
    let mut first = Gateway::new(2, ALL, Settings { sizes, ..settings.clone() });
    let mut second = Gateway::new(2, ALL, settings);
    first.take_over(0, at(0));
    second.take_over(1, at(0));
    let own = first.opened(2, 4000, at(0));
    let told = first.changes(at(0));
    assert!(told.iter().all(|it| it.0 == 0));
    second.apply_all(at(0), &told);
    let other = second.opened(1, 4000, at(0));
    assert_eq!((own.0.octets()[3] % 2, other.0.octets()[3] % 2), (0, 1));
    for now in [7300, 8000, 8700, 8701] {
        first.sweep(at(now));
    }
    assert_eq!(first.nat.occupancy()[1].used, 0);
    let changes = second.changes(at(0));
    assert!(changes.iter().all(|it| it.0 == 1));
    first.apply_all(at(8701), &changes);
    first.assert_sound();
    let gone = first.changes(at(8701));
    assert_eq!(kinds(&gone), [(3, false), (2, false), (1, false)]);
    second.apply_all(at(8701), &gone);
    assert_eq!((second.replica.records(0), first.replica.records(0)), (0, 0));
    assert_eq!(first.records(1, 9), second.records(1, 9));
    second.assert_sound();
}

/// A former owner has what it told, whatever its tables had become meanwhile.
#[test]
fn a_former_owner_has_what_it_told() {
    let (mut owner, mut standby) = pair(&blocks(8));
    for number in 1..4 {
        owner.opened(number, 4000, at(0));
    }
    standby.apply_all(at(0), &owner.changes(at(0)));
    // Nothing of this is told any more: one session ends, one closes, one begins, and an entry is not replicated.
    let first = owner.nat.bib(at(1)).next().unwrap().binding;
    owner.nat.remove_bib(Protocol::Tcp, first.v4, at(1)).unwrap();
    owner.segment(2, 4000, Segment::Fin, at(1));
    owner.opened(3, 4001, at(1));
    owner.opened(5, 4000, at(1));
    let half = from_v6(Protocol::Tcp, (host(6), 1), Segment::Syn);
    owner.nat.from_v6(&half, at(1), 0).unwrap();
    owner.sweep(at(1));
    owner.replica.lose(&owner.nat, &mut owner.sweeper, at(2), 0);
    for now in [2, 3, 4] {
        assert_eq!(owner.changes(at(now)), []);
        owner.sweep(at(now));
    }
    owner.assert_sound();
    assert_eq!(owner.records(0, 9), standby.records(0, 9));
    let bound = |gateway: &Gateway| {
        let of = |it: SessionEntry| (it.binding, it.remote, it.tcp.map(TcpState::label));
        let mut all: Vec<_> = gateway.nat.sessions(at(4)).map(of).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(bound(&owner), bound(&standby));
    assert_eq!(owner.nat.blocks(), standby.nat.blocks());
    assert_eq!(owner.nat.subscribers(at(4)).count(), 3);
}

/// Ports of a lost shard may be others' by now, also those of entries without a record.
#[test]
fn a_shard_that_comes_back_has_its_records_only() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    gateway.opened(1, 4000, at(0));
    let unrecorded = gateway.nat.from_v6(&udp(1, 9), at(0), 0).unwrap();
    gateway.changes(at(0));
    gateway.replica.lose(&gateway.nat, &mut gateway.sweeper, at(1), 0);
    assert_eq!(gateway.take_over(0, at(2)), []);
    let from = answer(&udp(1, 9), unrecorded, Segment::Other);
    assert_eq!(gateway.nat.from_v4(&from, at(2), 0), Err(Refusal::Drop(DropReason::NoBib)));
    assert_eq!(gateway.changes(at(2)), []);
    assert_eq!(gateway.nat.bib(at(2)).count(), 1);
}

/// A process that is started again has the tables of the one before, of which all has to be told to the cluster.
#[test]
fn a_restarted_owner_goes_on_with_its_tables() {
    let mut before = Gateway::owner(2, Replicated::default(), blocks(8));
    before.opened(1, 4000, at(0));
    before.opened(2, 4000, at(0));
    let unrecorded = before.nat.from_v6(&udp(1, 9), at(0), 0).unwrap();
    before.changes(at(0));
    let settings = before.nat.settings().clone();
    let shards = Some(Arc::new(Shards::new(Dealt(2))));
    let memory = Arc::clone(before.nat.memory());
    let nat = Nat64::new(Settings { shards, ..settings }, memory).unwrap();
    let replica = Replica::new(&nat, Replicated::default()).unwrap();
    let mut after = Gateway { nat, replica, sweeper: Sweeper::new() };
    let mut told = Vec::new();
    let tell = &mut |change: Change<'_>| told.push(owned(change));
    after.replica.load(&after.nat, &mut after.sweeper, at(10), tell);
    assert_eq!(told.len(), 6);
    assert_eq!(after.changes(at(10)), []);
    for shard in 0..2 {
        assert_eq!(after.records(shard, 9), before.records(shard, 9));
    }
    // It owns the first shard of both again; the second one's owner is another gateway.
    after.take_over(1, at(11));
    let remaining = |gateway: &Gateway| {
        let of_host = |it: &SessionEntry| it.binding.v6.0 == host(1) && it.tcp.is_some();
        gateway.nat.sessions(at(12)).find(of_host).map(|it| it.remaining)
    };
    assert_eq!(remaining(&after), remaining(&before), "it goes on");
    let from = answer(&udp(1, 9), unrecorded, Segment::Other);
    assert!(after.nat.from_v4(&from, at(12), 0).is_ok());
    after.opened(1, 4001, at(12));
    assert_eq!(kinds(&after.changes(at(12))), [(2, true), (3, true)]);
    after.assert_sound();
}

#[test]
fn a_shard_is_cleared_alone() {
    let settings = blocks(8);
    let mut gateway = Gateway::owner(2, ALL, settings);
    for number in 1..5 {
        gateway.opened(number, 4000, at(0));
        gateway.nat.from_v6(&udp(number, 9), at(0), 0).unwrap();
    }
    gateway.changes(at(0));
    gateway.nat.from_v6(&udp(1, 10), at(0), 0).unwrap();
    assert!(!gateway.clear(1), "it is owned");
    gateway.replica.lose(&gateway.nat, &mut gateway.sweeper, at(0), 1);
    assert!(gateway.clear(1));
    assert_eq!((gateway.replica.records(0), gateway.replica.records(1)), (10, 0));
    let hosts: HashSet<_> = gateway.nat.bib(at(0)).map(|it| it.binding.v6.0).collect();
    assert_eq!(hosts, HashSet::from([host(2), host(4)]));
    for _ in 0..2 {
        gateway.sweep(at(0));
    }
    gateway.assert_sound();
    assert_eq!(gateway.nat.occupancy().map(|it| it.used), [4, 4, 2]);
    assert_eq!(gateway.nat.blocks()[0].used, 2);
}

#[test]
fn fresh_sessions_are_told_first() {
    let mut gateway = single(ALL);
    gateway.opened(1, 4000, at(0));
    gateway.opened(2, 4000, at(0));
    let mut told = Vec::new();
    let tell = &mut |change: Change<'_>| told.push(owned(change));
    gateway.replica.look_at(&gateway.nat, at(0), &[2, 0, 99, u32::MAX], tell);
    assert_eq!(kinds(&told), [(1, true), (2, true), (3, true)]);
    assert_eq!(told[0].1[16], 2, "of the second host");
    assert_eq!(gateway.changes(at(0)).len(), 3);
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

/// Ports, addresses and blocks come from the host's own shard, and only if it is owned.
#[test]
fn shards_have_their_own_ports() {
    for allocation in [Allocation::Shared, Allocation::Blocks { size: 8, most: 8 }] {
        let mut gateway = Gateway::new(4, ALL, settings(dealt(allocation)));
        assert_eq!(gateway.nat.from_v6(&udp(1, 1), at(0), 0), Err(DropReason::Draining));
        gateway.take_over(1, at(0));
        gateway.take_over(2, at(0));
        let mut given = HashSet::new();
        for number in 0..40 {
            for port in 0..20 {
                let made = gateway.nat.from_v6(&udp(number, port), at(0), 0);
                match (number % 4, made) {
                    (1 | 2, Ok(local)) => {
                        assert_eq!(u16::from(local.0.octets()[3]) % 4, number % 4);
                        assert!(given.insert(local));
                    }
                    (1 | 2, Err(reason)) => assert_eq!(reason, DropReason::PoolExhausted),
                    (_, made) => assert_eq!(made, Err(DropReason::Draining)),
                }
            }
        }
        assert!(given.len() > 250, "{}", given.len());
        gateway.assert_sound();
        if let Allocation::Blocks { .. } = allocation {
            let blocks = gateway.nat.blocks();
            assert!(blocks[0].size == 128 && blocks[0].used <= 64, "{blocks:?}");
        }
        // A review keeps all of it, and no new session begins after a loss.
        gateway.sweeper.review();
        gateway.sweep(at(1));
        assert_eq!(gateway.nat.bib(at(1)).count(), given.len());
        gateway.replica.lose(&gateway.nat, &mut gateway.sweeper, at(1), 1);
        let more = Tuple { remote: (SERVER.0, 99), ..udp(1, 0) };
        assert_eq!(gateway.nat.from_v6(&more, at(1), 0), Err(DropReason::Draining));
        let more = Tuple { remote: (SERVER.0, 99), ..udp(2, 0) };
        assert!(gateway.nat.from_v6(&more, at(1), 0).is_ok());
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
