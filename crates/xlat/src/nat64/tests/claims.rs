//! A subscriber that the sweeper is about to end while somebody needs it.

use super::*;
use crate::nat64::policy::Purpose;

fn living(nat: &Nat64) -> Vec<&Subscriber> {
    let all = nat.memory.regions().subscribers.iter();
    all.filter(|it| it.state() == state::LIVE).collect()
}

#[test]
fn nobody_makes_a_twin_of_a_subscriber_that_may_end() {
    let nat = nat(settings(pool(1024, 65_535)));
    nat.from_v6(&udp(5, 5000), at(0), 0).unwrap();
    let only = living(&nat)[0];
    let word = only.life.load(Ordering::SeqCst);
    assert!(only.claim(word));
    for wanted in [Purpose::Ports, Purpose::Counts] {
        let found = nat.view(at(1), 0).subscriber(host(5), 0, wanted);
        assert_eq!(found.err(), Some(DropReason::Busy));
    }
    // Another port of it can't be taken either, and its session goes on.
    assert_eq!(nat.from_v6(&udp(5, 5001), at(1), 0), Err(DropReason::Busy));
    nat.from_v6(&udp(5, 5000), at(1), 0).unwrap();
    assert_eq!(living(&nat).len(), 0);
    // A port is in use: it lives on, as the same one.
    only.settle(word);
    nat.from_v6(&udp(5, 5001), at(2), 0).unwrap();
    let all = living(&nat);
    assert!(all.len() == 1 && core::ptr::eq(all[0], only));
    assert_eq!(only.ports[Protocol::Udp.index()].load(Ordering::Relaxed), 2);
}

#[test]
fn a_claimed_subscriber_that_nothing_is_used_of_ends() {
    let nat = nat(settings(pool(1024, 65_535)));
    nat.view(at(0), 0).subscriber(host(5), 0, Purpose::Counts).unwrap();
    let only = living(&nat)[0];
    let word = only.life.load(Ordering::SeqCst);
    assert!(only.claim(word) && !only.claim(word));
    only.settle(word);
    assert_eq!(only.state(), state::DEAD);
    nat.from_v6(&udp(5, 5000), at(1), 0).unwrap();
    let all = living(&nat);
    assert!(all.len() == 1 && !core::ptr::eq(all[0], only));
}
