use std::net::Ipv4Addr;

use super::*;

const FILE: &str = r#"
[[translator]]
name = "clat0"
mode = "clat"
pref64 = "2001:db8:c1a7::/96"

[[translator]]
name = "nat64"
mode = "nat64"
pool6 = ["2001:db8:64::/96", "2001:db8:65::/96"]
pool4 = ["192.0.2.1"]
allow_private = true

[dns64]
listen = ["2001:db8:1::1", "[2001:db8:1::2]:5353", "::1", "192.0.2.1"]
upstream = ["192.0.2.53", "tls://192.0.2.54#dns.example", "https://192.0.2.55/q"]
cache = "8 MiB"
validate = true

[[dns64.policy]]
client = ["2001:db8:5::/48"]
enable = false

[[dns64.policy]]
client = ["2001:db8:6::/48"]
exclude = []

[[advertise]]
device = "lan0"
lifetime = "1h"
dhcpv6 = true

[[advertise]]
device = "lan1"
pref64 = []
rdnss = ["2001:db8::53"]
"#;

fn config(text: &str) -> Config {
    fordway_config::parse("test", text).unwrap_or_else(|report| panic!("{report}")).config
}

fn pool6(texts: &[&str]) -> Vec<Pool6> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn served(config: &Config) -> dns64::Settings {
    dns64(config, &["2001:db8:1::/64".parse().unwrap()]).unwrap().unwrap()
}

fn of<'s>(settings: &'s dns64::Settings, client: &str) -> &'s Policy {
    settings.policies.of(client.parse().unwrap()).1
}

#[test]
fn everybody_is_told_the_prefixes_of_the_translators() {
    let config = config(FILE);
    let both = pool6(&["2001:db8:64::/96", "2001:db8:65::/96"]);
    let served = served(&config);
    let policy = of(&served, "2001:db8:1::7");
    assert!(policy.enabled && policy.allow_private);
    assert_eq!(policy.pool6, both);
    let advertised = router(&config).unwrap();
    let nets: Vec<Ipv6Net> = both.iter().map(|pool6| pool6.net()).collect();
    assert_eq!(advertised.devices[0].pref64, nets);
    assert_eq!(advertised.devices[1].pref64, []);
}

#[test]
fn what_the_file_says_of_dns64_comes_first() {
    let text =
        FILE.replace("cache =", "pool6 = ['2001:db8:65::/96']\nallow_private = false\ncache =");
    let config = config(&text);
    let served = served(&config);
    let policy = of(&served, "2001:db8:1::7");
    assert_eq!(policy.pool6, pool6(&["2001:db8:65::/96"]));
    assert!(!policy.allow_private);
    // Names of addresses of the other prefix are known all the same.
    assert!(policy.site.contains(&"2001:db8:64::/96".parse().unwrap()));
    assert_eq!(router(&config).unwrap().devices[0].pref64, ["2001:db8:65::/96".parse().unwrap()]);
}

#[test]
fn without_a_translator_there_is_nothing_to_make_addresses_of() {
    let mut config = config(FILE);
    config.translators.retain(|translator| translator.clat().is_some());
    let served = served(&config);
    for client in ["2001:db8:1::7", "2001:db8:6::7"] {
        assert!(!of(&served, client).enabled, "{client}");
    }
    assert_eq!(router(&config).unwrap().devices[0].pref64, []);
}

#[test]
fn a_policy_differs_where_it_says_so() {
    let served = served(&config(FILE));
    let (default, off) = (of(&served, "2001:db8:1::7"), of(&served, "2001:db8:5::7"));
    assert!(!off.enabled);
    let other = of(&served, "2001:db8:6::7");
    assert_eq!(other.exclude, []);
    assert_eq!(default.exclude, [fordway_dns64::MAPPED]);
    assert_eq!((other.enabled, &other.pool6), (true, &default.pool6));
}

#[test]
fn limits_and_upstream_servers() {
    use upstream::Protocol;
    let served = served(&config(FILE));
    assert_eq!(served.cache_octets + served.upstream.cache_octets, 8 << 20);
    assert_eq!(served.upstream.validate, Some(upstream::TrustAnchors::BuiltIn));
    let servers: Vec<String> = served.upstream.servers.iter().map(ToString::to_string).collect();
    assert_eq!(
        servers,
        ["192.0.2.53:53", "tls://192.0.2.54:853#dns.example", "https://192.0.2.55:443/q"]
    );
    assert_eq!(served.upstream.servers[0].protocol, Protocol::Udp);
    assert!(served.allow.contains("2001:db8:1::7".parse().unwrap()));
    assert!(!served.allow.contains("2001:db8:2::7".parse().unwrap()));
}

#[test]
fn hosts_are_told_the_server_that_they_can_ask() {
    let devices = router(&config(FILE)).unwrap().devices;
    // Neither loopback nor IPv4 nor another port.
    let serving = vec!["2001:db8:1::1".parse().unwrap()];
    assert_eq!(devices[0].rdnss, Rdnss::Serving(serving));
    assert_eq!(devices[1].rdnss, Rdnss::Listed(vec!["2001:db8::53".parse().unwrap()]));
    assert!(devices[0].dhcpv6 && devices[0].other && !devices[1].other);
    assert_eq!((devices[0].lifetime, devices[1].lifetime), (Some(3600), None));
    for device in devices {
        device.check().unwrap();
    }
}

#[test]
fn every_prefix_of_a_range_counts() {
    let text = FILE.replace(
        "cache =",
        "ranges = [['198.51.100.0/24', '2001:db8:66::/96'], ['198.51.100.0/24', '2001:db8:67::/96']]\n\
         cache =",
    );
    let served = served(&config(&text));
    let ranges = &of(&served, "2001:db8:1::7").ranges;
    assert_eq!(ranges.len(), 1);
    assert_eq!(ranges[0].v4.addr(), Ipv4Addr::new(198, 51, 100, 0));
    assert_eq!(ranges[0].pool6, pool6(&["2001:db8:66::/96", "2001:db8:67::/96"]));
}

#[test]
fn local_is_who_is_on_a_link() {
    let addresses = [
        Address::new("lo", "::1/128".parse().unwrap()),
        Address::new("lan0", "2001:db8:1::1/64".parse().unwrap()),
        Address::new("lan0", "fe80::1/64".parse().unwrap()),
        Address::new("wan0", "192.0.2.1/24".parse().unwrap()),
        Address::new("ppp0", "2001:db8:9::1/128".parse().unwrap()),
        Address::new("odd0", "2001:db8:a::1/0".parse().unwrap()),
    ];
    let local = Acl::new(local(&addresses));
    let has = |text: &str| local.contains(text.parse().unwrap());
    for inside in ["::1", "127.0.0.53", "2001:db8:1::7", "fe80::7", "192.0.2.7", "2001:db8:9::1"] {
        assert!(has(inside), "{inside}");
    }
    for outside in ["2001:db8:2::7", "198.51.100.1", "2001:db8:9::2"] {
        assert!(!has(outside), "{outside}");
    }
}

#[test]
fn a_proxy_knows_the_prefixes_that_the_translators_beside_it_stand_for() {
    let text = format!("{FILE}\n[[proxy]]\nname = 'px'\nlisten = ['::1']\n");
    let proxies = proxies(&config(&text), &[]);
    // Through each of them a client could reach addresses of IPv4 that are out of its reach.
    let translated = pool6(&["2001:db8:c1a7::/96", "2001:db8:64::/96", "2001:db8:65::/96"]);
    assert_eq!(proxies["px"].translated, translated);
}
