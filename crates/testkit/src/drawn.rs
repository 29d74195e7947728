//! Configurations drawn at random, by the strategies of proptest.

use fordway_xlat::addr::{Eam, EamTable, Pool6};
use fordway_xlat::{Config, IcmpErrors, TrafficClass, UdpChecksumZero};
use proptest::prelude::*;

/// Prefixes and mappings that the drawn packets meet, everything else free.
pub fn any_config() -> impl Strategy<Value = Config> {
    let pool6 = prop_oneof![
        Just(vec!["2001:db8:64::/96"]),
        Just(vec!["64:ff9b::/96", "2001:db8:64::/96"]),
        Just(vec!["2001:db8::/32"]),
        Just(vec!["2001:db8:64::/48", "2001:db8:64::/96"]),
        Just(vec![]),
    ];
    let eam = prop_oneof![
        Just(vec![("198.51.100.0/24", "2001:db8:1::/120")]),
        Just(vec![("198.51.100.0/24", "2001:db8:1::/120"), ("192.0.2.0/25", "2001:db8:2::/64")]),
        Just(vec![("0.0.0.0/0", "2001:db8::/96")]),
    ];
    let mtu = || prop_oneof![Just(65_535u32), 1280u32..1600, Just(u32::MAX)];
    let mtu4 = prop_oneof![Just(65_535u32), 68u32..1600, Just(u32::MAX)];
    let switches = any::<[bool; 7]>();
    let traffic = prop_oneof![Just(TrafficClass::Copy), any::<u8>().prop_map(TrafficClass::Set)];
    let udp = prop_oneof![
        Just(UdpChecksumZero::Compute),
        Just(UdpChecksumZero::Drop),
        Just(UdpChecksumZero::Pass)
    ];
    let errors = prop_oneof![
        Just(IcmpErrors::Off),
        Just(IcmpErrors::Unlimited),
        any::<(u32, u32)>()
            .prop_map(|(per_second, burst)| IcmpErrors::Limited { per_second, burst }),
    ];
    ((pool6, eam, mtu4), (mtu(), mtu()), switches, traffic, udp, errors).prop_map(
        |(
            (pool6, eam, mtu4),
            (mtu6, lowest_ipv6_mtu),
            switches,
            traffic_class,
            udp,
            icmp_errors,
        )| {
            let [sources, hops, private, translatable, hairpin, mss_clamp, pass] = switches;
            let eam = eam
                .into_iter()
                .map(|(v4, v6)| Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap());
            Config {
                pool6: pool6.into_iter().map(|text| text.parse::<Pool6>().unwrap()).collect(),
                eam: EamTable::new(eam).unwrap(),
                icmp_source4: sources.then(|| "203.0.113.254".parse().unwrap()),
                icmp_node_id: sources && hops,
                icmp_source6: sources.then(|| "2001:db8:fe::1".parse().unwrap()),
                mtu4,
                mtu6,
                lowest_ipv6_mtu,
                decrement_hop_limit: hops.into(),
                traffic_class,
                udp_checksum_zero: udp,
                allow_private: private,
                ipv4_translatable: translatable,
                hairpin,
                mss_clamp,
                icmp_errors,
                pass_unmatched: pass,
            }
        },
    )
}
