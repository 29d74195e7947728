use std::collections::{BTreeMap, BTreeSet};

use fordway_config::{Attach, Resolved, parse};
use fordway_xlat::nat64::{Protocol, StaticBib};

use super::*;

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn translator(pool4: &str) -> Translator {
    let text = format!(
        "[[translator]]\nname = 'fw0'\nmode = 'nat64'\npool6 = ['64:ff9b::/96']\npool4 = {pool4}\n"
    );
    let loaded = parse("test", &text).unwrap_or_else(|report| panic!("{report}"));
    loaded.config.translators.into_iter().next().unwrap()
}

fn facts(own: &[Ipv4Addr]) -> Facts {
    Facts {
        resolved: Resolved {
            mtu6: 1500,
            icmp_source6: None,
            clat_v6: None,
            queues: 1,
            attach: Attach::Interface,
        },
        mtu_from: String::new(),
        uplink: None,
        ra_devices: BTreeSet::new(),
        own_v4: own.iter().copied().collect(),
        own_icmp_source4: false,
        device_v4: BTreeMap::from([("eth0".to_owned(), own.to_vec())]),
        rp_filter_off: true,
    }
}

fn settings(config: &Translator, facts: &Facts) -> Settings {
    config.nat64().unwrap().settings(|device| facts.device_v4[device.as_str()].clone())
}

fn lines(config: &Translator, facts: &Facts) -> Vec<String> {
    let changes = changes(config, facts, &settings(config, facts), 7).unwrap();
    changes.iter().map(ToString::to_string).collect()
}

#[test]
fn an_address_of_the_host_needs_a_mark_a_rule_and_a_route() {
    let config = translator("['interface:eth0:20000-60000']");
    let wanted = [
        "set sysctl net.ipv4.conf.fw0.accept_local to 1",
        "add route 192.0.2.1/32 dev fw0 table 1179582471",
        "add rule IPv4 priority 0 mark 0x464f0007/0xffffffff to table 1179582471 before the local \
         table's",
        "add nftables table ip fordway-fw0",
    ];
    assert_eq!(lines(&config, &facts(&[OWN])), wanted);
    let filtering = Facts { rp_filter_off: false, ..facts(&[OWN]) };
    let all = lines(&config, &filtering);
    assert_eq!(all[0], "add address 127.0.0.64/32 on fw0");
    assert_eq!(all[1..], wanted);
    // The interface keeps its address while the device has none.
    let without = Facts { rp_filter_off: false, ..facts(&[]) };
    assert_eq!(lines(&config, &without), all[..1]);
    assert!(lines(&config, &facts(&[])).is_empty());
}

#[test]
fn addresses_that_are_not_the_hosts_need_nothing() {
    let config = translator("['203.0.113.0/24']");
    let filtering = Facts { rp_filter_off: false, ..facts(&[OWN]) };
    assert!(lines(&config, &filtering).is_empty());
}

#[test]
fn of_a_prefix_only_the_hosts_addresses_are_diverted_and_so_are_forwards() {
    let config = translator("['192.0.2.0/24:1024-2047', '198.51.100.1']");
    let facts = facts(&[OWN, Ipv4Addr::new(192, 0, 3, 1)]);
    let mut settings = settings(&config, &facts);
    let v6 = ("2001:db8::80".parse().unwrap(), 80);
    for v4 in [OWN, Ipv4Addr::new(192, 0, 2, 2)] {
        settings.bib.push(StaticBib { protocol: Protocol::Tcp, v6, v4: (v4, 80) });
    }
    let changes = changes(&config, &facts, &settings, 7).unwrap();
    let Some(Change::Divert(divert)) = changes.last() else { panic!("{changes:?}") };
    assert_eq!(divert.ports, [DivertedPorts { address: OWN, first: 1024, last: 2047 }]);
    assert_eq!(divert.forwards, [DivertedPort { address: OWN, protocol: 6, port: 80 }]);
    assert_eq!(divert.mark, 0x464f_0007);
}
