//! The tester of flows as the lab runs it: between two namespaces with a router in the middle, which
//! forwards, or hides the client behind itself. Needs root and nftables; a kernel from 5.18 on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{LAB, can_measure, can_run, has};

/// Source addresses of the tester, as a power of two.
const SOURCES: u32 = 4;

fn run(argv: &[&str]) -> String {
    let out = Command::new(argv[0]).args(&argv[1..]).output().expect("the command starts");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{argv:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Three namespaces: client, router, server. They go with this.
struct Network {
    prefix: String,
    v4: bool,
}

impl Drop for Network {
    fn drop(&mut self) {
        for role in ["c", "r", "s"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(role)]).output();
        }
    }
}

impl Network {
    fn new(v4: bool) -> Self {
        let unique = format!("{}-{:x}", std::process::id(), rand::random::<u16>());
        let network = Self { prefix: format!("flows-{unique}"), v4 };
        for role in ["c", "r", "s"] {
            run(&["ip", "netns", "add", &network.name(role)]);
            let forward = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];
            network.inside(role, &[&["sysctl", "-qw"], &forward[..]].concat());
        }
        for (end, device) in [("c", "to-c"), ("s", "to-s")] {
            let (end, router) = (network.name(end), network.name("r"));
            let veth = ["ip", "link", "add", "uplink", "netns", &end, "type", "veth"];
            run(&[&veth[..], &["peer", "name", device, "netns", &router]].concat());
        }
        for (role, device, address) in network.addresses() {
            network.inside(role, &["ip", "link", "set", device, "up"]);
            // A veth takes frames from programs, and hands them on in batches, only so.
            network.inside(role, &["ethtool", "-K", device, "gro", "on"]);
            let mut add = vec!["ip", "addr", "add", address, "dev", device];
            if !v4 {
                add.push("nodad");
            }
            network.inside(role, &add);
        }
        for (role, argv) in network.routes() {
            network.inside(role, &argv.split(' ').collect::<Vec<&str>>());
        }
        // Neighbours are resolved beforehand: a burst does not wait for them. On a busy machine a device may get its carrier so
        // late that the first attempts end with an error.
        let net = format!("--net=/run/netns/{}", network.name("c"));
        let ping = [&net, "--", "ping", "-q", "-c", "2", "-w", "5", "-i", "0.01", network.target()];
        fordway_testhost::poll("an answer of the server", || {
            let out = Command::new("nsenter").args(ping).output().expect("the command starts");
            out.status.success().then_some(())
        });
        network
    }

    fn name(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix)
    }

    fn addresses(&self) -> [(&'static str, &'static str, &'static str); 4] {
        if self.v4 {
            [
                ("c", "uplink", "192.0.2.2/30"),
                ("r", "to-c", "192.0.2.1/30"),
                ("r", "to-s", "198.51.100.1/30"),
                ("s", "uplink", "198.51.100.2/30"),
            ]
        } else {
            [
                ("c", "uplink", "2001:db8:1::2/64"),
                ("r", "to-c", "2001:db8:1::1/64"),
                ("r", "to-s", "2001:db8:5::1/64"),
                ("s", "uplink", "2001:db8:5::2/64"),
            ]
        }
    }

    fn routes(&self) -> &'static [(&'static str, &'static str)] {
        if self.v4 {
            &[
                ("c", "ip route add default via 192.0.2.1"),
                ("r", "ip route add 198.18.0.0/16 via 192.0.2.2"),
                ("s", "ip route add default via 198.51.100.1"),
            ]
        } else {
            &[
                ("c", "ip route add ::/0 via 2001:db8:1::1"),
                ("r", "ip route add 2001:db8:f00::/48 via 2001:db8:1::2"),
                ("s", "ip route add ::/0 via 2001:db8:5::1"),
            ]
        }
    }

    fn target(&self) -> &'static str {
        if self.v4 { "198.51.100.2" } else { "2001:db8:5::2" }
    }

    fn inside(&self, role: &str, argv: &[&str]) -> String {
        let net = format!("--net=/run/netns/{}", self.name(role));
        run(&[&["nsenter", &net, "--"], argv].concat())
    }

    fn nft(&self, rules: &str) {
        for rule in rules.lines().map(str::trim).filter(|r| !r.is_empty()) {
            self.inside("r", &["nft", rule]);
        }
    }

    fn mac(&self, role: &str, device: &str) -> String {
        let text = self.inside(role, &["ip", "-j", "link", "show", "dev", device]);
        let json: Value = serde_json::from_str(&text).expect("ip prints JSON");
        json[0]["address"].as_str().expect("an address").replace(':', "")
    }

    fn tester(&self, flows: u32, options: &[&str]) -> Tester {
        let net = format!("--net=/run/netns/{}", self.name("c"));
        let far = format!("/run/netns/{}", self.name("s"));
        let source = if self.v4 { "198.18.0.0" } else { "2001:db8:f00::1" };
        let mut command = Command::new("nsenter");
        command.args([&net, "--", LAB, "tester", "flows", "--device", "uplink"]);
        command.args(["--own", &self.mac("c", "uplink"), "--next", &self.mac("r", "to-c")]);
        command.args(["--far", &far, "--far-device", "uplink"]);
        command.args(["--source", source, "--target", self.target()]);
        command.args(["--sources", &SOURCES.to_string(), "--flows", &flows.to_string()]);
        command.args(options).args(self.v4.then_some("--far-v4"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tester starts");
        let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        let mut tester = Tester { child, lines };
        assert_eq!(tester.line(), "ready");
        tester
    }
}

struct Tester {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Tester {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tester {
    fn line(&mut self) -> String {
        self.lines.next().expect("the tester answers").expect("text")
    }

    fn order(&mut self, order: &str) -> Value {
        let stdin = self.child.stdin.as_mut().expect("standard input");
        writeln!(stdin, "{order}").expect("the tester listens");
        serde_json::from_str(&self.line()).expect("JSON")
    }

    /// Goes over flows, all of which arrive: nothing is given up before its time.
    fn go(&mut self, packet: &str, first: u32, until: u32, rounds: u32) -> Value {
        self.go_patiently(packet, first, until, rounds, 30)
    }

    /// The same for flows some of which do not arrive, which is known after so many seconds.
    fn go_patiently(
        &mut self,
        packet: &str,
        first: u32,
        until: u32,
        rounds: u32,
        patience_s: u32,
    ) -> Value {
        self.order(
            &format!(
                r#"{{"packet":"{packet}","first":{first},"until":{until},"step":1,"window":64,
                "rounds":{rounds},"limit_s":60,"patience_s":{patience_s}}}"#
            )
            .replace('\n', ""),
        )
    }
}

/// Whether this machine can do it; a skip where it can't.
fn possible() -> bool {
    can_run() && has("nftables", "nat44") && can_measure("new_udp_flows")
}

fn number(passed: &Value, field: &str) -> u64 {
    passed[field].as_u64().unwrap_or_else(|| panic!("{field} of {passed}"))
}

#[test]
fn every_flow_is_forwarded_and_told_apart() {
    if !possible() {
        return;
    }
    for v4 in [true, false] {
        let network = Network::new(v4);
        let mut tester = network.tester(2000, &[]);
        let passed = tester.go("datagram", 0, 2000, 1);
        for field in ["sent", "done", "reached", "flows_seen", "outer_tuples"] {
            assert_eq!(number(&passed, field), 2000, "{field}: {passed}");
        }
        assert_eq!(number(&passed, "outer_addresses"), 1 << SOURCES, "{passed}");
        for field in ["lost", "again", "wrong", "stray", "moved", "answers"] {
            assert_eq!(number(&passed, field), 0, "{field}: {passed}");
        }
        assert_eq!(passed["out_of_time"], false);
        assert!(passed["seconds"].as_f64().is_some_and(|s| s > 0.0));
        // Every second flow once more: they are known, nobody new is seen.
        let again = tester.order(
            r#"{"packet":"datagram","first":1,"until":2000,"step":2,"window":64,"rounds":1,"limit_s":60,"patience_s":30}"#,
        );
        assert_eq!((number(&again, "done"), number(&again, "flows_seen")), (1000, 2000));
    }
}

#[test]
fn what_is_lost_on_the_way_is_counted_and_tried_again() {
    if !possible() {
        return;
    }
    let network = Network::new(true);
    network.nft(
        "add table ip lossy
         add chain ip lossy forward { type filter hook forward priority 0; }
         add rule ip lossy forward udp dport 20003 drop",
    );
    let mut tester = network.tester(1600, &[]);
    // One of sixteen sources sends to that port.
    let passed = tester.go_patiently("datagram", 0, 1600, 1, 2);
    assert_eq!((number(&passed, "done"), number(&passed, "lost")), (1500, 100), "{passed}");
    network.nft("flush table ip lossy");
    let mended = tester.go("datagram", 0, 1600, 3);
    assert_eq!((number(&mended, "done"), number(&mended, "lost")), (1600, 0), "{mended}");
}

#[test]
fn connections_behind_nat44_open_carry_data_and_close() {
    if !possible() {
        return;
    }
    let network = Network::new(true);
    // Without translation no answer comes back.
    network.inside("s", &["ip", "route", "del", "default"]);
    network.nft(
        "add table ip nat
         add counter ip nat connections
         add chain ip nat out { type nat hook postrouting priority 100; }
         add rule ip nat out oifname to-s counter name connections masquerade",
    );
    let mut tester = network.tester(1000, &["--tcp", "--echo"]);
    let opened = tester.go("syn", 0, 1000, 5);
    assert_eq!((number(&opened, "done"), number(&opened, "outer_tuples")), (1000, 1000));
    assert_eq!(number(&opened, "outer_addresses"), 1, "all are hidden behind one: {opened}");
    assert_eq!(tester.order("rest"), serde_json::json!({}));
    let exchanged = tester.go("data", 0, 1000, 1);
    assert_eq!(number(&exchanged, "done"), 1000, "{exchanged}");
    let closed = tester.go("fin", 0, 1000, 1);
    assert_eq!(number(&closed, "done"), 1000, "{closed}");
    for passed in [&opened, &exchanged, &closed] {
        for field in ["wrong", "moved", "reset"] {
            assert_eq!(number(passed, field), 0, "{field}: {passed}");
        }
    }
    let text = network.inside("r", &["nft", "-j", "list", "counters", "table", "ip", "nat"]);
    let counters: Value = serde_json::from_str(&text).expect("nft prints JSON");
    let counted = counters["nftables"].as_array().expect("a list");
    let connections = counted.iter().find_map(|c| c["counter"]["packets"].as_u64());
    assert_eq!(connections, Some(1000), "the kernel's own count: {text}");
}

#[test]
fn an_order_that_makes_no_sense_ends_the_tester_with_words() {
    if !possible() {
        return;
    }
    let network = Network::new(false);
    let order = |packet: &str, until: u32, step: u32| {
        format!(
            r#"{{"packet":"{packet}","first":0,"until":{until},"step":{step},"window":8,"rounds":1,"limit_s":9,"patience_s":0.05}}"#
        )
    };
    for wrong in [
        r#"{"packet":"pigeon"}"#.to_owned(),
        order("syn", 100, 1),
        order("datagram", 101, 1),
        order("datagram", 100, 0),
    ] {
        let mut tester = network.tester(100, &[]);
        let stdin = tester.child.stdin.as_mut().expect("standard input");
        writeln!(stdin, "{wrong}").expect("it listens");
        assert!(tester.lines.next().is_none(), "{wrong}");
        assert_eq!(tester.child.wait().expect("it ends").code(), Some(1), "{wrong}");
    }
}
