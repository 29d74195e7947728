//! Each netlink operation, compared with what `ip` shows.

use std::net::IpAddr;
use std::time::Instant;

use crate::common::{can_test, in_namespace, in_new_namespace, ip, ip_output, veth};
use fordway_net::{
    Address, Error, IpNet, NamespaceId, NeighbourProxy, NetNs, Netlink, PROTOCOL, Route,
    RouteFilter, RouteKind, Rule, table,
};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn errno(result: Result<(), Error>) -> Option<i32> {
    result.unwrap_err().errno()
}

#[test]
fn links() {
    in_namespace(|| {
        ip("link add veth0 type veth peer name veth1");
        let mut netlink = Netlink::open().unwrap();
        let names: Vec<_> = netlink.links().unwrap();
        assert!(names.iter().any(|link| link.name == "lo" && link.loopback));
        let link = netlink.link("veth0").unwrap();
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!((link.mtu, link.up, link.running), (1500, false, false));
        assert_eq!(link.hardware_address.len(), 6);
        assert_eq!(netlink.find_link_by_index(link.index).unwrap(), Some(link.clone()));

        netlink.set_up("veth0", true).unwrap();
        netlink.set_up("veth1", true).unwrap();
        netlink.set_mtu("veth0", 1280).unwrap();
        let link = netlink.link("veth0").unwrap();
        assert_eq!((link.mtu, link.up), (1280, true));
        assert!(ip_output("link show veth0").contains("mtu 1280"));
        netlink.set_queue_length("veth0", 77).unwrap();
        assert_eq!(netlink.link("veth0").unwrap().queue_length, 77);
        assert!(ip_output("link show veth0").contains("qlen 77"));
        netlink.set_up("veth0", false).unwrap();
        assert!(!netlink.link("veth0").unwrap().up);

        assert_eq!(netlink.find_link("nothing").unwrap(), None);
        assert_eq!(netlink.find_link_by_index(4_000_000).unwrap(), None);
        assert_eq!(netlink.find_link("a-name-that-is-too-long").unwrap(), None);
        assert_eq!(netlink.tx_dropped("veth0").unwrap(), 0);
        let error = netlink.tx_dropped("nothing").unwrap_err();
        assert!(matches!(&error, Error::NoDevice(name) if name == "nothing"));
        let error = netlink.link("nothing").unwrap_err();
        assert!(matches!(&error, Error::NoDevice(name) if name == "nothing"));
        let error = netlink.set_mtu("veth0", 20).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().contains("MTU of interface veth0 to 20"));
        // The kernel's own words, in brackets.
        assert!(error.to_string().contains("(mtu less than device minimum)"), "{error}");
    });
}

#[test]
fn addresses() {
    in_namespace(|| {
        veth();
        let mut netlink = Netlink::open().unwrap();
        let v4 = Address::new("veth0", net("192.0.2.1/24"));
        let v6 = Address {
            no_dad: true,
            no_prefix_route: true,
            deprecated: true,
            ..Address::new("veth0", net("2001:db8::1/64"))
        };
        for address in [&v4, &v6] {
            netlink.add_address(address).unwrap();
            assert_eq!(errno(netlink.add_address(address)), Some(libc::EEXIST));
            let listed = netlink.addresses(Some("veth0")).unwrap();
            let listed = listed.into_iter().find(|it| it.same_object(address));
            let expected = Address { protocol: Some(PROTOCOL), ..address.clone() };
            assert_eq!(listed, Some(expected));
        }
        let shown = ip_output("-6 address show veth0");
        for part in [
            "2001:db8::1/64 scope global",
            "deprecated",
            "nodad",
            "noprefixroute",
            "preferred_lft 0sec",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        assert_eq!(ip_output("-6 route show 2001:db8::/64"), "");
        assert!(ip_output("-4 address show veth0").contains("inet 192.0.2.1/24 scope global"));

        let elsewhere = netlink.addresses(Some("veth1")).unwrap();
        assert!(elsewhere.iter().all(|it| it.device == "veth1"));
        let all = netlink.addresses(None).unwrap();
        assert!(all.iter().any(|it| it.address == net("127.0.0.1/8")));

        for address in [&v4, &v6] {
            netlink.delete_address(address).unwrap();
            let again = errno(netlink.delete_address(address));
            assert_eq!(again, Some(libc::EADDRNOTAVAIL));
        }
        std::fs::write("/proc/sys/net/ipv6/conf/veth0/disable_ipv6", "1").unwrap();
        let error = netlink.add_address(&v6).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
    });
}

#[test]
fn routes() {
    in_namespace(|| {
        veth();
        ip("address add 192.0.2.1/24 dev veth0");
        ip("address add 2001:db8::1/64 dev veth0 nodad");
        let mut netlink = Netlink::open().unwrap();
        let through_v6 = Route {
            gateway: Some(addr("2001:db8::2")),
            ..Route::new(net("198.51.100.0/24"), "veth0")
        };
        let v6 = Route {
            gateway: Some(addr("2001:db8::2")),
            mtu: Some(1480),
            advmss: Some(1420),
            metric: 77,
            ..Route::new(net("64:ff9b::/96"), "veth0")
        };
        let v4 = Route {
            gateway: Some(addr("192.0.2.2")),
            source: Some(addr("192.0.2.1")),
            mtu: Some(1260),
            table: 4_646,
            ..Route::new(net("0.0.0.0/0"), "veth0")
        };
        let unreachable = Route {
            kind: RouteKind::Unreachable,
            device: None,
            ..Route::new(net("203.0.113.0/24"), "veth0")
        };
        let ours = RouteFilter { protocol: Some(PROTOCOL), ..RouteFilter::default() };
        let unreachable_v6 =
            Route { destination: net("2001:db8:dead::/48"), ..unreachable.clone() };
        for route in [&through_v6, &v6, &v4, &unreachable, &unreachable_v6] {
            netlink.add_route(route).unwrap();
            assert_eq!(errno(netlink.add_route(route)), Some(libc::EEXIST));
            let listed = netlink.routes(ours).unwrap();
            assert!(listed.iter().any(|it| it.same_effect(route)), "{route}: {listed:?}");
        }
        assert_eq!(netlink.routes(ours).unwrap().len(), 5);
        for (device, count) in [("veth0", 3), ("veth1", 0)] {
            let index = Some(netlink.link(device).unwrap().index);
            let filter = RouteFilter { index, ..ours };
            assert_eq!(netlink.routes(filter).unwrap().len(), count);
        }
        let shown = ip_output("-6 route show 64:ff9b::/96");
        for part in
            ["via 2001:db8::2", "dev veth0", "proto 246", "metric 77", "mtu 1480", "advmss 1420"]
        {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(ip_output("route show table 4646").contains("via 192.0.2.2"));
        assert!(ip_output("route show 198.51.100.0/24").contains("via inet6 2001:db8::2"));
        let of_table = RouteFilter { table: Some(4_646), protocol: None, index: None };
        assert_eq!(netlink.routes(of_table).unwrap().len(), 1);
        let no_table = RouteFilter { table: Some(4_647), protocol: None, index: None };
        assert_eq!(netlink.routes(no_table).unwrap(), []);
        let local = RouteFilter { table: Some(table::LOCAL), protocol: None, index: None };
        let local = netlink.routes(local).unwrap();
        assert!(local.iter().any(|it| it.destination == net("192.0.2.1/32")));

        let larger = Route { mtu: Some(1500), ..v6.clone() };
        assert!(v6.same_object(&larger) && !v6.same_effect(&larger));
        netlink.replace_route(&larger).unwrap();
        assert!(ip_output("-6 route show 64:ff9b::/96").contains("mtu 1500"));
        for route in [&through_v6, &larger, &v4, &unreachable, &unreachable_v6] {
            netlink.delete_route(route).unwrap();
            assert_eq!(errno(netlink.delete_route(route)), Some(libc::ESRCH));
        }
        assert_eq!(netlink.routes(ours).unwrap(), []);
    });
}

#[test]
fn deleting_spares_the_routes_of_others() {
    in_namespace(|| {
        veth();
        ip("route add 198.51.100.0/24 dev veth0 proto static");
        let mut netlink = Netlink::open().unwrap();
        let route = Route::new(net("198.51.100.0/24"), "veth0");
        assert_eq!(errno(netlink.delete_route(&route)), Some(libc::ESRCH));
        assert!(ip_output("route show 198.51.100.0/24").contains("static"));
    });
}

#[test]
fn an_unreachable_gateway_is_explained() {
    in_namespace(|| {
        veth();
        let mut netlink = Netlink::open().unwrap();
        let route = Route {
            gateway: Some(addr("192.0.2.2")),
            ..Route::new(net("198.51.100.0/24"), "veth0")
        };
        let error = netlink.add_route(&route).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENETUNREACH));
        assert!(
            error
                .to_string()
                .starts_with("cannot add route 198.51.100.0/24 via 192.0.2.2 dev veth0")
        );
        assert!(error.hint().unwrap().contains("gateway"));
    });
}

#[test]
fn the_way_to_an_address() {
    in_namespace(|| {
        veth();
        ip("address add 192.0.2.1/24 dev veth0");
        ip("address add 2001:db8::1/64 dev veth0 nodad");
        ip("route add 198.51.100.0/24 via 192.0.2.2");
        ip("-6 route add 64:ff9b::/96 via 2001:db8::2 mtu 1400");
        ip("-6 route add unreachable 2001:db8:dead::/48");
        let mut netlink = Netlink::open().unwrap();

        let link = netlink.link("veth0").unwrap();
        let near = netlink.next_hop(addr("192.0.2.9")).unwrap().unwrap();
        assert_eq!((near.device.as_str(), near.index), ("veth0", link.index));
        assert_eq!(near.gateway, None);
        assert_eq!(near.source, Some(addr("192.0.2.1")));
        assert_eq!((near.mtu, near.kind), (1500, RouteKind::Unicast));

        let far = netlink.next_hop(addr("198.51.100.1")).unwrap().unwrap();
        assert_eq!(far.gateway, Some(addr("192.0.2.2")));
        let v6 = netlink.next_hop(addr("64:ff9b::1")).unwrap().unwrap();
        assert_eq!(v6.gateway, Some(addr("2001:db8::2")));
        assert_eq!(v6.source, Some(addr("2001:db8::1")));
        assert_eq!(v6.mtu, 1400);

        let own = netlink.next_hop(addr("192.0.2.1")).unwrap().unwrap();
        assert_eq!((own.kind, own.device.as_str()), (RouteKind::Local, "lo"));
        for nowhere in ["203.0.113.1", "2001:db8:1::1", "2001:db8:dead::1"] {
            assert_eq!(netlink.next_hop(addr(nowhere)).unwrap(), None, "{nowhere}");
        }
    });
}

#[test]
fn rules() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let before = netlink.rules().unwrap();
        assert!(before.iter().any(|it| it.table == table::LOCAL && it.priority == 0));
        let mut v4 = Rule::new(false, 100, 4_646);
        v4.from = Some(net("198.51.100.0/24"));
        v4.to = Some(net("192.0.2.1/32"));
        v4.mark = Some((0x46, 0xff));
        v4.iif = Some("lo".to_owned());
        v4.ip_protocol = Some(17);
        v4.destination_ports = Some((1024, 65_534));
        let mut v6 = Rule::new(true, 101, table::MAIN);
        v6.suppress_group = Some(4_646);
        let mut refuse = Rule::new(true, 102, Rule::REFUSE);
        refuse.iif = Some("veth0".to_owned());
        for rule in [&v4, &v6, &refuse] {
            netlink.add_rule(rule).unwrap();
            assert_eq!(errno(netlink.add_rule(rule)), Some(libc::EEXIST));
            let listed = netlink.rules().unwrap();
            let listed = listed.into_iter().find(|it| it.same_object(rule));
            assert_eq!(listed.as_ref(), Some(rule));
        }
        let shown = ip_output("-N rule show priority 100");
        for part in [
            "from 198.51.100.0/24",
            "to 192.0.2.1",
            "fwmark 0x46/0xff",
            "iif lo",
            "ipproto",
            "dport 1024-65534",
            "lookup 4646",
            "proto 246",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let shown = ip_output("-6 rule show");
        assert!(shown.contains("lookup main suppress_ifgroup 4646"), "{shown}");
        assert!(shown.contains(" unreachable proto 246"), "{shown}");
        for rule in [&v4, &v6, &refuse] {
            netlink.delete_rule(rule).unwrap();
            assert_eq!(errno(netlink.delete_rule(rule)), Some(libc::ENOENT));
        }
        assert_eq!(netlink.rules().unwrap(), before);
    });
}

#[test]
fn neighbour_proxies() {
    in_namespace(|| {
        veth();
        let mut netlink = Netlink::open().unwrap();
        for address in ["2001:db8::46", "192.0.2.46"] {
            let proxy = NeighbourProxy::new("veth0", addr(address));
            netlink.add_neighbour_proxy(&proxy).unwrap();
            let listed = netlink.neighbour_proxies().unwrap();
            assert_eq!(listed.len(), 1);
            assert!(listed[0].same_object(&proxy));
            assert_eq!(listed[0].protocol, Some(PROTOCOL));
            assert!(ip_output("neigh show proxy").contains(&format!("{address} dev veth0")));
            netlink.delete_neighbour_proxy(&proxy).unwrap();
            let again = errno(netlink.delete_neighbour_proxy(&proxy));
            assert_eq!(again, Some(libc::ENOENT));
            assert_eq!(netlink.neighbour_proxies().unwrap(), []);
        }
    });
}

#[test]
fn a_connection_stays_in_its_namespace() {
    if !can_test() {
        return;
    }
    let mut netlink = in_new_namespace(|| {
        ip("link add veth0 type veth peer name veth1");
        Netlink::open().unwrap()
    });
    in_new_namespace(|| {
        assert!(netlink.find_link("veth0").unwrap().is_some());
        assert!(Netlink::open().unwrap().find_link("veth0").unwrap().is_none());
    });
}

#[test]
fn a_new_namespace_is_the_threads_own() {
    in_namespace(|| {
        let before = NamespaceId::current().unwrap();
        veth();
        let there = std::thread::spawn(|| {
            NetNs::enter_new().unwrap();
            let links = Netlink::open().unwrap().links().unwrap();
            (NamespaceId::current().unwrap(), links.len())
        });
        let (there, links) = there.join().unwrap();
        assert!(there != before && links == 1);
        assert_eq!(NamespaceId::current().unwrap(), before);
    });
}

#[test]
fn ipv6_addresses_with_their_lives() {
    in_namespace(|| {
        ip("link add veth0 type veth peer name veth1");
        ip("link set veth0 up");
        ip("address add 2001:db8::1/64 dev veth0 nodad");
        let begun = Instant::now();
        ip("address add 2001:db8:1::1/64 dev veth0 nodad valid_lft 10000 preferred_lft 1000");
        ip("address add 2001:db8:2::1/64 dev veth0 nodad valid_lft 1000 preferred_lft 0");
        // The link is down as long as the other end is, so detection cannot end.
        ip("address add 2001:db8:3::1/48 dev veth0");
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link("veth0").unwrap().index;
        let addresses = netlink.addresses_v6().unwrap();
        let find = |text: &str| {
            let wanted: ipnet::Ipv6Net = text.parse().unwrap();
            *addresses.iter().find(|it| it.address == wanted).expect(text)
        };
        let forever = find("2001:db8::1/64");
        assert_eq!((forever.index, forever.preferred, forever.valid), (index, None, None));
        assert!(forever.usable() && !forever.deprecated() && !forever.link_local());
        let ending = find("2001:db8:1::1/64");
        // The kernel counts whole seconds.
        let passed = begun.elapsed().as_secs() as u32 + 1;
        let counts_from = |from: u32, left: Option<u32>| {
            left.is_some_and(|left| (from - passed..=from).contains(&left))
        };
        assert!(counts_from(1000, ending.preferred), "{ending:?}");
        assert!(counts_from(10_000, ending.valid), "{ending:?}");
        assert!(find("2001:db8:2::1/64").deprecated());
        let tentative = find("2001:db8:3::1/48");
        assert!(tentative.tentative && !tentative.usable() && !tentative.temporary);
    });
}
