//! Other settings while there are sessions, and what an operator does by hand.

use super::*;

fn blocks_of(size: u16, ranges: &[(u16, u16)]) -> Pool {
    let range = |&(low, high): &(u16, u16)| Range { first: POOL, last: POOL, low, high };
    Pool {
        ranges: ranges.iter().map(range).collect(),
        allocation: Allocation::Blocks { size, most: 4 },
        ..Pool::default()
    }
}

/// 1000 ports are three blocks of 300, and 100 that are nobody's.
#[test]
fn ports_beside_the_blocks_harm_none() {
    let pool = blocks_of(300, &[(1024, 2023)]);
    let nat = nat(settings(pool.clone()));
    for number in 1..=3 {
        nat.from_v6(&udp(number, 9), at(0), 0).unwrap();
    }
    assert_eq!(nat.blocks(), [Occupancy { used: 3, size: 3 }]);
    // Other settings, or a process that takes the tables over, know whose they are,
    let next = Nat64::new(settings(pool), Arc::clone(nat.memory())).unwrap();
    assert_eq!(next.blocks(), [Occupancy { used: 3, size: 3 }]);
    assert_eq!(next.from_v6(&udp(4, 9), at(0), 0), Err(DropReason::PoolExhausted));
    let mut sweeper = Sweeper::new();
    sweeper.review();
    sweep(&next, &mut sweeper, at(1));
    assert_eq!(next.subscribers(at(1)).count(), 3);
    // and get them back.
    for now in [301, 430, 1100, 1101] {
        sweep(&next, &mut sweeper, at(now));
    }
    assert_eq!(next.blocks()[0].used, 0);
}

#[test]
fn a_block_more_is_found_in_whatever_range_of_the_address() {
    let nat = nat(settings(blocks_of(300, &[(1024, 1423), (4096, 5095)])));
    let made = (0..1300).filter(|port| nat.from_v6(&udp(1, *port), at(0), 0).is_ok()).count();
    assert_eq!(made, 1200);
}

#[test]
fn computed_blocks_are_told_in_whatever_range_of_the_address() {
    let clients = vec!["2001:db8:1::/112".parse().unwrap()];
    let allocation = Allocation::Deterministic { size: 300 };
    let pool = Pool { allocation, clients, ..blocks_of(300, &[(1024, 2023), (4096, 5095)]) };
    let nat = nat(settings(pool.clone()));
    for number in 0..6 {
        let local = nat.from_v6(&udp(number, 5000), at(0), 0).unwrap();
        let subscriber = pool.subscriber_of(local.0, local.1, 128).unwrap();
        assert_eq!(subscriber.addr(), host(number));
    }
    assert_eq!(pool.subscriber_of(POOL, 2000, 128), None, "in no block");
}

/// Pools are told by their number, which is another when the operator writes them in another order.
#[test]
fn pools_may_change_places() {
    let mut other = blocks_of(64, &[(1024, 1535)]);
    other.ranges[0].first = Ipv4Addr::new(192, 0, 2, 9);
    other.ranges[0].last = other.ranges[0].first;
    other.clients = vec!["2001:db8:1::5/128".parse().unwrap()];
    let pools = vec![other.clone(), blocks_of(64, &[(1024, 1535)])];
    let first = nat(Settings { pools: pools.clone(), ..settings(other.clone()) });
    let local = first.from_v6(&udp(1, 9), at(0), 0).unwrap();
    first.from_v6(&udp(5, 9), at(0), 0).unwrap();
    let used = |nat: &Nat64| nat.blocks().iter().map(|blocks| blocks.used).collect::<Vec<_>>();
    assert_eq!(used(&first), [1, 1]);
    let mut sweeper = Sweeper::new();
    sweep(&first, &mut sweeper, at(0));
    let reversed = pools.into_iter().rev().collect();
    let nat = first.reconfigured(Settings { pools: reversed, ..settings(other) }).unwrap();
    sweeper.review();
    sweep(&nat, &mut sweeper, at(1));
    // They keep what they have, now of the first pool that takes them.
    assert_eq!(nat.from_v6(&udp(1, 9), at(1), 0), Ok(local));
    assert!(nat.subscribers(at(1)).any(|known| (known.prefix, known.pool) == (host(1), 0)));
    assert!(nat.subscribers(at(1)).any(|known| (known.prefix, known.pool) == (host(5), 1)));
    for now in [400, 530, 1200, 1201] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!((nat.subscribers(at(1201)).count(), used(&nat)), (0, vec![0, 0]));
}

/// A subscriber that has no pool any more keeps its block until its last session is gone.
#[test]
fn a_block_is_not_given_twice() {
    let pool = blocks_of(64, &[(1024, 1087)]);
    let first = nat(settings(pool.clone()));
    first.from_v6(&udp(1, 9), at(0), 0).unwrap();
    let only = |number: u16| Pool { clients: vec![host(number).into()], ..pool.clone() };
    let mut sweeper = Sweeper::new();
    let second = first.reconfigured(settings(only(2))).unwrap();
    sweeper.review();
    sweep(&second, &mut sweeper, at(1));
    assert_eq!(second.from_v6(&udp(2, 9), at(1), 0), Err(DropReason::PoolExhausted));
    // Whoever takes the tables over knows it, too.
    let third = Nat64::new(settings(only(2)), Arc::clone(second.memory())).unwrap();
    assert_eq!(third.from_v6(&udp(2, 9), at(1), 0), Err(DropReason::PoolExhausted));
    for now in [301, 430, 431] {
        sweep(&third, &mut sweeper, at(now));
    }
    assert!(third.from_v6(&udp(2, 9), at(431), 0).is_ok());
}

/// Between the moment when other settings are made and the one when they are taken up, the sweeper works on.
#[test]
fn no_block_is_lost_while_settings_change() {
    let first = nat(settings(blocks_of(64, &[(1024, 1535)])));
    first.from_v6(&udp(1, 9), at(0), 0).unwrap();
    let mut sweeper = Sweeper::new();
    for now in [301, 430] {
        sweep(&first, &mut sweeper, at(now));
    }
    let second = first.reconfigured(settings(blocks_of(64, &[(1024, 2047)]))).unwrap();
    // Its time is over.
    for now in [1100, 1101] {
        sweep(&first, &mut sweeper, at(now));
    }
    sweeper.review();
    for now in [1102, 1103] {
        sweep(&second, &mut sweeper, at(now));
    }
    assert_eq!((second.subscribers(at(1103)).count(), second.blocks()[0].used), (0, 0));
    // What is never taken up holds nothing up.
    let third = second.reconfigured(settings(pool(1024, 2047))).unwrap();
    assert!(!second.shared.is_unchanging());
    drop(third);
    assert!(second.shared.is_unchanging());
}

/// Everything that was is told, however short.
#[test]
fn what_ends_between_two_sweeps_is_told() {
    let nat = nat(settings(pool(1024, 65_535)));
    let mut sweeper = Sweeper::new();
    let local = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    nat.remove_bib(Protocol::Udp, local, at(0)).unwrap();
    let (_, events) = sweep(&nat, &mut sweeper, at(1));
    let binding = Binding { protocol: Some(Protocol::Udp), v6: (host(1), 1), v4: local };
    assert_eq!(events[0], Event::SessionCreated(binding, SERVER));
    assert_eq!(events[1], Event::SessionRemoved(binding, SERVER, [(0, 0), (1, 100)]));
    assert!(matches!(events[2], Event::BibCreated(it, _) if it == binding), "{events:?}");
    assert_eq!(events[3], Event::BibRemoved(binding));
    assert_eq!(nat.ended().withdrawn[1].load(Ordering::Relaxed), 1);
    assert_eq!(nat.ended().expired[1].load(Ordering::Relaxed), 0);
}

/// RFC 6146 section 3.5.1.1: ports 0 to 1023, and others, stay on their side as long as the subscriber has such.
#[test]
fn classes_are_kept_over_all_blocks() {
    let nat = nat(settings(blocks_of(64, &[(992, 1119)])));
    // Half of one block is well-known. TCP needs both of them;
    for port in 2000..2100 {
        nat.from_v6(&from_v6(Protocol::Tcp, (host(1), port), Segment::Syn), at(0), 0).unwrap();
    }
    assert_eq!(nat.blocks()[0].used, 2);
    // then UDP finds 32 ports on the one side, and 96 on the other.
    for port in (0..32).chain(2000..2096) {
        let t = nat.from_v6(&udp(1, port), at(0), 0).unwrap().1;
        assert_eq!(t < 1024, port < 1024, "{port} {t}");
    }
}

/// Nor does one get a port of the wrong side whose address has others in another range.
#[test]
fn classes_are_kept_over_all_ranges() {
    let mut both = pool(600, 1023);
    both.ranges.push(Range { low: 1024, high: 2047, ..both.ranges[0] });
    let nat = nat(settings(both));
    for number in 1..20 {
        assert!(nat.from_v6(&udp(number, 5000), at(0), 0).unwrap().1 >= 1024);
        assert!(nat.from_v6(&udp(number, 53), at(0), 0).unwrap().1 < 1024);
    }
}

/// Whose ports are the same, for them one search in vain is enough.
#[test]
fn a_full_address_is_searched_once_for_all() {
    let nat = nat(settings(pool(2000, 2099)));
    for port in 0..100 {
        nat.from_v6(&udp(1, 3000 + port), at(0), 0).unwrap();
    }
    let search = |number: u16| nat.from_v6(&udp(number, 3000), at(0), 0);
    assert_eq!(search(2), Err(DropReason::PoolExhausted));
    let blocks = [PortBlock { v4: POOL, low: 2000, high: 2099 }];
    let view = nat.view(at(0), 0);
    assert!(nat.known_exhausted(nat.search_key(&blocks, Protocol::Udp).unwrap(), view.now));
    assert!(!nat.known_exhausted(nat.search_key(&blocks, Protocol::Tcp).unwrap(), view.now));
    assert_eq!(search(3), Err(DropReason::PoolExhausted));
    // A moment later somebody may have gone.
    let mut sweeper = Sweeper::new();
    nat.remove_bib(Protocol::Udp, (POOL, 2050), at(0)).unwrap();
    sweep(&nat, &mut sweeper, at(1));
    assert!(nat.from_v6(&udp(3, 3000), at(1), 0).is_ok());
}

#[test]
fn a_full_pool_of_addresses_is_searched_once_for_all() {
    let pool = vec!["192.0.2.0/29".parse().unwrap()];
    let dynamic4 = Some(Dynamic4 { pool, clients: Vec::new() });
    let nat = nat(Settings { dynamic4, ..settings(Pool::default()) });
    let pool = nat.settings().dynamic4.as_ref().unwrap();
    let view = nat.view(at(0), 0);
    for number in 0..6 {
        assert!(view.dynamic4(pool, host(number)).unwrap().is_ok());
    }
    let search = nat.secret.v4(Ipv4Addr::UNSPECIFIED, 0, 0);
    assert!(!nat.known_exhausted(search, view.now));
    assert_eq!(view.dynamic4(pool, host(9)), Some(Err(DropReason::PoolExhausted)));
    assert!(nat.known_exhausted(search, view.now));
    assert_eq!(view.dynamic4(pool, host(10)), Some(Err(DropReason::PoolExhausted)));
    assert!(view.dynamic4(pool, host(1)).unwrap().is_ok(), "who has one keeps it");
}
