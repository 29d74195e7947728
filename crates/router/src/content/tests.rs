use super::*;
use crate::settings::Route;
use fordway_dns64::ndp::Preference;

fn address(text: &str, valid: Option<u32>, preferred: Option<u32>) -> AddressV6 {
    AddressV6 {
        index: 7,
        address: text.parse().unwrap(),
        preferred,
        valid,
        tentative: false,
        duplicate: false,
        temporary: false,
    }
}

pub(crate) fn facts(addresses: &[&str]) -> Facts {
    Facts {
        index: 7,
        running: true,
        mtu: 1500,
        hardware_address: vec![2, 0, 0, 0, 0, 1],
        forwarding: true,
        addresses: addresses.iter().map(|it| address(it, None, None)).collect(),
        elsewhere: Vec::new(),
        at: Instant::now(),
    }
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn said(content: &Content, now: Instant) -> Vec<(String, u32, u32)> {
    let info = content.prefixes.iter().map(|it| (it.prefix, content.information(it, now)));
    info.map(|(net, it)| (net.to_string(), it.valid_lifetime, it.preferred_lifetime)).collect()
}

#[test]
fn lifetimes_are_three_intervals_unless_configured() {
    let device = Device {
        pref64: vec!["2001:db8:64::/96".parse().unwrap()],
        routes: vec![Route {
            prefix: "2001:db8:9::/48".parse().unwrap(),
            preference: Preference::Low,
            lifetime: None,
        }],
        ..Device::new("lan0")
    };
    let content = Content::new(&device, &facts(&[]));
    assert_eq!(content.fields.router_lifetime, 1800);
    assert_eq!((content.dns_lifetime, content.routes[0].lifetime), (1800, 1800));
    assert_eq!(content.pref64[0].lifetime().seconds(), 1800);
    // None of them is shorter than the router's own.
    let longer = Device { lifetime: Some(9000), ..device.clone() };
    let content = Content::new(&longer, &facts(&[]));
    assert_eq!((content.dns_lifetime, content.pref64[0].lifetime().seconds()), (9000, 9000));
    let configured = Device {
        lifetime: Some(0),
        rdnss_lifetime: Some(600),
        pref64_lifetime: Some(100_000),
        ..device
    };
    let content = Content::new(&configured, &facts(&[]));
    assert_eq!(content.fields.router_lifetime, 0);
    // Rounded, and at most what thirteen bits hold.
    assert_eq!((content.dns_lifetime, content.pref64[0].lifetime().seconds()), (600, 65_528));
}

#[test]
fn prefixes_of_the_device_live_as_long_as_its_addresses() {
    let mut facts = facts(&["fe80::1/64", "2001:db8:1::1/64", "2001:db8:8::1/56", "::1/128"]);
    facts.addresses.push(address("2001:db8:2::1/64", Some(3000), Some(0)));
    facts.addresses.push(address("2001:db8:3::1/64", Some(50), Some(20)));
    facts.addresses.push(address("2001:db8:3::2/64", Some(4000), Some(10)));
    let mut taken = address("2001:db8:4::1/64", None, None);
    taken.duplicate = true;
    facts.addresses.push(taken);
    let content = Content::new(&Device::new("lan0"), &facts);
    let now = facts.at + Duration::from_secs(5);
    assert_eq!(
        said(&content, now),
        [
            ("2001:db8:1::/64".to_owned(), 86_400, 14_400),
            ("2001:db8:2::/64".to_owned(), 2995, 0),
            ("2001:db8:3::/64".to_owned(), 3995, 15),
        ]
    );
    // Past its end it is nothing any more.
    assert_eq!(said(&content, facts.at + Duration::from_secs(9999))[2].1, 0);
}

#[test]
fn a_dns_server_of_the_host_is_reached_by_an_address_that_the_device_has() {
    let facts = Facts {
        elsewhere: vec![v6("2001:db8:2::1")],
        ..facts(&["fe80::1/64", "2001:db8:1::1/64"])
    };
    let with = |serving: &[&str]| {
        let rdnss = Rdnss::Serving(serving.iter().map(|it| v6(it)).collect());
        Content::new(&Device { rdnss, ..Device::new("lan0") }, &facts).rdnss
    };
    assert_eq!(with(&["2001:db8:1::1", "2001:db8:2::1"]), [v6("2001:db8:1::1")]);
    assert_eq!(with(&["::"]), [v6("2001:db8:1::1")]);
    assert_eq!(with(&["::", "fe80::1"]), [v6("fe80::1"), v6("2001:db8:1::1")]);
    // None of the device's: one of the host's, which is reached through it.
    assert_eq!(with(&["2001:db8:2::1", "2001:db8:3::1"]), [v6("2001:db8:2::1")]);
    assert_eq!(with(&["2001:db8:3::1"]), [] as [Ipv6Addr; 0]);
}

#[test]
fn without_a_global_address_the_link_local_one_serves() {
    let mut facts = facts(&["fe80::1/64"]);
    let rdnss = Rdnss::Serving(vec![Ipv6Addr::UNSPECIFIED]);
    let device = Device { rdnss, ..Device::new("lan0") };
    assert_eq!(Content::new(&device, &facts).rdnss, [v6("fe80::1")]);
    // A stable, preferred one before others.
    let mut temporary = address("2001:db8:1::aaaa/64", None, None);
    temporary.temporary = true;
    facts.addresses.push(temporary);
    facts.addresses.push(address("2001:db8:1::2/64", Some(900), Some(0)));
    assert_eq!(Content::new(&device, &facts).rdnss, [v6("2001:db8:1::aaaa")]);
    facts.addresses.push(address("2001:db8:1::3/64", Some(900), Some(800)));
    assert_eq!(Content::new(&device, &facts).rdnss, [v6("2001:db8:1::3")]);
}

#[test]
fn who_does_not_forward_is_no_router_and_dhcpv6_sets_o() {
    let off = Facts { forwarding: false, ..facts(&[]) };
    let device = Device { dhcpv6: true, ..Device::new("lan0") };
    let content = Content::new(&device, &off);
    assert_eq!((content.fields.router_lifetime, content.fields.other), (0, true));
    let silent = Device { source_link_layer: false, ..device };
    assert!(Content::new(&silent, &off).link_layer.is_empty());
}

#[test]
fn what_runs_down_is_no_news_and_what_ends_sooner_is() {
    let mut before = facts(&["fe80::1/64"]);
    before.addresses.push(address("2001:db8:1::1/64", Some(5000), Some(4000)));
    let device = Device::new("lan0");
    let old = Content::new(&device, &before);
    let after = |seconds: u64, valid: u32, preferred: u32| {
        let mut facts = before.clone();
        facts.at += Duration::from_secs(seconds);
        facts.addresses[1] = address("2001:db8:1::1/64", Some(valid), Some(preferred));
        Content::new(&device, &facts)
    };
    assert!(!old.differs(&after(100, 4900, 3900)));
    // Renewed: the next advertisement will do.
    assert!(!old.differs(&after(100, 9000, 8000)));
    assert!(old.differs(&after(100, 4900, 1000)));
    assert!(old.differs(&after(100, 300, 300)));
    let listed = Prefixes::Listed(vec!["2001:db8:1::/64".parse().unwrap()]);
    let fixed = Content::new(&Device { prefixes: listed, ..device.clone() }, &before);
    assert!(fixed.differs(&old) && !old.differs(&fixed));
    let more = Content::new(&Device { mtu: Some(1400), ..device }, &before);
    assert!(old.differs(&more));
}

#[test]
fn settings_that_cannot_be() {
    use crate::{Settings, WrongSetting};
    let with = |change: &dyn Fn(&mut Device)| {
        let mut device = Device::new("lan0");
        change(&mut device);
        device.check().err()
    };
    let seconds = Duration::from_secs;
    assert_eq!(with(&|_| {}), None);
    for interval in [4, 9, 10, 1800] {
        assert_eq!(with(&|it| it.interval = seconds(interval)), None, "{interval}");
    }
    assert_eq!(with(&|it| it.interval = seconds(3)), Some(WrongSetting::Interval));
    assert_eq!(with(&|it| it.interval = seconds(1801)), Some(WrongSetting::Interval));
    assert_eq!(with(&|it| it.min_interval = Some(seconds(2))), Some(WrongSetting::Interval));
    assert_eq!(with(&|it| it.min_interval = Some(seconds(451))), Some(WrongSetting::Interval));
    assert_eq!(with(&|it| it.min_interval = Some(seconds(450))), None);
    assert_eq!(with(&|it| it.lifetime = Some(599)), Some(WrongSetting::Lifetime));
    assert_eq!(with(&|it| it.lifetime = Some(0)), None);
    assert_eq!(with(&|it| it.valid = 100), Some(WrongSetting::Preferred));
    let net: Ipv6Net = "fe80::/64".parse().unwrap();
    assert_eq!(
        with(&|it| it.prefixes = Prefixes::Listed(vec![net])),
        Some(WrongSetting::Prefix(net))
    );
    let net: Ipv6Net = "2001:db8:64::/80".parse().unwrap();
    assert_eq!(with(&|it| it.pref64 = vec![net]), Some(WrongSetting::Pref64(net)));
    let group = v6("ff02::1");
    assert_eq!(with(&|it| it.rdnss = Rdnss::Listed(vec![group])), Some(WrongSetting::Rdnss(group)));
    assert_eq!(with(&|it| it.dnssl = vec![Name::root()]), Some(WrongSetting::Dnssl(Name::root())));
    assert_eq!(with(&|it| it.mtu = Some(1279)), Some(WrongSetting::Mtu(1279)));
    assert_eq!(with(&|it| it.reachable = 3_600_001), Some(WrongSetting::Reachable(3_600_001)));
    let route = |text: &str| Route {
        prefix: text.parse().unwrap(),
        preference: Preference::Medium,
        lifetime: None,
    };
    let (a, b) = (route("2001:db8:9::/48"), route("2001:db8:9::1/48"));
    assert_eq!(with(&|it| it.routes = vec![a, b]), Some(WrongSetting::Route(b.prefix)));
    let twice = Settings { devices: vec![Device::new("lan0"), Device::new("lan0")] };
    assert!(matches!(twice.check(), Err((_, WrongSetting::Twice(_)))));
}
