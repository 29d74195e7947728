//! Threads that work on the same entries, at the worst moments.

use super::*;
use crate::nat64::policy::Purpose;
use crate::nat64::table::{Chained, Directory, Free, KINDS, SessionKey, Unlinked, life_parts};

/// What must be so whenever nobody is at work: whatever is in a chain is somebody, in it once, and in no free
/// list; and what is free is in one list, once.
pub(super) fn assert_sound(nat: &Nat64) {
    let regions = nat.memory().regions();
    let heads = |directory: Directory| regions.heads[directory as usize];
    let state = |life: &core::sync::atomic::AtomicU32| life_parts(life.load(Ordering::Acquire)).0;
    for (directory, free) in [(Directory::Bib6, 0), (Directory::Bib4, 0)] {
        chained(regions.bibs, heads(directory), directory, &free_of(&regions, regions.bibs, free));
    }
    let free = free_of(&regions, regions.sessions, 1);
    chained(regions.sessions, heads(Directory::Session), Directory::Session, &free);
    let free = free_of(&regions, regions.subscribers, 2);
    chained(regions.subscribers, heads(Directory::Subscriber), Directory::Subscriber, &free);
    assert!(free.iter().all(|index| state(&regions.subscribers[*index].life) == state::FREE));
    let mut prefixes = HashSet::new();
    let live = regions.subscribers.iter().filter(|it| it.state() == state::LIVE);
    for subscriber in live {
        let prefix = (subscriber.prefix(), subscriber.mark.load(Ordering::Relaxed));
        assert!(prefixes.insert(prefix), "two subscribers of {prefix:?}");
    }
}

fn free_of<T: Chained>(regions: &Regions<'_>, entries: &[T], kind: usize) -> HashSet<usize> {
    assert!(kind < KINDS);
    let lists: &[Free] =
        &regions.free[kind * layout::FREE_SHARDS..(kind + 1) * layout::FREE_SHARDS];
    let mut found = HashSet::new();
    for list in lists {
        let mut index = list.head.load(Ordering::Relaxed) as u32 as usize;
        while index != 0 {
            assert!(found.insert(index), "entry {index} of kind {kind} is free twice");
            index = entries[index].next(Directory::Bib6).load(Ordering::Relaxed) as usize;
        }
    }
    found
}

fn chained<T: Chained>(
    entries: &[T],
    heads: &[AtomicU64],
    directory: Directory,
    free: &HashSet<usize>,
) {
    let mut found = HashSet::new();
    for head in heads {
        let mut index = head.load(Ordering::Relaxed) as u32 as usize;
        while index != 0 {
            assert!(!free.contains(&index), "{directory:?}: entry {index} is free, and linked");
            assert!(found.insert(index), "{directory:?}: entry {index} is in two chains");
            index = entries[index].next(directory).load(Ordering::Relaxed) as usize;
        }
    }
}

/// A session that is alive and not linked yet when its BIB entry is taken away.
#[test]
fn a_session_in_the_making_is_nobody_elses() {
    let nat = nat(settings(pool(1024, 65_535)));
    let mut sweeper = Sweeper::new();
    let local = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    let view = nat.view(at(0), 0);
    let key = SessionKey { local, remote: SERVER, protocol: Protocol::Udp.number() };
    let (index, _) = view.session(&key).unwrap();
    let chain = view.session_chain(&key).unwrap();
    assert_eq!(chain.unlink(index), Unlinked::Done, "as it was a moment ago");
    nat.remove_bib(Protocol::Udp, local, at(0)).unwrap();
    sweeper.sweep(&nat, at(1), &mut |_| {});
    // Its maker goes on, and ends his burst.
    let (_, seen) = view.find_session(&chain, &key);
    assert!(chain.insert(index, seen));
    sweeper.release(&nat);
    assert_sound(&nat);
    for now in [2, 3, 4] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(nat.occupancy()[..2].iter().map(|kind| kind.used).sum::<u64>(), 0);
}

/// The same of a BIB entry that its maker has not announced yet.
#[test]
fn a_bib_entry_in_the_making_is_nobody_elses() {
    let nat = nat(settings(pool(1024, 65_535)));
    let mut sweeper = Sweeper::new();
    let local = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    sweep(&nat, &mut sweeper, at(301));
    let view = nat.view(at(301), 0);
    let (v6, protocol) = ((host(1), 1), Protocol::Udp.number());
    let chain = view.bib6_chain(v6, protocol).unwrap();
    let (found, _) = view.find6(&chain, v6, protocol);
    let (index, bib) = found.unwrap();
    assert!(bib.change(state::HOLD_DOWN, state::LIVE));
    assert_eq!(chain.unlink(index), Unlinked::Done);
    nat.remove_bib(Protocol::Udp, local, at(301)).unwrap();
    sweeper.sweep(&nat, at(302), &mut |_| {});
    let (_, seen) = view.find6(&chain, v6, protocol);
    assert!(chain.insert(index, seen));
    sweeper.release(&nat);
    assert_sound(&nat);
    for now in [303, 304, 305] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(nat.occupancy()[0].used, 0);
}

/// The same of a subscriber whose pool is taken away.
#[test]
fn a_subscriber_in_the_making_is_nobody_elses() {
    let allocation = Allocation::Blocks { size: 64, most: 1 };
    let first = nat(settings(Pool { allocation, ..pool(1024, 2047) }));
    let mut sweeper = Sweeper::new();
    let view = first.view(at(0), 0);
    let (index, _) = view.subscriber(host(1), 0, Purpose::Ports).unwrap();
    let chain = view.subscriber_chain(host(1), 0).unwrap();
    assert_eq!(chain.unlink(index), Unlinked::Done);
    let nat = first.reconfigured(settings(Pool { allocation, ..pool(4096, 8191) })).unwrap();
    sweeper.review();
    sweeper.sweep(&nat, at(1), &mut |_| {});
    let (_, seen) = view.find_subscriber(&chain, host(1), 0);
    assert!(chain.insert(index, seen));
    sweeper.release(&nat);
    assert_sound(&nat);
    for now in [2, 3] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!((nat.occupancy()[2].used, nat.blocks()[0].used), (0, 0));
}

/// An operator's change searches chains, too, and no burst tells of it.
#[test]
fn nothing_is_given_back_under_the_hands_of_an_operator() {
    let nat = nat(settings(pool(1024, 65_535)));
    let mut sweeper = Sweeper::new();
    let local = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    nat.remove_bib(Protocol::Udp, local, at(0)).unwrap();
    let change = nat.shared.begin_change();
    for now in [1, 2, 3] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!(nat.occupancy()[..2].iter().map(|kind| kind.used).sum::<u64>(), 2);
    drop(change);
    sweeper.release(&nat);
    assert_eq!(nat.occupancy()[..2].iter().map(|kind| kind.used).sum::<u64>(), 0);
}

/// A list's count follows its head: others may have taken what is not counted yet.
#[test]
fn counts_of_free_entries_may_lag() {
    let nat = nat(settings(pool(1024, 65_535)));
    nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    let free = nat.memory().regions().free;
    free[layout::FREE_SHARDS].count.fetch_sub(1, Ordering::Relaxed);
    free[layout::FREE_SHARDS + 1].count.fetch_add(1, Ordering::Relaxed);
    assert_eq!(nat.occupancy()[1].used, 1);
    free[layout::FREE_SHARDS + 1].count.fetch_sub(1, Ordering::Relaxed);
    assert!(nat.occupancy()[1].used <= 4096);
}

/// What a process leaves that is killed between counting and making.
#[test]
fn counts_of_a_killed_process_are_mended() {
    let nat = nat(settings(pool(1024, 65_535)));
    let kept = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    nat.from_v6(&udp(1, 2), at(0), 0).unwrap();
    let regions = nat.memory().regions();
    regions.bibs[2].life.fetch_add(5, Ordering::Relaxed);
    regions.subscribers[1].sessions.fetch_add(3, Ordering::Relaxed);
    regions.subscribers[1].ports[0].fetch_add(1, Ordering::Relaxed);
    assert_eq!(nat.adopt(&|| {}), Adopted { counts: 3, entries: 0 });
    assert_eq!(nat.adopt(&|| {}), Adopted::default());
    assert_eq!(nat.from_v6(&udp(1, 1), at(1), 0), Ok(kept));
    let mut sweeper = Sweeper::new();
    for now in [0, 302, 303, 430, 431, 1100, 1101] {
        sweep(&nat, &mut sweeper, at(now));
    }
    assert_eq!(nat.occupancy().map(|kind| kind.used), [0, 0, 0]);
}

/// A port forward that can be reached, but not used: it would never go, and never be made.
#[test]
fn a_static_entry_that_was_half_made_goes() {
    let bib = StaticBib { protocol: Protocol::Udp, v6: (host(9), 53), v4: (POOL, 2000) };
    let nat = nat(Settings { bib: vec![bib], ..settings(pool(1024, 65_535)) });
    assert_eq!(nat.make_static_bib(at(0)), []);
    assert_eq!(nat.adopt(&|| {}), Adopted::default());
    let view = nat.view(at(0), 0);
    let chain = view.bib6_chain(bib.v6, bib.protocol.number()).unwrap();
    let index = view.bib6(bib.v6, bib.protocol.number()).unwrap().0;
    assert_eq!(chain.unlink(index), Unlinked::Done);
    assert_eq!(nat.adopt(&|| {}), Adopted { counts: 0, entries: 1 });
    assert_eq!(nat.make_static_bib(at(0)), []);
    assert_eq!(nat.from_v6(&udp(9, 53), at(0), 0), Ok(bib.v4));
    let mut sweeper = Sweeper::new();
    for now in [1, 2, 3] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(nat.bib(at(3)).count(), 1);
}

/// The same with entries in its hands: taken from a list, or from those never used; half made; on their way back.
#[test]
fn entries_of_a_killed_process_are_found() {
    let nat = nat(settings(pool(2000, 2001)));
    nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    let mut sweeper = Sweeper::new();
    for now in [301, 430, 431] {
        sweep(&nat, &mut sweeper, at(now));
    }
    let view = nat.view(at(431), 0);
    let regions = view.regions;
    let bibs = FreeList::of(&regions, Kind::Bib);
    let taken: Vec<_> = (0..3).map(|_| bibs.take(regions.bibs, 1).unwrap()).collect();
    let claimed = view.new_bib((host(2), 7), Protocol::Udp.number(), 0).unwrap();
    assert!(view.claim4(claimed, (POOL, 2001), |_| false).is_ok());
    FreeList::of(&regions, Kind::Session).take(regions.sessions, 1).unwrap();
    FreeList::of(&regions, Kind::Subscriber).take(regions.subscribers, 1).unwrap();
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 3);
    // Programs make nothing meanwhile.
    let was_draining = AtomicU64::new(0);
    let adopted =
        nat.adopt(&|| was_draining.store(u64::from(nat.is_draining()), Ordering::Relaxed));
    assert_eq!(adopted, Adopted { counts: 0, entries: 6 });
    assert_eq!((was_draining.load(Ordering::Relaxed), nat.is_draining()), (1, false));
    assert_sound(&nat);
    let mut next = Sweeper::new();
    for now in [432, 433, 1100, 1101] {
        sweep(&nat, &mut next, at(now));
        assert_sound(&nat);
    }
    assert_eq!(nat.occupancy().map(|kind| kind.used), [0, 0, 0]);
    // The port that was claimed is free.
    for port in 0..2 {
        assert!(nat.from_v6(&udp(3, port), at(1101), 0).is_ok());
    }
}
