//! Sweeps in slices: what they find is what a whole one finds, whatever happens between two of them.

use super::*;

/// Hosts with sessions of all protocols, some of which have expired at 302 s.
fn populated() -> Nat64 {
    let nat = nat(settings(pool(1024, 65_535)));
    for number in 1..=20 {
        let syn = from_v6(Protocol::Tcp, (host(number), 40_000), Segment::Syn);
        nat.from_v6(&syn, at(u64::from(number)), 0).unwrap();
        nat.from_v6(&udp(number, 5000), at(u64::from(number % 2) * 100), 0).unwrap();
        let ping = from_v6(Protocol::Icmp, (host(number), 7), Segment::Other);
        nat.from_v6(&ping, at(250), 0).unwrap();
    }
    nat
}

fn sliced(
    nat: &Nat64,
    sweeper: &mut Sweeper,
    now: Duration,
    most: u32,
    mut between: impl FnMut(u32),
) -> (Swept, Vec<Event>) {
    let mut events = Vec::new();
    for number in 0.. {
        let slice = sweeper.slice(nat, now, most, &mut |event| events.push(event));
        assert!(slice.looked <= most);
        if let Some(swept) = slice.swept {
            return (swept, events);
        }
        assert_eq!(slice.looked, most);
        between(number);
    }
    unreachable!()
}

#[test]
fn slices_add_up_to_a_sweep() {
    let whole = populated();
    let mut sweeper = Sweeper::new();
    let expected: Vec<_> = [1, 302, 303].map(|now| sweep(&whole, &mut sweeper, at(now))).into();
    assert!(expected[1].1.iter().any(|event| matches!(event, Event::SessionRemoved(..))));
    assert_eq!((expected[1].0.sessions, expected[1].0.hold_down), ([0, 10, 20], 10));
    for most in [1, 2, 7, 64, 1000] {
        let (nat, mut sweeper) = (populated(), Sweeper::new());
        for (now, expected) in [1, 302, 303].into_iter().zip(&expected) {
            let found = sliced(&nat, &mut sweeper, at(now), most, |_| {});
            sweeper.release(&nat);
            assert_eq!(&found, expected, "{most} at once, at {now} s");
        }
    }
}

/// A grace period may end between two slices.
#[test]
fn entries_are_freed_while_a_sweep_is_under_way() {
    let nat = populated();
    let mut sweeper = Sweeper::new();
    sweep(&nat, &mut sweeper, at(1));
    let used = || nat.occupancy().map(|it| it.used);
    assert_eq!(used(), [60, 60, 20]);
    // BIB entries stay, because their sessions are looked at after them. Then five of the UDP sessions are over, and
    // those of TCP.
    let slice = sweeper.slice(&nat, at(302), 90, &mut |_| {});
    assert_eq!((slice.looked, slice.ended, slice.swept), (90, 2 * 10 + 5, None));
    sweeper.grace_begins();
    sweeper.grace_over(&nat);
    assert!(sweeper.free(&nat, 20), "there are more");
    assert!(!sweeper.free(&nat, 20));
    assert_eq!(used(), [50, 45, 20]);
    let slice = sweeper.slice(&nat, at(302), 90, &mut |_| {});
    assert_eq!(slice.swept.unwrap().sessions, [0, 10, 20]);
    sweeper.release(&nat);
    assert_eq!(used(), [40, 30, 20], "ten ports are held down");
    races::assert_sound(&nat);
}

/// Entries that an earlier process had unlinked are freed once, though the first sweep begins anew.
#[test]
fn a_review_begins_the_sweep_anew() {
    let nat = populated();
    let mut killed = Sweeper::new();
    killed.sweep(&nat, at(302), &mut |_| {});
    let next = nat.reconfigured(settings(pool(2000, 2001))).unwrap();
    let mut sweeper = Sweeper::new();
    let slice = sweeper.slice(&next, at(302), 100, &mut |_| {});
    assert!(slice.swept.is_none());
    sweeper.review();
    let swept = sweeper.sweep(&next, at(302), &mut |_| {});
    assert_eq!(swept.sessions.iter().sum::<u64>(), 0, "no port fits");
    for now in [302, 303, 450, 451, 1500] {
        sweep(&next, &mut sweeper, at(now));
        races::assert_sound(&next);
    }
    assert_eq!(next.occupancy().map(|it| it.used), [0; 3]);
}

/// Sessions of a BIB entry that dies while they are being looked at end in the next sweep.
#[test]
fn sessions_do_not_outlive_their_binding() {
    let nat = populated();
    let mut sweeper = Sweeper::new();
    sweep(&nat, &mut sweeper, at(1));
    let local = nat.bib(at(1)).find(|bib| bib.binding.protocol == Some(Protocol::Udp)).unwrap();
    let (protocol, v4) = (Protocol::Udp, local.binding.v4);
    let (_, events) = sliced(&nat, &mut sweeper, at(2), 60, |number| {
        if number == 0 {
            nat.remove_bib(protocol, v4, at(2)).unwrap();
        }
    });
    assert_eq!(events, [], "its session was told of, and lives");
    let (swept, events) = sliced(&nat, &mut sweeper, at(3), 60, |_| {});
    assert_eq!(swept.sessions, [20, 19, 20]);
    assert!(matches!(events[..], [Event::SessionRemoved(..), Event::BibRemoved(_)]), "{events:?}");
    // The sweep after that looks up no BIB entry for a session that it knows.
    assert_eq!(sliced(&nat, &mut sweeper, at(4), 60, |_| {}).1, []);
    assert_eq!(nat.ended().withdrawn[Protocol::Udp.index()].load(Ordering::Relaxed), 1);
}
