//! Hearing of changes, also of those that are over when somebody looks.

use std::collections::BTreeSet;

use crate::common::{in_namespace, ip, ip_output, nft};
use fordway_net::{ChangeWatch, Changes, DefaultRoute, Netlink, Topic};
use fordway_testhost::poll;

#[test]
fn a_link_that_was_down_between_two_looks_is_told() {
    in_namespace(|| {
        ip("link add veth0 type veth peer name veth1");
        ip("link set veth0 up");
        ip("link set veth1 up");
        let mut netlink = Netlink::open().unwrap();
        let mut both_run = || {
            poll("both run", || {
                let links = ["veth0", "veth1"].map(|name| netlink.link(name).unwrap());
                links.iter().all(|link| link.running).then_some(links)
            })
        };
        both_run();
        let mut watch = ChangeWatch::open(&[Topic::Links]).unwrap();
        let mut other = ChangeWatch::open(&[Topic::Addresses4]).unwrap();
        let before = Netlink::open().unwrap().carrier_losses().unwrap();
        ip("link set veth1 down");
        ip("link set veth1 up");
        let [veth0, veth1] = both_run();
        // Each lost its carrier; of the one that was set down, a message says it, too.
        let changes = watch.take().unwrap().expect("something has changed");
        assert!(changes.down.contains(&veth1.index));
        assert!(!changes.lost);
        // What was taken is not told again; the kernel may say somewhat later that both run.
        assert!(watch.take().unwrap().is_none_or(|changes| changes.down.is_empty()));
        assert_eq!(other.take().unwrap(), None);
        let after = netlink.carrier_losses().unwrap();
        for link in [&veth0, &veth1] {
            assert!(after[&link.index] > before[&link.index], "{before:?} {after:?}");
        }

        ip("link set veth0 mtu 1400");
        let changes = watch.take().unwrap().expect("something has changed");
        assert_eq!(changes.down, BTreeSet::new());
        ip("link delete veth0");
        let changes = watch.take().unwrap().expect("something has changed");
        assert!(changes.down.contains(&veth0.index));
    });
}

#[test]
fn each_topic_tells_of_its_own() {
    in_namespace(|| {
        ip("link add veth0 type veth peer name veth1");
        ip("link set veth0 up");
        ip("link set veth1 up");
        let open = |topic| ChangeWatch::open(&[topic]).unwrap();
        for (topic, change) in [
            (Topic::Addresses4, "address add 192.0.2.1/24 dev veth0"),
            (Topic::Addresses6, "address add 2001:db8::1/64 dev veth0 nodad"),
            (Topic::Routes4, "route add 198.51.100.0/24 dev veth0"),
            (Topic::Routes6, "route add 2001:db8:1::/64 dev veth0"),
        ] {
            let mut watch = open(topic);
            ip(change);
            // The kernel tells of an IPv6 address when it has made its route, some time later.
            poll(&format!("{topic:?}"), || watch.take().unwrap());
        }
    });
}

#[test]
fn messages_that_were_lost_still_say_that_something_has_changed() {
    in_namespace(|| {
        let mut watch = ChangeWatch::open(&[Topic::Links, Topic::Routes4]).unwrap();
        let mut routes_alone = ChangeWatch::open(&[Topic::Routes4]).unwrap();
        ip("link add veth0 type veth peer name veth1");
        ip("link set veth0 up");
        ip("link set veth1 up");
        // A batch is faster than one process for each; far more than a socket's buffer holds.
        let routes: String = (0..20_000u32)
            .map(|n| format!("route add 198.18.{}.{}/32 dev veth0\n", n / 256, n % 256))
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), routes).unwrap();
        ip(&format!("-batch {}", file.path().display()));
        for watch in [&mut watch, &mut routes_alone] {
            let changes = watch.take().unwrap().expect("something has changed");
            assert!(changes.lost, "20,000 messages fitted a socket's buffer");
        }
        // Of links the kernel may say something later.
        assert_eq!(routes_alone.take().unwrap(), None);
    });
}

#[test]
fn default_routes_are_told_with_all_their_next_hops() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.default_routes6().unwrap(), []);
        for (near, far, net) in [("veth0", "veth1", 1), ("veth2", "veth3", 2)] {
            ip(&format!("link add {near} type veth peer name {far}"));
            ip(&format!("link set {near} up"));
            ip(&format!("link set {far} up"));
            ip(&format!("address add 2001:db8:{net}::1/64 dev {near} nodad"));
        }
        let [one, two] = ["veth0", "veth2"].map(|name| netlink.link(name).unwrap().index);
        ip("-6 route add default via 2001:db8:1::2 dev veth0 metric 100");
        ip("-6 route add unreachable default metric 5000");
        let single = DefaultRoute { index: one, metric: 100 };
        assert_eq!(netlink.default_routes6().unwrap(), [single]);
        ip(
            "-6 route add default metric 50 nexthop via 2001:db8:1::2 dev veth0 nexthop via 2001:db8:2::2 dev veth2",
        );
        let routes = netlink.default_routes6().unwrap();
        let several = [one, two].map(|index| DefaultRoute { index, metric: 50 });
        assert_eq!(routes.len(), 3, "{routes:?}");
        assert!(several.iter().all(|route| routes.contains(route)), "{routes:?}");
    });
}

#[test]
fn addresses_and_interfaces_that_come_and_go_are_heard_of() {
    in_namespace(|| {
        let mut watch = ChangeWatch::open(&[Topic::Links, Topic::Addresses4]).unwrap();
        assert!(watch.take().unwrap().is_none());
        let add_link = || {
            ip("link add veth0 type veth peer name veth1");
            // The kernel tells of a link once more when it has found out that it has no carrier.
            let is_down = |name| ip_output(&format!("link show {name}")).contains("state DOWN");
            poll("both are down", || (is_down("veth0") && is_down("veth1")).then_some(()));
        };
        add_link();
        assert!(watch.take().unwrap().is_some());
        assert!(watch.take().unwrap().is_none());
        for line in [
            "address add 192.0.2.1/24 dev veth0",
            "address del 192.0.2.1/24 dev veth0",
            "link set veth0 name veth2",
            "link del veth2",
        ] {
            ip(line);
            assert!(watch.take().unwrap().is_some(), "{line}");
            assert!(watch.take().unwrap().is_none(), "{line}");
        }
        // So many that the kernel can't keep them all.
        add_link();
        for _ in 0..300 {
            ip("link set veth0 mtu 1400");
            ip("link set veth0 mtu 1500");
        }
        assert!(watch.take().unwrap().is_some());
        assert!(watch.take().unwrap().is_none());
    });
}

#[test]
fn rules_settings_and_nftables_are_heard_of() {
    in_namespace(|| {
        let mut watch = ChangeWatch::open(&[Topic::Rules, Topic::Settings]).unwrap();
        let mut tables = ChangeWatch::open_nftables().unwrap();
        for line in ["rule add priority 7 table 7", "-6 rule add priority 7 table 7"] {
            ip(line);
            assert!(watch.take().unwrap().is_some(), "{line}");
        }
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        assert!(watch.take().unwrap().is_some());
        std::fs::write("/proc/sys/net/ipv6/conf/lo/forwarding", "1").unwrap();
        assert!(watch.take().unwrap().is_some());
        assert!(watch.take().unwrap().is_none() && tables.take().unwrap().is_none());
        nft("add table ip one");
        assert!(tables.take().unwrap().is_some());
        nft("flush ruleset");
        assert_eq!(tables.take().unwrap(), Some(Changes::default()));
        assert!(watch.take().unwrap().is_none() && tables.take().unwrap().is_none());
    });
}
