//! What a gateway has of a shard that it has lost.

use super::*;

/// A former owner has what it told, whatever its tables had become meanwhile.
#[test]
fn a_former_owner_has_what_it_told() {
    for (is_swept, settings) in
        [(true, blocks(8)), (false, blocks(8)), (true, settings(dealt(Allocation::Shared)))]
    {
        a_former_owner_has_what_it_told_with(is_swept, &settings);
    }
}

fn a_former_owner_has_what_it_told_with(is_swept: bool, settings: &Settings) {
    let (mut owner, mut standby) = pair(settings);
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
    if is_swept {
        owner.sweep(at(1));
    }
    owner.lose(0, at(2));
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

/// Where only that is to be set back.
#[test]
fn a_connection_that_closed_is_open_for_the_next_owner() {
    let mut gateway = Gateway::owner(1, ALL, blocks(8));
    gateway.opened(1, 4000, at(0));
    gateway.opened(1, 4001, at(0));
    gateway.changes(at(0));
    gateway.segment(1, 4001, Segment::Fin, at(1));
    gateway.lose(0, at(1));
    let states: Vec<_> = gateway.nat.sessions(at(1)).filter_map(|it| it.tcp).collect();
    assert_eq!(states, [TcpState::Established; 2]);
}

/// Entries that have ended, whose ports rest, and of which nothing is left.
#[test]
fn what_has_ended_is_set_back() {
    for settings in [blocks(8), settings(dealt(Allocation::Shared))] {
        for nows in [vec![], vec![0], vec![400, 401], vec![400, 401, 801, 802, 1602, 1603]] {
            let mut gateway = Gateway::owner(1, ALL, settings.clone());
            let local = gateway.nat.from_v6(&udp(1, 9), at(0), 0).unwrap();
            gateway.changes(at(0));
            let held = |gateway: &Gateway| {
                let blocks: Vec<_> = gateway.nat.subscribers(at(0)).map(|it| it.blocks).collect();
                let live = gateway.nat.bib(at(0)).filter(|it| !it.in_hold_down).count();
                let bound: Vec<_> = gateway.nat.sessions(at(0)).map(|it| it.binding.v4).collect();
                (blocks, live, bound, gateway.nat.blocks())
            };
            let before = held(&gateway);
            if nows.len() < 2 {
                gateway.nat.remove_bib(Protocol::Udp, local, at(0)).unwrap();
            }
            for now in &nows {
                gateway.sweep(at(*now));
            }
            assert_ne!(held(&gateway), before);
            gateway.lose(0, at(1604));
            assert_eq!(held(&gateway), before, "after sweeps at {nows:?}");
            assert_eq!(gateway.replica.unplaced(), 0);
            gateway.assert_sound();
        }
    }
}

/// A shard with one port.
#[derive(Debug)]
struct OnePort;

impl Partition for OnePort {
    fn shards(&self) -> u16 {
        1
    }

    fn of_host(&self, _: Ipv6Addr) -> u16 {
        0
    }

    fn of_v4(&self, _: Ipv4Addr, _: u16) -> Option<u16> {
        Some(0)
    }

    fn ranges(&self, _: usize, _: u16) -> Vec<Range> {
        pool(2000, 2000).ranges
    }
}

/// All that a record needs is in entries that look like those of its own.
#[test]
fn a_host_at_the_port_of_another_is_set_back() {
    let sizes = Sizes { bibs: 2, sessions: 2, subscribers: 2 };
    let shards = Some(Arc::new(Shards::new(OnePort)));
    let nat = nat(Settings { sizes, shards, ..settings(pool(2000, 2000)) });
    let replica = Replica::new(&nat, ALL).unwrap();
    let mut gateway = Gateway { nat, replica, sweeper: Sweeper::new() };
    gateway.take_over(0, at(0));
    let local = gateway.opened(1, 4000, at(0));
    gateway.changes(at(0));
    gateway.nat.remove_bib(Protocol::Tcp, local, at(0)).unwrap();
    for _ in 0..2 {
        gateway.sweep(at(0));
    }
    assert_eq!(gateway.opened(2, 4000, at(0)), local);
    gateway.lose(0, at(0));
    let held: Vec<_> = gateway.nat.sessions(at(0)).map(|it| it.binding.v6.0).collect();
    assert_eq!(held, [host(1)]);
    gateway.assert_sound();
}

/// Another shard's is where a lost one's was, whose binding is there as it was told.
#[test]
fn a_session_in_the_entry_of_a_lost_one_is_another_record() {
    let sizes = Sizes { bibs: 8, sessions: 2, subscribers: 8 };
    let mut gateway = Gateway::owner(2, ALL, Settings { sizes, ..blocks(8) });
    gateway.opened(2, 4000, at(0));
    let syn = from_v6(Protocol::Tcp, (host(2), 4000), Segment::Syn);
    let more = |segment| Tuple { remote: (SERVER.0, 81), segment, ..syn };
    let local = gateway.nat.from_v6(&more(Segment::Syn), at(0), 0).unwrap();
    let answer = answer(&more(Segment::Syn), local, Segment::SynAck);
    gateway.nat.from_v4(&answer, at(0), 0).unwrap();
    assert_eq!(gateway.changes(at(0)).len(), 4);
    gateway.nat.from_v6(&more(Segment::Other), at(6500), 0).unwrap();
    for now in [7201, 7450] {
        gateway.sweep(at(now));
    }
    gateway.opened(1, 4000, at(7450));
    gateway.lose(0, at(7450));
    let mut left: Vec<_> =
        gateway.nat.sessions(at(7450)).map(|it| (it.binding.v6.0, it.remote.1)).collect();
    left.sort_unstable();
    assert_eq!(left, [(host(1), 80), (host(2), 81)]);
    let told = gateway.changes(at(7450));
    assert_eq!(kinds(&told), [(1, true), (2, true), (3, true)]);
    assert!(told.iter().all(|it| it.0 == 1));
    assert_eq!(gateway.replica.unplaced(), 1, "the table is full");
    gateway.assert_sound();
}

/// Its record has ended, and another's has taken the entry, when its shard is lost, or another one.
#[test]
fn records_that_have_ended_are_told_by_the_next_owner() {
    for lost in [0, 2] {
        let sizes = Sizes { bibs: 2, sessions: 2, subscribers: 2 };
        let settings = blocks(8);
        let mut gateway = Gateway::new(3, ALL, Settings { sizes, ..settings.clone() });
        gateway.take_over(0, at(0));
        gateway.take_over(2, at(0));
        for number in [3, 6] {
            gateway.opened(number, 4000, at(0));
        }
        assert_eq!(kinds(&gateway.changes(at(0))).len(), 6);
        let first = gateway.nat.bib(at(0)).find(|it| it.binding.v6.0 == host(3)).unwrap();
        gateway.nat.remove_bib(Protocol::Tcp, first.binding.v4, at(0)).unwrap();
        for now in [8000, 8700] {
            gateway.segment(6, 4000, Segment::Other, at(now - 1700));
            gateway.sweep(at(now));
        }
        assert_eq!(gateway.nat.subscribers(at(8700)).count(), 1);
        let mut other = Gateway::owner(3, ALL, settings);
        other.opened(1, 4000, at(0));
        gateway.apply_all(at(8700), &other.changes(at(0)));
        gateway.lose(lost, at(8700));
        let gone = [(3, false), (2, false), (1, false)];
        let own = if lost == 0 { vec![] } else { gone.to_vec() };
        let told = gateway.changes(at(8700));
        assert_eq!(kinds(&told), own);
        assert!(told.iter().all(|it| it.0 == 0 && it.1[16] != 6));
        let taken = gateway.take_over(lost, at(8700));
        assert_eq!(kinds(&taken), if lost == 0 { gone.to_vec() } else { vec![] });
        gateway.assert_sound();
    }
}

/// Ports of a lost shard may be others' by now, also those of entries without a record.
#[test]
fn a_shard_that_comes_back_has_its_records_only() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    gateway.opened(1, 4000, at(0));
    let unrecorded = gateway.nat.from_v6(&udp(1, 9), at(0), 0).unwrap();
    gateway.changes(at(0));
    gateway.lose(0, at(1));
    assert_eq!(gateway.take_over(0, at(2)), []);
    let from = answer(&udp(1, 9), unrecorded, Segment::Other);
    assert_eq!(gateway.nat.from_v4(&from, at(2), 0), Err(Refusal::Drop(DropReason::NoBib)));
    assert_eq!(gateway.changes(at(2)), []);
    assert_eq!(gateway.nat.bib(at(2)).count(), 1);
}

/// The next owner has given it to another host.
#[test]
fn a_block_that_was_never_told_goes_to_whom_a_record_names() {
    for rests in [false, true] {
        let mut former = Gateway::owner(1, ALL, blocks(8));
        let (mut next, _) = pair(&blocks(8));
        for gateway in [&former, &next] {
            gateway.nat.from_v6(&udp(3, 9), at(200), 0).unwrap();
        }
        next.changes(at(200));
        let [local, other] = [&former, &next].map(|it| it.nat.from_v6(&udp(1, 9), at(0), 0));
        assert_eq!(local, other);
        let mut changes = next.changes(at(200));
        changes[0].1[16] = 2;
        changes[1].2.as_mut().unwrap()[15] = 2;
        if rests {
            former.sweep(at(400));
            former.sweep(at(401));
        }
        let held = former.nat.bib(at(401)).find(|it| it.binding.v6.0 == host(1));
        assert_eq!(held.map(|it| it.in_hold_down), Some(rests));
        former.lose(0, at(401));
        former.apply_all(at(401), &changes);
        let held = former.nat.subscribers(at(401));
        let held: Vec<_> = held.map(|it| (it.prefix, it.blocks.len())).collect();
        assert_eq!(held, [(host(3), 1), (host(1), 0), (host(2), 1)]);
        let bound: Vec<_> = former.nat.bib(at(401)).map(|it| it.binding.v6.0).collect();
        assert_eq!(bound, [host(3), host(2)]);
        former.assert_sound();
    }
}

/// It was another one's when the shard was taken over, and has changed hands since.
#[test]
fn a_block_whose_owner_was_told_earlier_goes_to_whom_a_record_names() {
    let (mut first, mut second) = pair(&blocks(8));
    first.opened(3, 4000, at(0));
    second.apply_all(at(0), &first.changes(at(0)));
    second.take_over(0, at(0));
    for now in [8000, 8001, 9000, 9001, 10_000, 10_001] {
        second.sweep(at(now));
    }
    second.changes(at(10_001));
    assert_eq!(second.nat.occupancy().map(|it| it.used), [0; 3]);
    let (mut next, _) = pair(&blocks(8));
    // The block that a record of the next owner names is another one's here, of which nothing was told.
    let local = next.opened(3, 4000, at(0));
    let fills = (4..200).find(|number| {
        second
            .nat
            .from_v6(&udp(*number, 9), at(10_001), 0)
            .is_ok_and(|it| it.0 == local.0 && it.1 / 8 == local.1 / 8)
    });
    assert!(fills.is_some());
    second.lose(0, at(10_001));
    second.apply_all(at(10_001), &next.changes(at(0)));
    second.assert_sound();
}

#[test]
fn a_port_that_is_held_back_is_not_kept_for_the_next_owner() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    gateway.nat.from_v6(&udp(1, 9), at(0), 0).unwrap();
    for now in [400, 401] {
        gateway.sweep(at(now));
    }
    assert!(gateway.nat.bib(at(401)).all(|it| it.in_hold_down));
    assert_eq!(gateway.nat.bib(at(401)).count(), 1);
    gateway.lose(0, at(402));
    assert_eq!(gateway.changes(at(402)), []);
    gateway.sweep(at(402));
    gateway.assert_empty();
}

#[test]
fn a_shard_that_is_lost_during_a_scan_waits_for_the_next() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    for port in 9..12 {
        gateway.nat.from_v6(&udp(1, port), at(0), 0).unwrap();
    }
    assert_eq!(gateway.scan(at(0), 1), (vec![], false));
    gateway.lose(0, at(1));
    assert_eq!(gateway.scan(at(1), u32::MAX), (vec![], true));
    assert_eq!(gateway.nat.bib(at(1)).count(), 3);
    assert_eq!(gateway.scan(at(1), u32::MAX), (vec![], true));
    assert_eq!(gateway.nat.bib(at(1)).count(), 0);
}

/// It comes back and is lost again meanwhile, with entries that the scan has passed.
#[test]
fn a_shard_that_is_lost_twice_during_a_scan_waits_for_the_next() {
    let mut gateway = Gateway::owner(1, Replicated::default(), blocks(8));
    let fill = |gateway: &Gateway| {
        for port in 9..12 {
            gateway.nat.from_v6(&udp(1, port), at(0), 0).unwrap();
        }
    };
    fill(&gateway);
    gateway.lose(0, at(1));
    assert_eq!(gateway.scan(at(1), 3), (vec![], false));
    gateway.take_over(0, at(1));
    gateway.sweep(at(1));
    fill(&gateway);
    gateway.lose(0, at(1));
    for left in [3, 0] {
        gateway.scan(at(1), u32::MAX);
        assert_eq!(gateway.nat.bib(at(1)).count(), left);
    }
}

#[test]
fn what_an_operator_has_bound_stays_with_every_gateway() {
    let mut gateway = Gateway::owner(1, ALL, blocks(8));
    let v4 = (Ipv4Addr::new(192, 0, 2, 3), 2007);
    let fixed = StaticBib { protocol: Protocol::Tcp, v6: (host(9), 80), v4 };
    gateway.nat.add_bib(&fixed, at(0)).unwrap();
    let syn = from_v6(Protocol::Tcp, fixed.v6, Segment::Syn);
    gateway.nat.from_v6(&syn, at(0), 0).unwrap();
    gateway.nat.from_v4(&answer(&syn, v4, Segment::SynAck), at(0), 0).unwrap();
    assert_eq!(kinds(&gateway.changes(at(0))), [(1, true)], "the subscriber");
    gateway.opened(1, 4000, at(0));
    gateway.lose(0, at(1));
    assert_eq!(gateway.changes(at(1)), []);
    assert_eq!(gateway.nat.sessions(at(1)).map(|it| it.binding.v4).collect::<Vec<_>>(), [v4]);
    let bound: Vec<_> = gateway.nat.bib(at(1)).map(|it| it.binding.v4).collect();
    assert_eq!(bound, [v4]);
}

/// By scans after the loss, and at once if the shard comes back before them.
#[test]
fn a_session_without_a_record_ends_beside_one_that_has_one() {
    for comes_back in [false, true] {
        let mut gateway = Gateway::owner(2, Replicated::default(), blocks(8));
        gateway.opened(2, 4000, at(0));
        gateway.changes(at(0));
        let half = from_v6(Protocol::Tcp, (host(2), 4000), Segment::Syn);
        let half = Tuple { remote: (SERVER.0, 81), ..half };
        gateway.nat.from_v6(&half, at(0), 0).unwrap();
        assert_eq!((gateway.nat.bib(at(0)).count(), gateway.nat.sessions(at(0)).count()), (1, 2));
        // One of a shard that stays.
        gateway.nat.from_v6(&Tuple { near: (host(1), 4000), ..half }, at(0), 0).unwrap();
        gateway.lose(0, at(1));
        if comes_back {
            assert_eq!(gateway.take_over(0, at(1)), []);
        } else {
            assert_eq!(kinds(&gateway.changes(at(1))), [(1, true)], "the other one's subscriber");
        }
        let mut left: Vec<_> =
            gateway.nat.sessions(at(2)).map(|it| (it.binding.v6.0, it.remote)).collect();
        left.sort_unstable();
        assert_eq!(left, [(host(1), half.remote), (host(2), SERVER)]);
        gateway.sweep(at(2));
        gateway.assert_sound();
    }
}
