use fordway_dns64::ndp::{NdpError, Pref64, ScaledLifetime, Writer};

use super::*;
use crate::content::tests::facts;
use crate::settings::{Device, Prefixes};

const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

fn ours() -> Content {
    let device = Device {
        prefixes: Prefixes::Listed(vec!["2001:db8:1::/64".parse().unwrap()]),
        pref64: vec!["2001:db8:64::/96".parse().unwrap()],
        mtu: Some(1500),
        reachable: 30_000,
        captive_portal: Some("https://portal.example/".to_owned()),
        ..Device::new("lan0")
    };
    Content::new(&device, &facts(&[]))
}

fn prefix(valid: u32, preferred: u32) -> PrefixInformation {
    PrefixInformation {
        prefix: "2001:db8:1::".parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: valid,
        preferred_lifetime: preferred,
    }
}

fn pref64(text: &str, seconds: u32) -> Pref64 {
    let net: Ipv6Net = text.parse().unwrap();
    Pref64::new(net.addr(), net.prefix_len(), ScaledLifetime::from_seconds(seconds)).unwrap()
}

/// What is said against an advertisement.
fn against(
    others: &mut Others,
    fields: &Advertisement,
    now: Instant,
    build: impl FnOnce(&mut Writer<'_>),
) -> Result<Vec<Contradiction>, NdpError> {
    let mut buffer = [0; 1280];
    let mut writer = Writer::advertisement(&mut buffer, fields).unwrap();
    build(&mut writer);
    let message = writer.finish(OTHER, OTHER).to_vec();
    let (fields, options) = Advertisement::receive(OTHER, 255, &message)?;
    Ok(others.receive(OTHER, &fields, &options, &ours(), now))
}

#[test]
fn each_contradiction_is_found() {
    let now = Instant::now();
    let said = |fields: Advertisement, build: &dyn Fn(&mut Writer<'_>)| {
        against(&mut Others::default(), &fields, now, build).unwrap()
    };
    let agrees = Advertisement::default();
    let net = "2001:db8:1::/64".parse().unwrap();
    assert_eq!(said(agrees, &|_| {}), []);
    assert_eq!(said(Advertisement { cur_hop_limit: 64, ..agrees }, &|_| {}), []);
    let cases = [
        (Advertisement { cur_hop_limit: 63, ..agrees }, Contradiction::HopLimit),
        (Advertisement { managed: true, ..agrees }, Contradiction::Managed),
        (Advertisement { other: true, ..agrees }, Contradiction::Other),
        (Advertisement { reachable_time: 1, ..agrees }, Contradiction::ReachableTime),
    ];
    for (fields, expected) in cases {
        assert_eq!(said(fields, &|_| {}), [expected]);
    }
    // We say nothing of it.
    assert_eq!(said(Advertisement { retrans_timer: 1, ..agrees }, &|_| {}), []);
    assert_eq!(said(agrees, &|it| it.mtu(1500).unwrap()), []);
    assert_eq!(said(agrees, &|it| it.mtu(1400).unwrap()), [Contradiction::Mtu]);
    assert_eq!(said(agrees, &|it| it.prefix(&prefix(86_400, 14_400)).unwrap()), []);
    // Two clocks.
    assert_eq!(said(agrees, &|it| it.prefix(&prefix(86_397, 14_398)).unwrap()), []);
    assert_eq!(
        said(agrees, &|it| it.prefix(&prefix(INFINITY, 14_400)).unwrap()),
        [Contradiction::ValidLifetime(net)]
    );
    assert_eq!(
        said(agrees, &|it| it.prefix(&prefix(86_400, 0)).unwrap()),
        [Contradiction::PreferredLifetime(net)]
    );
    assert_eq!(said(agrees, &|it| it.pref64(&pref64("2001:db8:64::/96", 600)).unwrap()), []);
    for (text, seconds) in [("2001:db8:65::/96", 600), ("2001:db8:64::/96", 0)] {
        let found = said(agrees, &|it| it.pref64(&pref64(text, seconds)).unwrap());
        assert_eq!(found, [Contradiction::Pref64], "{text}");
    }
}

#[test]
fn other_portals_contradict_and_other_resolvers_do_not() {
    let now = Instant::now();
    let fields = Advertisement { router_lifetime: 1800, ..Advertisement::default() };
    let mut others = Others::default();
    let same = "https://portal.example/";
    let found = against(&mut others, &fields, now, |it| it.captive_portal(same).unwrap());
    assert_eq!(found, Ok(vec![]));
    assert!(others.advertise(&Item::CaptivePortal, now + Duration::from_secs(1799)));
    assert!(!others.advertise(&Item::CaptivePortal, now + Duration::from_secs(1800)));
    let other = "https://other.example/";
    let found = against(&mut others, &fields, now, |it| it.captive_portal(other).unwrap());
    assert_eq!(found, Ok(vec![Contradiction::CaptivePortal]));
    let name: Name = "dns.example.".parse().unwrap();
    let found = against(&mut others, &fields, now, |it| {
        it.encrypted_dns(1, 600, name.iter(), &[], &[]).unwrap();
    });
    assert_eq!(found, Ok(vec![]));
    assert!(others.advertise(&Item::Dnr(name), now));
}

#[test]
fn what_others_say_is_remembered_for_its_lifetime() {
    let start = Instant::now();
    let mut others = Others::default();
    let item = Item::Pref64("2001:db8:64::/96".parse().unwrap());
    let say = |others: &mut Others, seconds: u32, now| {
        let pref64 = pref64("2001:db8:64::/96", seconds);
        against(others, &Advertisement::default(), now, |it| it.pref64(&pref64).unwrap()).unwrap();
    };
    say(&mut others, 600, start);
    assert!(others.advertise(&item, start + Duration::from_secs(599)));
    assert!(!others.advertise(&item, start + Duration::from_secs(600)));
    // Withdrawn.
    say(&mut others, 0, start);
    assert!(!others.advertise(&item, start));
}

#[test]
fn what_is_remembered_is_bounded() {
    let now = Instant::now();
    let mut others = Others::default();
    for number in 0..1000u16 {
        let server = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number);
        let fields = Advertisement::default();
        against(&mut others, &fields, now, |it| it.rdnss(600, &[server]).unwrap()).unwrap();
    }
    assert_eq!(others.heard.len(), HEARD);
    let first: usize = (0..1000u16)
        .map(|number| {
            let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number);
            usize::from(others.first(router, Contradiction::Mtu))
        })
        .sum();
    assert_eq!(first, REPORTED);
    assert!(!others.first(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), Contradiction::Mtu));
}
