//! Address-dependent filtering: who is let in, and how little one sender with many ports costs.

use super::races::assert_sound;
use super::*;
use crate::nat64::table::{Chain, Directory, FreeList, SessionKey, Unlinked};

/// Links of the longest chain of sessions.
fn longest_chain(nat: &Nat64) -> usize {
    let regions = nat.memory().regions();
    let length = |head: &AtomicU64| {
        let first = head.load(Ordering::Relaxed) as u32;
        core::iter::successors(Some(first), |index| {
            Some(regions.sessions[*index as usize].next.load(Ordering::Relaxed))
        })
        .take_while(|index| *index != 0)
        .count()
    };
    regions.heads[Directory::Session as usize].iter().map(length).max().unwrap_or(0)
}

fn filters(sessions: u32) -> Nat64 {
    let filtering = Filtering::AddressDependent;
    let sizes = Sizes { bibs: 64, sessions, subscribers: 64 };
    nat(Settings { filtering, sizes, ..settings(pool(1024, 65_535)) })
}

fn used(nat: &Nat64) -> [u64; 3] {
    nat.occupancy().map(|kind| kind.used)
}

const FILTERED: Result<Outgoing6, Refusal> = Err(Refusal::Drop(DropReason::Filtered));

/// More sessions of one address with one mapping than a search ever followed links.
#[test]
fn a_sender_with_many_ports_has_many_chains() {
    const PORTS: u16 = 20_000;
    let nat = filters(32_768);
    let local = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    let from =
        |port| Tuple { remote: (SERVER.0, port), ..answer(&udp(1, 5000), local, Segment::Other) };
    for round in 0..2 {
        for port in 1..=PORTS {
            assert_eq!(nat.from_v4(&from(port), at(round), 0).unwrap().host, udp(1, 5000).near);
        }
    }
    assert_eq!(nat.sessions(at(2)).count(), usize::from(PORTS), "each once");
    assert!(longest_chain(&nat) <= 16, "{} links", longest_chain(&nat));
    assert_sound(&nat);
    let mut sweeper = Sweeper::new();
    for now in [302, 303, 430, 431, 1100, 1101] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(used(&nat), [0, 0, 0]);
}

#[test]
fn a_permission_dies_with_the_last_session() {
    let nat = filters(64);
    let mut sweeper = Sweeper::new();
    let local = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    assert_eq!(used(&nat), [1, 2, 1]);
    let from =
        |port| Tuple { remote: (SERVER.0, port), ..answer(&udp(1, 5000), local, Segment::Other) };
    assert!(nat.from_v4(&from(9), at(200), 0).is_ok());
    assert_eq!(used(&nat), [1, 3, 1], "one permission of both");
    sweep(&nat, &mut sweeper, at(301));
    assert_eq!(nat.sessions(at(301)).count(), 1, "the host's own is gone");
    assert!(nat.from_v4(&from(10), at(301), 0).is_ok(), "RFC 6146 section 3.5.1: any session");
    sweep(&nat, &mut sweeper, at(602));
    assert_eq!(nat.from_v4(&from(11), at(602), 0), Err(Refusal::Drop(DropReason::NoBib)));
    assert_eq!(used(&nat)[1], 0);
}

/// The host that gets the port next has not spoken to those that its predecessor has spoken to.
#[test]
fn a_permission_is_of_one_bib_entry() {
    let nat = filters(64);
    let bib =
        |number| StaticBib { protocol: Protocol::Udp, v6: (host(number), 5000), v4: (POOL, 5000) };
    nat.add_bib(&bib(1), at(0)).unwrap();
    assert_eq!(nat.from_v6(&udp(1, 5000), at(0), 0), Ok((POOL, 5000)));
    let from =
        Tuple { remote: (SERVER.0, 9), ..answer(&udp(1, 5000), (POOL, 5000), Segment::Other) };
    assert!(nat.from_v4(&from, at(0), 0).is_ok());
    nat.remove_bib(Protocol::Udp, (POOL, 5000), at(0)).unwrap();
    nat.add_bib(&bib(2), at(0)).unwrap();
    let other = Tuple { remote: (SERVER.0, 10), ..from };
    assert_eq!(nat.from_v4(&other, at(0), 0), FILTERED);
    // It speaks to them itself: the permission is its own.
    assert!(nat.from_v6(&udp(2, 5000), at(0), 0).is_ok());
    assert_eq!(nat.from_v4(&other, at(0), 0).unwrap().host, bib(2).v6);
    let mut sweeper = Sweeper::new();
    for now in [1, 2] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
        assert!(nat.from_v4(&other, at(now), 0).is_ok());
    }
    assert_eq!(used(&nat)[1], 3, "two sessions of the second host and one permission");
}

/// RFC 6146 section 3.5.2.2: what a stored SYN leaves lets nobody in until the host opens the connection, too.
#[test]
fn a_stored_syn_permits_nothing_until_it_is_answered() {
    let nat = filters(64);
    let near = (host(1), 40_000);
    let other = Tuple { remote: (SERVER.0, 1), ..from_v6(Protocol::Tcp, near, Segment::Syn) };
    let elsewhere = Tuple { remote: (Ipv4Addr::new(203, 0, 113, 5), 1), ..other };
    let local = nat.from_v6(&elsewhere, at(0), 0).unwrap();
    let syn = answer(&from_v6(Protocol::Tcp, near, Segment::Syn), local, Segment::Syn);
    assert_eq!(nat.from_v4(&syn, at(0), 0), Err(Refusal::Store));
    let ack = Tuple { remote: (SERVER.0, 2), segment: Segment::Other, ..syn };
    assert_eq!(nat.from_v4(&ack, at(0), 0), FILTERED);
    assert_eq!(nat.from_v6(&from_v6(Protocol::Tcp, near, Segment::Syn), at(1), 0), Ok(local));
    assert!(nat.from_v4(&ack, at(1), 0).is_ok(), "by the BIB alone");
    let mut sweeper = Sweeper::new();
    for now in [250, 8000, 8001, 8300, 8301, 9000, 9001] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(used(&nat), [0, 0, 0]);
}

/// A host that fills the table: what a permission counted that got no session is taken back.
#[test]
fn full_tables_leave_no_permissions() {
    let nat = filters(9);
    let to = |number| Tuple { remote: (Ipv4Addr::new(198, 51, 100, number), 80), ..udp(1, 1) };
    let made = (1..=8).filter(|number| nat.from_v6(&to(*number), at(0), 0).is_ok()).count();
    assert_eq!((made, used(&nat)[1]), (4, 9), "each with a permission; the fifth's is dead");
    assert_eq!(nat.from_v6(&to(9), at(0), 0), Err(DropReason::SessionsFull));
    let stranger = Tuple { remote: to(5).remote, ..answer(&udp(1, 1), (POOL, 0), Segment::Other) };
    let local = nat.bib(at(0)).next().unwrap().binding.v4;
    assert_eq!(nat.from_v4(&Tuple { near: local, ..stranger }, at(0), 0), FILTERED);
    let mut sweeper = Sweeper::new();
    sweep(&nat, &mut sweeper, at(1));
    assert_eq!(used(&nat)[1], 8);
    // One more port of a known address needs no permission of its own.
    assert!(nat.from_v6(&Tuple { remote: (to(1).remote.0, 81), ..to(1) }, at(1), 0).is_ok());
    for now in [302, 303, 430, 431, 1100, 1101] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(used(&nat), [0, 0, 0]);
}

#[test]
fn permissions_of_a_killed_process_are_mended() {
    let nat = filters(64);
    let local = nat.from_v6(&udp(1, 5000), at(0), 0).unwrap();
    assert_eq!(nat.adopt(&|| {}), Adopted::default());
    let sessions = nat.memory().regions().sessions;
    let permission = sessions.iter().find(|entry| entry.is_permission()).unwrap();
    permission.life.fetch_add(3, Ordering::Relaxed);
    // Another, with nobody behind it.
    let view = nat.view(at(0), 0);
    let list = FreeList::of(&view.regions, Kind::Session);
    let lost = list.take(view.regions.sessions, 0).unwrap();
    sessions[lost as usize].protocol.store(0x80 | 17, Ordering::Relaxed);
    sessions[lost as usize].life.store(permission.life.load(Ordering::Relaxed), Ordering::Relaxed);
    assert_eq!(nat.adopt(&|| {}), Adopted { counts: 2, entries: 0 });
    assert_eq!(permission.permitted(), Some(1));
    let from = Tuple { remote: (SERVER.0, 9), ..answer(&udp(1, 5000), local, Segment::Other) };
    assert!(nat.from_v4(&from, at(0), 0).is_ok());
    let mut sweeper = Sweeper::new();
    for now in [1, 2, 302, 303, 430, 431, 1100, 1101] {
        sweep(&nat, &mut sweeper, at(now));
        assert_sound(&nat);
    }
    assert_eq!(used(&nat), [0, 0, 0]);
}

/// A sweeper that begins on tables that an earlier one has left takes out each entry once.
#[test]
fn the_first_sweep_frees_a_permission_once() {
    for ports in [[1, 2], [2, 1]] {
        let nat = filters(64);
        // The second round puts sessions behind their permission, and in front of it.
        for (round, port) in ports.into_iter().enumerate() {
            nat.from_v6(&udp(1, port), at(1000 * round as u64), 0).unwrap();
            for later in [400, 500, 600] {
                let now = at(1000 * round as u64 + later);
                Sweeper::new().sweep(&nat, now, &mut |_| {});
                let mut next = Sweeper::new();
                next.sweep(&nat, now, &mut |_| {});
                next.release(&nat);
                assert_sound(&nat);
            }
        }
        assert_eq!(used(&nat)[1], 0);
    }
}

fn chain_of(nat: &Nat64, length: u32) -> (Chain<'_, layout::Session>, Vec<u32>) {
    let view = nat.view(at(0), 0);
    let key = SessionKey { local: (POOL, 1), remote: SERVER, protocol: 17 };
    let chain = view.session_chain(&key).unwrap();
    let list = FreeList::of(&view.regions, Kind::Session);
    let entries: Vec<u32> = (0..length)
        .map(|_| {
            let index = list.take(view.regions.sessions, 0).unwrap();
            let (_, seen) = chain.find(|_| true);
            assert!(chain.insert(index, seen));
            index
        })
        .collect();
    (chain, entries)
}

#[test]
fn an_entry_is_unlinked_or_absent_or_nobody_knows() {
    let nat = filters(5000);
    let (chain, entries) = chain_of(&nat, 5000);
    // Behind more links than a search follows: not found, and nothing can be inserted.
    let sessions = nat.memory().regions().sessions;
    let is_first = |entry: &layout::Session| core::ptr::eq(entry, &raw const sessions[1]);
    let (found, seen) = chain.find(is_first);
    assert!(found.is_none() && !seen.is_whole());
    assert_eq!(chain.unlink(entries[0]), Unlinked::Done);
    assert_eq!(chain.unlink(entries[0]), Unlinked::Absent);
    assert_eq!(chain.unlink(entries[4999]), Unlinked::Done, "the first");
    assert_eq!(chain.unlink(entries[2500]), Unlinked::Done, "in the middle");
    // Damage: the last links back to the middle.
    sessions[entries[1] as usize].next.store(entries[2000], Ordering::Relaxed);
    assert_eq!(chain.unlink(entries[0]), Unlinked::GaveUp);
    use Unlinked::{Absent, Done, GaveUp};
    for (one, other, both) in [
        (Done, Done, Done),
        (Done, Absent, Absent),
        (Absent, Absent, Absent),
        (Done, GaveUp, GaveUp),
        (GaveUp, Absent, GaveUp),
    ] {
        assert_eq!((one.and(other), other.and(one)), (both, both));
    }
}

/// An entry that may still be in a chain stays out of the free lists.
#[test]
fn what_may_be_linked_is_never_freed() {
    let nat = nat(settings(pool(1024, 65_535)));
    let local = nat.from_v6(&udp(1, 1), at(0), 0).unwrap();
    let view = nat.view(at(0), 0);
    let key = SessionKey { local, remote: SERVER, protocol: 17 };
    let (index, session) = view.session(&key).unwrap();
    let chain = view.session_chain(&key).unwrap();
    assert_eq!(chain.unlink(index), Unlinked::Done);
    let list = FreeList::of(&view.regions, Kind::Session);
    let turn = list.take(view.regions.sessions, 0).unwrap();
    let (_, seen) = chain.find(|_| false);
    assert!(chain.insert(turn, seen));
    view.regions.sessions[turn as usize].next.store(turn, Ordering::Relaxed);
    let mut sweeper = Sweeper::new();
    for now in [301, 302, 303, 304] {
        sweep(&nat, &mut sweeper, at(now));
        assert_eq!(session.life().state, state::DEAD);
    }
    assert_eq!(used(&nat)[1], 2);
    // Whoever looks there finds nothing, and makes nothing twice.
    let again = Tuple { segment: Segment::Other, ..udp(1, 1) };
    assert_eq!(nat.from_v6(&again, at(305), 0), Err(DropReason::SessionsFull));
}
