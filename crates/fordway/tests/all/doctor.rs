//! `fordway doctor` on hosts and gateways that are well, and on those that are not.
//!
//! ```text
//! host h0 2001:db8:1::2/64 ─── 2001:db8:1::1/64 g6 gateway g4 198.51.100.254/24 ─── 198.51.100.1/24 s0 server
//! ```

use fordway_testhost::can_use_tun;
use serde_json::Value;

use crate::common::can_test_kernel;
use crate::common::daemon::{Daemon, RunDir};
use crate::common::netns::Netns;

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
        gateway.configure(&[
            "addr add 2001:db8:1::1/64 dev g6",
            "addr add 198.51.100.254/24 dev g4",
            "route add default via 198.51.100.1",
        ]);
        host.configure(&[
            "addr add 2001:db8:1::2/64 dev h0",
            "route add default via 2001:db8:1::1",
        ]);
        server.configure(&[
            "addr add 198.51.100.1/24 dev s0",
            "route add 192.0.2.0/28 via 198.51.100.254",
        ]);
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
    if !can_use_tun() {
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
fn routes_that_need_a_carrier_are_found() {
    if !can_test_kernel() {
        return;
    }
    let network = Network::new();
    // Its interface stays, and nobody keeps its settings.
    network.start().kill();
    let (_, findings) = network.examine();
    assert!(those(&findings, "carrier", "warning").is_empty(), "{findings:#?}");
    network.gateway.run("sysctl -qw net.ipv4.conf.nat64.ignore_routes_with_linkdown=1");
    let (_, findings) = network.examine();
    let advice = "net.ipv4.conf.nat64.ignore_routes_with_linkdown=0 (";
    assert!(only(&findings, "carrier", "warning").contains("routes into nat64"), "{findings:#?}");
    let found = those(&findings, "carrier", "warning").pop().unwrap();
    assert!(found["advice"].as_str().unwrap().contains(advice), "{found}");
    // The next daemon takes over the pinned programs and tables, and removes them.
    network.start().stop();
}

#[test]
fn chained_packets_are_warned_of() {
    if !can_use_tun() {
        return;
    }
    let network = Network::new();
    let daemon = network.start();
    let (_, findings) = network.examine();
    assert!(those(&findings, "offload", "warning").is_empty(), "{findings:#?}");
    network.gateway.run("ethtool -K g6 rx-gro-list on");
    let (_, findings) = network.examine();
    assert!(only(&findings, "offload", "warning").contains("on at g6:"), "{findings:#?}");
    let found = those(&findings, "offload", "warning").pop().unwrap();
    // What the advice says helps.
    network.gateway.run(found["advice"].as_str().unwrap());
    let (_, findings) = network.examine();
    assert!(those(&findings, "offload", "warning").is_empty(), "{findings:#?}");
    daemon.stop();
}

#[test]
fn rules_in_the_way_are_named() {
    if !can_use_tun() {
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
    if !can_use_tun() {
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
    if !can_use_tun() {
        return;
    }
    let host = Netns::new("host");
    let (works, findings) = examine(&RunDir::new(), &host, "");
    assert!(!works);
    assert!(only(&findings, "route6", "bad").contains("no IPv6 default route"));
}

impl Network {
    /// Another file than that of a translator.
    fn configure(&mut self, text: &str) {
        self.file = self.dir.file("other.toml", text).display().to_string();
    }

    fn nft(&self, line: &str) {
        self.gateway.run(&format!("nft {line}"));
    }
}

#[test]
fn a_transport_relay() {
    if !can_use_tun() {
        return;
    }
    let mut network = Network::new();
    network.configure("[[trt]]\nname = 'relay'\npool6 = ['2001:db8:64::/96']\n");
    let daemon = network.start();
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    assert!(only(&findings, "daemon", "good").contains("relay (transport relay)"));
    let seen = those(&findings, "relay", "good");
    assert_eq!(seen.len(), 2, "table and delivery: {findings:#?}");
    assert!(those(&findings, "forwarding", "bad").is_empty(), "a relay needs none");

    // One that runs puts back what somebody takes away.
    daemon.kill();
    let rule = network.gateway.ip("-6 rule show pref 246");
    let rule = rule.lines().next().unwrap().split_once(':').unwrap().1.trim().to_owned();
    network.gateway.ip(&format!("-6 rule del pref 246 {rule}"));
    network.nft("delete table ip6 fordway-trt-relay");
    network.nft("add table inet filter");
    network
        .nft("add chain inet filter input { type filter hook input priority 0 ; policy drop ; }");
    let (works, findings) = network.examine();
    assert!(!works);
    let bad = those(&findings, "relay", "bad");
    let seen: Vec<&str> = bad.iter().filter_map(|it| it["seen"].as_str()).collect();
    assert!(seen.iter().any(|it| it.contains("no table ip6 fordway-trt-relay")), "{seen:?}");
    assert!(seen.iter().any(|it| it.contains("a policy rule that looks mark")), "{seen:?}");
    assert!(only(&findings, "firewall", "bad").contains("TCP from clients to 2001:db8:64::/96"));
}

#[test]
fn proxies_and_those_they_ask() {
    if !can_use_tun() {
        return;
    }
    let mut network = Network::new();
    let site = network.server.inside(|| std::net::TcpListener::bind("198.51.100.1:80").unwrap());
    network.configure(
        "[[proxy]]\nname = 'clients'\nlisten = ['2001:db8:1::1']\n\
         [[proxy]]\nname = 'site'\nmode = 'reverse'\nlisten = ['2001:db8:1::1']\n\
         upstream = ['198.51.100.1', '198.51.100.1:81']\n",
    );
    let (works, findings) = network.examine();
    assert!(!works);
    assert_eq!(those(&findings, "proxy", "bad").len(), 2, "nobody listens: {findings:#?}");
    let daemon = network.start();
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    let good = those(&findings, "proxy", "good");
    let seen: Vec<&str> = good.iter().filter_map(|it| it["seen"].as_str()).collect();
    assert_eq!(
        seen,
        [
            "clients listens on [2001:db8:1::1]:3128",
            "site listens on [2001:db8:1::1]:80",
            "site reaches 198.51.100.1:80"
        ]
    );
    let warnings = those(&findings, "proxy", "warning");
    let seen: Vec<&str> = warnings.iter().filter_map(|it| it["seen"].as_str()).collect();
    assert!(seen.iter().any(|it| it.contains("198.51.100.1:81 (Connection refused")), "{seen:?}");
    assert!(seen.iter().any(|it| it.contains("there is no IPv6 default route")), "{seen:?}");

    drop(site);
    network.nft("add table inet filter");
    network.nft("add chain inet filter input { type filter hook input priority 0 ; }");
    network.nft("add rule inet filter input iifname g6 tcp dport 3128 drop");
    let (works, findings) = network.examine();
    assert!(!works);
    assert!(only(&findings, "proxy", "bad").contains("site does not reach 198.51.100.1:80"));
    let firewall: Vec<&Value> = findings.iter().filter(|it| it["check"] == "firewall").collect();
    assert!(firewall.iter().all(|it| it["state"] != "good"), "{firewall:#?}");
    daemon.stop();
}

#[test]
fn what_the_kernel_does_by_itself() {
    if !can_use_tun() {
        return;
    }
    let mut network = Network::new();
    network.configure(
        "[[translator]]\nname = 'home'\nmode = 'nat44'\nclients = ['203.0.113.0/24']\n\
         uplink = 'g4'\ndevices = ['g6']\n",
    );
    let daemon = network.start();
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    assert!(only(&findings, "conntrack", "good").contains("connections"));
    let good = those(&findings, "nat44", "good");
    assert_eq!(good.len(), 4, "table, two devices, default route: {findings:#?}");
    assert!(those(&findings, "firewall", "warning").is_empty(), "translated once: {findings:#?}");

    // A daemon that runs would make it again.
    daemon.kill();
    network.nft("delete table ip fordway-nat44-home");
    let (works, findings) = network.examine();
    assert!(!works);
    assert!(only(&findings, "nat44", "bad").contains("no table ip fordway-nat44-home"));
    let daemon = network.start();
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    network.gateway.ip("addr flush dev g4");
    let (works, findings) = network.examine();
    assert!(!works);
    let bad = those(&findings, "nat44", "bad");
    let seen: Vec<&str> = bad.iter().filter_map(|it| it["seen"].as_str()).collect();
    assert!(seen.iter().any(|it| it.contains("no IPv4 address that hosts could get")), "{seen:?}");
    drop(daemon);
}

#[test]
fn both_ends_of_a_softwire() {
    if !can_use_tun() {
        return;
    }
    let mut network = Network::new();
    network.configure(
        "[[translator]]\nname = 'tep'\nmode = 'softwire'\nrole = 'tep'\nengine = 'user'\n\
         local = '2001:db8:f::1'\n\
         bindings = [{ v4 = '192.0.2.9', remote = '2001:db8:1::2' }]\n",
    );
    let daemon = network.start();
    let (works, findings) = network.examine();
    assert!(works, "{findings:#?}");
    assert_eq!(those(&findings, "route", "good").len(), 2, "own end and client: {findings:#?}");
    assert!(only(&findings, "softwire", "good").contains("2001:db8:1::2, is behind g6"));

    network.gateway.ip("addr del 2001:db8:1::1/64 dev g6");
    let (works, findings) = network.examine();
    assert!(!works);
    assert!(only(&findings, "softwire", "bad").contains("there is no route to a client"));
    daemon.stop();
}
