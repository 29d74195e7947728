//! Whatever the configuration: written out and read back it is the same; whatever the text: no panic.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fordway_config::{
    Attach, Clat, Config, Control, Dynamic4, Engine, Forwarding, Gateway, Gateways, Gro,
    InterfaceName, LevelFilter, Log, LogEvent, LogFormat, LogTarget, Metrics, MetricsToken, Mode,
    Nat64, NatLog, OnSigterm, Pool, Pool4, Pool4Source, Ports, Pref64, Resolved, Siit, Source6,
    Translator, parse,
};
use fordway_xlat::addr::{Eam, Pool6};
use fordway_xlat::nat64::{Allocation, Filtering, Lifetimes, Protocol, Quotas, Sizes, StaticBib};
use fordway_xlat::{HopCount, IcmpErrors, TrafficClass, UdpChecksumZero};
use ipnet::{Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Hosts whose addresses differ by `index`, so that nothing clashes.
fn v6(index: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xffff, index, 0, 0, 0, 1)
}

fn pool6() -> impl Strategy<Value = Pool6> {
    (0u16..8, prop::sample::select(vec![40u8, 48, 56, 64, 96])).prop_map(|(index, len)| {
        let net = Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, index << 8, 0, 0, 0, 0, 0), len);
        Pool6::new(net.unwrap()).unwrap()
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    let uplink = option::of(Just("eth0".parse::<InterfaceName>().unwrap()));
    prop_oneof![
        vec(pool6(), 1..4)
            .prop_map(|mut pool6| {
                pool6.dedup();
                pool6.sort_by_key(|pool6| pool6.net());
                pool6.dedup();
                pool6
            })
            .prop_flat_map(|pool6| {
                let stateful = nat64(pool6.clone()).prop_map(|nat64| Mode::Nat64(Box::new(nat64)));
                let stateless = option::of(dynamic4())
                    .prop_map(move |dynamic4| Mode::Siit(Siit { pool6: pool6.clone(), dynamic4 }));
                prop_oneof![stateful, stateless]
            }),
        (option::of(pool6()), any::<bool>(), option::of(0u16..99), uplink).prop_map(|it| {
            let (pref64, always, index, uplink) = it;
            let v4 = Ipv4Addr::new(192, 0, 0, 2);
            let always = always && pref64.is_none();
            let pref64 = pref64.map_or(Pref64::Auto, Pref64::Fixed);
            Mode::Clat(Clat { pref64, always, v4, v6: index.map(v6), uplink })
        }),
    ]
}

fn seconds(least: u64) -> impl Strategy<Value = Duration> {
    (least..=30 * 24 * 3600).prop_map(Duration::from_secs)
}

fn dynamic4() -> impl Strategy<Value = Dynamic4> {
    let pool = prop::collection::btree_set(0u8..8, 1..4);
    let clients = prop::collection::btree_set(0u16..8, 0..3);
    (pool, clients, seconds(60), any::<bool>()).prop_map(|(pool, clients, idle, file)| Dynamic4 {
        pool: pool
            .into_iter()
            .map(|n| Ipv4Net::new(Ipv4Addr::new(203, 0, 112, n << 4), 28).unwrap())
            .collect(),
        clients: clients.into_iter().map(client).collect(),
        idle,
        file: file.then(|| PathBuf::from("/var/lib/fordway/a b.dynamic4")),
    })
}

fn client(number: u16) -> Ipv6Net {
    Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, 0x1000 + number, 0, 0, 0, 0, 0), 48).unwrap()
}

prop_compose! {
    fn lifetimes()(
        udp in seconds(120),
        icmp in seconds(60),
        tcp_est in seconds(7200),
        tcp_trans in seconds(240),
        tcp_incoming_syn in seconds(6),
        hold_down in seconds(120),
        subscriber in seconds(1),
    ) -> Lifetimes {
        let default = Lifetimes::default();
        Lifetimes { udp, icmp, tcp_est, tcp_trans, tcp_incoming_syn, hold_down, subscriber, ..default }
    }
}

/// Pools whose addresses differ by the third octet. The last is for all hosts.
fn pools() -> impl Strategy<Value = Vec<Pool>> {
    let allocation = prop_oneof![
        Just(Allocation::Shared),
        (1u16..=8, 1u8..=8)
            .prop_map(|(sixteens, most)| Allocation::Blocks { size: sixteens * 16, most }),
    ];
    let source = prop_oneof![
        (any::<u8>(), any::<u8>()).prop_map(|(a, b)| (false, a.min(b), a.max(b))),
        Just((true, 0, 0)),
    ];
    let pool = (source, allocation, option::of(any::<u32>()));
    (vec(pool, 0..3), any::<bool>()).prop_map(|(pools, deterministic)| {
        let number = pools.len();
        let mut made: Vec<Pool> = Vec::new();
        for (index, ((interface, first, last), allocation, mark)) in pools.into_iter().enumerate() {
            let address = |octet| Ipv4Addr::new(198, 19, index as u8, octet);
            let source = if interface {
                Pool4Source::Interface(format!("eth{index}").parse().unwrap())
            } else {
                Pool4Source::Addresses { first: address(first), last: address(last) }
            };
            let ports = Ports { low: 1024, high: 9999 };
            let pool4 = vec![Pool4 { source, ports }];
            let clients = vec![client(index as u16)];
            let (clients, mark) =
                if index + 1 == number { (Vec::new(), None) } else { (clients, mark) };
            made.push(Pool { pool4, clients, mark, allocation });
        }
        if deterministic || made.is_empty() {
            let all = "198.19.255.0/24:1024-65535".parse().unwrap();
            made.insert(
                0,
                Pool {
                    pool4: vec![all],
                    clients: vec![Ipv6Net::new(client(99).addr(), 50).unwrap()],
                    mark: None,
                    allocation: Allocation::Deterministic { size: 512 },
                },
            );
        }
        made
    })
}

fn bib() -> impl Strategy<Value = Vec<StaticBib>> {
    prop::collection::btree_map(1u16..1024, prop::sample::select(&Protocol::ALL[..]), 0..4)
        .prop_map(|ports| {
            let entry = |(port, protocol)| StaticBib {
                protocol,
                v4: (Ipv4Addr::new(192, 0, 2, 1), port),
                v6: (v6(port), port),
            };
            ports.into_iter().map(entry).collect()
        })
}

fn logs() -> impl Strategy<Value = Vec<NatLog>> {
    let what = prop::collection::btree_set(
        prop::sample::select(vec![LogEvent::Blocks, LogEvent::Bindings, LogEvent::Sessions]),
        1..4,
    );
    let to = prop::sample::select(vec![
        LogTarget::Json(PathBuf::from("/var/log/a b.json")),
        LogTarget::SyslogUdp(SocketAddr::from((v6(7), 514))),
        LogTarget::SyslogUnix(PathBuf::from("/dev/log")),
        LogTarget::Ipfix(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 9), 4739))),
        LogTarget::IpfixTcp(SocketAddr::from((v6(7), 4739))),
        LogTarget::IpfixTls(SocketAddr::from((v6(7), 4740)), Some("a.example".to_owned())),
    ]);
    vec((what, to, any::<bool>(), 1u32..), 0..3).prop_map(|logs| {
        let log =
            |(what, to, destinations, domain): (std::collections::BTreeSet<_>, _, _, _)| NatLog {
                destinations: destinations && what.contains(&LogEvent::Sessions),
                what: what.into_iter().collect(),
                domain: match to {
                    LogTarget::Json(_) | LogTarget::SyslogUdp(_) | LogTarget::SyslogUnix(_) => 1,
                    _ => domain,
                },
                ca: matches!(to, LogTarget::IpfixTls(..)).then(|| "/ca.pem".into()),
                certificate: matches!(to, LogTarget::IpfixTls(..)).then(|| "/own.pem".into()),
                key: matches!(to, LogTarget::IpfixTls(..)).then(|| "/own.key".into()),
                to,
            };
        logs.into_iter().map(log).collect()
    })
}

fn gateways() -> impl Strategy<Value = Gateways> {
    let ports = prop::collection::btree_set(1u16.., 1..=4);
    prop::option::of(ports).prop_map(|ports| match ports {
        None => Gateways::default(),
        Some(ports) => Gateways { on: vec![Gateway::Ftp], ftp_ports: ports.into_iter().collect() },
    })
}

prop_compose! {
    fn nat64(pool6: Vec<Pool6>)(
        pools in pools(),
        bib in bib(),
        address_dependent in any::<bool>(),
        flags in any::<[bool; 3]>(),
        lifetimes in lifetimes(),
        subscriber_len in 50u8..=56,
        limits in any::<[u16; 5]>(),
        sizes in prop::array::uniform3(1u32..=Sizes::MAX),
        logs in logs(),
        gateways in gateways(),
    ) -> Nat64 {
        let limits = limits.map(u32::from);
        Nat64 {
            pool6: pool6.clone(),
            pools,
            bib,
            filtering: if address_dependent {
                Filtering::AddressDependent
            } else {
                Filtering::EndpointIndependent
            },
            accept_v4_syn: flags[0],
            refresh_from_v4: flags[1],
            lifetimes,
            allow_short_lifetimes: flags[2],
            subscriber_len,
            quotas: Quotas {
                ports: [limits[0], limits[1], limits[2]],
                sessions: limits[3],
                new_per_second: limits[4],
            },
            gateways,
            sizes: Sizes { bibs: sizes[0], sessions: sizes[1], subscribers: sizes[2] },
            logs,
            nat_pt: None,
        }
    }
}

fn eam() -> impl Strategy<Value = Vec<Eam>> {
    // Distinct /24 and /120: no duplicate, no overlap.
    prop::collection::btree_set(any::<u8>(), 0..4).prop_map(|numbers| {
        let eam = |number: u8| {
            let v4 = Ipv4Net::new(Ipv4Addr::new(198, 18, number, 0), 24).unwrap();
            let net = Ipv6Addr::new(0x2001, 0xdb8, 0xeeee, number.into(), 0, 0, 0, 0);
            Eam::new(v4, Ipv6Net::new(net, 120).unwrap()).unwrap()
        };
        numbers.into_iter().map(eam).collect()
    })
}

fn icmp_errors() -> impl Strategy<Value = IcmpErrors> {
    prop_oneof![
        Just(IcmpErrors::Off),
        Just(IcmpErrors::Unlimited),
        (1u32.., 1u32..1_000_000)
            .prop_map(|(per_second, burst)| IcmpErrors::Limited { per_second, burst }),
    ]
}

fn source6() -> impl Strategy<Value = Source6> {
    prop_oneof![
        Just(Source6::Auto),
        Just(Source6::Off),
        (0u16..9).prop_map(|index| Source6::Address(v6(index)))
    ]
}

fn engine() -> impl Strategy<Value = (Engine, Attach, Vec<InterfaceName>)> {
    let engines = prop::sample::select(vec![Engine::Auto, Engine::Kernel, Engine::User]);
    let attaches =
        vec![Attach::Auto, Attach::Interface, Attach::Uplink, Attach::Ingress, Attach::Xdp];
    let devices = prop::collection::btree_set(0u8..9, 1..4);
    (engines, prop::sample::select(attaches), devices).prop_map(|(engine, attach, devices)| {
        let names = devices.into_iter().map(|number| format!("eth{number}").parse().unwrap());
        match (engine, attach) {
            (Engine::User, Attach::Uplink | Attach::Ingress | Attach::Xdp) => {
                (engine, Attach::Interface, Vec::new())
            }
            (_, Attach::Ingress | Attach::Xdp) => (engine, attach, names.collect()),
            _ => (engine, attach, Vec::new()),
        }
    })
}

prop_compose! {
    fn translator()(
        mode in mode(),
        eam in eam(),
        (engine, attach, devices) in engine(),
        routes4 in prop::collection::btree_set(0u8..8, 0..3),
        (metric, icmp_source4, icmp_source6, icmp_errors) in (
            1u32..,
            option::of(Just(Ipv4Addr::new(192, 0, 2, 7))),
            source6(),
            icmp_errors(),
        ),
        udp_checksum_zero in prop::sample::select(
            vec![UdpChecksumZero::Compute, UdpChecksumZero::Drop, UdpChecksumZero::Pass]
        ),
        traffic_class in option::of(any::<u8>()),
        flags in any::<[bool; 10]>(),
        mtu in option::of(1280u32..=65_535),
        queues in option::of(1usize..=256),
        queue_length in 64u32..=65_536,
        pass_rate in option::of(1u32..),
    ) -> Translator {
        Translator {
            name: "fw0".parse().unwrap(),
            engine,
            // Only a CLAT has an uplink of its own, and it has no other devices to take packets at.
            attach: match (attach, &mode) {
                (Attach::Uplink, Mode::Siit(_) | Mode::Nat64(_)) => Attach::Auto,
                (Attach::Ingress, Mode::Clat(_)) => Attach::Auto,
                (attach, _) => attach,
            },
            devices: match (attach, &mode) {
                (Attach::Ingress, Mode::Clat(_)) => Vec::new(),
                _ => devices,
            },
            forward: match (attach, &mode) {
                (Attach::Ingress, Mode::Siit(_) | Mode::Nat64(_)) if flags[8] => Forwarding::Direct,
                _ => Forwarding::Stack,
            },
            bypass_nftables: flags[8]
                && flags[9]
                && attach == Attach::Ingress
                && !matches!(mode, Mode::Clat(_)),
            measure: flags[6] && engine != Engine::User,
            pass_rate: pass_rate.filter(|_| !matches!(mode, Mode::Clat(_))),
            eam: if matches!(mode, Mode::Nat64(_)) { Vec::new() } else { eam },
            routes4: match mode {
                Mode::Nat64(_) => Vec::new(),
                _ => routes4
                    .into_iter()
                    .map(|n| Ipv4Net::from(Ipv4Addr::new(203, 0, 113, n)))
                    .collect(),
            },
            // A CLAT that sets itself up has to be allowed to.
            manage: flags[4] || matches!(&mode, Mode::Clat(clat) if clat.pref64 == Pref64::Auto),
            ipv4_translatable: flags[1] && !matches!(mode, Mode::Nat64(_)),
            mode,
            metric,
            icmp_source4,
            icmp_node_id: flags[7],
            icmp_source6,
            icmp_errors,
            udp_checksum_zero,
            traffic_class: traffic_class.map_or(TrafficClass::Copy, TrafficClass::Set),
            allow_private: flags[0],
            hairpin: flags[2],
            mss_clamp: flags[3],
            pin_queues: flags[5],
            gro: [Gro::Off, Gro::Tcp, Gro::TcpUdp][usize::from(flags[6]) + usize::from(flags[7])],
            mtu,
            lowest_ipv6_mtu: 1280,
            queues,
            queue_length,
        }
    }
}

prop_compose! {
    fn config()(
        translator in translator(),
        socket in "/[a-zA-Z0-9 \"'._-]{1,40}",
        group in option::of("[a-z0-9_.-]{1,32}"),
        millis in 100u64..=60_000,
        on_sigterm in prop::sample::select(vec![OnSigterm::Down, OnSigterm::Leave]),
        port in 1u16..,
        tls in any::<bool>(),
        token in prop::sample::select(vec![MetricsToken::None, MetricsToken::File("/t".into())]),
        level in prop::sample::select(vec![LevelFilter::OFF, LevelFilter::WARN, LevelFilter::TRACE]),
        format in prop::sample::select(vec![LogFormat::Text, LogFormat::Json]),
    ) -> Config {
        Config {
            translators: vec![translator],
            control: Control {
                socket: PathBuf::from(socket),
                read_group: group,
                timeout: Duration::from_millis(millis),
                on_sigterm,
            },
            metrics: Metrics {
                listen: vec![SocketAddr::from((v6(1), port))],
                certificate: tls.then(|| PathBuf::from("/etc/fordway/a.pem")),
                key: tls.then(|| PathBuf::from("/etc/fordway/a.key")),
                token_file: Some(token),
            },
            log: Log { level, format },
            ..Config::default()
        }
    }
}

proptest! {
    #[test]
    fn written_out_and_read_back(config in config()) {
        let text = config.to_string();
        let read = parse("written", &text).map_err(|report| {
            TestCaseError::fail(format!("{report}\n{text}"))
        })?;
        prop_assert_eq!(read.config, config);
    }

    #[test]
    fn every_configuration_is_one_for_the_core(translator in translator(), queues in 1usize..64) {
        let resolved = Resolved {
            mtu6: translator.mtu.unwrap_or(1500),
            icmp_source6: None,
            clat_v6: Some(v6(1)),
            queues,
            attach: translator.attach,
        };
        let core = translator.core(&resolved);
        prop_assert!(core.is_ok(), "{:?}", core.err());
        let core = core.unwrap();
        let behind_routing = translator.attach != Attach::Uplink;
        prop_assert_eq!(core.decrement_hop_limit == HopCount::NONE, behind_routing);
        prop_assert!(core.lowest_ipv6_mtu <= core.mtu6);
        if let IcmpErrors::Limited { per_second, .. } = core.icmp_errors {
            let IcmpErrors::Limited { per_second: whole, .. } = translator.icmp_errors else {
                return Err(TestCaseError::fail("a rate out of nothing"));
            };
            prop_assert!(per_second >= 1);
            prop_assert!(u64::from(per_second) * queues as u64 <= u64::from(whole).max(queues as u64));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        if let Err(report) = parse("any", &text) {
            prop_assert!(report.has_errors());
            prop_assert!(!report.render(true).is_empty());
        }
    }

    #[test]
    fn no_broken_file_makes_it_panic(cut in 0usize..1200, noise in "[\\[\\]\"'=,#\n a-z0-9:/é]{0,6}") {
        let text = include_str!("../valid/everything.toml");
        let cut = cut.min(text.len());
        let broken = format!("{}{noise}{}", &text[..cut], &text[(cut + 3).min(text.len())..]);
        if let Err(report) = parse("broken", &broken) {
            prop_assert!(report.has_errors());
            for (_, line, column, message) in report.lines() {
                prop_assert!(line >= 1 && column >= 1 && !message.is_empty());
            }
            prop_assert!(!report.render(false).is_empty());
        }
    }
}
