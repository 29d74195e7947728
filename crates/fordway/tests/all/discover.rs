//! `fordway discover` in networks that tell their prefix, and in those that don't.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use fordway_testhost::{can_use_tun, poll};
use serde_json::Value;

use crate::common::advertiser::{Advertiser, Content};
use crate::common::daemon::RunDir;
use crate::common::dns::Zone;
use crate::common::laptop::{Laptop, NET, OTHER_PREF64, PREF64, RESOLVER, dns64};
use crate::common::netns::Netns;
use crate::common::process::Process;

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn discover(netns: &Netns, options: &str) -> Output {
    RunDir::new().output(netns, &format!("discover {options}"))
}

/// The kernel takes its default route from the advertisement.
fn wait_for_route(netns: &Netns) {
    poll("a default route", || netns.ip("-6 route show default").contains("default").then_some(()));
}

#[test]
fn both_ways_are_told_and_the_advertisement_goes_first() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let _resolver = net.resolver(dns64(OTHER_PREF64));
    let content =
        Content { rdnss: vec![RESOLVER.parse().unwrap()], ..Content::new(NET, &[PREF64]) };
    let _router = Advertiser::start(&net.router, "s0", content);
    wait_for_route(&net.host);
    let output = discover(&net.host, "--timeout 1m");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("{PREF64}  used"), "{said}");
    assert!(
        lines[1].starts_with("  from       router fe80::") && lines[1].contains("on c0"),
        "{said}"
    );
    assert!(lines[2].starts_with("  until      "), "{said}");
    assert!(lines[3].starts_with(&format!("{OTHER_PREF64}  not used: on c0 a router")), "{said}");
    assert!(lines[4].contains(&format!("resolver [{RESOLVER}]:53 on c0")), "{said}");

    let output = discover(&net.host, "--device c0 --json --timeout 1m");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["preferred"], PREF64, "{json:#}");
    assert_eq!(json["prefixes"][1]["source"], "dns");
    assert_eq!(json["prefixes"][1]["used"], false);
    assert_eq!(json["listens"], true);
    let left = json["prefixes"][0]["seconds_left"].as_u64().unwrap();
    assert!(left <= 1800 && left > 1700, "{left}");
}

#[test]
fn where_there_is_none_it_says_what_was_tried() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let zone = Zone::new("ipv4only.arpa").a("ipv4only.arpa", "192.0.0.170");
    let _resolver = net.resolver(zone);
    let content = Content { rdnss: vec![RESOLVER.parse().unwrap()], ..Content::new(NET, &[]) };
    let _router = Advertiser::start(&net.router, "s0", content);
    wait_for_route(&net.host);
    let output = discover(&net.host, "--timeout 1m");
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{complaint}");
    assert!(said.starts_with("c0  up\n  router fe80::"), "{said}");
    assert!(said.contains(": without PREF64, heard "), "{said}");
    let no_dns64 = "knows ipv4only.arpa, but no IPv6 address for it: it is no DNS64 server";
    assert!(said.contains(&format!("  resolver [{RESOLVER}]:53: {no_dns64}\n")), "{said}");
    assert!(
        complaint.starts_with("error: no translation prefix was found\n  hint: "),
        "{complaint}"
    );

    let output = discover(&net.host, "--json --timeout 1m");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["preferred"], Value::Null);
}

#[test]
fn without_a_network_it_says_so() {
    if !can_use_tun() {
        return;
    }
    let netns = Netns::new("bare");
    let output = discover(&netns, "--timeout 10ms");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no interface can pass packets"), "{output:?}");
    let output = discover(&netns, "--device eth9");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no interface eth9"), "{output:?}");
}

#[test]
fn without_privileges_resolvers_are_asked_all_the_same() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    net.host.configure(&[
        "addr add 2001:db8:1::9/64 dev c0",
        "route add default via 2001:db8:1::1 dev c0",
    ]);
    let _resolver = net.resolver(dns64(PREF64));
    let run = RunDir::new();
    let resolv_conf = run.file("resolv.conf", &format!("nameserver {RESOLVER}\n"));
    // A file of its own in the place of the machine's, and no CAP_NET_RAW.
    let script = "mount --bind \"$1\" /etc/resolv.conf && shift && \
                  exec setpriv --bounding-set -net_raw --inh-caps -net_raw \"$@\"";
    let mut command = net.host.command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(resolv_conf);
    command
        .args([crate::common::daemon::FORDWAY, "discover", "--timeout", "1m"])
        .env("NO_COLOR", "1");
    let output = command.output().unwrap();
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{complaint}");
    let warning = "warning: router advertisements are not listened to";
    assert!(complaint.starts_with(warning), "{complaint}");
    let from =
        format!("{PREF64}  used\n  from       resolver [{RESOLVER}]:53 on c0: ipv4only.arpa");
    assert!(said.starts_with(&from), "{said}");
}

#[test]
fn changes_are_told_as_they_happen() {
    if !can_use_tun() {
        return;
    }
    let net = Laptop::new();
    let run = RunDir::new();
    let router = Advertiser::start(&net.router, "s0", Content::new(NET, &[PREF64]));
    wait_for_route(&net.host);
    let mut command = run.command(&net.host, "discover --watch --json");
    let mut watch = Process::start(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut preferred = || -> Value {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["preferred"].clone()
    };
    assert_eq!(preferred(), Value::Null);
    assert_eq!(preferred(), PREF64);
    // It is said five times a second, which is no change.
    router.say(Content::new(NET, &[OTHER_PREF64]).withdraws(PREF64));
    let mut seen = preferred();
    // Both may have been there for a moment.
    while seen != OTHER_PREF64 {
        assert_eq!(seen, PREF64);
        seen = preferred();
    }
}
