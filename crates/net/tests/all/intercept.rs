//! The nftables table, routes and rules that hand packets to a relay's sockets.

use std::process::{Command, Stdio};

use crate::common::{in_force, in_namespace, ip_output};
use fordway_net::{Applied, Change, Intercept, Manager};

fn intercept() -> Intercept {
    Intercept {
        name: "r0".to_owned(),
        mark: 0x7472_0000,
        table: 7_472,
        prefixes: vec!["64:ff9b::/96".parse().unwrap(), "2001:db8:4000::/40".parse().unwrap()],
        tcp: Some(10_001),
        udp: Some(10_002),
        own: true,
    }
}

fn ruleset() -> String {
    let mut command = Command::new("nft");
    let output = command.args(["list", "ruleset"]).stdin(Stdio::null()).output().expect("nft");
    String::from_utf8(output.stdout).unwrap()
}

fn host() -> String {
    ruleset() + &ip_output("-6 rule show") + &ip_output("-6 route show table all")
}

#[test]
fn it_is_made_changed_and_taken_back_as_a_whole() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let before = host();
        let mut manager = Manager::open(run.path(), "transport-relay.r0").unwrap();
        for change in intercept().changes() {
            assert!(!in_force(&manager, &change), "{change}");
            assert_eq!(manager.apply(&change).unwrap(), Applied::Made, "{change}");
            assert_eq!(manager.apply(&change).unwrap(), Applied::Kept, "{change}");
            assert!(in_force(&manager, &change), "{change}");
        }
        let text = host();
        for rule in [
            "type filter hook prerouting priority mangle; policy accept;",
            "ip6 daddr 64:ff9b::/96 goto relay",
            "ip6 daddr 2001:db8:4000::/40 goto relay",
            "ip6 saddr 64:ff9b::/96 drop",
            "packet-too-big meta mark set 0x74720000 accept",
            "tcp tproxy to [::1]:10001 meta mark set 0x74720000 accept",
            "udp tproxy to [::1]:10002 meta mark set 0x74720000 accept",
            "reject with icmpv6 admin-prohibited",
            "246:\tfrom all fwmark 0x74720000 lookup 7472",
            "246:\tfrom all to 64:ff9b::/96 iif lo lookup 7472",
            "local 2001:db8:4000::/40 dev lo table 7472",
        ] {
            assert!(text.contains(rule), "{rule}\n{text}");
        }

        // After a restart the sockets have other ports.
        let other = Intercept { tcp: Some(20_001), udp: None, ..intercept() };
        manager.apply(&Change::Intercept(other)).unwrap();
        let text = ruleset();
        assert!(text.contains("tcp tproxy to [::1]:20001"), "{text}");
        assert!(!text.contains("10001") && !text.contains("udp tproxy"), "{text}");

        // Whoever is killed leaves it to the next start, which takes it back.
        drop(manager);
        let mut manager = Manager::open(run.path(), "transport-relay.r0").unwrap();
        assert!(manager.has_inherited());
        let report = manager.restore().unwrap();
        assert!(report.failed.is_empty() && report.left.is_empty(), "{report}");
        assert_eq!(host(), before);
    });
}

#[test]
fn two_relays_share_what_they_need_both() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let before = host();
        let other = Intercept {
            name: "r1".to_owned(),
            prefixes: vec!["2001:db8:64::/96".parse().unwrap()],
            ..intercept()
        };
        let mut one = Manager::open(run.path(), "transport-relay.r0").unwrap();
        let mut two = Manager::open(run.path(), "transport-relay.r1").unwrap();
        for change in intercept().changes() {
            one.apply(&change).unwrap();
        }
        for change in other.changes() {
            two.apply(&change).unwrap();
        }
        assert!(one.restore().unwrap().failed.is_empty());
        let text = host();
        assert!(text.contains("fwmark 0x74720000") && !text.contains("64:ff9b"), "{text}");
        assert!(two.restore().unwrap().failed.is_empty());
        assert_eq!(host(), before);
    });
}

#[test]
fn a_table_of_somebody_else_is_left_alone() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let made = Command::new("nft").args(["add", "table", "ip6", "fordway-trt-r0"]).status();
        assert!(made.unwrap().success());
        let mut manager = Manager::open(run.path(), "transport-relay.r0").unwrap();
        manager.apply(&Change::Intercept(intercept())).unwrap_err();
        assert!(ruleset().contains("fordway-trt-r0"));
    });
}
