//! The nftables table of NAT44, as `nft` reads it, beside the rules of others.

use std::net::Ipv4Addr;

use crate::common::{in_namespace, nft};
use fordway_net::{Applied, Change, Error, Manager, Nat44, Nat44Choice, Nat44Forward, Nat44Pool};

const TABLE: &str = "list table ip fordway-nat44-home";

fn nat44() -> Nat44 {
    Nat44 {
        name: "home".to_owned(),
        clients: vec!["198.51.100.0/24".parse().unwrap(), "198.18.0.0/15".parse().unwrap()],
        devices: Vec::new(),
        uplinks: vec!["wan0".to_owned()],
        pools: Vec::new(),
        ports: None,
        choice: Nat44Choice { persistent: true, random: false },
        netmap: Vec::new(),
        forwards: Vec::new(),
        hairpin: true,
        drop_unsolicited: true,
        mss_clamp: true,
        most_sessions: None,
        most_per_second: None,
        log: false,
        own: false,
        waits: false,
    }
}

/// Everything that it can do.
fn full() -> Nat44 {
    let address = |last: u8| Ipv4Addr::new(192, 0, 2, last);
    let pool = |first, last, ports| Nat44Pool { first: address(first), last: address(last), ports };
    Nat44 {
        devices: vec!["lan0".to_owned(), "lan1".to_owned()],
        pools: vec![pool(1, 1, (1024, 65535)), pool(8, 15, (2000, 2999))],
        choice: Nat44Choice { persistent: true, random: true },
        netmap: vec![("203.0.113.0/28".parse().unwrap(), "192.0.2.32/28".parse().unwrap())],
        forwards: vec![Nat44Forward {
            protocol: 6,
            outside: (address(1), 80),
            inside: (Ipv4Addr::new(198, 51, 100, 10), 8080),
        }],
        most_sessions: Some(500),
        most_per_second: Some(50),
        log: true,
        ..nat44()
    }
}

#[track_caller]
fn assert_rules(rules: &[&str]) {
    let text = nft(TABLE);
    for rule in rules {
        assert!(text.contains(rule), "{rule}\n{text}");
    }
}

#[test]
fn a_masquerade_stands_behind_the_usual_priorities() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "home").unwrap();
        let change = Change::Nat44(nat44());
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        assert_eq!(manager.apply(&change).unwrap(), Applied::Kept);
        assert_rules(&[
            "type nat hook prerouting priority dstnat + 5; policy accept;",
            "type filter hook forward priority filter + 5; policy accept;",
            "type nat hook postrouting priority srcnat + 5; policy accept;",
            "oifname \"wan0\" goto leaving",
            "iifname \"wan0\" goto arriving",
            "ip saddr 198.51.100.0/24 goto out",
            "ip daddr 198.18.0.0/15 goto in",
            "ct state invalid counter name \"invalid\" drop",
            "ct state new ct status ! dnat counter name \"unsolicited\" drop",
            "tcp flags syn / syn,rst tcp option maxseg size set rt mtu",
            "masquerade persistent",
        ]);
        let report = manager.restore().unwrap();
        assert_eq!(report.undone, [change], "{report}");
        assert_eq!(nft("list ruleset"), "");
    });
}

#[test]
fn while_it_waits_nothing_is_remembered_and_then_all_is_translated() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "home").unwrap();
        let own = Nat44 { own: true, ..nat44() };
        let waits = Nat44 { waits: true, ..own.clone() };
        assert_eq!(manager.apply(&Change::Nat44(waits)).unwrap(), Applied::Made);
        assert_rules(&[
            "type filter hook output priority raw + 5; policy accept;",
            "oifname \"wan0\" ip saddr 198.51.100.0/24 notrack",
            "oifname \"wan0\" ip saddr 198.51.100.0/24 masquerade persistent",
        ]);
        let ranged = Nat44 { ports: Some((4096, 8191)), ..own };
        assert_eq!(manager.apply(&Change::Nat44(ranged)).unwrap(), Applied::Made);
        let translates = "ip saddr 198.51.100.0/24 masquerade to :4096-8191 persistent";
        assert_rules(&[translates]);
        assert!(!nft(TABLE).contains("notrack"));
        let _ = manager.restore().unwrap();
        assert_eq!(nft("list ruleset"), "");
    });
}

#[test]
fn all_that_it_can_do_is_taken_by_the_kernel() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "home").unwrap();
        assert_eq!(manager.apply(&Change::Nat44(full())).unwrap(), Applied::Made);
        assert_rules(&[
            "ip daddr 192.0.2.1 tcp dport 80 counter name \"forwarded\" dnat to 198.51.100.10:8080",
            "ip daddr 192.0.2.32/28 counter name \"mapped\" dnat",
            "ct state new update @rates { ip saddr limit rate over 50/second burst 50 packets } \
             counter name \"rate_limit\" drop",
            "ct state new add @sessions { ip saddr ct count over 500 } \
             counter name \"sessions_limit\" drop",
            "ct original ip daddr 192.0.2.1",
            "counter name \"hairpin\" snat to ct original ip daddr",
            "iifname \"lan1\" goto source",
            "limit rate 100/second burst 100 packets log prefix \"home: \" level info",
            "jhash ip saddr mod 2",
            "snat to 192.0.2.1:1024-65535 fully-random,persistent",
            "snat to 192.0.2.8/29:2000-2999 fully-random,persistent",
        ]);
        let _ = manager.restore().unwrap();
        assert_eq!(nft("list ruleset"), "");
    });
}

#[test]
fn another_table_goes_on_counting_and_the_rules_of_others_stay() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        nft("add table ip mine");
        nft("add chain ip mine post { type nat hook postrouting priority srcnat ; }");
        nft("add rule ip mine post ip saddr 203.0.113.7 masquerade");
        let before = nft("list ruleset");
        let mut manager = Manager::open(run.path(), "home").unwrap();
        let _ = manager.apply(&Change::Nat44(nat44())).unwrap();
        let counted = nat44().counted().unwrap();
        assert_eq!(counted.len(), 10, "{counted:?}");
        assert!(counted.iter().all(|it| it.packets == 0 && it.octets == 0), "{counted:?}");
        // What the kernel would do with a packet.
        nft("delete table ip fordway-nat44-home");
        nft("add table ip fordway-nat44-home { comment \"fordway 0\" ; }");
        nft("add counter ip fordway-nat44-home out packets 7 bytes 700");
        assert_eq!(manager.apply(&Change::Nat44(full())).unwrap(), Applied::Made);
        let counted = full().counted().unwrap();
        let out = counted.iter().find(|it| it.name == "out").unwrap();
        assert_eq!((out.packets, out.octets), (7, 700));
        let _ = manager.restore().unwrap();
        assert_eq!(nft("list ruleset"), before);
        assert_eq!(full().counted().unwrap(), []);
    });
}

#[test]
fn a_table_of_somebody_else_with_its_name_is_left() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        nft("add table ip fordway-nat44-home");
        let mut manager = Manager::open(run.path(), "home").unwrap();
        let error = manager.apply(&Change::Nat44(nat44())).unwrap_err();
        assert!(matches!(error, Error::Netfilter { .. }), "{error}");
        assert_eq!(error.errno(), Some(17), "{error}");
        assert!(manager.restore().unwrap().is_empty());
        assert!(nft("list ruleset").contains("table ip fordway-nat44-home"));
    });
}

#[test]
fn what_a_killed_process_has_left_is_taken_over_or_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "home").unwrap();
        let _ = manager.apply(&Change::Nat44(nat44())).unwrap();
        // A manager that is dropped leaves what one that was killed leaves.
        drop(manager);
        let mut manager = Manager::open(run.path(), "home").unwrap();
        assert!(manager.has_inherited());
        assert_eq!(manager.apply(&Change::Nat44(full())).unwrap(), Applied::Made);
        let report = manager.reconcile(&[Change::Nat44(full())]).unwrap().taken_back;
        assert!(report.is_empty(), "{report}");
        assert_rules(&["snat to 192.0.2.1:1024-65535"]);
        drop(manager);
        let report = Manager::open(run.path(), "home").unwrap().reconcile(&[]).unwrap().taken_back;
        assert_eq!(report.undone, [Change::Nat44(full())], "{report}");
        assert_eq!(nft("list ruleset"), "");
    });
}
