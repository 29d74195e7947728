//! Hearing of what may change the way of forwarded packets.

use crate::common::{in_namespace, ip, ip_output};
use fordway_net::{Netlink, RoutingWatch};
use fordway_testhost::poll;

/// Two interfaces with addresses, of which the kernel has said all that it will.
fn veth() {
    ip("link add veth0 type veth peer name veth1");
    for (device, number) in [("veth0", 1), ("veth1", 2)] {
        ip(&format!("link set {device} up"));
        ip(&format!("address add 192.0.2.{number}/24 dev {device}"));
        ip(&format!("address add 2001:db8::{number}/64 dev {device} nodad"));
    }
    poll("routes of all addresses", || {
        let routes = ip_output("-6 route show table all");
        let is_settled = !ip_output("-6 address").contains("tentative")
            && routes.matches("local fe80").count() == 2
            && !ip_output("link").contains("state DOWN");
        is_settled.then_some(())
    });
}

/// A watch that has heard all there was.
fn watch(netlink: &mut Netlink) -> RoutingWatch {
    let mut watch = RoutingWatch::open([24, 96]).unwrap();
    watch.look(netlink).unwrap();
    while watch.take().unwrap() {}
    watch
}

/// A watch, in a new namespace that is settled.
fn settled(test: impl FnOnce(RoutingWatch, &mut Netlink) + Send + 'static) {
    in_namespace(|| {
        veth();
        let mut netlink = Netlink::open().unwrap();
        let watch = watch(&mut netlink);
        test(watch, &mut netlink);
    });
}

#[test]
fn each_change_is_told_once() {
    settled(|mut watch, _| {
        for change in [
            "link set veth0 mtu 1400",
            "address add 198.51.100.1/24 dev veth0",
            "address add 2001:db8:1::1/64 dev veth0 nodad",
            "route add 203.0.113.0/24 via 192.0.2.9",
            "route replace 203.0.113.0/24 via 192.0.2.8",
            "-6 route add 2001:db8:9::/48 via 2001:db8::9",
            "route delete 203.0.113.0/24",
            "rule add to 203.0.113.0/24 lookup 100",
            "-6 rule delete lookup main",
            "nexthop add id 7 via 192.0.2.7 dev veth0",
            "netconf",
        ] {
            if change == "netconf" {
                std::fs::write("/proc/sys/net/ipv4/conf/veth0/forwarding", "1").unwrap();
            } else {
                ip(change);
            }
            assert!(watch.take().unwrap(), "{change}");
        }
    });
}

#[test]
fn of_neighbours_only_another_way_is_told() {
    settled(|mut watch, netlink| {
        let mut told = |change: &str| {
            ip(&format!("neigh {change}"));
            watch.take().unwrap()
        };
        for neighbour in ["192.0.2.9", "2001:db8::9"] {
            let replaced =
                |link, state| format!("replace {neighbour} lladdr {link} dev veth0 nud {state}");
            assert!(told(&replaced("02:00:00:00:00:01", "reachable")));
            // It is confirmed, or is not; the address is the same.
            assert!(!told(&replaced("02:00:00:00:00:01", "stale")));
            assert!(!told(&replaced("02:00:00:00:00:01", "permanent")));
            assert!(told(&replaced("02:00:00:00:00:02", "permanent")));
            assert!(told(&format!("delete {neighbour} dev veth0")));
        }
        // One that was there before the watch, too.
        ip("neigh add 192.0.2.10 lladdr 02:00:00:00:00:0a dev veth0 nud permanent");
        let mut late = self::watch(netlink);
        ip("neigh delete 192.0.2.10 dev veth0");
        assert!(late.take().unwrap());
        // Also if nobody has looked for it.
        ip("neigh add 192.0.2.10 lladdr 02:00:00:00:00:0a dev veth0 nud permanent");
        let mut blind = RoutingWatch::open([24, 96]).unwrap();
        ip("neigh delete 192.0.2.10 dev veth0");
        assert!(blind.take().unwrap());
    });
}

#[test]
fn what_a_bridge_learns_is_no_change() {
    settled(|_, netlink| {
        ip("link add br0 type bridge");
        ip("link set br0 up");
        ip("link set veth1 master br0");
        poll("the bridge is settled", || {
            ip_output("link show br0").contains("state UP").then_some(())
        });
        let mut watch = watch(netlink);
        let learnt = "fdb add 02:00:00:00:00:99 dev veth1 master static".split(' ');
        let status = std::process::Command::new("bridge").args(learnt).status().unwrap();
        assert!(status.success());
        assert!(!watch.take().unwrap());
    });
}

#[test]
fn rules_and_routes_tell_whether_destinations_decide() {
    settled(|mut watch, netlink| {
        assert!(watch.is_by_destination());
        for harmless in [
            "rule add fwmark 7 lookup 100",
            "rule add iif veth0 lookup 100",
            "rule add to 203.0.113.0/24 lookup 100",
            "rule add tos 0x10 lookup 100",
            "rule add unreachable pref 40000",
            "route add 203.0.113.0/24 via 192.0.2.9 table 100",
            "route add 203.0.113.0/24 tos 0x10 via 192.0.2.8",
            "route add blackhole 198.51.100.0/24",
            "nexthop add id 7 via 192.0.2.7 dev veth0",
            "route add 198.51.100.0/25 nhid 7",
        ] {
            ip(harmless);
            assert!(watch.take().unwrap(), "{harmless}");
            // Of next hops nothing is understood but that they are there.
            if watch.wants_look() {
                watch.look(netlink).unwrap();
            }
            assert!(watch.is_by_destination(), "{harmless}");
        }
        for (family, change) in [
            ("", "rule IS from 192.0.2.0/24 lookup 100"),
            ("", "rule IS ipproto udp lookup 100"),
            ("", "rule IS dport 53 lookup 100"),
            ("", "rule IS sport 53 lookup 100"),
            ("", "rule IS uidrange 1-2 lookup 100"),
            ("-6", "rule IS from 2001:db8::/64 lookup 100"),
            ("", "route IS 198.51.100.128/25 nexthop via 192.0.2.9 nexthop via 192.0.2.8"),
            ("-6", "route IS 2001:db8:5::/48 nexthop via 2001:db8::9 nexthop via 2001:db8::8"),
            ("-6", "route IS 2001:db8:5::/48 from 2001:db8:6::/48 via 2001:db8::9"),
        ] {
            let run = |verb| ip(&format!("{family} {}", change.replace("IS", verb)));
            run("add");
            assert!(watch.take().unwrap() && !watch.is_by_destination(), "{change}");
            // Asking does not help while it is there.
            assert!(!watch.wants_look());
            let mut other = RoutingWatch::open([24, 96]).unwrap();
            other.look(netlink).unwrap();
            assert!(!other.is_by_destination() && !other.wants_look(), "{change}");
            run("delete");
            assert!(watch.take().unwrap() && watch.wants_look(), "{change}");
            assert!(!watch.is_by_destination());
            watch.look(netlink).unwrap();
            assert!(watch.is_by_destination(), "{change}");
        }
    });
}

#[test]
fn lost_messages_are_a_change_of_everything() {
    settled(|mut watch, netlink| {
        assert!(watch.is_by_destination());
        // More than a socket's buffer takes.
        let mut batch = String::new();
        for number in 0..3000 {
            batch += &format!("route add 198.18.{}.{} via 192.0.2.9\n", number / 256, number % 256);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), batch).unwrap();
        ip(&format!("-batch {}", file.path().display()));
        assert!(watch.take().unwrap());
        assert!(watch.wants_look() && !watch.is_by_destination());
        watch.look(netlink).unwrap();
        assert!(watch.is_by_destination());
    });
}

#[test]
fn longer_prefixes_are_told_one_by_one() {
    settled(|mut watch, netlink| {
        let known = |watch: &mut RoutingWatch| {
            let fine = watch.other_fine()?.expect("not too many");
            let mut fine: Vec<String> = fine.iter().map(ToString::to_string).collect();
            fine.retain(|it| !it.starts_with("fe80") && !it.starts_with("127.") && it != "::1");
            fine.sort();
            Some(fine)
        };
        // The host's own addresses.
        let own = known(&mut watch).unwrap();
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.255", "2001:db8::1", "2001:db8::2"] {
            assert!(own.iter().any(|it| it == address), "{address}: {own:?}");
        }
        assert_eq!(known(&mut watch), None);
        for short in [
            "route add 198.51.100.0/24 via 192.0.2.9",
            "-6 route add 2001:db8:5::/96 via 2001:db8::9",
            "rule add to 203.0.113.0/24 lookup 100",
            "route add default via 192.0.2.9",
        ] {
            ip(short);
            assert!(watch.take().unwrap());
            assert_eq!(known(&mut watch), None, "{short}");
        }
        for (long, address) in [
            ("route add 198.51.100.128/25 via 192.0.2.9", "198.51.100.128"),
            ("-6 route add 2001:db8:5::8:0/112 via 2001:db8::9", "2001:db8:5::8:0"),
            ("rule add to 203.0.113.7 lookup 100", "203.0.113.7"),
            ("-6 rule add to 2001:db8:7::7 lookup 100", "2001:db8:7::7"),
        ] {
            ip(long);
            assert!(watch.take().unwrap());
            assert!(known(&mut watch).unwrap().iter().any(|it| it == address), "{long}");
            watch.look(netlink).unwrap();
            assert!(known(&mut watch).unwrap().iter().any(|it| it == address), "{long}");
        }
        // One that is gone is forgotten at the next look.
        ip("route delete 198.51.100.128/25");
        assert!(watch.take().unwrap());
        assert_eq!(known(&mut watch), None);
        watch.look(netlink).unwrap();
        assert!(!known(&mut watch).unwrap().iter().any(|it| it == "198.51.100.128"));
    });
}
