//! What gateways of a cluster have alike, and what a cluster is made of.

use fordway_cluster::{Fencing, Timing};
use fordway_config::{Config, parse};

const FILE: &str = include_str!("../valid/cluster.toml");
const KEY: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

fn config(text: &str) -> Config {
    parse("cluster.toml", text).unwrap_or_else(|report| panic!("{report}\n{text}")).config
}

/// `old` has to be there.
fn with(old: &str, new: &str) -> String {
    assert!(FILE.contains(old), "{old}");
    FILE.replacen(old, new, 1)
}

fn hash(text: &str) -> u64 {
    let config = config(text);
    let (cluster, _, nat64) = config.clustered().unwrap();
    cluster.hash(nat64, KEY)
}

/// Gateways of two versions, on processors of whatever byte order, are members at a time.
#[test]
fn the_hash_of_a_file_stays() {
    // SipHash-2-4 of the text, computed apart.
    assert_eq!(hash(FILE), 14_987_198_299_228_221_209);
}

#[test]
fn who_writes_the_same_otherwise_agrees() {
    let (translator, cluster) = FILE.split_at(FILE.find("[cluster]").unwrap());
    let (front, gateways) = cluster.split_at(cluster.find("[[cluster.gateway]]").unwrap());
    let (gateways, store) = gateways.split_at(gateways.find("[cluster.store]").unwrap());
    let mut gateways: Vec<_> = gateways.split("[[cluster.gateway]]").skip(1).collect();
    gateways.reverse();
    let gateways = gateways.iter().map(|it| format!("[[cluster.gateway]]{it}")).collect::<String>();
    let mut lines: Vec<_> = front.lines().skip(1).collect();
    lines.reverse();
    let other = format!("[cluster]\n{}\n{store}\n{gateways}\n{translator}", lines.join("\n"));
    assert_ne!(other, FILE);
    assert_eq!(hash(&other), hash(FILE));
    for (old, new) in [
        ("name = \"gw1.example\"\nfencing", "name = \"gw2.example\"\nfencing"),
        ("192.0.2.0/26", "192.0.2.0-192.0.2.63:1024-65535"),
        ("ttl = \"1s\"", "ttl = \"1000ms\""),
        // What each gateway has of its own, and what may change while others run.
        ("/etc/fordway/cluster.key", "/run/cluster.key"),
        ("/etc/fordway/gw1.example.pem", "/etc/fordway/gw2.example.pem"),
        ("route_table = 100", "route_table = 101"),
        ("weight = 200", "weight = 100"),
        ("2001:db8::1\"", "2001:db8::7\""),
        ("2001:db8:1::2", "2001:db8:1::7"),
        ("nats.password", "password"),
        (
            "subscriber_len = 56",
            "subscriber_len = 56\nmax_sessions = 1000\nquotas = { sessions = 9 }",
        ),
    ] {
        assert_eq!(hash(&with(old, new)), hash(FILE), "{new}");
    }
}

#[test]
fn who_shares_otherwise_disagrees() {
    let mut all = vec![hash(FILE)];
    for (old, new) in [
        ("fencing = \"any\"", "fencing = \"majority\""),
        ("shards = 128", "shards = 127"),
        ("ttl = \"1s\"", "ttl = \"2s\""),
        ("outage = \"10m\"", "outage = \"11m\""),
        ("\"icmp\"", "\"udp\""),
        ("[\"tcp\", \"icmp\"]", "[\"tcp\"]"),
        ("number = 0", "number = 2"),
        ("name = \"gw2.example\"", "name = \"gw3.example\""),
        (
            "[[cluster.gateway]]\nnumber = 0",
            "[[cluster.gateway]]\nnumber = 5\nname = \"gw5.example\"\naddress = \"2001:db8::5\"\nnext_hop4 = \"198.51.100.5\"\n[[cluster.gateway]]\nnumber = 0",
        ),
        ("64:ff9b::/96", "2001:db8:64::/96"),
        ("[\"64:ff9b::/96\"]", "[\"64:ff9b::/96\", \"2001:db8:64::/96\"]"),
        ("[\"64:ff9b::/96\"]", "[\"2001:db8:64::/96\", \"64:ff9b::/96\"]"),
        ("192.0.2.0/26", "192.0.2.64/26"),
        ("192.0.2.0/26", "192.0.2.0/26:1024-65023"),
        ("\"192.0.2.0/26\"", "\"192.0.2.32/27\", \"192.0.2.0/27\""),
        ("\"192.0.2.0/26\"", "\"192.0.2.0/27\", \"192.0.2.32/27\""),
        ("size = 512", "size = 256"),
        ("port_blocks = { size = 512 }\n", ""),
        ("subscriber_len = 56", "subscriber_len = 64"),
        ("subscriber_len = 56", "subscriber_len = 56\nlifetimes = { tcp_est = \"3h\" }"),
        ("subscriber_len = 56", "subscriber_len = 56\nlifetimes = { udp = \"3h\" }"),
        ("subscriber_len = 56", "subscriber_len = 56\nfiltering = \"address-dependent\""),
        ("subscriber_len = 56", "subscriber_len = 56\nrefresh_from_v4 = false"),
        ("subscriber_len = 56", "subscriber_len = 56\nalg = [\"ftp\"]"),
        ("subscriber_len = 56", "subscriber_len = 56\nalg = [\"ftp\"]\nftp_ports = [2121]"),
        ("[cluster]", "[[translator.pool]]\npool4 = [\"203.0.113.0/28\"]\nmark = 7\n[cluster]"),
        (
            "[cluster]",
            "[[translator.pool]]\npool4 = [\"203.0.113.0/28\"]\nclients = [\"2001:db8:7::/48\"]\n[cluster]",
        ),
    ] {
        let other = hash(&with(old, new));
        assert!(!all.contains(&other), "{new}");
        all.push(other);
    }
    let config = config(FILE);
    let (cluster, _, nat64) = config.clustered().unwrap();
    for key in [[KEY[1], KEY[0]], [KEY[0], 0], [0, KEY[1]]] {
        assert!(!all.contains(&cluster.hash(nat64, key)));
    }
}

#[test]
fn times_keep_their_proportions() {
    let config = |ttl: &str| config(&with("ttl = \"1s\"\noutage = \"10m\"\n", ttl));
    let timing = |ttl| config(ttl).cluster.unwrap().timing();
    assert_eq!(timing(""), Timing::default());
    let real = Timing::default();
    let Timing { ttl, renew, grace, turn, handover, batch, resend, .. } = real;
    let [ttl, renew, grace, turn, handover, batch, resend] =
        [ttl, renew, grace, turn, handover, batch, resend].map(|time| 8 * time);
    let eightfold = Timing { ttl, renew, grace, turn, handover, batch, resend, ..real };
    assert_eq!(timing("ttl = \"4s\"\n"), eightfold);
    for least in ["ttl = \"100ms\"\noutage = \"1s\"\n", "ttl = \"1m\"\noutage = \"1m\"\n"] {
        assert_eq!(timing(least).check(), Ok(()));
    }
}

#[test]
fn a_gateway_finds_itself_by_its_name_or_the_hosts() {
    let named = config(FILE).cluster.unwrap();
    assert_eq!(named.fencing, Fencing::Any);
    assert_eq!(named.this("gw2.example").map(|it| it.number), Some(1));
    let of_host = config(&with("name = \"gw1.example\"\n", "")).cluster.unwrap();
    let found = |host| of_host.this(host).map(|it| it.number);
    let hosts = ["gw1.example", "gw1", "GW2.example", "gw2", "gw", "gw1.test", "example", ""];
    let numbers = [Some(1), Some(1), Some(0), Some(0), None, None, None, None];
    assert_eq!(hosts.map(found), numbers);
    let twice = with("name = \"gw1.example\"\n", "").replace("gw2.example", "gw1.test");
    let twice = config(&twice).cluster.unwrap();
    assert_eq!(["gw1", "gw1.test"].map(|it| twice.this(it).map(|it| it.number)), [None, Some(0)]);
}

#[test]
fn packets_are_handed_over_to_the_address_unless_another_is_written() {
    let [one, two] = &config(FILE).cluster.unwrap().gateways[..] else { panic!("two gateways") };
    assert_eq!(one.next_hop6(), "2001:db8:1::1".parse().ok());
    assert_eq!(one.next_hop4(), "198.51.100.1".parse().ok());
    assert_eq!(two.next_hop4(), "198.51.100.2".parse().ok());
    let plain = config(&with("next_hop = \"2001:db8:1::1\"\n", "")).cluster.unwrap();
    assert_eq!(plain.gateways[0].next_hop6(), "2001:db8::1".parse().ok());
}

#[test]
fn shards_are_those_of_the_pools() {
    let config = config(FILE);
    let (cluster, translator, nat64) = config.clustered().unwrap();
    assert_eq!(translator.name.as_str(), "nat64");
    let map = cluster.shard_map(nat64, KEY).unwrap();
    assert_eq!(map.shards(), 128);
    // Each address has two of the 128 shards, as 64512 ports from 1024 on.
    let first = map.of_v4("192.0.2.0".parse().unwrap(), 1024).unwrap();
    let last = map.of_v4("192.0.2.63".parse().unwrap(), 65535).unwrap();
    assert_eq!((first.0, last.0), (0, 127));
    let hosts =
        ["2001:db8:0:100::1", "2001:db8:0:1ff::2"].map(|it| map.of_host(it.parse().unwrap()));
    assert_eq!(hosts[0], hosts[1]);
}

#[test]
fn a_running_cluster_stays_what_it_is() {
    let old = config(FILE);
    let needs = |text: &str| old.needs_restart(&config(text));
    assert_eq!(needs(FILE), Vec::<String>::new());
    assert_eq!(needs(&with("weight = 200", "weight = 300")), ["[cluster]"]);
    assert_eq!(needs(&FILE[..FILE.find("[cluster]").unwrap()]), ["[cluster]"]);
    let other = with("192.0.2.0/26", "192.0.2.64/26")
        .replace("[cluster]", "lifetimes = { udp = \"3h\" }\n[cluster]");
    assert_eq!(needs(&other), ["nat64 of a [cluster]: pool4, lifetimes"]);
    let other = with("name = \"nat64\"", "name = \"other\"");
    assert_eq!(needs(&other), ["other of a [cluster]: name"]);
    // What gateways need not have alike.
    assert_eq!(
        needs(&with("subscriber_len = 56", "subscriber_len = 56\nquotas = { sessions = 9 }")),
        [""; 0]
    );
}

/// The files that docs/cluster.md has for a newcomer.
#[test]
fn files_of_the_set_up_are_right_and_agree() {
    let docs = include_str!("../../../../docs/cluster.md");
    let blocks = docs.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let [one] = blocks.collect::<Vec<_>>()[..] else { panic!("one file") };
    let other = one.replacen("name = \"gw1.example\"", "name = \"gw2.example\"", 1);
    assert_ne!(one, other);
    let numbers = [one, &other].map(|text| {
        let loaded = parse("fordway.toml", text).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        loaded.config.cluster.unwrap().this("none").unwrap().number
    });
    assert_eq!(numbers, [1, 2]);
    assert_eq!(hash(one), hash(&other));
}
