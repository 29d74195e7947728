//! Which ports hosts get.

use super::replica::{Dealt, dealt};
use super::*;
use crate::nat64::policy::Purpose;

#[test]
fn another_parity_comes_before_another_class() {
    // Searches begin at different places.
    for number in 1..=4 {
        let given = |ports: [u16; 4]| {
            let nat = nat(settings(pool(1022, 1025)));
            ports.map(|port| nat.from_v6(&udp(number, port), at(0), 0).unwrap().1)
        };
        assert_eq!(given([5000, 5002, 5004, 5006]), [1024, 1025, 1022, 1023]);
        assert_eq!(given([5001, 5003, 5005, 5007]), [1025, 1024, 1023, 1022]);
        assert_eq!(given([80, 82, 84, 86]), [1022, 1023, 1024, 1025]);
    }
}

#[test]
fn even_ports_alone_get_all_there_are() {
    let nat = nat(settings(pool(2000, 2255)));
    let mut given = HashSet::new();
    for number in 0..256 {
        let t = nat.from_v6(&udp(1, 2 * number), at(0), 0).unwrap().1;
        assert_eq!(t % 2, number / 128, "even ones first");
        assert!(given.insert(t));
    }
}

#[test]
fn a_port_is_given_again_if_it_is_the_subscribers() {
    let nat = nat(settings(pool(2000, 2999)));
    let view = nat.view(at(0), 0);
    let (owner, subscriber) = view.subscriber(host(1), 0, Purpose::Ports).unwrap();
    let given = |port, again| {
        let new = view.new_bib((host(1), port), Protocol::Udp.number(), owner).unwrap();
        assert!(view.allocate(new, subscriber, Some(again)));
        new.1.v4()
    };
    for (port, again) in [(5000, 2000), (5001, 2345), (5002, 2999)] {
        assert_eq!(given(port, (POOL, again)), (POOL, again));
    }
    for (port, not_its) in [(5003, (POOL, 3000)), (5004, (SERVER.0, 2346))] {
        let (v4, t) = given(port, not_its);
        assert!(v4 == POOL && (2000..=2999).contains(&t));
    }
}

/// Both pools lie at the same addresses.
#[test]
fn a_host_gets_ports_of_its_own_pool_and_shard() {
    let shards = Shards::new(Dealt(3));
    (0..3).for_each(|shard| shards.set_owned(shard, true));
    let shared = Pool { clients: vec![host(1).into()], ..dealt(Allocation::Shared) };
    let pools = vec![shared, dealt(Allocation::Blocks { size: 2, most: 2 })];
    let nat = nat(Settings { pools, shards: Some(Arc::new(shards)), ..settings(pool(1, 1)) });
    for (number, port) in (1..=6).flat_map(|number| [(number, 1), (number, 2), (number, 3)]) {
        let (v4, _) = nat.from_v6(&udp(number, port), at(0), 0).unwrap();
        assert_eq!(u16::from(v4.octets()[3]) % 3, number % 3);
    }
    for subscriber in nat.subscribers(at(0)) {
        let sizes: Vec<_> = subscriber.blocks.iter().map(|it| it.high - it.low + 1).collect();
        let expected = if subscriber.prefix == host(1) { (0, vec![64]) } else { (1, vec![2, 2]) };
        assert_eq!((subscriber.pool, sizes), expected, "{}", subscriber.prefix);
    }
}

#[test]
fn a_pool_may_be_for_packets_with_a_mark() {
    let marked = Pool { mark: Some(7), ..pool(2000, 2099) };
    let nat = nat(Settings { pools: vec![marked, pool(3000, 3099)], ..settings(pool(1, 1)) });
    let given = |port, mark| {
        let tuple = Tuple { mark, ..udp(1, port) };
        nat.from_v6(&tuple, at(0), 0).unwrap().1
    };
    assert!((2000..=2099).contains(&given(5000, 7)));
    assert!((3000..=3099).contains(&given(5001, 8)) && (3000..=3099).contains(&given(5002, 0)));
}

/// RFC 7422 blocks follow from the host's place among all clients, which says nothing of shards.
#[test]
fn a_shard_has_no_computed_blocks() {
    let clients = vec!["2001:db8:1::/112".parse().unwrap()];
    let pools = vec![Pool { clients, ..dealt(Allocation::Deterministic { size: 16 }) }];
    let alone = nat(Settings { pools, ..settings(pool(1, 1)) });
    assert!(alone.from_v6(&udp(0, 5000), at(0), 0).is_ok());
    let shards = Shards::new(Dealt(1));
    shards.set_owned(0, true);
    let nat = nat(Settings { shards: Some(Arc::new(shards)), ..alone.settings().clone() });
    assert_eq!(nat.from_v6(&udp(0, 5000), at(0), 0), Err(DropReason::PoolExhausted));
}
