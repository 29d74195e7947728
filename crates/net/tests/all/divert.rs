//! The nftables table that tells a translator's packets from the host's own.

use std::net::Ipv4Addr;

use crate::common::{in_force, in_namespace, ip, nft};
use fordway_net::{Applied, Change, Divert, DivertedPort, DivertedPorts, Error, Manager};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn divert() -> Divert {
    Divert {
        device: "fw0".to_owned(),
        ifindex: 1,
        mark: 0x464f_0001,
        ports: vec![DivertedPorts { address: OWN, first: 20_000, last: 60_000 }],
        forwards: vec![DivertedPort { address: OWN, protocol: 6, port: 443 }],
    }
}

#[test]
fn it_is_made_replaced_and_deleted_as_a_whole() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        let change = Change::Divert(divert());
        assert!(!in_force(&manager, &change));
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        assert_eq!(manager.apply(&change).unwrap(), Applied::Kept);
        assert!(in_force(&manager, &change));
        let text = nft("list table ip fordway-fw0");
        for rule in [
            "type filter hook prerouting priority -50; policy accept;",
            "iifname \"fw0\" accept",
            "ip daddr 192.0.2.1 goto to-192.0.2.1",
            "tcp dport 443 goto take",
            "tcp dport 20000-60000 goto pool",
            "udp dport 20000-60000 goto pool",
            "socket transparent <= 1 accept",
            "meta mark set 0x464f0001 accept",
            "update @pings { ip daddr . icmp id }",
            "oifname \"fw0\" meta mark 0x464f0001 meta mark set 0x00000000",
            // Fragments are reassembled as long as it is there.
            "tproxy to :1",
        ] {
            assert!(text.contains(rule), "{rule}\n{text}");
        }

        let mut other = divert();
        other.ports.push(DivertedPorts { address: OWN, first: 61_000, last: 61_000 });
        let change = Change::Divert(other);
        assert!(!in_force(&manager, &change));
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        let text = nft("list table ip fordway-fw0");
        assert!(text.contains("tcp dport 61000 goto pool"), "{text}");
        let report = manager.restore().unwrap();
        assert_eq!(report.undone, [change], "{report}");
        assert_eq!(nft("list ruleset"), "");
    });
}

#[test]
fn the_order_of_its_ports_makes_no_other_table() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        let mut one = divert();
        one.ports.push(DivertedPorts { address: OWN, first: 1_024, last: 2_047 });
        let mut other = one.clone();
        other.ports.reverse();
        manager.apply(&Change::Divert(one)).unwrap();
        assert_eq!(manager.apply(&Change::Divert(other)).unwrap(), Applied::Kept);
        let _ = manager.restore().unwrap();
    });
}

#[test]
fn what_others_flush_is_seen_and_made_anew() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        let change = Change::Divert(divert());
        manager.apply(&change).unwrap();
        let whole = nft("list ruleset");
        for flush in ["flush ruleset", "flush table ip fordway-fw0"] {
            nft(flush);
            assert!(!in_force(&manager, &change), "{flush}");
            assert_eq!(manager.apply(&change).unwrap(), Applied::Kept);
            assert_eq!(nft("list ruleset"), whole);
        }
        // Gone when it is to be taken back: nothing to do.
        nft("flush ruleset");
        let report = manager.restore().unwrap();
        assert_eq!(report.left.len(), 1, "{report}");
    });
}

#[test]
fn a_table_of_somebody_else_is_left_alone() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        nft("add table ip fordway-fw0");
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        let error = manager.apply(&Change::Divert(divert())).unwrap_err();
        assert!(matches!(error, Error::Netfilter { .. }), "{error}");
        assert_eq!(error.errno(), Some(libc::EEXIST));
        assert!(manager.restore().unwrap().is_empty());
        assert!(nft("list ruleset").contains("fordway-fw0"));

        nft("delete table ip fordway-fw0");
        manager.apply(&Change::Divert(divert())).unwrap();
        nft("delete table ip fordway-fw0");
        nft("add table ip fordway-fw0");
        let report = manager.restore().unwrap();
        assert_eq!(report.left.len(), 1, "{report}");
        assert!(report.to_string().contains("another program"), "{report}");
        assert!(nft("list ruleset").contains("fordway-fw0"));
    });
}

#[test]
fn many_addresses_and_long_names_fit() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev a-very-long.one mode tun");
        let mut manager = Manager::open(run.path(), "long").unwrap();
        let mut many = Divert { device: "a-very-long.one".to_owned(), ..divert() };
        many.ports = (1..=200)
            .map(|host| DivertedPorts {
                address: Ipv4Addr::new(198, 51, 100, host),
                first: 1_024,
                last: u16::MAX,
            })
            .collect();
        assert_eq!(manager.apply(&Change::Divert(many)).unwrap(), Applied::Made);
        let text = nft("list ruleset");
        assert!(text.contains("table ip fordway-a-very-long.one"), "{text}");
        assert!(text.contains("ip daddr 198.51.100.200 goto to-198.51.100.200"), "{text}");
        let _ = manager.restore().unwrap();
        assert_eq!(nft("list ruleset"), "");
    });
}
