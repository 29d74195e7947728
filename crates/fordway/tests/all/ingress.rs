//! The kernel engine at the ingress of a gateway's devices.

use fordway_testhost::poll;
use serde_json::Value;

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::ping::Ping;
use crate::common::topology::{BORDER, Border, V4_HOST_AS_V6, V6_HOST_AS_V4};
use crate::common::{can_test_kernel, traffic};

const DEVICES: &str = "--engine kernel --attach ingress --device g4 --device g6";

/// Packets that programs carried in both directions.
fn by_programs(stats: &Value) -> u64 {
    count(stats, "kernel/v4_to_v6/packets") + count(stats, "kernel/v6_to_v4/packets")
}

/// How many hops an echo reply has come.
fn ttl(text: &str) -> Option<&str> {
    text.split(" ttl=").nth(1)?.split(' ').next()
}

#[test]
fn all_passes_as_at_the_interface() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let mut hops = Vec::new();
    for engine in ["--engine kernel", DEVICES] {
        let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {engine}"));
        for (from, to) in [(&net.v4, V6_HOST_AS_V4), (&net.v6, V4_HOST_AS_V6)] {
            let ping = from.run(&format!("ping -n -c 2 -i 0.2 {to}"));
            assert!(ping.contains("2 received"), "{ping}");
            hops.push(ttl(&ping).unwrap().to_owned());
        }
        let (v6_host, v4_host) = (V6_HOST_AS_V4.parse().unwrap(), V4_HOST_AS_V6.parse().unwrap());
        for state in ["on", "off"] {
            let features = ["tx", "sg", "tso", "gso", "gro"].map(|name| format!("{name} {state}"));
            for device in ["g4", "g6"] {
                net.gateway.run(&format!("ethtool -K {device} {}", features.join(" ")));
            }
            traffic::tcp_both_ways(&net.v4, &net.v6, v6_host, 2 << 20);
            traffic::tcp_both_ways(&net.v6, &net.v4, v4_host, 2 << 20);
        }
        let own = ("2001:db8:6::2".parse().unwrap(), "198.51.100.2".parse().unwrap());
        for len in [1, 1400, 4000] {
            traffic::udp_echo(&net.v4, &net.v6, (v6_host, own.0), len);
            traffic::udp_echo(&net.v6, &net.v4, (v4_host, own.1), len);
        }
        let stats = daemon.stats("siit0");
        assert_eq!(dropped(&stats), 0, "{stats}");
        assert!(by_programs(&stats) > 100, "{stats}");
        daemon.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
    assert_eq!(hops[..2], hops[2..], "the same hops at both places");
}

#[test]
fn status_names_the_programs_and_what_they_left_is_told() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {DEVICES}"));
    let status = daemon.status()["translators"][0].clone();
    assert_eq!((&status["engine"], &status["attach"]), (&"kernel".into(), &"ingress".into()));
    let programs = status["kernel"]["programs"].as_array().unwrap();
    let mut at: Vec<_> = programs.iter().map(|it| (&it["device"], &it["place"])).collect();
    at.sort_by_key(|it| it.0.to_string());
    assert_eq!(
        at,
        [
            (&"g4".into(), &"ingress".into()),
            (&"g6".into(), &"ingress".into()),
            (&"siit0".into(), &"egress".into())
        ]
    );
    // The hop limit runs out: the stack's to answer, and its answer names the gateway.
    let ping = net.v4.try_run(&format!("ping -n -c 1 -W 30 -t 1 {V6_HOST_AS_V4}"));
    let text = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(text.contains("198.51.100.1") && text.contains("Time to live exceeded"), "{text}");
    let stats = daemon.counts("siit0", "kernel/left_to_stack/hop_limit", 1);
    assert_eq!(by_programs(&stats), 0, "{stats}");
    daemon.stop();
}

#[test]
fn devices_that_are_made_anew_get_their_programs() {
    if !can_test_kernel() {
        return;
    }
    for attach in ["ingress", "xdp"] {
        let (net, run) = (Border::new(), RunDir::new());
        let options = DEVICES.replace("ingress", attach);
        let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {options}"));
        net.gateway.ip("link del g6");
        // One that is there goes on.
        poll("the other is followed", || {
            daemon.log().contains("programs are at g4 now").then_some(())
        });
        net.gateway.link("g6", &net.v6, "h6");
        net.gateway.configure(&["addr add 2001:db8:6::1/64 dev g6"]);
        net.v6.configure(&[
            "addr add 2001:db8:6::2/64 dev h6",
            "route add default via 2001:db8:6::1",
        ]);
        poll("both are followed", || {
            daemon.log().contains("programs are at g4, g6 now").then_some(())
        });
        let before = daemon.stats("siit0");
        let ping = net.v6.run(&format!("ping -n -c 3 -i 0.2 {V4_HOST_AS_V6}"));
        assert!(ping.contains("3 received"), "{ping}");
        let after = daemon.stats("siit0");
        assert!(by_programs(&after) >= by_programs(&before) + 6, "{before} {after}");
        let status = daemon.status()["translators"][0].clone();
        let programs = status["kernel"]["programs"].as_array().unwrap();
        assert!(
            programs.iter().any(|it| it["device"] == "g6" && it["place"] == attach),
            "{status}"
        );
        let output = run.output(&net.gateway, "down siit0");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        daemon.stop();
    }
}

#[test]
fn routing_decides_what_is_the_translators() {
    if !can_test_kernel() {
        return;
    }
    const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --interface siit0";
    for (mode, devices) in
        [(BORDER, DEVICES), (NAT64, DEVICES), (NAT64, &DEVICES.replace("ingress", "xdp"))]
    {
        let (net, run) = (Border::new(), RunDir::new());
        // Another gateway's part of the prefix.
        net.gateway.ip("-6 route add unreachable 2001:db8:64::c633:6480/121");
        let daemon = Daemon::start(&run, &net.gateway, &format!("{mode} {devices}"));
        let ping = net.v6.try_run("ping -n -c 1 -W 30 2001:db8:64::c633:6481");
        let text = String::from_utf8_lossy(&ping.stdout).into_owned();
        assert!(text.contains("No route"), "{text}");
        assert_eq!(count(&daemon.stats("siit0"), "v6_to_v4/packets"), 0);
        let ping = net.v6.run(&format!("ping -n -c 2 -i 0.2 {V4_HOST_AS_V6}"));
        assert!(ping.contains("2 received"), "{ping}");
        // A new subscriber is the user engine's.
        assert!(by_programs(&daemon.stats("siit0")) >= 3);
        daemon.stop();
    }
}

#[test]
fn traffic_outlives_a_kill_and_another_attach_point() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let first = Daemon::start(&run, &net.gateway, &format!("{BORDER} {DEVICES}"));
    let pings = Ping::start(&net.v4, V6_HOST_AS_V4);
    let carried = |daemon: &Daemon<'_>| count(&daemon.stats("siit0"), "v4_to_v6/packets");
    poll("pings pass", || (carried(&first) > 10).then_some(()));
    first.kill();
    let mut at_start = 0;
    for arguments in [DEVICES, "--engine kernel", DEVICES] {
        let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {arguments}"));
        assert!(carried(&daemon) >= at_start, "counters go on over attach points");
        at_start = carried(&daemon) + 10;
        poll("pings pass", || (carried(&daemon) > at_start).then_some(()));
        daemon.kill();
    }
    pings.end();
    Daemon::start(&run, &net.gateway, &format!("{BORDER} {DEVICES}")).stop();
    assert_same(&snapshot(&net.gateway), &before);
}
