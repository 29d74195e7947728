//! Lists of changes, at leisure and in haste.

use crate::common::changes::{changes, ledger, net, prepared_host, read, snapshot, write};
use crate::common::{in_namespace, ip, ip_output, veth};
use fordway_net::{Address, Applied, Change, Error, Manager, Netlink, Route, SysctlKey, View};

#[test]
fn in_haste_what_was_made_is_not_looked_at_before_all_is_settled() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let all = changes();
        let (new, known) = all.split_last().unwrap();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert_eq!(manager.apply_all(known).unwrap(), vec![Applied::Made; known.len()]);
        let route = || ip_output("-6 route show 64:ff9b::/96");
        ip("-6 route del 64:ff9b::/96");
        let mut applied = vec![Applied::Kept; known.len()];
        applied.push(Applied::Made);
        assert_eq!(manager.apply_once(&all).unwrap(), applied);
        assert!(ip_output("-6 neigh show proxy").contains("2001:db8::46"), "{new}");
        assert_eq!(route(), "", "not looked at");
        // Whatever becomes of this process, the next one knows.
        let text = std::fs::read_to_string(ledger(run.path())).unwrap();
        assert!(text.contains("neighbour_proxy"), "{text}");
        let done = manager.reconcile(&all).unwrap();
        assert!(done.failed.is_empty() && done.taken_back.is_empty(), "{done:?}");
        assert!(route().contains("mtu 1400"));
        assert_eq!(manager.restore().unwrap().undone.len(), all.len());
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn in_haste_what_was_before_stays_in_the_ledger_until_all_is_settled() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let all = changes();
        let mut others = all.clone();
        for change in &mut others {
            if let Change::Route(route) = change {
                route.mtu = route.mtu.map(|mtu| mtu - 20);
            }
        }
        for is_killed in [false, true] {
            let mut manager = Manager::open(run.path(), "nat64").unwrap();
            assert_eq!(manager.apply_all(&all).unwrap(), vec![Applied::Made; all.len()]);
            let _ = manager.apply_once(&others).unwrap();
            assert!(ip_output("-6 route show 64:ff9b::/96").contains("mtu 1380"));
            let has_earlier =
                || std::fs::read_to_string(ledger(run.path())).unwrap().contains("\"earlier\"");
            assert!(has_earlier());
            if is_killed {
                drop(manager);
                manager = Manager::open(run.path(), "nat64").unwrap();
            } else {
                let done = manager.reconcile(&others).unwrap();
                assert!(done.made.is_empty() && done.taken_back.is_empty(), "{done:?}");
                assert!(!has_earlier());
            }
            assert_eq!(manager.restore().unwrap().undone.len(), all.len());
            assert_eq!(snapshot(), before);
        }
    });
}

#[test]
fn in_haste_what_another_has_made_is_found_and_left() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        ip("addr add 192.0.2.9/32 dev veth0");
        let before = snapshot();
        let address = |text: &str| Change::Address(Address::new("veth0", text.parse().unwrap()));
        let both = [address("192.0.2.8/32"), address("192.0.2.9/32")];
        let mut manager = Manager::open(run.path(), "dstm").unwrap();
        // The first attempt has made the first one.
        assert_eq!(manager.apply_once(&both).unwrap(), [Applied::Kept, Applied::Present]);
        let done = manager.reconcile(&both).unwrap();
        assert!(done.failed.is_empty() && done.taken_back.is_empty(), "{done:?}");
        assert_eq!(manager.restore().unwrap().undone, both[..1]);
        assert_eq!(snapshot(), before);
        let gone = [Change::Address(Address::new("veth9", "192.0.2.7/32".parse().unwrap()))];
        assert!(matches!(manager.apply_once(&gone), Err(Error::NoDevice(name)) if name == "veth9"));
    });
}

#[test]
fn what_has_other_values_by_now_gets_its_own_again() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let all = changes();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let _ = manager.apply_all(&all).unwrap();
        let route = ip_output("-6 route show 64:ff9b::/96");
        assert!(route.contains("mtu 1400"), "{route}");
        let other = route.trim().replace("mtu 1400", "mtu 1300").replace(" linkdown", "");
        ip(&format!("-6 route replace {other}"));
        let done = manager.reconcile(&all).unwrap();
        assert!(done.failed.is_empty() && done.taken_back.is_empty(), "{done:?}");
        assert_eq!(ip_output("-6 route show 64:ff9b::/96"), route);
        assert_eq!(manager.restore().unwrap().undone.len(), all.len());
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn a_list_is_made_as_a_whole_kept_and_changed_into_another() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        ip("link set veth0 up");
        ip("link set veth1 up");
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        let route = |number: u16| {
            let destination = format!("2001:db8:{number:x}::/48");
            Change::Route(Route::new(net(&destination), "veth0"))
        };
        let many: Vec<Change> = (0..3_000).map(route).collect();
        let done = manager.reconcile(&many).unwrap();
        assert_eq!((done.made.len(), done.failed.len()), (3_000, 0));
        let count = || ip_output("-6 route show proto 246").lines().count();
        assert_eq!(count(), 3_000);

        // Somebody takes some away.
        for number in 10..20 {
            ip(&format!("-6 route del 2001:db8:{number:x}::/48"));
        }
        let mut netlink = Netlink::open().unwrap();
        let missing = manager.missing(&many, &mut View::new(&mut netlink)).unwrap();
        assert_eq!(missing, many[10..20]);
        // What can't be made keeps nothing else from being made.
        ip("-6 route add 2001:db8:b::/48 dev veth1");
        let done = manager.make(&missing).unwrap();
        let failed: Vec<&Change> = done.failed.iter().map(|(change, _)| change).collect();
        assert_eq!(failed, [&many[11]]);
        assert_eq!(count(), 2_999);
        ip("-6 route del 2001:db8:b::/48 dev veth1");

        let others: Vec<Change> = (2_990..3_010).map(route).collect();
        let done = manager.reconcile(&others).unwrap();
        assert_eq!((done.made.len(), done.taken_back.undone.len()), (10, 2_989));
        assert_eq!(count(), 20);
        assert_eq!(manager.restore().unwrap().undone.len(), 20);
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn one_change_may_undo_another_of_its_list() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        veth();
        write("net.ipv4.conf.all.accept_redirects", "1");
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        // Switching forwarding on overwrites the other, which was as it should be.
        let redirects = "net/ipv4/conf/all/accept_redirects".parse().unwrap();
        let list =
            [Change::sysctl(SysctlKey::forwarding_v4(), "1"), Change::sysctl(redirects, "1")];
        let done = manager.reconcile(&list).unwrap();
        assert!(done.failed.is_empty(), "{done:?}");
        assert_eq!(read("net.ipv4.conf.all.accept_redirects"), "1");
        let _ = manager.restore().unwrap();
        assert_eq!(snapshot(), before);
    });
}
