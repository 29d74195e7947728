//! Whatever the services: written out and read back they are the same; whatever the text: no panic.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fordway_config::{
    Advertise, AdvertisedResolver, AdvertisedRoute, Config, Dns64, Dns64Forward, Dns64Policy, Name,
    parse,
};
use fordway_dns64::{Reverse, ndp::Preference};
use fordway_nameserver::Limits;
use fordway_resolver::{Protocol, Server};
use fordway_serve::ClientLen;
use fordway_xlat::addr::Pool6;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Different for each number.
fn v6(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 1)
}

/// A different network for each number.
fn net6(number: u16, len: u8) -> Ipv6Net {
    Ipv6Net::new(v6(number), len).unwrap().trunc()
}

fn net4(number: u16) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::new(198, 18, number as u8, 0), 24).unwrap()
}

fn numbers(least: usize) -> impl Strategy<Value = Vec<u16>> {
    btree_set(0u16..64, least..4).prop_map(|numbers| numbers.into_iter().collect())
}

fn nets(least: usize) -> impl Strategy<Value = Vec<IpNet>> {
    (numbers(least), any::<bool>()).prop_map(|(numbers, v6)| {
        let net = |number| if v6 { net6(number, 48).into() } else { net4(number).into() };
        numbers.into_iter().map(net).collect()
    })
}

fn nets6() -> impl Strategy<Value = Vec<Ipv6Net>> {
    numbers(0).prop_map(|numbers| numbers.into_iter().map(|it| net6(it, 48)).collect())
}

fn nets4() -> impl Strategy<Value = Vec<Ipv4Net>> {
    numbers(0).prop_map(|numbers| numbers.into_iter().map(net4).collect())
}

fn pool6() -> impl Strategy<Value = Vec<Pool6>> {
    let lengths = vec(select(vec![40u8, 48, 56, 64, 96]), 4);
    (numbers(1), lengths).prop_map(|(numbers, lengths)| {
        let net = |(number, len): (u16, u8)| {
            let net = Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, number << 8, 0, 0, 0, 0, 0), len);
            Pool6::new(net.unwrap()).unwrap()
        };
        numbers.into_iter().zip(lengths).map(net).collect()
    })
}

fn ranges() -> impl Strategy<Value = Vec<(Ipv4Net, Pool6)>> {
    (nets4(), pool6()).prop_map(|(nets, pool6)| nets.into_iter().zip(pool6).collect())
}

fn names() -> impl Strategy<Value = Vec<Name>> {
    btree_set("[a-z_][a-z0-9-]{0,20}[a-z0-9]\\.example", 0..4).prop_map(|names| {
        let name = |text: String| {
            let mut name = Name::from_ascii(text).unwrap();
            name.set_fqdn(true);
            name
        };
        names.into_iter().map(name).collect()
    })
}

fn upstream() -> impl Strategy<Value = Vec<Server>> {
    let name = option::of("[a-z]{1,9}\\.example");
    let path = "/[a-z?={}]{1,9}";
    let protocol = (0u8..4, name, path).prop_map(|(kind, name, path)| match kind {
        0 => Protocol::Udp,
        1 => Protocol::Tcp,
        2 => Protocol::Tls { name },
        // The addresses are of IPv6.
        _ => Protocol::Https { name: name.or(Some("b.example".to_owned())), path },
    });
    (numbers(1), vec(protocol, 4), 1u16..).prop_map(|(numbers, protocols, port)| {
        let server = |(number, protocol)| {
            // Apart from the addresses that are listened on.
            let address = SocketAddr::from((v6(0x1000 + number), port));
            Server { address, protocol }
        };
        numbers.into_iter().zip(protocols).map(server).collect()
    })
}

fn millis(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn seconds(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_secs)
}

prop_compose! {
    fn policy()(
        enable in any::<bool>(),
        pool6 in option::of(pool6()),
        (ranges, exclude) in (option::of(ranges()), option::of(nets6())),
        exclude_a in option::of(nets4()),
        exempt in option::of(names()),
    ) -> Dns64Policy {
        Dns64Policy { clients: Vec::new(), enable, pool6, ranges, exclude, exclude_a, exempt }
    }
}

prop_compose! {
    fn dns64()(
        (listen, port) in (numbers(1), 1u16..),
        (upstream, pool6) in (upstream(), pool6()),
        (exclude, exclude_a, exempt) in (nets6(), nets4(), names()),
        (ranges, nat64_names, domain) in (ranges(), names(), any::<bool>()),
        reverse in select(vec![Reverse::Cname, Reverse::Local]),
        (allow_private, allow) in (option::of(any::<bool>()), option::of(nets(1))),
        (validate, files) in (any::<bool>(), any::<[bool; 2]>()),
        (timeout, deadline) in (millis(100..=10_000), millis(10_000..=60_000)),
        (prefetch, serve_stale) in (any::<bool>(), option::of(seconds(60..=604_800))),
        (rebind_protection, rebind_private, rebind_exempt) in (any::<bool>(), nets(0), names()),
        (listen_tls, listen_https, tls) in (numbers(0), numbers(0), any::<bool>()),
        (cookies, cookie_secret) in (any::<bool>(), any::<bool>()),
        stale_after in millis(100..=10_000),
        (rate, burst) in (option::of(1u32..), 1u32..=1_000_000),
        (cache, udp_size, attempts) in (1u64 << 20..=16 << 30, 512u16..=4096, 1u8..=8),
        (connections, idle, threads) in (1usize..=65_535, seconds(1..=300), option::of(1usize..=64)),
        client_len in (32u8..=128, 8u8..=32).prop_map(|(v6, v4)| ClientLen { v6, v4 }),
        policies in vec(policy(), 0..3),
        forwards in vec((upstream(), option::of(any::<bool>()), any::<[bool; 2]>()), 0..3),
    ) -> Dns64 {
        // Apart from the addresses that are listened on, whatever the port.
        let others = |numbers: Vec<u16>, apart: u16| -> Vec<SocketAddr> {
            let numbers = numbers.into_iter().filter(|_| tls);
            numbers.map(|it| SocketAddr::from((v6(apart + it), port))).collect()
        };
        let file = |wanted: bool| wanted.then(|| PathBuf::from("/etc/fordway/a file"));
        let policies = policies.into_iter().enumerate().map(|(index, policy)| Dns64Policy {
            clients: vec![net6(index as u16, 56).into(), net4(index as u16).into()],
            ..policy
        });
        let forwards = forwards.into_iter().enumerate().map(|(index, forward)| {
            let (upstream, synthesise, [validate, rebind_protection]) = forward;
            let domain = |end: &str| Name::from_ascii(format!("d{index}.{end}.")).unwrap();
            let domains = vec![domain("example"), domain("in-addr.arpa")];
            Dns64Forward { domains, upstream, synthesise, validate, rebind_protection }
        });
        Dns64 {
            listen: listen.into_iter().map(|it| SocketAddr::from((v6(it), port))).collect(),
            upstream,
            ca: file(files[0]),
            threads,
            pool6: Some(pool6),
            ranges,
            exclude,
            exclude_a,
            exempt,
            reverse,
            reverse_domain: nat64_names.first().cloned().filter(|_| domain),
            nat64_names,
            allow_private,
            allow,
            validate,
            trust_anchor: file(files[1]),
            cache,
            listen_tls: others(listen_tls, 0x2000),
            listen_https: others(listen_https, 0x3000),
            certificate: file(tls),
            key: file(tls),
            cookies,
            cookie_secret: file(cookie_secret),
            rebind_protection,
            rebind_private,
            rebind_exempt,
            prefetch,
            serve_stale,
            stale_after,
            timeout,
            deadline,
            attempts,
            rate,
            // Without a rate it means nothing.
            burst: if rate.is_some() { burst } else { 10_000 },
            udp_size,
            limits: Limits { connections, idle, client_len, ..Limits::default() },
            policies: policies.collect(),
            forwards: forwards.collect(),
        }
    }
}

prop_compose! {
    fn advertise()(
        prefixes in option::of(numbers(0)),
        (on_link, managed, source_link_layer, dhcpv6, manage) in any::<(bool, bool, bool, bool, bool)>(),
        (valid, preferred) in (seconds(1..=4_294_967_294), seconds(0..=4_294_967_294)),
        (rdnss, dnssl, pref64) in (option::of(numbers(0)), names(), option::of(pool6())),
        (routes, route_lifetime) in (numbers(0), option::of(seconds(1..=4_294_967_294))),
        (portal, literal) in (option::of("[a-z]{1,20}"), any::<bool>()),
        resolvers in proptest::collection::hash_map(
            "[a-z]{1,20}",
            (select(vec!["dot", "doq", "h2", "h3"]), option::of(1u16..), 1u16..),
            0..4,
        ).prop_map(|all| all.into_iter().map(|(name, (a, p, q))| (name, a, p, q)).collect::<Vec<_>>()),
        dns_lifetime in option::of(seconds(1..=4_294_967_294)),
        pref64_lifetime in option::of(seconds(1..=65_528)),
        mtu in option::of(1280u32..=65_535),
        lifetime in option::of(prop_oneof![seconds(1800..=65_535), seconds(0..=0)]),
        (interval, min_interval) in (seconds(4..=1800), option::of(seconds(3..=3))),
        preference in select(vec![Preference::Low, Preference::Medium, Preference::High]),
        other in option::of(any::<bool>()),
        (hop_limit, reachable, retrans) in (any::<u8>(), millis(0..=3_600_000), millis(0..=3_600_000)),
    ) -> Advertise {
        Advertise {
            device: "lan0".parse().unwrap(),
            prefixes: prefixes.map(|all| all.into_iter().map(|it| net6(it, 64)).collect()),
            on_link,
            autonomous: true,
            valid,
            preferred: preferred.min(valid),
            rdnss: rdnss.map(|all| all.into_iter().map(v6).collect()),
            dnssl,
            dns_lifetime,
            pref64,
            pref64_lifetime,
            captive_portal: portal.map(|name| format!("https://{name}.example/api?x=y")),
            captive_portal_literal: literal,
            dnr: resolvers
                .into_iter()
                .map(|(name, alpn, port, priority)| AdvertisedResolver {
                    name: format!("{name}.example.").parse().unwrap(),
                    addresses: vec![v6(priority)],
                    alpn: vec![alpn],
                    port,
                    dohpath: "/q{?dns}".to_owned(),
                    priority,
                    lifetime: route_lifetime,
                })
                .collect(),
            routes: routes
                .into_iter()
                .map(|it| AdvertisedRoute {
                    prefix: net6(it, 48),
                    preference,
                    lifetime: route_lifetime,
                })
                .collect(),
            mtu,
            lifetime,
            interval,
            min_interval,
            preference,
            managed,
            other,
            hop_limit,
            reachable,
            retrans,
            source_link_layer,
            dhcpv6,
            manage,
        }
    }
}

proptest! {
    #[test]
    fn written_out_and_read_back(
        dns64 in option::of(dns64()),
        advertise in vec(advertise(), 1..4),
    ) {
        let advertise = advertise.into_iter().enumerate().map(|(index, advertise)| Advertise {
            device: format!("lan{index}").parse().unwrap(),
            ..advertise
        });
        let config = Config { dns64, advertise: advertise.collect(), ..Config::default() };
        let text = config.to_string();
        let read = parse("written", &text).map_err(|report| {
            TestCaseError::fail(format!("{report}\n{text}"))
        })?;
        prop_assert_eq!(read.config, config);
    }

    #[test]
    fn no_broken_file_makes_it_panic(cut in 0usize..2000, noise in "[\\[\\]\"'=,#\n a-z0-9:/é%]{0,6}") {
        let text = include_str!("../valid/ipv6_only.toml");
        let cut = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let rest = (cut + 3..).find(|at| *at >= text.len() || text.is_char_boundary(*at)).unwrap();
        let broken = format!("{}{noise}{}", &text[..cut], &text[rest.min(text.len())..]);
        if let Err(report) = parse("broken", &broken) {
            prop_assert!(report.has_errors());
            prop_assert!(!report.render(false).is_empty());
        }
    }
}
