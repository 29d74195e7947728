//! Whatever the configuration: written out and read back it is the same; whatever the text: no panic.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fordway_config::{
    Attach, Clat, Config, Control, Engine, InterfaceName, Log, LogFormat, LogLevel, Metrics, Mode,
    Resolved, Source6, Translator, parse,
};
use fordway_xlat::addr::{Eam, Pool6};
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
        vec(pool6(), 1..4).prop_map(|mut pool6| {
            pool6.dedup();
            pool6.sort_by_key(|pool6| pool6.net());
            pool6.dedup();
            Mode::Siit { pool6 }
        }),
        (pool6(), option::of(0u16..99), uplink).prop_map(|(pref64, index, uplink)| {
            let v4 = Ipv4Addr::new(192, 0, 0, 2);
            Mode::Clat(Clat { pref64, v4, v6: index.map(v6), uplink })
        }),
    ]
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
    let attaches = vec![Attach::Auto, Attach::Interface, Attach::Uplink, Attach::Xdp];
    let devices = prop::collection::btree_set(0u8..9, 1..4);
    (engines, prop::sample::select(attaches), devices).prop_map(|(engine, attach, devices)| {
        let names = devices.into_iter().map(|number| format!("eth{number}").parse().unwrap());
        match (engine, attach) {
            (Engine::User, Attach::Uplink | Attach::Xdp) => (engine, Attach::Interface, Vec::new()),
            (_, Attach::Xdp) => (engine, attach, names.collect()),
            _ => (engine, attach, Vec::new()),
        }
    })
}

prop_compose! {
    fn translator()(
        mode in mode(),
        eam in eam(),
        (engine, attach, devices) in engine(),
        routes4 in vec((0u8..8).prop_map(|n| Ipv4Net::from(Ipv4Addr::new(203, 0, 113, n))), 0..3),
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
        flags in any::<[bool; 7]>(),
        mtu in option::of(1280u32..=65_535),
        queues in option::of(1usize..=256),
    ) -> Translator {
        Translator {
            name: "fw0".parse().unwrap(),
            engine,
            // Only a CLAT has an uplink of its own.
            attach: match (attach, &mode) {
                (Attach::Uplink, Mode::Siit { .. }) => Attach::Auto,
                (attach, _) => attach,
            },
            devices,
            measure: flags[6] && engine != Engine::User,
            mode,
            eam,
            routes4,
            metric,
            icmp_source4,
            icmp_source6,
            icmp_errors,
            udp_checksum_zero,
            traffic_class: traffic_class.map_or(TrafficClass::Copy, TrafficClass::Set),
            allow_private: flags[0],
            ipv4_translatable: flags[1],
            hairpin: flags[2],
            mss_clamp: flags[3],
            manage: flags[4],
            pin_queues: flags[5],
            mtu,
            lowest_ipv6_mtu: 1280,
            queues,
        }
    }
}

prop_compose! {
    fn config()(
        translator in translator(),
        socket in "/[a-zA-Z0-9 \"'._-]{1,40}",
        millis in 100u64..=60_000,
        port in 1u16..,
        level in prop::sample::select(vec![LogLevel::Off, LogLevel::Warn, LogLevel::Trace]),
        format in prop::sample::select(vec![LogFormat::Text, LogFormat::Json]),
    ) -> Config {
        Config {
            translators: vec![translator],
            control: Control {
                socket: PathBuf::from(socket),
                timeout: Duration::from_millis(millis),
            },
            metrics: Metrics { listen: vec![SocketAddr::from((v6(1), port))] },
            log: Log { level, format },
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
        let text = include_str!("valid/everything.toml");
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
