//! The router follows its devices: addresses, link-local addresses, devices that go and return.

use std::time::{Duration, Instant};

use fordway_router::{Device, Prefixes, Rdnss, State};
use fordway_serve::Service as _;

use super::listener::Listener;
use super::world::{LAN, World};
use super::{counted, full, serve, stats};
use fordway_testhost::namespace::can_test;

/// A device that says its own prefixes, and seldom by itself.
fn own() -> Device {
    Device {
        prefixes: Prefixes::OfDevice,
        interval: Duration::from_secs(1800),
        rdnss: Rdnss::Serving(vec!["::".parse().unwrap()]),
        ..full()
    }
}

#[test]
fn prefixes_are_those_of_the_devices_addresses() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let listener = Listener::new(&world.client);
    // Neither a /64 that is not of this device, nor another length, is a prefix of the link.
    world.router.add_address("2001:db8:7::1/64", "lo");
    world.router.add_address("2001:db8:8::1/48", LAN);
    let server = serve(&world, own());
    let prefix = |number: u16| format!("2001:db8:{number}::/64").parse().unwrap();
    let first = listener.hear("the first one", |_| true);
    assert_eq!(first.prefixes, [(prefix(1), true, true, 86_400, 14_400)]);
    // A DNS server that listens everywhere is reached by the device's own address.
    assert_eq!(first.rdnss, [("2001:db8:1::1".parse().unwrap(), 5400)]);

    world.router.ip("address delete 2001:db8:8::1/48 dev lan0");

    // Another one, which lives for a while only.
    let begun = Instant::now();
    world.router.ip("address add 2001:db8:2::1/64 dev lan0 valid_lft 20000 preferred_lft 10000");
    let heard = listener.hear("the second prefix", |it| it.prefixes.len() == 2);
    let (_, _, _, valid, preferred) = heard.prefixes[1];
    // The kernel counts whole seconds, and so does the router.
    let passed = begun.elapsed().as_secs() as u32 + 2;
    assert!((20_000 - passed..=20_000).contains(&valid), "{heard:#?}");
    assert!((10_000 - passed..=10_000).contains(&preferred), "{heard:#?}");

    // The first goes.
    world.router.ip("address delete 2001:db8:1::1/64 dev lan0");
    let heard = listener
        .hear("its deprecation", |it| it.prefixes.iter().any(|it| it.0 == prefix(1) && it.4 == 0));
    let now: Vec<_> = heard.prefixes.iter().map(|it| (it.0, it.4 > 0)).collect();
    assert_eq!(now, [(prefix(2), true), (prefix(1), false)]);
    assert_eq!(heard.rdnss[0], ("2001:db8:2::1".parse().unwrap(), 5400));
    assert_eq!(heard.rdnss[1], ("2001:db8:1::1".parse().unwrap(), 0));
    // And returns.
    world.router.ip("address add 2001:db8:1::1/64 dev lan0");
    listener.hear("both", |it| it.prefixes.iter().filter(|it| it.4 > 0).count() == 2);
    counted("it", &server, |it| it.deprecated.is_empty());
    server.stop();
}

#[test]
fn a_changed_link_local_address_leaves_no_second_router() {
    if !can_test() {
        return;
    }
    let world = World::new();
    let old = world.link_local();
    let listener = Listener::new(&world.client);
    let server = serve(&world, own());
    listener.hear("the first one", |it| it.from == Some(old));
    world.router.ip("address add fe80::1/64 dev lan0");
    world.router.ip(&format!("address delete {old}/64 dev lan0"));
    let parting = listener.hear("a word from the old address", |it| {
        it.from == Some(old) && it.fields.router_lifetime == 0
    });
    assert!(parting.prefixes.is_empty() && parting.pref64.is_empty());
    let new = listener.hear("the new address", |it| it.from == Some("fe80::1".parse().unwrap()));
    assert_eq!(new.fields.router_lifetime, 5400);
    counted("it", &server, |it| it.link_local == Some("fe80::1".parse().unwrap()));
    server.stop();
}

#[test]
fn a_device_may_come_later_go_and_return() {
    if !can_test() {
        return;
    }
    let world = World::new();
    world.router.ip("link delete lan0");
    let server = serve(&world, own());
    assert_eq!(stats(&server).state, State::Absent);
    for sent in 0..3 {
        world.connect();
        world.router.ip("address add 2001:db8:1::1/64 dev lan0");
        let listener = Listener::new(&world.client);
        let heard = listener.hear("an advertisement", |it| !it.prefixes.is_empty());
        assert_eq!(heard.prefixes.len(), 1);
        counted("it", &server, |it| it.state == State::Advertising && it.sent > sent);
        // Solicitations are heard on the new interface, too.
        let before = stats(&server).solicitations;
        listener.solicit();
        counted("a solicitation", &server, |it| it.solicitations > before);
        world.router.ip("link set lan0 down");
        counted("down", &server, |it| it.state == State::Down);
        world.router.ip("link delete lan0");
        counted("gone", &server, |it| it.state == State::Absent);
    }
    server.stop();
}

#[test]
fn a_link_that_was_down_is_told_anew() {
    if !can_test() {
        return;
    }
    let world = World::new();
    // Addresses stay while the link is down.
    world.router.sysctl("ipv6/conf/lan0/keep_addr_on_down", "1");
    let listener = Listener::new(&world.client);
    let server = serve(&world, own());
    listener.hear("the first one", |_| true);
    world.router.ip("link set lan0 down");
    counted("down", &server, |it| it.state == State::Down);
    world.router.ip("link set lan0 up");
    listener.hear("another, long before its time", |_| true);
    server.stop();
}
