//! Translators that have other names, or each other's prefixes, in the file: a reload keeps their connections.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use fordway_testhost::{can_use_tun, require};

use crate::common::can_test_kernel;
use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count};
use crate::common::host::{assert_same, snapshot};
use crate::common::ping::Ping;
use crate::common::topology::{Border, V4_HOST_AS_V6, V6_HOST_AS_V4};

/// Prefixes, and the IPv4 host's address behind each.
const PREFIXES: [&str; 2] = ["2001:db8:64::/96", "2001:db8:65::/96"];
const V4_HOST: [&str; 2] = [V4_HOST_AS_V6, "2001:db8:65::c633:6402"];
const POOLS: [&str; 2] = ["192.0.2.1", "192.0.2.33"];

fn can_rename() -> bool {
    can_use_tun() && require(fordway_net::renames_while_up(), "Linux before 6.2 can't rename")
}

fn engines() -> &'static [&'static str] {
    if can_test_kernel() { &["user", "kernel"] } else { &["user"] }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Translators of a file: name, prefix, pool4.
fn nat64(engine: &str, translators: &[(&str, &str, &str)], more: &str) -> String {
    let mut text = String::new();
    for (name, pool6, pool4) in translators {
        let _ = write!(
            text,
            "[[translator]]\nname = '{name}'\nmode = 'nat64'\nengine = '{engine}'\n\
             pool6 = ['{pool6}']\npool4 = ['{pool4}']\n{more}"
        );
    }
    text
}

struct Gateway {
    net: Border,
    run: RunDir,
    file: PathBuf,
}

impl Gateway {
    fn new(text: &str) -> Gateway {
        let run = RunDir::new();
        let file = run.file("gateway.toml", text);
        Gateway { net: Border::new(), run, file }
    }

    fn start(&self) -> Daemon<'_> {
        Daemon::start(&self.run, &self.net.gateway, &format!("run -c {}", self.file.display()))
    }

    fn says(&self, arguments: &str) -> (bool, String) {
        let output = self.run.output(&self.net.gateway, arguments);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    /// Has the daemon reload another file; gives the plan and what came of it.
    #[track_caller]
    fn reload(&self, text: &str) -> (String, String) {
        std::fs::write(&self.file, text).unwrap();
        let (planned, plan) = self.says("reload --dry-run");
        assert!(planned, "{plan}");
        let (done, said) = self.says("reload");
        assert!(done, "{said}");
        (plan, said)
    }

    fn links(&self) -> String {
        self.net.gateway.ip("-o link")
    }
}

#[test]
fn a_renamed_translator_keeps_its_connections() {
    if !can_rename() {
        return;
    }
    for engine in engines() {
        let text = |name, more| nat64(engine, &[(name, PREFIXES[0], POOLS[0])], more);
        let gateway = Gateway::new(&text("old0", ""));
        let before = snapshot(&gateway.net.gateway);
        let daemon = gateway.start();
        let mut one = Connection::open(&gateway.net.v6, &gateway.net.v4, address(V4_HOST[0]));
        let pings = Ping::start(&gateway.net.v6, V4_HOST[0]);
        daemon.counts_at_least("old0", "v6_to_v4/packets", 6);

        let (plan, said) = gateway.reload(&text("new0", ""));
        assert!(plan.starts_with("renamed  new0  from old0; all "), "{engine}: {plan}");
        assert!(plan.ends_with("go on\nunchanged: 0\n"), "{engine}: {plan}");
        assert!(said.contains("renamed: old0 to new0"), "{engine}: {said}");
        one.check();
        let links = gateway.links();
        assert!(links.contains(": new0:") && !links.contains(": old0:"), "{links}");
        assert_eq!(daemon.status()["translators"][0]["name"], "new0");
        daemon.counts_at_least("new0", "v6_to_v4/packets", 6);

        // Another name and other values at once.
        let (plan, said) = gateway.reload(&text("gate.0", "hairpin = false\n"));
        assert!(plan.starts_with("renamed  gate.0  from new0; hairpin; all "), "{plan}");
        assert!(said.contains("renamed: new0 to gate.0"), "{said}");
        one.check();
        pings.end();
        assert_eq!(count(&daemon.stats("gate.0"), "nat64/ended_by_reload"), 0);
        if *engine == "kernel" {
            // Programs, tables and the ledger have the name as well.
            daemon.kill();
            one.check();
            let daemon = gateway.start();
            assert!(daemon.log().contains("sessions of an earlier run go on"), "{}", daemon.log());
            one.check();
            daemon.stop();
        } else {
            daemon.stop();
        }
        assert_same(&snapshot(&gateway.net.gateway), &before);
    }
}

#[test]
fn translators_swap_names_and_prefixes() {
    if !can_rename() {
        return;
    }
    for engine in engines() {
        let text = |names: [&str; 2]| {
            let of = |at: usize| (names[at], PREFIXES[at], POOLS[at]);
            nat64(engine, &[of(0), of(1)], "")
        };
        let gateway = Gateway::new(&text(["nat0", "nat1"]));
        let before = snapshot(&gateway.net.gateway);
        let daemon = gateway.start();
        let net = &gateway.net;
        let mut both = V4_HOST.map(|to| Connection::open(&net.v6, &net.v4, address(to)));
        let started = snapshot(&net.gateway);
        // What is refused when they have their new names gives them the old ones back.
        let proxy = "[[proxy]]\nname = 'p'\nlisten = ['::1']\ncertificate = '/nonexistent'\n\
                     key = '/nonexistent'\n";
        std::fs::write(&gateway.file, text(["nat1", "other"]) + proxy).unwrap();
        let (done, said) = gateway.says("reload");
        assert!(!done && said.contains("/nonexistent"), "{said}");
        assert_same(&snapshot(&net.gateway), &started);
        both.iter_mut().for_each(Connection::check);
        let (plan, said) = gateway.reload(&text(["nat1", "nat0"]));
        for (from, to) in [("nat0", "nat1"), ("nat1", "nat0")] {
            let line = format!("renamed  {to}  from {from}; all ");
            assert!(plan.contains(&line) && said.contains(&format!("{from} to {to}")), "{plan}");
        }
        both.iter_mut().for_each(Connection::check);
        let pool6 = |at: usize| daemon.status()["translators"][at]["name"].clone();
        assert_eq!((pool6(0), pool6(1)), ("nat1".into(), "nat0".into()));

        // Prefixes alone, and not the pools: what was bound to an address of the pool ends, and new connections pass.
        let crossed = [("nat1", PREFIXES[1], POOLS[0]), ("nat0", PREFIXES[0], POOLS[1])];
        let (plan, said) = gateway.reload(&nat64(engine, &crossed, ""));
        for name in ["nat0", "nat1"] {
            let line = plan.lines().find(|it| it.starts_with(&format!("renamed  {name}  from ")));
            let line = line.unwrap_or_else(|| panic!("{plan}"));
            assert!(line.contains("pool4; 1 of 1 sessions and mappings end"), "{plan}");
        }
        assert!(said.contains("do not fit any more: 2"), "{said}");
        for (to, pool) in V4_HOST.into_iter().zip([POOLS[1], POOLS[0]]) {
            let one = Connection::open(&net.v6, &net.v4, address(to));
            assert_eq!(one.peer.ip(), address(pool), "{engine} {to}");
        }
        daemon.stop();
        assert_same(&snapshot(&gateway.net.gateway), &before);
    }
}

/// Translators without state: name, prefix, IPv4 address of the IPv6 host.
fn siit(translators: &[(&str, &str, &str)], more: &str) -> String {
    let mut text = String::new();
    for (name, pool6, v4) in translators {
        let _ = write!(
            text,
            "[[translator]]\nname = '{name}'\nmode = 'siit'\nqueues = 1\npool6 = ['{pool6}']\n\
             eam = [['{v4}', '2001:db8:6::2']]\n{more}"
        );
    }
    text
}

#[test]
fn prefixes_and_addresses_move_between_translators_and_come_back_after_an_error() {
    if !can_use_tun() {
        return;
    }
    let of = |names: [&'static str; 2]| {
        [(names[0], PREFIXES[0], V6_HOST_AS_V4), (names[1], PREFIXES[1], "192.0.2.9")]
    };
    let gateway = Gateway::new(&siit(&of(["siit0", "siit1"]), ""));
    let before = snapshot(&gateway.net.gateway);
    let daemon = gateway.start();
    let device = |to: &str| {
        let route = gateway.net.gateway.ip(&format!("route get {to}"));
        let device = route.split_whitespace().skip_while(|word| *word != "dev").nth(1);
        device.unwrap().to_owned()
    };
    let devices = || [V4_HOST[0], V4_HOST[1], V6_HOST_AS_V4, "192.0.2.9"].map(device);
    assert_eq!(devices(), ["siit0", "siit1", "siit0", "siit1"]);
    let started = snapshot(&gateway.net.gateway);

    // Somebody else's route keeps the second one from changing.
    gateway.net.gateway.ip("route add 203.0.113.0/24 via 198.51.100.2 metric 2048");
    let clash = siit(&of(["siit1", "siit0"]), "");
    std::fs::write(&gateway.file, format!("{clash}routes4 = ['203.0.113.0/24']\n")).unwrap();
    let (done, said) = gateway.says("reload");
    assert!(!done && said.contains("cannot add route 203.0.113.0/24"), "{said}");
    gateway.net.gateway.ip("route del 203.0.113.0/24 metric 2048");
    assert_same(&snapshot(&gateway.net.gateway), &started);
    let pings = Ping::start(&gateway.net.v4, V6_HOST_AS_V4);
    daemon.counts_at_least("siit0", "v4_to_v6/packets", 6);

    let (plan, said) = gateway.reload(&siit(&of(["siit1", "siit0"]), ""));
    for name in ["siit0", "siit1"] {
        let line = plan.lines().find(|it| it.starts_with(&format!("changed  {name}  ")));
        let line = line.unwrap_or_else(|| panic!("{plan}"));
        assert!(line.contains("pool6") && line.contains("eam"), "{plan}");
    }
    assert!(said.contains("changed: siit1, siit0"), "{said}");
    assert_eq!(devices(), ["siit1", "siit0", "siit1", "siit0"]);
    pings.settle();

    // New ones that are started with another key take prefixes over from those that end.
    let new =
        siit(&of(["siit2", "siit3"]), "queue_length = 700\n").replace("queues = 1", "queues = 2");
    let (plan, said) = gateway.reload(&new);
    assert!(plan.contains("added    siit2\n") && plan.contains("removed  siit0"), "{plan}");
    assert!(said.contains("new: siit2, siit3; gone: "), "{said}");
    assert_eq!(devices(), ["siit2", "siit3", "siit2", "siit3"]);
    pings.end();
    daemon.stop();
    assert_same(&snapshot(&gateway.net.gateway), &before);
}
