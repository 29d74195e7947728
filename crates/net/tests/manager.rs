//! The ledger: applying, sharing, restoring, and what a dead process left.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{in_namespace, ip, ip_output, veth};
use fordway_net::{
    Address, Applied, Change, Error, IpNet, Manager, NamespaceId, NeighbourProxy, Route, RouteKind,
    Rule, SysctlKey, reclaim_dead, sysctl,
};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn read(key: &str) -> String {
    sysctl::read(&key.parse().unwrap()).unwrap()
}

fn write(key: &str, value: &str) {
    sysctl::write(&key.parse().unwrap(), value).unwrap();
}

fn ledger(run: &Path) -> PathBuf {
    let namespace = NamespaceId::current().unwrap().to_string();
    run.join("net").join(namespace).join("ledger.json")
}

/// One of each kind, for an interface veth0.
fn changes() -> Vec<Change> {
    let unreachable = Route {
        kind: RouteKind::Unreachable,
        device: None,
        ..Route::new(net("2001:db8:dead::/48"), "")
    };
    let mut rule = Rule::new(false, 100, 4_646);
    rule.mark = Some((0x46, 0xff));
    vec![
        Change::sysctl(SysctlKey::forwarding_v4(), "1"),
        Change::sysctl(SysctlKey::forwarding_v6(), "1"),
        Change::sysctl(SysctlKey::conf_v4("veth0", "rp_filter").unwrap(), "2"),
        Change::Mtu { device: "veth0".to_owned(), mtu: 1480 },
        Change::Up { device: "veth0".to_owned() },
        Change::Address(Address::new("veth0", net("192.0.2.1/24"))),
        Change::Address(Address { no_dad: true, ..Address::new("veth0", net("2001:db8::1/64")) }),
        Change::Route(Route {
            gateway: Some("2001:db8::2".parse().unwrap()),
            mtu: Some(1400),
            ..Route::new(net("64:ff9b::/96"), "veth0")
        }),
        Change::Route(unreachable),
        Change::Rule(rule),
        Change::NeighbourProxy(NeighbourProxy::new("veth0", "2001:db8::46".parse().unwrap())),
    ]
}

/// What of the host the changes touch, as text.
fn snapshot() -> String {
    let mut text = String::new();
    for line in [
        "link show veth0",
        "address show veth0",
        "route show table all",
        "-6 route show table all",
        "rule show",
        "-6 rule show",
        "neigh show proxy",
    ] {
        // What the kernel adds by itself comes and goes in its own time.
        let own = |line: &&str| line.contains("fe80") || line.starts_with("multicast ff00");
        for line in ip_output(line).lines().filter(|line| !own(line)) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    for key in [
        "net.ipv4.ip_forward",
        "net.ipv6.conf.all.forwarding",
        "net.ipv6.conf.veth0.forwarding",
        "net.ipv6.conf.veth1.forwarding",
        "net.ipv4.conf.veth0.forwarding",
        "net.ipv4.conf.veth1.forwarding",
        "net.ipv4.conf.veth0.rp_filter",
        "net.ipv4.conf.all.accept_redirects",
    ] {
        text.push_str(&format!("{key} = {}\n", read(key)));
    }
    text
}

fn prepared_host() {
    ip("link add veth0 type veth peer name veth1");
    // The first time up also sets a queueing discipline.
    ip("link set veth0 up");
    ip("link set veth0 down");
    // Without these the kernel's own addresses and multicast routes, which
    // come late and by themselves, would make snapshots differ.
    write("net.ipv6.conf.veth0.addr_gen_mode", "1");
    write("net.ipv6.conf.veth1.addr_gen_mode", "1");
    write("net.ipv4.ip_forward", "0");
    write("net.ipv4.conf.all.accept_redirects", "0");
    write("net.ipv6.conf.veth1.forwarding", "1");
    write("net.ipv4.conf.veth1.forwarding", "1");
}

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
        assert_eq!(report.to_string(), "11 changes taken back");
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
            "link set veth0 mtu 1480 up",
            "address add 192.0.2.1/24 dev veth0",
            "address add 2001:db8::1/64 dev veth0 nodad",
            "-6 route add 64:ff9b::/96 via 2001:db8::2 dev veth0 mtu 1400",
            "-6 route add unreachable 2001:db8:dead::/48",
            "rule add priority 100 fwmark 0x46/0xff table 4646",
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
            "link set veth0 mtu 1400",
            "address del 192.0.2.1/24 dev veth0",
            "-6 route del 64:ff9b::/96",
            "-6 route add 64:ff9b::/96 via 2001:db8::3 dev veth0",
            "rule del priority 100",
            "rule add priority 100 fwmark 0x46/0xff table 4646",
        ] {
            ip(line);
        }
        let report = manager.restore().unwrap();
        assert_eq!(report.left.len(), 5, "{report}");
        assert_eq!(report.undone.len(), 6, "{report}");
        assert!(report.to_string().contains("it is 1400 now"), "{report}");
        assert_eq!(read("net.ipv4.conf.veth0.rp_filter"), "1");
        assert!(ip_output("link show veth0").contains("mtu 1400"));
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
        assert!(matches!(manager.apply(&change), Err(Error::NoDevice { .. })));
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
        assert!(manager.settle().unwrap().is_empty());
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
        let (dropped, kept) = all.split_at(4);
        for change in kept {
            assert_eq!(manager.apply(change).unwrap(), Applied::Kept);
        }
        assert!(ip_output("-6 route show 64:ff9b::/96").contains("mtu 1400"));
        let report = manager.settle().unwrap();
        assert_eq!(report.undone.len(), dropped.len(), "{report}");
        assert!(!manager.has_inherited());
        assert_eq!(read("net.ipv4.ip_forward"), "0");
        assert!(ip_output("address show veth0").contains("192.0.2.1/24"));
        let one = manager.retract(&kept[1]).unwrap();
        assert_eq!(one.undone, [kept[1].clone()]);
        assert!(manager.retract(&dropped[0]).unwrap().is_empty());
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), kept.len() - 1, "{report}");
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn a_killed_process_is_reclaimed() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut killed = Victim::start("nat64", run.path());
        let during = snapshot();
        assert_ne!(during, before);
        let error = Manager::open(run.path(), "nat64").unwrap_err();
        let pid = killed.child.id();
        assert!(
            matches!(&error, Error::OwnerRunning { pid: Some(held), .. } if *held == pid),
            "{error}"
        );
        assert!(reclaim_dead(run.path()).unwrap().is_empty());

        killed.kill();
        assert_eq!(snapshot(), during);
        let mut manager = Manager::open(run.path(), "nat64").unwrap();
        assert!(manager.has_inherited());
        let report = manager.restore().unwrap();
        assert_eq!(report.undone.len(), changes().len(), "{report}");
        assert_eq!(snapshot(), before);
        drop(manager);

        // The same for all that are dead, whatever their names.
        let mut one = Victim::start("one", run.path());
        let mut two = Victim::start("two", run.path());
        one.kill();
        let reports = reclaim_dead(run.path()).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].0, "one");
        assert_eq!(reports[0].1.shared.len(), changes().len());
        assert_eq!(snapshot(), during);
        two.kill();
        let reports = reclaim_dead(run.path()).unwrap();
        assert_eq!(reports[0].1.undone.len(), changes().len());
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
        in_namespace(|| {
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
fn a_ledger_from_before_the_last_start_is_void_and_a_damaged_one_is_told() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let open = || Manager::open(run.path(), "nat64");
        let mut manager = open().unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        drop(manager);
        let path = ledger(run.path());
        let text = std::fs::read_to_string(&path).unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let other = "00000000-0000-4000-8000-000000000000";
        std::fs::write(&path, text.replace(boot.trim(), other)).unwrap();
        assert!(!open().unwrap().has_inherited());

        for damage in [
            "",
            "{}",
            "[]",
            "\0",
            &text[..text.len() / 2],
            &text.replace("\"mtu\": 1480", "\"mtu\": -1"),
        ] {
            std::fs::write(&path, damage).unwrap();
            let error = open().unwrap_err();
            assert!(matches!(error, Error::Ledger { .. }), "{error}");
            assert!(error.to_string().contains("ledger.json"));
        }
        std::fs::write(&path, &text).unwrap();
        assert!(open().unwrap().has_inherited());
    });
}

#[test]
fn owners_have_plain_names() {
    let run = tempfile::tempdir().unwrap();
    for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
        let error = Manager::open(run.path(), bad).unwrap_err();
        assert!(matches!(error, Error::OwnerName { .. }), "{bad:?}");
    }
}

/// A process of its own that has made all changes and will be killed.
struct Victim {
    child: Child,
}

impl Victim {
    /// Starts it; returns once all changes are made.
    fn start(owner: &str, run_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--ignored", "--nocapture"])
            .env("VICTIM_OWNER", owner)
            .env("VICTIM_RUN_DIR", run_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        let victim = Self { child };
        assert_eq!(line, "made\n");
        victim
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of a_killed_process_is_reclaimed"]
fn victim() {
    // Without its environment somebody ran all ignored tests: nothing to do.
    let (Ok(owner), Some(run_dir)) =
        (std::env::var("VICTIM_OWNER"), std::env::var_os("VICTIM_RUN_DIR"))
    else {
        return;
    };
    let mut manager = Manager::open(Path::new(&run_dir), &owner).unwrap();
    for change in changes() {
        manager.apply(&change).unwrap();
    }
    eprintln!("made");
    // Until it is killed, or the other end of standard input closes.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_ledger_that_cannot_be_written_keeps_nothing_from_being_taken_back() {
    let run = tempfile::tempdir().unwrap();
    in_namespace(|| {
        prepared_host();
        let before = snapshot();
        let mut manager = Manager::open(run.path(), "clat0").unwrap();
        for change in changes() {
            manager.apply(&change).unwrap();
        }
        // A folder in the place of the draft stands for a full disk.
        std::fs::create_dir(ledger(run.path()).with_extension("json.new")).unwrap();
        assert!(matches!(manager.restore(), Err(Error::File { .. })));
        assert_eq!(snapshot(), before);
    });
}
