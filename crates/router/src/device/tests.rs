use std::time::Duration;

use fordway_dns64::ndp::{NdOption, Writer};

use super::*;
use crate::content::tests::facts;
use crate::settings::Rdnss;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

fn device() -> Device {
    Device { rdnss: Rdnss::Listed(vec!["2001:db8:1::53".parse().unwrap()]), ..Device::new("lan0") }
}

fn up() -> Facts {
    facts(&["fe80::1/64", "2001:db8:1::1/64"])
}

/// A device that has said its first word.
fn running() -> (Link, Instant) {
    let now = Instant::now();
    let mut link = Link::new(device());
    link.observe(Some(up()), false, now);
    let out = link.due(0, now);
    assert_eq!((out.len(), out[0].to, out[0].source), (1, ALL_NODES, ROUTER));
    link.stats_mut().sent += 1;
    (link, now)
}

fn solicitation() -> Vec<u8> {
    let mut buffer = [0; 64];
    Writer::solicitation(&mut buffer).unwrap().finish(HOST, HOST).to_vec()
}

#[test]
fn a_device_says_nothing_until_it_can() {
    let now = Instant::now();
    let mut link = Link::new(device());
    assert_eq!((link.deadline(), link.index()), (None, None));
    link.receive(&solicitation(), HOST, 255, 0, now);
    assert!(link.due(0, now).is_empty() && link.farewell(now).is_empty());
    link.observe(Some(Facts { running: false, ..up() }), false, now);
    assert_eq!((link.stats().state, link.deadline()), (State::Down, None));
    let mut tentative = up();
    tentative.addresses[0].tentative = true;
    link.observe(Some(tentative), false, now);
    assert_eq!((link.stats().state, link.deadline()), (State::NoLinkLocal, None));
    link.observe(Some(up()), false, now);
    assert_eq!((link.stats().state, link.deadline()), (State::Advertising, Some(now)));
    // Nothing has been said, so that nothing is taken back.
    assert!(link.farewell(now).is_empty());
}

#[test]
fn an_unchanged_host_is_no_reason_to_speak() {
    let (mut link, now) = running();
    let next = link.deadline();
    link.observe(Some(up()), false, now + Duration::from_secs(5));
    assert_eq!(link.deadline(), next);
    link.observe(Some(up()), true, now + Duration::from_secs(5));
    assert_eq!(link.deadline(), Some(now + Duration::from_secs(5)));
}

#[test]
fn own_words_are_no_other_routers() {
    let (mut link, now) = running();
    let mut buffer = [0; 64];
    let fields = Advertisement { managed: true, ..Advertisement::default() };
    let message = Writer::advertisement(&mut buffer, &fields).unwrap().finish(ROUTER, ALL_NODES);
    link.receive(message, ROUTER, 255, 0, now);
    assert_eq!(link.stats().advertisements, 0);
    link.receive(message, HOST, 255, 0, now);
    assert_eq!((link.stats().advertisements, link.stats().inconsistent), (1, 1));
    link.receive(message, HOST, 64, 0, now);
    link.receive(&[135, 0], HOST, 255, 0, now);
    link.receive(&[], HOST, 255, 0, now);
    assert_eq!(link.stats().invalid, 3);
}

#[test]
fn the_old_link_local_address_says_goodbye_three_times() {
    let (mut link, start) = running();
    let new = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbeef);
    let changed = || facts(&["fe80::beef/64", "2001:db8:1::1/64"]);
    link.observe(Some(changed()), false, start);
    let mut partings = 0;
    for _ in 0..5 {
        let at = link.deadline().expect("a next one");
        let out = link.due(0, at);
        let (last, before) = out.split_last().expect("one at least");
        assert_eq!(last.source, new);
        for parting in before {
            assert_eq!(parting.source, ROUTER);
            let (fields, options) = Advertisement::parse(&parting.message).unwrap();
            assert_eq!((fields.router_lifetime, options.count()), (0, 0));
            partings += 1;
        }
    }
    assert_eq!(partings, 3);
}

#[test]
fn a_link_local_address_that_is_there_still_is_kept() {
    let (mut link, now) = running();
    let both = facts(&["fe80::beef/64", "fe80::1/64", "2001:db8:1::1/64"]);
    link.observe(Some(both), false, now);
    assert_eq!(link.stats().link_local, Some(ROUTER));
}

#[test]
fn a_device_that_returns_under_its_name_takes_back_what_it_no_longer_has() {
    let (mut link, start) = running();
    link.observe(None, false, start);
    assert_eq!((link.stats().state, link.deadline()), (State::Absent, None));
    let later = start + Duration::from_secs(60);
    let other = Facts { index: 9, ..facts(&["fe80::1/64", "2001:db8:2::1/64"]) };
    link.observe(Some(other), false, later);
    let first = link.due(0, later);
    assert_eq!(first[0].index, 9);
    // The old prefix may come back; when it has not, hosts hear of it.
    let gone = later + Duration::from_secs(3);
    assert!(link.deadline().is_some_and(|at| at <= gone));
    let mut out = Vec::new();
    while let Some(at) = link.deadline().filter(|at| *at <= gone) {
        out.extend(link.due(0, at));
    }
    let (_, options) = Advertisement::parse(&out.last().expect("a word").message).unwrap();
    let prefixes: Vec<_> = options
        .filter_map(|it| match it {
            NdOption::Prefix(it) => Some((it.prefix.to_string(), it.preferred_lifetime > 0)),
            _ => None,
        })
        .collect();
    assert_eq!(prefixes, [("2001:db8:2::".to_owned(), true), ("2001:db8:1::".to_owned(), false)]);
}

#[test]
fn forwarding_switched_off_is_told_at_once() {
    let (mut link, now) = running();
    let later = now + Duration::from_secs(10);
    link.set_forwarding(false, later);
    assert_eq!((link.deadline(), link.stats().forwarding), (Some(later), false));
    let out = link.due(0, later);
    assert_eq!(Advertisement::parse(&out[0].message).unwrap().0.router_lifetime, 0);
    // Nothing more to say of it.
    let next = link.deadline();
    link.set_forwarding(false, later);
    assert_eq!(link.deadline(), next);
}

#[test]
fn dhcpv6_is_answered_only_where_it_is_wanted() {
    let (link, now) = running();
    assert!(link.dhcpv6().is_none());
    let mut link = Link::new(Device { dhcpv6: true, ..device() });
    assert!(link.dhcpv6().is_none(), "it has no address yet");
    link.observe(Some(up()), false, now);
    let (source, told) = link.dhcpv6().expect("an answer");
    assert_eq!((source, told.servers.len(), told.names.len()), (ROUTER, 1, 0));
}
