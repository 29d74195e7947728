use fordway_dns64::ndp::Preference;

use super::*;
use crate::content::tests::facts;
use crate::resolver::tests::resolver;
use crate::settings::{Device, Prefixes, Rdnss, Route};

const NOBODY: fn(&Item) -> bool = |_| false;

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn content(number: u16, valid: u32) -> Content {
    let server = format!("2001:db8:{number}::53").parse().unwrap();
    let device = Device {
        prefixes: Prefixes::Listed(vec![net(&format!("2001:db8:{number}::/64"))]),
        valid,
        preferred: valid.min(14_400),
        rdnss: Rdnss::Listed(vec![server]),
        dnssl: vec![format!("site{number}.example.").parse().unwrap()],
        dnr: vec![resolver(&format!("dns{number}.example."))],
        pref64: vec![net(&format!("2001:db8:{number}:64::/96"))],
        routes: vec![Route {
            prefix: net(&format!("2001:db8:{number}00::/40")),
            preference: Preference::Medium,
            lifetime: None,
        }],
        ..Device::new("lan0")
    };
    Content::new(&device, &facts(&[]))
}

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

/// A ledger in which `content` has been said to all at `now`.
fn told(content: &Content, now: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.compare(content, false, now);
    assert_eq!(ledger.withdrawal(content, NOBODY, now), Withdrawal::default());
    ledger.said(content, true, now);
    ledger
}

#[test]
fn what_was_never_said_is_not_taken_back() {
    let now = Instant::now();
    let (old, new) = (content(1, 86_400), content(2, 86_400));
    let mut ledger = Ledger::default();
    ledger.compare(&old, false, now);
    ledger.compare(&new, false, now);
    assert_eq!(ledger.withdrawal(&new, NOBODY, now), Withdrawal::default());
    assert_eq!(ledger.farewell(NOBODY, now), Withdrawal::default());
}

#[test]
fn items_are_taken_back_three_times_and_prefixes_for_two_hours() {
    let start = Instant::now();
    let (old, new) = (content(1, 86_400), content(2, 86_400));
    let mut ledger = told(&old, start);
    ledger.compare(&new, false, start);
    for said in 0..5 {
        let now = after(start, said);
        let withdrawal = ledger.withdrawal(&new, NOBODY, now);
        assert_eq!(withdrawal.items.len(), if said < 3 { 5 } else { 0 }, "after {said}");
        let [prefix] = withdrawal.prefixes.as_slice() else { panic!("{withdrawal:?}") };
        assert_eq!((prefix.preferred_lifetime, prefix.valid_lifetime), (0, 7200 - said as u32));
        assert!(prefix.on_link && prefix.autonomous);
        // To one host alone: others have not heard it.
        ledger.said(&new, false, now);
        assert_eq!(ledger.withdrawal(&new, NOBODY, now).items, withdrawal.items);
        ledger.said(&new, true, now);
    }
    assert_eq!(ledger.deprecated(start), [net("2001:db8:1::/64")]);
    assert_eq!(ledger.withdrawal(&new, NOBODY, after(start, 7199)).prefixes.len(), 1);
    assert_eq!(ledger.withdrawal(&new, NOBODY, after(start, 7200)).prefixes, []);
    ledger.compare(&new, false, after(start, 7200));
    assert!(ledger.deprecated(after(start, 7200)).is_empty());
}

#[test]
fn a_prefix_is_deprecated_no_longer_than_hosts_have_it() {
    let start = Instant::now();
    let (old, new) = (content(1, 600), content(2, 600));
    let mut ledger = told(&old, start);
    ledger.compare(&new, false, after(start, 100));
    let withdrawal = ledger.withdrawal(&new, NOBODY, after(start, 100));
    assert_eq!(withdrawal.prefixes[0].valid_lifetime, 500);
    // For ever is two hours from now.
    let (old, new) = (content(1, INFINITY), content(2, 600));
    let mut ledger = told(&old, start);
    ledger.compare(&new, false, after(start, 100));
    let withdrawal = ledger.withdrawal(&new, NOBODY, after(start, 100));
    assert_eq!(withdrawal.prefixes[0].valid_lifetime, 7200);
}

#[test]
fn what_returns_is_not_taken_back() {
    let start = Instant::now();
    let (old, new) = (content(1, 86_400), content(2, 86_400));
    let mut ledger = told(&old, start);
    ledger.compare(&new, false, start);
    ledger.said(&new, true, start);
    ledger.compare(&old, false, after(start, 1));
    let withdrawal = ledger.withdrawal(&old, NOBODY, after(start, 1));
    let [prefix] = withdrawal.prefixes.as_slice() else { panic!("{withdrawal:?}") };
    assert_eq!(prefix.prefix, net("2001:db8:2::/64").addr());
    assert!(withdrawal.items.iter().all(|it| format!("{it:?}").contains('2')), "{withdrawal:?}");
    assert_eq!(withdrawal.items.len(), 5);
}

#[test]
fn a_portal_that_goes_is_taken_back_but_not_at_the_end() {
    let start = Instant::now();
    let portal = |uri: &str| {
        let mut content = content(1, 600);
        content.captive_portal = Some(uri.to_owned());
        content
    };
    let (old, new, none) =
        (portal("https://a.example/"), portal("https://b.example/"), content(1, 600));
    let mut ledger = told(&old, start);
    // Another one takes its place.
    ledger.compare(&new, false, start);
    assert_eq!(ledger.withdrawal(&new, NOBODY, start), Withdrawal::default());
    assert!(old.differs(&new));
    ledger.said(&new, true, start);
    let farewell = ledger.farewell(NOBODY, start);
    assert!(!farewell.items.contains(&Item::CaptivePortal), "{farewell:?}");
    ledger.compare(&none, false, start);
    for said in 0..5 {
        let items = ledger.withdrawal(&none, NOBODY, start).items;
        assert_eq!(items.contains(&Item::CaptivePortal), said < 3);
        ledger.said(&none, true, start);
    }
}

#[test]
fn a_prefix_of_the_device_may_be_away_for_a_moment() {
    let start = Instant::now();
    let (old, mut none) = (content(1, 86_400), content(1, 86_400));
    none.prefixes.clear();
    let mut ledger = told(&old, start);
    ledger.compare(&none, true, start);
    assert_eq!(ledger.withdrawal(&none, NOBODY, start).prefixes, []);
    assert_eq!(ledger.next_gone(start), Some(start + AWAY));
    // It stays away.
    assert_eq!(ledger.withdrawal(&none, NOBODY, start + AWAY).prefixes.len(), 1);
    assert_eq!(ledger.next_gone(start + AWAY), None);
    // It comes back in time.
    ledger.compare(&old, true, start);
    assert_eq!(ledger.withdrawal(&old, NOBODY, start + AWAY), Withdrawal::default());
}

#[test]
fn what_others_say_too_stays() {
    let start = Instant::now();
    let (old, new) = (content(1, 86_400), content(2, 86_400));
    let mut ledger = told(&old, start);
    let theirs = [
        Item::Prefix(net("2001:db8:1::/64")),
        Item::Rdnss("2001:db8:1::53".parse().unwrap()),
        Item::Pref64(net("2001:db8:1:64::/96")),
        Item::Dnr("dns1.example.".parse().unwrap()),
    ];
    let say = |item: &Item| theirs.contains(item);
    ledger.compare(&new, false, start);
    let withdrawal = ledger.withdrawal(&new, say, start);
    assert_eq!((withdrawal.prefixes.len(), withdrawal.items.len()), (0, 2));
    let farewell = ledger.farewell(say, start);
    assert_eq!((farewell.prefixes.len(), farewell.items.len()), (0, 2));
    assert_eq!(ledger.farewell(NOBODY, start).prefixes[0].valid_lifetime, 7200);
}

#[test]
fn deprecated_prefixes_are_bounded() {
    let start = Instant::now();
    let mut ledger = Ledger::default();
    for number in 1..100 {
        let content = content(number, 86_400);
        let now = after(start, number.into());
        ledger.compare(&content, false, now);
        ledger.said(&content, true, now);
    }
    let now = after(start, 100);
    let deprecated = ledger.deprecated(now);
    assert_eq!(deprecated.len(), DEPRECATED);
    // The latest are those that hosts are most likely to have.
    assert!(deprecated.contains(&net("2001:db8:98::/64")));
    assert!(!deprecated.contains(&net("2001:db8:1::/64")));
}
