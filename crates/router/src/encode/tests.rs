use fordway_dns64::ndp::{NdOption, checksum_is_valid};

use super::*;
use crate::content::tests::facts;
use crate::resolver::tests::resolver;
use crate::settings::{Device, Prefixes, Rdnss};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A resolver of which nothing could be longer.
fn largest(name: &str) -> Resolver {
    Resolver {
        addresses: vec!["2001:db8::1".parse().unwrap(); 16],
        alpn: vec!["0123456789abcdef".to_owned(); 8],
        dohpath: Some(format!("/{}{{?dns}}", "a".repeat(248))),
        ..resolver(name)
    }
}

fn large() -> Content {
    let net = |number: u32| format!("2001:db8:{number:x}::/64").parse().unwrap();
    let server = |number: u32| format!("2001:db8::{number:x}").parse().unwrap();
    let name = |number: u32| {
        format!("{}.{}.site{number}.example.", "a".repeat(63), "b".repeat(63)).parse().unwrap()
    };
    let device = Device {
        prefixes: Prefixes::Listed((1..40).map(net).collect()),
        rdnss: Rdnss::Listed((1..60).map(server).collect()),
        dnssl: (1..20).map(name).collect(),
        pref64: vec!["2001:db8:64::/96".parse().unwrap()],
        dnr: (1..8).map(|number| largest(&name(number).to_string())).collect(),
        captive_portal: Some(format!("https://{}.example/", "a".repeat(230))),
        mtu: Some(1500),
        ..Device::new("lan0")
    };
    Content::new(&device, &facts(&[]))
}

#[test]
fn what_does_not_fit_goes_into_several() {
    let content = large();
    let none = Withdrawal::default();
    for mtu in [0, 1280, 1500, 9000, 65_535] {
        let messages = advertisements(&content, &none, ROUTER, mtu, Instant::now());
        assert!(messages.len() > 1 || mtu > 1500, "{mtu}");
        let (mut prefixes, mut servers, mut names, mut pref64) = (0, 0, 0, 0);
        let (mut resolvers, mut portals) = (0, 0);
        for message in &messages {
            assert!(message.len() + 40 <= (mtu as usize).max(1280));
            assert!(checksum_is_valid(ROUTER, ALL_NODES, message));
            let (fields, options) = Advertisement::receive(ROUTER, 255, message).unwrap();
            // Each says the same of the router.
            assert_eq!(fields, content.fields);
            for option in options {
                match option {
                    NdOption::Prefix(_) => prefixes += 1,
                    NdOption::Rdnss(it) => servers += it.addresses().count(),
                    NdOption::Dnssl(it) => names += it.names().count(),
                    NdOption::Pref64(_) => pref64 += 1,
                    NdOption::EncryptedDns(it) => {
                        assert_eq!((it.addresses().count(), it.lifetime), (16, 1800));
                        resolvers += 1;
                    }
                    NdOption::CaptivePortal(_) => portals += 1,
                    NdOption::SourceLinkLayer(_) | NdOption::Mtu(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((prefixes, servers, names, pref64), (39, 59, 19, 1), "{mtu}");
        assert_eq!((resolvers, portals), (7, 1), "{mtu}");
    }
}

#[test]
fn what_no_message_holds_is_left_out() {
    // More than a link of 1280 octets takes.
    let mut content = large();
    content.link_layer = vec![1; 1300];
    let messages = advertisements(&content, &Withdrawal::default(), ROUTER, 1280, Instant::now());
    let (_, options) = Advertisement::parse(&messages[0]).unwrap();
    assert!(options.clone().all(|it| !matches!(it, NdOption::SourceLinkLayer(_))));
    assert!(messages.iter().all(|it| Advertisement::parse(it).unwrap().1.count() > 0));
}

#[test]
fn the_last_words_take_everything_back() {
    let content = large();
    let withdrawal = Withdrawal {
        prefixes: vec![PrefixInformation {
            preferred_lifetime: 0,
            valid_lifetime: 7200,
            ..content.information(&content.prefixes[0], Instant::now())
        }],
        items: vec![
            Item::Rdnss("2001:db8::1".parse().unwrap()),
            Item::Dnssl("example.net.".parse().unwrap()),
            Item::Pref64("2001:db8:64::/96".parse().unwrap()),
            Item::Route("2001:db8:9::/48".parse().unwrap()),
            Item::Dnr("dns.example.net.".parse().unwrap()),
        ],
    };
    let [message] = &farewell(&content, &withdrawal, ROUTER, 1500)[..] else { panic!("one") };
    let (fields, options) = Advertisement::parse(message).unwrap();
    assert_eq!(fields.router_lifetime, 0);
    let mut seen = 0;
    for option in options {
        let lifetime = match option {
            NdOption::Prefix(it) => it.preferred_lifetime,
            NdOption::Rdnss(it) => it.lifetime,
            NdOption::Dnssl(it) => it.lifetime,
            NdOption::Pref64(it) => it.lifetime().seconds(),
            NdOption::Route(it) => it.lifetime,
            NdOption::EncryptedDns(it) => it.lifetime,
            NdOption::SourceLinkLayer(_) | NdOption::Mtu(_) => continue,
            other => panic!("{other:?}"),
        };
        assert_eq!(lifetime, 0, "{option:?}");
        seen += 1;
    }
    assert_eq!(seen, 6);
    let [message] = &parting(&content, ROUTER)[..] else { panic!("one") };
    let (fields, options) = Advertisement::parse(message).unwrap();
    assert_eq!((fields.router_lifetime, options.count()), (0, 0));
}
