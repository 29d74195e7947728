//! Whose shards are, and what becomes of their entries when that changes.

use super::*;

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

#[test]
fn a_shard_that_is_owned_is_taken_over_no_more() {
    let mut gateway = Gateway::owner(1, ALL, blocks(8));
    gateway.opened(1, 4000, at(0));
    gateway.changes(at(0));
    assert_eq!(gateway.take_over(0, at(1000)), []);
    let left = gateway.nat.sessions(at(1000)).next().unwrap().remaining.as_secs();
    assert_eq!(left, 6200, "it ages as before");
}

/// A standby's operator has removed the binding, and a session of an own shard has its entry.
#[test]
fn a_take_over_sets_the_age_of_its_own_sessions() {
    let (mut owner, sizes) =
        (Gateway::owner(2, ALL, blocks(8)), Sizes { bibs: 4, sessions: 1, subscribers: 4 });
    let mut standby = Gateway::new(2, ALL, Settings { sizes, ..blocks(8) });
    standby.take_over(1, at(0));
    owner.opened(2, 4000, at(0));
    for now in [0, 7000] {
        standby.apply_all(at(now), &owner.changes(at(now)));
    }
    let binding = standby.nat.bib(at(7000)).next().unwrap().binding;
    standby.nat.remove_bib(Protocol::Tcp, binding.v4, at(7000)).unwrap();
    for _ in 0..2 {
        standby.sweep(at(7000));
    }
    standby.opened(1, 4000, at(7000));
    standby.take_over(0, at(7000));
    let left: Vec<_> = standby.nat.sessions(at(7000)).map(|it| it.remaining.as_secs()).collect();
    assert_eq!(left, [7200]);
}

/// Those of an earlier process are not ended with those of a shard that was lost since.
#[test]
fn entries_wait_for_the_shard_that_may_come_back() {
    let before = Gateway::owner(2, Replicated::default(), blocks(8));
    let nat = before.nat;
    nat.from_v6(&udp(1, 9), at(0), 0).unwrap();
    nat.from_v6(&udp(2, 9), at(0), 0).unwrap();
    let half = from_v6(Protocol::Tcp, (host(1), 4000), Segment::Syn);
    nat.from_v6(&half, at(0), 0).unwrap();
    for shard in 0..2 {
        nat.settings().shards.as_ref().unwrap().set_owned(shard, false);
    }
    let replica = Replica::new(&nat, Replicated::default()).unwrap();
    let mut after = Gateway { nat, replica, sweeper: Sweeper::new() };
    after.take_over(0, at(1));
    after.lose(0, at(1));
    after.scan(at(1), u32::MAX);
    let left: Vec<_> = after.nat.sessions(at(1)).map(|it| it.binding.v6.0).collect();
    assert_eq!(left, [host(1), host(1)]);
    assert_eq!(after.nat.subscribers(at(1)).map(|it| it.prefix).collect::<Vec<_>>(), [host(1)]);
}

#[test]
fn slots_are_numbered_from_the_first_port_on() {
    let (first, last, slots, base) = (10, 12, 17, 5);
    let part = Part { first, last, slots, base, low: 2048, high: 4095, shift: 9 };
    assert_eq!(part.per_address(), 4);
    let slot = |v4, port| part.slot(Ipv4Addr::from_bits(v4), port);
    assert_eq!([slot(10, 2048), slot(10, 4095), slot(11, 2048), slot(12, 4095)], [5, 8, 9, 16]);
}

#[test]
fn each_shard_has_a_way_and_an_epoch_of_its_own() {
    let gates = Arc::new(OwnGates::new(2));
    let shards = Shards::with(Dealt(2), Arc::clone(&gates));
    for shard in 0..3 {
        shards.set_way(shard, 10 + u32::from(shard));
        shards.set_epoch(shard, 20 + u64::from(shard));
    }
    let read: Vec<u64> = gates.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
    assert_eq!(read, [0, NEVER, 20, 10, NEVER, 21, 11]);
    assert_eq!([0, 1, 2].map(|shard| shards.epoch(shard)), [20, 21, 0]);
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
    // It owns one shard of both again, which it can't lose before; the other one's owner is another gateway.
    after.lose(1, at(11));
    after.lose(2, at(11));
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
    gateway.nat.from_v6(&udp(5, 10), at(0), 0).unwrap();
    assert!(!gateway.clear(1), "it is owned");
    gateway.lose(1, at(0));
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

/// Ports, addresses and blocks come from the host's own shard, and only if it is owned.
#[test]
fn shards_have_their_own_ports() {
    for allocation in [Allocation::Shared, Allocation::Blocks { size: 8, most: 8 }] {
        let mut gateway = Gateway::new(4, ALL, settings(dealt(allocation)));
        assert_eq!(gateway.nat.from_v6(&udp(1, 1), at(0), 0), Err(DropReason::OtherShard));
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
                    (_, made) => assert_eq!(made, Err(DropReason::OtherShard)),
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
        gateway.lose(1, at(1));
        let more = Tuple { remote: (SERVER.0, 99), ..udp(1, 0) };
        assert_eq!(gateway.nat.from_v6(&more, at(1), 0), Err(DropReason::OtherShard));
        let more = Tuple { remote: (SERVER.0, 99), ..udp(2, 0) };
        assert!(gateway.nat.from_v6(&more, at(1), 0).is_ok());
    }
}

/// Packets make entries while a scan looks at those before them.
#[test]
fn entries_that_packets_make_during_scans_are_told() {
    for _ in 0..30 {
        let settings = settings(dealt(Allocation::Shared));
        let Gateway { nat, mut sweeper, mut replica } = Gateway::owner(1, ALL, settings);
        let told = core::cell::Cell::new(0);
        let mut scan = || {
            let mut tell = |_: Change<'_>| told.set(told.get() + 1);
            replica.scan(&nat, &mut sweeper, at(0), u32::MAX, &mut tell);
        };
        std::thread::scope(|scope| {
            let packets = scope.spawn(|| {
                let open = |n: u16| nat.from_v6(&udp(1 + n % 16, 1 + n), at(0), 0).is_ok();
                (0..640).filter(|n| open(*n)).count()
            });
            while !packets.is_finished() {
                scan();
            }
            (0..3).for_each(|_| scan());
            let made = packets.join().unwrap();
            // Each host is a subscriber.
            assert_eq!((made > 300, told.get()), (true, 16 + 2 * made));
        });
    }
}
