use fordway_xlat::addr::{EamTable, Pool6};

use super::*;

const EXTRA: Extra = Extra {
    tun: 7,
    link_layer_len: 14,
    decrement_hop_limit: HopCount::BOTH,
    measure: false,
    trace: None,
    pass_rate: None,
    keep_order: false,
    forward: Forwarding::Stack,
};

fn pool6(prefixes: &[&str]) -> Vec<Pool6> {
    prefixes.iter().map(|prefix| Pool6::new(prefix.parse().unwrap()).unwrap()).collect()
}

fn eam(v4: &str, v6: &str) -> Eam {
    Eam::new(v4.parse().unwrap(), v6.parse().unwrap()).unwrap()
}

#[test]
fn prefixes_are_sorted_and_the_first_stays_known() {
    let config = Config {
        pool6: pool6(&["2001:db8::/32", "2001:db8:1:2::/64", "64:ff9b::/96", "2001:db8:1:3::/64"]),
        ..Config::default()
    };
    let fw = convert(&config, EXTRA).unwrap();
    assert_eq!(fw.pool6_count, 4);
    let lens: Vec<u8> = fw.pool6[..4].iter().map(|prefix| prefix.len).collect();
    assert_eq!(lens, [96, 64, 64, 32]);
    assert_eq!(fw.pool6_first, 3);
    assert_eq!(fw.pool6[0].hi, 0x0064_ff9b_0000_0000);
    assert_eq!(fw.pool6[1].hi, 0x2001_0db8_0001_0002, "prefixes of one length keep their order");
    let global_only: Vec<u8> = fw.pool6[..4].iter().map(|prefix| prefix.global_only).collect();
    assert_eq!(global_only, [1, 0, 0, 0]);

    let private = Config { allow_private: true, ..config };
    assert_eq!(convert(&private, EXTRA).unwrap().pool6[0].global_only, 0);
}

#[test]
fn too_many_prefixes_are_refused() {
    let prefixes: Vec<String> = (0..17).map(|n| format!("2001:db8:{n:x}::/96")).collect();
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    let config = Config { pool6: pool6(&prefixes[..16]), ..Config::default() };
    assert_eq!(convert(&config, EXTRA).unwrap().pool6_count, 16);
    let config = Config { pool6: pool6(&prefixes), ..Config::default() };
    let refused = convert(&config, EXTRA).unwrap_err();
    assert!(refused.to_string().contains("16 translation prefixes at most, and pool6 has 17"));
    assert!(refused.hint.is_some());
}

#[test]
fn few_mappings_lie_in_the_configuration() {
    let table = EamTable::new([
        eam("192.0.2.0/24", "2001:db8:1::/120"),
        eam("198.51.100.1/32", "2001:db8:2::/64"),
        eam("203.0.113.0/28", "2001:db8:3::/124"),
    ])
    .unwrap();
    let fw = convert(&Config { eam: table, ..Config::default() }, EXTRA).unwrap();
    assert_eq!((fw.eam_count, fw.eam_in_maps), (3, 0));
    assert_eq!(fw.eam4.map(|eam| eam.v4_len)[..3], [32, 28, 24]);
    assert_eq!(fw.eam6.map(|eam| eam.v6_len)[..3], [124, 120, 64]);
    assert_eq!(fw.eam4[0].v4, 0xc633_6401);
    assert_eq!((fw.eam4[0].v6_hi, fw.eam4[0].v6_lo), (0x2001_0db8_0002_0000, 0));
}

#[test]
fn many_mappings_go_into_maps() {
    let entries = |count: u8| {
        let entries =
            (0..count).map(|n| eam(&format!("192.0.2.{n}/32"), &format!("2001:db8::{n:x}/128")));
        Config { eam: EamTable::new(entries).unwrap(), ..Config::default() }
    };
    let fw = convert(&entries(8), EXTRA).unwrap();
    assert_eq!((fw.eam_count, fw.eam_in_maps), (8, 0));
    let fw = convert(&entries(9), EXTRA).unwrap();
    assert_eq!((fw.eam_count, fw.eam_in_maps), (0, 1));
    assert_eq!(fw.eam4[0], FwEam::zeroed());
}

#[test]
fn choices_are_carried_over() {
    let config = Config {
        icmp_source4: Some([192, 0, 2, 254].into()),
        icmp_source6: Some("2001:db8::1".parse().unwrap()),
        mtu4: 1480,
        mtu6: 1500,
        lowest_ipv6_mtu: 1400,
        traffic_class: TrafficClass::Set(0x2e),
        udp_checksum_zero: UdpChecksumZero::Drop,
        ipv4_translatable: false,
        hairpin: false,
        mss_clamp: true,
        ..Config::default()
    };
    let extra = Extra {
        measure: true,
        trace: Some(50),
        pass_rate: Some(20_000),
        decrement_hop_limit: HopCount { v4_to_v6: false, v6_to_v4: true },
        ..EXTRA
    };
    let fw = convert(&config, extra).unwrap();
    assert_eq!(fw.icmp_source4, 0xc000_02fe);
    assert_eq!((fw.icmp_source6_hi, fw.icmp_source6_lo), (0x2001_0db8_0000_0000, 1));
    assert_eq!((fw.mtu4, fw.mtu6, fw.lowest_ipv6_mtu), (1480, 1500, 1400));
    assert_eq!((fw.set_traffic_class, fw.traffic_class), (1, 0x2e));
    assert_eq!(fw.udp_checksum_zero, udp_checksum_zero::DROP);
    assert_eq!((fw.ipv4_translatable, fw.hairpin, fw.mss_clamp), (0, 0, 1));
    assert_eq!(fw.pass_interval_ns, 50_000);
    assert_eq!((fw.tun_ifindex, fw.link_layer_len, fw.decrement_hop_limit), (7, 14, [0, 1]));
    assert_eq!((fw.measure, fw.trace, fw.trace_rate), (1, 1, 50));

    let fw = convert(&Config { icmp_source4: None, ..Config::default() }, EXTRA).unwrap();
    assert_eq!((fw.icmp_source4, fw.icmp_source6_hi, fw.icmp_source6_lo), (0, 0, 0));
    assert_eq!((fw.set_traffic_class, fw.measure, fw.trace), (0, 0, 0));
    assert_eq!((fw.ipv4_translatable, fw.hairpin, fw.mss_clamp), (1, 1, 0));
}
