//! What stays in use when a process has ended: its own interface, and everything about it.

use crate::common::{in_namespace, ip, ip_output, veth};
use fordway_net::{
    Address, Applied, Change, Error, IpNet, Manager, Netlink, Route, kept_by, reclaim_dead,
};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn interface() -> Change {
    Change::Interface { device: "fw0".to_owned() }
}

fn address() -> Change {
    Change::Address(Address::new("fw0", net("192.0.0.1/32")))
}

#[test]
fn a_kept_owner_is_passed_over_until_its_next_life() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev fw0 mode tun");
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        assert!(!manager.has_made(&interface()).unwrap());
        assert_eq!(manager.apply(&interface()).unwrap(), Applied::Made);
        manager.apply(&address()).unwrap();
        manager.keep(Some("home")).unwrap();
        drop(manager);
        assert!(reclaim_dead(run.path(), |_| false).unwrap().is_empty());
        assert!(ip_output("address show fw0").contains("192.0.0.1"));
        assert_eq!(kept_by(run.path(), "home").unwrap(), ["fw0"]);
        assert!(kept_by(run.path(), "elsewhere").unwrap().is_empty());

        let mut again = Manager::open(run.path(), "fw0").unwrap();
        assert!(again.has_inherited() && again.has_made(&interface()).unwrap());
        assert_eq!(again.apply(&interface()).unwrap(), Applied::Kept);
        assert_eq!(again.apply(&address()).unwrap(), Applied::Kept);
        let report = again.restore().unwrap();
        assert_eq!(report.undone, [address(), interface()], "{report}");
        assert!(!ip_output("link show").contains("fw0"));
        assert!(kept_by(run.path(), "home").unwrap().is_empty());
    });
}

#[test]
fn an_owner_under_another_name_has_what_it_had() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev fw0 mode tun");
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        manager.apply(&interface()).unwrap();
        manager.apply(&address()).unwrap();
        manager.keep(Some("home")).unwrap();
        manager.rename("fw1").unwrap();
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link("fw0").unwrap().index;
        netlink.rename_link(index, "fw1").unwrap();
        assert_eq!(kept_by(run.path(), "home").unwrap(), ["fw1"]);
        drop(Manager::open(run.path(), "fw0").unwrap());
        let running = Manager::open(run.path(), "fw1").map(drop).unwrap_err();
        assert!(matches!(running, Error::OwnerRunning { .. }), "{running}");
        let renamed = Change::Address(Address::new("fw1", net("192.0.0.1/32")));
        assert_eq!(manager.apply(&renamed).unwrap(), Applied::Kept);
        let report = manager.restore().unwrap();
        let interface = Change::Interface { device: "fw1".to_owned() };
        assert_eq!(report.undone, [renamed, interface], "{report}");
        assert!(!ip_output("link show").contains("fw"));
    });
}

#[test]
fn a_route_moves_away_from_an_owner_that_yields() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        let [mut one, mut other] = ["fw0", "fw1"].map(|device| {
            ip(&format!("tuntap add dev {device} mode tun"));
            ip(&format!("link set {device} up"));
            Manager::open(run.path(), device).unwrap()
        });
        let route = |device| Change::Route(Route::new(net("203.0.113.0/24"), device));
        one.apply(&route("fw0")).unwrap();
        let refused = other.apply(&route("fw1")).unwrap_err();
        assert!(matches!(&refused, Error::Conflict { owners, .. } if owners == &["fw0"]));
        other.take_over_from([("fw0".to_owned(), &[route("fw0")][..])]);
        assert!(other.apply(&route("fw1")).is_err());
        other.take_over_from([("fw0".to_owned(), &[][..])]);
        assert_eq!(other.apply(&route("fw1")).unwrap(), Applied::Made);
        let routes = || ip_output("route show 203.0.113.0/24");
        assert!(routes().contains("dev fw1") && !routes().contains("dev fw0"), "{}", routes());
        assert!(one.restore().unwrap().is_empty());
        assert!(routes().contains("dev fw1"), "{}", routes());
        assert_eq!(other.restore().unwrap().undone, [route("fw1")]);
        assert_eq!(routes(), "");
    });
}

#[test]
fn an_owner_that_is_kept_no_more_is_reclaimed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev fw0 mode tun");
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        manager.apply(&interface()).unwrap();
        manager.keep(Some("home")).unwrap();
        manager.keep(None).unwrap();
        drop(manager);
        let reports = reclaim_dead(run.path(), |_| false).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].1.undone, [interface()]);
        assert!(!ip_output("link show").contains("fw0"));
    });
}

#[test]
fn an_interface_that_came_anew_is_not_ours() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        ip("tuntap add dev fw0 mode tun");
        Manager::open(run.path(), "fw0").unwrap().apply(&interface()).unwrap();
        ip("link delete fw0");
        // Another interface in between gives the new one another index.
        ip("tuntap add dev other0 mode tun");
        ip("tuntap add dev fw0 mode tun");
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        assert!(!manager.has_made(&interface()).unwrap());
        let report = manager.restore().unwrap();
        assert!(report.undone.is_empty() && report.left.len() == 1, "{report}");
        assert!(ip_output("link show").contains("fw0"));
    });
}

#[test]
fn a_route_moves_to_another_interface_and_gateway_at_once() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        veth();
        ip("tuntap add dev fw0 mode tun");
        ip("link set fw0 up");
        let before = ip_output("-4 route show");
        let mut manager = Manager::open(run.path(), "fw0").unwrap();
        let into = Route { metric: 2048, ..Route::new(net("0.0.0.0/0"), "fw0") };
        let past = |gateway: &str| {
            let gateway = Some(gateway.parse().unwrap());
            Change::Route(Route {
                gateway,
                ..Route { device: Some("veth0".into()), ..into.clone() }
            })
        };
        assert_eq!(manager.apply(&Change::Route(into.clone())).unwrap(), Applied::Made);
        for gateway in ["fe80::1", "fe80::2"] {
            assert_eq!(manager.apply(&past(gateway)).unwrap(), Applied::Made);
            assert_eq!(manager.apply(&past(gateway)).unwrap(), Applied::Kept);
            let routes = ip_output("-4 route show");
            let route = format!("default via inet6 {gateway} dev veth0 proto 246 metric 2048");
            assert_eq!(routes.trim(), route);
        }
        // The kernel drops it when the interface goes down, and it is made again.
        ip("link set veth0 down");
        assert_eq!(ip_output("-4 route show"), before);
        ip("link set veth0 up");
        assert_eq!(manager.apply(&past("fe80::2")).unwrap(), Applied::Kept);
        assert!(ip_output("-4 route show").contains("via inet6 fe80::2"));
        assert_eq!(manager.apply(&Change::Route(into.clone())).unwrap(), Applied::Made);
        assert!(ip_output("-4 route show").contains("default dev fw0"));
        assert!(manager.restore().unwrap().left.is_empty());
        assert_eq!(ip_output("-4 route show"), before);
    });
}
