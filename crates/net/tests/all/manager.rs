//! Changes: applying, sharing, restoring.

use crate::common::changes::{changes, net, prepared_host, read, snapshot, write};
use crate::common::{in_namespace, in_new_namespace, ip, ip_output, nft, veth};
use fordway_net::{
    Address, Applied, Change, Error, Manager, NeighbourProxy, Route, Rule, SysctlKey, sysctl,
};

#[test]
fn everything_is_made_once_and_taken_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert!(!manager.has_inherited());
        for change in changes() {
            assert_eq!(manager.apply(&change).unwrap(), Applied::Made, "{change}");
            assert_eq!(manager.apply(&change).unwrap(), Applied::Kept, "{change}");
        }
        assert_eq!(read("net.ipv4.ip_forward"), "1");
        assert!(ip_output("-6 route show 64:ff9b::/96").contains("mtu 1400"));
        assert!(ip_output("link show veth0").contains("mtu 1480"));
        assert_ne!(snapshot(), before);

        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), changes().len(), "{report}");
        assert!(report.left.is_empty() && report.failed.is_empty(), "{report}");
        assert_eq!(report.to_string(), "13 changes taken back");
        // Also the interfaces' own forwarding, which switching all overwrote.
        assert_eq!(snapshot(), before);
        assert!(manager.restore().unwrap().is_empty());
    });
}

#[test]
fn flags_groups_and_rules_that_go_by_them_are_taken_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        ip("link set veth0 group 7");
        let before = ip_output("link show veth0") + &ip_output("-6 rule show");
        let mut guard = Rule::new(true, 101, fordway_net::table::MAIN);
        guard.iif = Some("veth0".to_owned());
        guard.suppress_group = Some(4_646);
        let mut refuse = Rule::new(true, 102, Rule::REFUSE);
        refuse.iif = Some("veth0".to_owned());
        let group = Change::Group { device: "veth0".to_owned(), group: 4_646 };
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let quiet = Change::NoMulticast { device: "veth0".to_owned() };
        let rules = [Change::Rule(guard), Change::Rule(refuse)];
        for change in [group.clone(), quiet].into_iter().chain(rules) {
            assert_eq!(manager.apply(&change).unwrap(), Applied::Made, "{change}");
            assert_eq!(manager.apply(&change).unwrap(), Applied::Kept, "{change}");
        }
        assert!(ip_output("link show veth0").contains("group 4646"));
        assert!(!ip_output("link show veth0").contains("MULTICAST"));
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), 4, "{report}");
        let after = ip_output("link show veth0") + &ip_output("-6 rule show");
        assert_eq!(after, before);

        assert_eq!(manager.apply(&group).unwrap(), Applied::Made);
        ip("link set veth0 group 9");
        let report = manager.restore().unwrap();
        assert_eq!(report.left.len(), 1, "{report}");
        assert!(ip_output("link show veth0").contains("group 9"));
    });
}

#[test]
fn what_was_there_before_stays() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        for line in [
            "link set veth0 mtu 1480 txqueuelen 4096 up",
            "address add 192.0.2.1/24 dev veth0",
            "address add 2001:db8::1/64 dev veth0 nodad",
            "-6 route add 64:ff9b::/96 via 2001:db8::2 dev veth0 mtu 1400",
            "-6 route add unreachable 2001:db8:dead::/48",
            "rule add priority 100 fwmark 0x46/0xff table 4646",
            // A rule of the same priority is filed behind those that are there.
            "rule del priority 0",
            "rule add priority 0 fwmark 0x47 table 4647",
            "rule add priority 0 table local protocol kernel",
            "neigh add proxy 2001:db8::46 dev veth0",
        ] {
            ip(line);
        }
        write("net.ipv4.ip_forward", "1");
        write("net.ipv6.conf.all.forwarding", "1");
        write("net.ipv4.conf.veth0.rp_filter", "2");
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        for change in changes() {
            assert_eq!(manager.apply(&change).unwrap(), Applied::Present, "{change}");
        }
        assert!(manager.restore().unwrap().is_empty());
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn two_owners_share_until_the_last_goes() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut first = Manager::open(run.path(), "first").unwrap();
        let mut second = Manager::open(run.path(), "second").unwrap();
        for change in changes() {
            assert_eq!(first.apply(&change).unwrap(), Applied::Made);
            assert_eq!(second.apply(&change).unwrap(), Applied::Shared);
        }
        let during = snapshot();
        let report = first.restore().unwrap();
        assert_eq!(report.shared.len(), changes().len());
        assert!(report.undone.is_empty());
        assert_eq!(snapshot(), during);
        let report = second.restore().unwrap();
        assert_eq!(report.undone.len(), changes().len(), "{report}");
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn owners_that_disagree_are_told() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let key = SysctlKey::conf_v4("veth0", "rp_filter").unwrap();
        let mut first = Manager::open(run.path(), "first").unwrap();
        let mut second = Manager::open(run.path(), "second").unwrap();
        first.apply(&Change::sysctl(key.clone(), "2")).unwrap();
        let error = second.apply(&Change::sysctl(key.clone(), "1")).unwrap_err();
        assert!(
            matches!(&error, Error::Conflict { owners, .. } if owners == &["first"]),
            "{error}"
        );
        assert_eq!(sysctl::read(&key).unwrap(), "2");

        // Alone again, it may change its mind; the first value is kept.
        let changed = first.apply(&Change::sysctl(key.clone(), "1")).unwrap();
        assert_eq!(changed, Applied::Made);
        assert_eq!(sysctl::read(&key).unwrap(), "1");
        let _ = first.restore().unwrap();
        assert_eq!(sysctl::read(&key).unwrap(), "0");
    });
}

/// A route that somebody else has put in the place of ours stays theirs, whatever ours should become.
#[test]
fn a_changed_route_leaves_somebody_elses_alone() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        ip("link set veth0 up");
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let with = |mtu| {
            Change::Route(Route { mtu: Some(mtu), ..Route::new(net("64:ff9b::/96"), "veth0") })
        };
        manager.apply(&with(1400)).unwrap();
        ip("-6 route del 64:ff9b::/96");
        ip("-6 route add 64:ff9b::/96 dev veth0 mtu 1350 proto static");
        let theirs = ip_output("-6 route show 64:ff9b::/96");
        assert!(manager.apply(&with(1300)).is_err());
        assert_eq!(ip_output("-6 route show 64:ff9b::/96"), theirs);
        let _ = manager.restore().unwrap();
        assert_eq!(ip_output("-6 route show 64:ff9b::/96"), theirs);
    });
}

#[test]
fn values_of_a_sole_owner_can_be_changed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        ip("link set veth0 up");
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let device = "veth0".to_owned();
        for mtu in [1400, 1300] {
            let change = Change::Mtu { device: device.clone(), mtu };
            assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
            let route = Route { mtu: Some(mtu), ..Route::new(net("64:ff9b::/96"), "veth0") };
            let change = Change::Route(route);
            assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
            assert!(ip_output("-6 route show 64:ff9b::/96").contains(&format!("mtu {mtu}")));
            let address = Address {
                deprecated: mtu == 1300,
                no_dad: true,
                no_prefix_route: true,
                ..Address::new("veth0", net("2001:db8::1/64"))
            };
            let change = Change::Address(address);
            assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        }
        assert!(ip_output("address show veth0").contains("deprecated"));
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), 3, "{report}");
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn what_somebody_changed_since_is_left() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        write("net.ipv4.conf.veth0.rp_filter", "1");
        for line in [
            "link set veth0 mtu 1400 txqueuelen 500",
            "address del 192.0.2.1/24 dev veth0",
            "-6 route del 64:ff9b::/96",
            "-6 route add 64:ff9b::/96 via 2001:db8::3 dev veth0",
            "rule del priority 100",
            "rule add priority 100 fwmark 0x46/0xff table 4646",
        ] {
            ip(line);
        }
        let report = manager.restore().unwrap();
        assert_eq!(report.left.len(), 6, "{report}");
        assert_eq!(report.undone.len(), 7, "{report}");
        for value in [1400, 500] {
            assert!(report.to_string().contains(&format!("it is {value} now")), "{report}");
        }
        assert_eq!(read("net.ipv4.conf.veth0.rp_filter"), "1");
        let link = ip_output("link show veth0");
        assert!(link.contains("mtu 1400") && link.contains("qlen 500"), "{link}");
        assert!(ip_output("rule show priority 100").contains("lookup 4646"));
        assert_eq!(read("net.ipv4.ip_forward"), "0");
    });
}

#[test]
fn an_interface_that_came_anew_is_another() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let change = Change::Address(Address::new("veth0", net("192.0.2.1/24")));
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        ip("link delete veth0");
        assert!(matches!(manager.apply(&change), Err(Error::NoDevice(_))));
        prepared_host();
        ip("address add 192.0.2.1/24 dev veth0");
        // The other interface's address is somebody else's.
        assert_eq!(manager.apply(&change).unwrap(), Applied::Present);
        assert!(manager.restore().unwrap().is_empty());
        assert!(ip_output("address show veth0").contains("192.0.2.1"));

        ip("address flush dev veth0");
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        ip("link delete veth0");
        let report = manager.restore().unwrap();
        assert!(report.failed.is_empty(), "{report}");
        assert_eq!(report.left.len(), 1);
        assert!(report.to_string().contains("veth0 is gone"), "{report}");

        // What the next life makes on a new interface is its own, not inherited.
        prepared_host();
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        drop(manager);
        ip("link delete veth0");
        prepared_host();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert!(manager.has_inherited());
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        assert!(manager.reconcile(&[change]).unwrap().taken_back.is_empty());
        assert!(ip_output("address show veth0").contains("192.0.2.1"));
    });
}

#[test]
fn a_change_that_fails_leaves_no_trace() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        veth();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let route = Route {
            gateway: Some("192.0.2.2".parse().unwrap()),
            ..Route::new(net("198.51.100.0/24"), "veth0")
        };
        let error = manager.apply(&Change::Route(route)).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENETUNREACH));
        ip("route add 203.0.113.0/24 dev veth1");
        let taken = Route::new(net("203.0.113.0/24"), "veth0");
        let error = manager.apply(&Change::Route(taken)).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EEXIST));
        assert!(manager.restore().unwrap().is_empty());
        assert!(ip_output("route show 203.0.113.0/24").contains("veth1"));
    });
}

#[test]
fn the_next_life_keeps_what_it_needs_and_drops_the_rest() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        drop(manager);

        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert!(manager.has_inherited());
        // Lost meanwhile, and made again; its record stays.
        ip("-6 route del 64:ff9b::/96");
        let all = changes();
        let (dropped, kept) = all.split_at(5);
        assert_eq!(manager.apply_all(kept).unwrap(), vec![Applied::Kept; kept.len()]);
        assert!(ip_output("-6 route show 64:ff9b::/96").contains("mtu 1400"));
        let done = manager.reconcile(kept).unwrap();
        assert_eq!(done.taken_back.undone.len(), dropped.len(), "{}", done.taken_back);
        assert!(done.failed.is_empty() && done.made.is_empty(), "{done:?}");
        assert_eq!(read("net.ipv4.ip_forward"), "0");
        assert!(ip_output("address show veth0").contains("192.0.2.1/24"));
        let without: Vec<Change> = kept.iter().filter(|it| **it != kept[1]).cloned().collect();
        let one = manager.reconcile(&without).unwrap().taken_back;
        assert_eq!(one.undone, [kept[1].clone()]);
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), kept.len() - 1, "{report}");
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn namespaces_have_ledgers_of_their_own() {
    let run = tempfile::tempdir().unwrap();
    let change = Change::sysctl(SysctlKey::forwarding_v4(), "1");
    in_namespace(|| {
        write("net.ipv4.ip_forward", "0");
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert_eq!(manager.apply(&change).unwrap(), Applied::Made);
        in_new_namespace(|| {
            write("net.ipv4.ip_forward", "0");
            assert!(matches!(manager.apply(&change), Err(Error::OtherNamespace)));
            assert!(matches!(manager.restore(), Err(Error::OtherNamespace)));
            let mut other = Manager::open(run.path(), "nat64").unwrap();
            assert!(other.restore().unwrap().is_empty());
            assert_eq!(other.apply(&change).unwrap(), Applied::Made);
            let _ = other.restore().unwrap();
            assert_eq!(read("net.ipv4.ip_forward"), "0");
        });
        assert_eq!(read("net.ipv4.ip_forward"), "1");
    });
}

#[test]
fn owners_have_plain_names() {
    let run = tempfile::tempdir().unwrap();
    for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
        let error = Manager::open(run.path(), bad).unwrap_err();
        assert!(matches!(error, Error::OwnerName(_)), "{bad:?}");
    }
}

#[test]
fn forwarding_that_somebody_else_has_begun_to_need_stays() {
    let run = tempfile::tempdir().unwrap();
    let forward = Change::sysctl(SysctlKey::forwarding_v4(), "1");
    let forward6 = Change::sysctl(SysctlKey::forwarding_v6(), "1");
    // As container engines do: they find it on, and say nothing.
    let engine = "add table ip nat; add chain ip nat POSTROUTING { type nat hook postrouting priority 100; }";
    in_namespace(|| {
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let _ = manager.apply_all(&[forward.clone(), forward6.clone()]).unwrap();
        nft(engine);
        let report = manager.restore().unwrap();
        assert_eq!(report.undone, [forward6], "{report}");
        let [(change, why)] = report.left.as_slice() else { panic!("{report}") };
        assert_eq!(*change, forward);
        assert_eq!(why, "chain POSTROUTING of nftables table ip nat needs it now");
        assert_eq!(
            (read("net.ipv4.ip_forward"), read("net.ipv6.conf.all.forwarding")),
            ("1".into(), "0".into())
        );
    });
    // Who was there before did without.
    in_namespace(|| {
        nft(engine);
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let _ = manager.apply(&forward).unwrap();
        assert_eq!(manager.restore().unwrap().undone, std::slice::from_ref(&forward));
        assert_eq!(read("net.ipv4.ip_forward"), "0");
    });
}

#[test]
fn an_interface_that_is_renamed_keeps_nothing() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        veth();
        let address = "2001:db8:1::464".parse().unwrap();
        let proxy = |device: &str| {
            let key = SysctlKey::conf_v6(device, "proxy_ndp").unwrap();
            let route = Route::new(net("2001:db8:64::/96"), device);
            [
                Change::sysctl(key, "1"),
                Change::NeighbourProxy(NeighbourProxy::new(device, address)),
                Change::Mtu { device: device.to_owned(), mtu: 1400 },
                Change::Route(route),
            ]
        };
        let mut manager = Manager::open(run.path(), "clat0").unwrap();
        assert_eq!(manager.apply_all(&proxy("veth0")).unwrap(), [Applied::Made; 4]);
        // Without a way down, which would take the proxy along.
        ip("link set veth0 name uplink0");
        let is_set = || {
            let proxies = ip_output("-6 neigh show proxy");
            let routes = ip_output("-6 route show 2001:db8:64::/96");
            (
                proxies.contains("2001:db8:1::464 dev uplink0"),
                read("net.ipv6.conf.uplink0.proxy_ndp") == "1",
                ip_output("link show uplink0").contains("mtu 1400"),
                routes.contains("uplink0"),
            )
        };
        assert_eq!(is_set(), (true, true, true, true));
        // Whoever wants the same under the new name has it.
        let done = manager.reconcile(&proxy("uplink0")).unwrap();
        assert!(done.made.is_empty() && done.taken_back.is_empty(), "{done:?}");
        assert_eq!(is_set(), (true, true, true, true));
        ip("link set uplink0 name eth7");
        ip("link set veth1 name uplink0");
        let report = manager.restore().unwrap();
        assert_eq!((report.undone.len(), report.left.len()), (4, 0), "{report}");
        assert_eq!(ip_output("-6 neigh show proxy"), "");
        assert_eq!(read("net.ipv6.conf.eth7.proxy_ndp"), "0");
        assert!(ip_output("link show eth7").contains("mtu 1500"));
        assert_eq!(ip_output("-6 route show 2001:db8:64::/96"), "");
    });
}
