use std::collections::{BTreeMap, BTreeSet};

use fordway_config::{Resolved, parse};

use super::*;

fn translator(text: &str) -> Translator {
    let loaded = parse("test", text).unwrap_or_else(|report| panic!("{report}"));
    loaded.config.translators.into_iter().next().unwrap()
}

fn facts() -> Facts {
    Facts {
        resolved: Resolved {
            mtu6: 1500,
            icmp_source6: None,
            clat_v6: Some("2001:db8:1::464".parse().unwrap()),
            queues: 1,
            attach: Attach::Interface,
        },
        mtu_from: String::new(),
        uplink: Some(Uplink { name: "eth0".to_owned(), answers: true, rp_filter: true }),
        ra_devices: BTreeSet::from(["eth0".to_owned()]),
        own_v4: BTreeSet::new(),
        own_icmp_source4: false,
        device_v4: BTreeMap::new(),
        rp_filter_off: false,
    }
}

fn user() -> Intent {
    Intent::User("configured".to_owned())
}

fn lines(config: &Translator, facts: &Facts) -> Vec<String> {
    let all = changes(config, facts, &user(), 7, false).unwrap();
    all.into_iter().chain(routes_v4(config, facts, None)).map(|change| line(&change)).collect()
}

fn line(change: &Change) -> String {
    match change {
        Change::Route(route) => format!(
            "{change} mtu {} advmss {} src {}",
            route.mtu.unwrap_or(0),
            route.advmss.unwrap_or(0),
            route.source.map_or("-".to_owned(), |source| source.to_string())
        ),
        other => other.to_string(),
    }
}

const INTERFACE: [&str; 11] = [
    "set sysctl net.ipv6.conf.fw0.addr_gen_mode to 1",
    "set sysctl net.ipv6.conf.fw0.force_mld_version to 1",
    "set sysctl net.ipv6.conf.fw0.forwarding to 0",
    "forbid multicast on interface fw0",
    "set sysctl net.ipv4.conf.fw0.rp_filter to 2",
    "set sysctl net.ipv4.conf.fw0.ignore_routes_with_linkdown to 0",
    "set sysctl net.ipv6.conf.fw0.ignore_routes_with_linkdown to 0",
    "put interface fw0 into group 1179582471",
    "set the MTU of interface fw0 to 1500",
    "set the queue length of interface fw0 to 4096",
    "set interface fw0 up",
];

const GUARD_LINES: [&str; 4] = [
    "add rule IPv4 priority 32764 iif fw0 to table 254 without interfaces of group 1179582471",
    "add rule IPv4 priority 32765 iif fw0 unreachable",
    "add rule IPv6 priority 32764 iif fw0 to table 254 without interfaces of group 1179582471",
    "add rule IPv6 priority 32765 iif fw0 unreachable",
];

#[test]
fn a_clat_gets_a_default_route_and_answers_on_its_uplink() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'clat'\npref64 = '64:ff9b::/96'\n";
    let forwarding = [
        "set sysctl net.ipv6.conf.eth0.accept_ra to 2",
        "set sysctl net.ipv6.conf.all.forwarding to 1",
        "set sysctl net.ipv6.conf.fw0.forwarding to 1",
    ];
    let rest = [
        "add address 192.0.0.1/32 on fw0",
        "add route 2001:db8:1::464/128 dev fw0 metric 2048 mtu 1500 advmss 1440 src -",
        "set sysctl net.ipv6.conf.eth0.forwarding to 1",
        "set sysctl net.ipv6.conf.eth0.proxy_ndp to 1",
        "set sysctl net.ipv6.neigh.eth0.proxy_delay to 0",
        "add neighbour proxy 2001:db8:1::464 on eth0",
        "add route 0.0.0.0/0 dev fw0 metric 2048 mtu 1500 advmss 1440 src 192.0.0.1",
    ];
    let expected = [&INTERFACE[..], &forwarding[..], &GUARD_LINES[..], &rest[..]].concat();
    assert_eq!(lines(&translator(text), &facts()), expected);
}

#[test]
fn programs_need_no_rules_against_loops() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'clat'\npref64 = '64:ff9b::/96'\n";
    let lines = |intent: &Intent| -> Vec<String> {
        changes(&translator(text), &facts(), intent, 7, false).unwrap().iter().map(line).collect()
    };
    let mut by_rules = lines(&user());
    by_rules.retain(|line| !GUARD_LINES.contains(&line.as_str()));
    assert_eq!(lines(&Intent::Kernel), by_rules);
    assert_eq!(lines(&user()).len(), by_rules.len() + GUARD_LINES.len());
}

#[test]
fn a_stateless_translator_gets_pool6_and_its_mappings() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'siit'\n\
                pool6 = ['64:ff9b::/96', '2001:db8:64::/96']\nmetric = 5\nmtu = 1400\n\
                eam = [['198.51.100.0/24', '2001:db8:1::/120'], \
                       ['198.51.100.7', '2001:db8:7::7'], \
                       ['192.0.2.0/25', '2001:db8:2::/121'], \
                       ['192.0.2.128/25', '2001:db8:3::/121']]\n\
                routes4 = ['203.0.113.0/24']\n";
    let facts = Facts {
        resolved: Resolved { mtu6: 1400, clat_v6: None, ..facts().resolved },
        uplink: None,
        ra_devices: BTreeSet::new(),
        own_v4: BTreeSet::new(),
        own_icmp_source4: false,
        device_v4: BTreeMap::new(),
        rp_filter_off: true,
        ..facts()
    };
    let mut interface = INTERFACE;
    interface[4] = "set sysctl net.ipv4.conf.fw0.rp_filter to 0";
    interface[8] = "set the MTU of interface fw0 to 1400";
    let forwarding = [
        "set sysctl net.ipv6.conf.all.forwarding to 1",
        "set sysctl net.ipv6.conf.fw0.forwarding to 1",
        "set sysctl net.ipv4.ip_forward to 1",
    ];
    let rest = [
        "add route 64:ff9b::/96 dev fw0 metric 5 mtu 1400 advmss 1340 src -",
        "add route 2001:db8:64::/96 dev fw0 metric 5 mtu 1400 advmss 1340 src -",
        "add route 192.0.2.0/24 dev fw0 metric 5 mtu 1400 advmss 1340 src -",
        "add route 198.51.100.0/24 dev fw0 metric 5 mtu 1400 advmss 1340 src -",
        "add route 203.0.113.0/24 dev fw0 metric 5 mtu 1400 advmss 1340 src -",
    ];
    let expected = [&interface[..], &forwarding[..], &GUARD_LINES[..], &rest[..]].concat();
    assert_eq!(lines(&translator(text), &facts), expected);
}

#[test]
fn the_kernel_keeps_to_the_path_mtu_where_the_translator_may_not_answer() {
    let base = "[[translator]]\nname = 'fw0'\nmode = 'siit'\npool6 = ['64:ff9b::/96']\n\
                routes4 = ['203.0.113.0/24']\n";
    for (more, mtu) in
        [("", 1500), ("icmp_source4 = 'off'\n", 1480), ("icmp_errors = 'off'\n", 1480)]
    {
        let routes = routes_v4(&translator(&format!("{base}{more}")), &facts(), None);
        let routes: Vec<String> = routes.iter().map(line).collect();
        let expected =
            format!("add route 203.0.113.0/24 dev fw0 metric 2048 mtu {mtu} advmss 1440 src -");
        assert_eq!(routes, [expected], "{more}");
    }
}

#[test]
fn errors_from_an_address_of_the_host_are_believed() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'siit'\npool6 = ['64:ff9b::/96']\n\
                icmp_source4 = '198.51.100.1'\n";
    let config = translator(text);
    let before = lines(&config, &facts());
    let own = Facts { own_icmp_source4: true, ..facts() };
    let address = "add address 127.0.0.64/32 on fw0".to_owned();
    let accept = "set sysctl net.ipv4.conf.fw0.accept_local to 1".to_owned();
    let more = |facts: &Facts| -> Vec<String> {
        lines(&config, facts).into_iter().filter(|line| !before.contains(line)).collect()
    };
    assert_eq!(more(&own), [address, accept.clone()]);
    let unfiltered = Facts { rp_filter_off: true, ..own };
    let rp_filter = "set sysctl net.ipv4.conf.fw0.rp_filter to 0".to_owned();
    assert_eq!(more(&unfiltered), [rp_filter, accept]);
}

#[test]
fn a_stateful_translator_gets_pool6_and_what_of_pool4_is_not_the_hosts() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'nat64'\npool6 = ['64:ff9b::/96']\n\
                pool4 = ['192.0.2.0/30', 'interface:eth0', '198.51.100.1:5000-6000']\n\
                bib = [['tcp', '203.0.113.1:80', '[2001:db8::5]:80'], \
                       ['tcp', '192.0.2.1:80', '[2001:db8::6]:80']]\n";
    let own = ["192.0.2.2", "198.51.100.1"].map(|address| address.parse().unwrap());
    let facts = Facts { own_v4: BTreeSet::from(own), ..facts() };
    let config = translator(text);
    let routes: Vec<String> = routes_v4(&config, &facts, None)
        .iter()
        .map(|route| line(route).split(" metric").next().unwrap().to_owned())
        .collect();
    assert_eq!(
        routes,
        [
            "add route 192.0.2.0/31 dev fw0",
            "add route 192.0.2.3/32 dev fw0",
            "add route 203.0.113.1/32 dev fw0",
        ]
    );
    let lines = lines(&config, &facts);
    assert!(lines.iter().any(|line| line.starts_with("add route 64:ff9b::/96 dev fw0")));
    assert!(lines.contains(&"set sysctl net.ipv4.ip_forward to 1".to_owned()));
}

#[test]
fn dynamic_mappings_are_routed_to_the_translator() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'siit'\npool6 = ['64:ff9b::/96']\n\
                dynamic4 = ['192.0.2.0/25', '192.0.2.128/25']\n";
    let routes = routes_v4(&translator(text), &facts(), None);
    let routes: Vec<String> = routes.iter().map(line).collect();
    assert!(
        matches!(routes.as_slice(), [one] if one.starts_with("add route 192.0.2.0/24 dev fw0"))
    );
}

#[test]
fn a_clat_that_serves_a_network_forwards_ipv4() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'clat'\npref64 = '64:ff9b::/96'\n\
                eam = [['198.51.100.0/24', '2001:db8:1::/120']]\nroutes4 = []\n";
    let facts = Facts { uplink: None, ..facts() };
    let lines = lines(&translator(text), &facts);
    assert!(lines.contains(&"set sysctl net.ipv4.ip_forward to 1".to_owned()));
    assert!(lines.iter().any(|line| line.starts_with("add route 2001:db8:1::/120 dev fw0")));
    assert!(!lines.iter().any(|line| line.contains("0.0.0.0/0") || line.contains("proxy")));
}

#[test]
fn an_interface_of_others_is_not_silenced() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'siit'\npool6 = ['64:ff9b::/96']\n";
    let all = changes(&translator(text), &facts(), &user(), 7, false).unwrap();
    let adopted = changes(&translator(text), &facts(), &user(), 7, true).unwrap();
    assert_eq!(adopted, all[4..]);
}

#[test]
fn at_the_uplink_ipv4_goes_straight_to_the_ipv6_router() {
    let text = "[[translator]]\nname = 'fw0'\nmode = 'clat'\npref64 = '64:ff9b::/96'\n";
    let config = translator(text);
    let mut facts = facts();
    let at_interface = changes(&config, &facts, &user(), 7, false).unwrap();
    facts.resolved.attach = Attach::Uplink;
    let at_uplink = changes(&config, &facts, &user(), 7, false).unwrap();
    assert_eq!(at_uplink[..at_interface.len()], at_interface);
    let more: Vec<String> = at_uplink[at_interface.len()..].iter().map(line).collect();
    assert_eq!(more, ["set sysctl net.ipv4.conf.eth0.rp_filter to 2"]);
    let mut way = Way { device: "eth0".to_owned(), ifindex: 3, gateway: "fe80::1".parse().ok() };
    let route = |way: &Way| line(&routes_v4(&config, &facts, Some(way))[0]);
    let rest = "dev eth0 metric 2048 mtu 1500 advmss 1440 src 192.0.0.1";
    assert_eq!(route(&way), format!("add route 0.0.0.0/0 via fe80::1 {rest}"));
    way.gateway = None;
    assert_eq!(route(&way), format!("add route 0.0.0.0/0 {rest}"));
}
