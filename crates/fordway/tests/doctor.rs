//! `fordway doctor` on hosts and gateways that are well, and on those that are not.
//!
//! ```text
//! host h0 2001:db8:1::2/64 ─── 2001:db8:1::1/64 g6 gateway g4 198.51.100.254/24 ─── 198.51.100.1/24 s0 server
//! ```

mod common;

use common::can_test;
use common::daemon::{Daemon, RunDir};
use common::netns::Netns;
use serde_json::Value;

const CONFIG: &str = "\
[[translator]]
name = 'nat64'
mode = 'nat64'
pool6 = ['2001:db8:64::/96']
pool4 = ['192.0.2.0/28']
";

/// A gateway between a host and a server, and its file.
struct Network {
    _host: Netns,
    gateway: Netns,
    server: Netns,
    dir: RunDir,
    file: String,
}

impl Network {
    fn new() -> Network {
        let [host, gateway, server] = ["host", "gw", "server"].map(Netns::new);
        gateway.link("g6", &host, "h0");
        gateway.link("g4", &server, "s0");
        gateway.ip("addr add 2001:db8:1::1/64 dev g6");
        gateway.ip("addr add 198.51.100.254/24 dev g4");
        gateway.ip("route add default via 198.51.100.1");
        host.ip("addr add 2001:db8:1::2/64 dev h0");
        host.ip("-6 route add default via 2001:db8:1::1");
        server.ip("addr add 198.51.100.1/24 dev s0");
        server.ip("route add 192.0.2.0/28 via 198.51.100.254");
        let dir = RunDir::new();
        let file = dir.file("nat64.toml", CONFIG).display().to_string();
        Network { _host: host, gateway, server, dir, file }
    }

    fn start(&self) -> Daemon<'_> {
        Daemon::start(&self.dir, &self.gateway, &format!("run -c {}", self.file))
    }

    fn examine(&self) -> (bool, Vec<Value>) {
        examine(&self.dir, &self.gateway, &format!("-c {}", self.file))
    }
}

/// What the doctor found: whether all works, and its findings.
fn examine(dir: &RunDir, netns: &Netns, arguments: &str) -> (bool, Vec<Value>) {
    let output = dir.output(netns, &format!("doctor --json --timeout 200ms {arguments}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{errors}"));
    let works = report["works"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if works { 0 } else { 1 }), "{text}{errors}");
    assert_eq!(errors, "");
    (works, report["findings"].as_array().unwrap().clone())
}

/// The findings of a check in a state, each with its advice.
fn those<'a>(findings: &'a [Value], check: &str, state: &str) -> Vec<&'a Value> {
    let matches = |it: &&Value| it["check"] == check && it["state"] == state;
    findings.iter().filter(matches).collect()
}

/// The only finding of a check in a state, as a text.
#[track_caller]
fn only(findings: &[Value], check: &str, state: &str) -> String {
    let found = those(findings, check, state);
    assert_eq!(found.len(), 1, "{check} {state}: {findings:#?}");
    found[0]["seen"].as_str().unwrap().to_owned()
}

#[test]
fn a_gateway_that_is_well() {
    if !can_test() {
        return;
    }
    let network = Network::new();
    let daemon = network.start();
    // The router that its default route names is an IPv4 host that answers.
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    assert!(only(&findings, "nat64", "good").starts_with("198.51.100.1 answers as"));
    assert!(only(&findings, "mtu", "good").contains("1500 octets"));
    for check in ["daemon", "forwarding", "interface", "route4", "firewall"] {
        only(&findings, check, "good");
    }
    assert_eq!(those(&findings, "route", "good").len(), 2, "pool6 and pool4: {findings:#?}");
    daemon.stop();

    let (works, findings) = network.examine();
    assert!(!works);
    only(&findings, "daemon", "bad");
    assert!(only(&findings, "interface", "bad").contains("there is no nat64"));
}

#[test]
fn rules_in_the_way_are_named() {
    if !can_test() {
        return;
    }
    let network = Network::new();
    let daemon = network.start();
    let nft = |line: &str| network.gateway.run(&format!("nft {line}"));
    nft("add table inet filter");
    nft("add chain inet filter forward { type filter hook forward priority 0 ; policy drop ; }");
    nft("add rule inet filter forward iifname g6 oifname g4 accept");
    let (works, findings) = network.examine();
    assert!(!works);
    let bad = those(&findings, "firewall", "bad");
    let seen: Vec<&str> = bad.iter().filter_map(|it| it["seen"].as_str()).collect();
    assert!(
        seen.iter().all(|it| it.contains("the policy of chain inet filter forward")),
        "{seen:?}"
    );
    // What the advice says helps.
    for finding in &bad {
        let advice = finding["advice"].as_str().unwrap();
        nft(advice.strip_prefix("let it pass: nft ").unwrap());
    }
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");

    nft("add table ip nat");
    nft("add chain ip nat post { type nat hook postrouting priority 100 ; }");
    nft("add rule ip nat post oifname g4 masquerade");
    let (_, findings) = network.examine();
    assert!(only(&findings, "firewall", "warning").contains("translated twice"), "{findings:#?}");
    daemon.stop();
}

#[test]
fn a_black_hole_is_found() {
    if !can_test() {
        return;
    }
    let network = Network::new();
    let daemon = network.start();
    // What is longer is dropped there without a word.
    network.server.ip("link set s0 mtu 1300");
    let (works, findings) = network.examine();
    assert!(!works);
    assert!(only(&findings, "mtu", "bad").contains("a black hole"), "{findings:#?}");
    // A router that knows says so.
    network.gateway.ip("route add 198.51.100.1/32 dev g4 mtu 1300");
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    assert!(only(&findings, "mtu", "good").contains("1320 octets"), "{findings:#?}");
    daemon.stop();
}

#[test]
fn a_host_without_a_network() {
    if !can_test() {
        return;
    }
    let host = Netns::new("host");
    let (works, findings) = examine(&RunDir::new(), &host, "");
    assert!(!works);
    assert!(only(&findings, "route6", "bad").contains("no IPv6 default route"));
}
