//! Direct forwarding: what is translated at the ingress of a gateway's devices leaves past the host's stack. A packet that
//! the gateway forwards directly has come one hop, by the stack it has come two.

use fordway_testhost::poll;

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::ping::Ping;
use crate::common::topology::{BORDER, Border, V4_HOST_AS_V6, V6_HOST_AS_V4};
use crate::common::{can_test_kernel, traffic};

const DEVICES: &str = "--engine kernel --attach ingress --device g4 --device g6";
const DIRECT: &str = "--engine kernel --attach ingress --device g4 --device g6 --forward direct";
const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --interface siit0";

/// The TTL of the answer to a ping.
fn ping(from: &Netns, to: &str) -> Option<u8> {
    let output = from.try_run(&format!("ping -n -c 1 -W 5 {to}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(" ttl=").nth(1)?.split(' ').next()?.parse().ok()
}

/// Waits until answers to a host's pings have come one hop.
fn comes_directly(from: &Netns, to: &str) {
    poll("the answer to come directly", || (ping(from, to) == Some(63)).then_some(()));
}

/// Octets that a device has sent.
fn sent_octets(netns: &Netns, device: &str) -> u64 {
    let text = netns.run("cat /proc/net/dev");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{device}:")));
    line.unwrap().split_whitespace().nth(8).unwrap().parse().unwrap()
}

fn routed(daemon: &Daemon<'_>) -> u64 {
    count(&daemon.stats("siit0"), "kernel/routed")
}

#[test]
fn all_passes_and_nothing_is_left() {
    if !can_test_kernel() {
        return;
    }
    for mode in [BORDER, NAT64] {
        let (net, run) = (Border::new(), RunDir::new());
        let before = snapshot(&net.gateway);
        let daemon = Daemon::start(&run, &net.gateway, &format!("{mode} {DIRECT}"));
        assert_eq!(daemon.status()["translators"][0]["forward"], "direct");
        // Neighbours are found by the stack.
        comes_directly(&net.v6, V4_HOST_AS_V6);
        let (v6_host, v4_host) = (V6_HOST_AS_V4.parse().unwrap(), V4_HOST_AS_V6.parse().unwrap());
        let routed_before = routed(&daemon);
        let octets = || sent_octets(&net.gateway, "g4");
        let (stats, sent) = (daemon.stats("siit0"), octets());
        for state in ["on", "off"] {
            let features = ["tx", "sg", "tso", "gso", "gro"].map(|name| format!("{name} {state}"));
            for device in ["g4", "g6"] {
                net.gateway.run(&format!("ethtool -K {device} {}", features.join(" ")));
            }
            traffic::tcp_both_ways(&net.v6, &net.v4, v4_host, 2 << 20);
            if mode == BORDER {
                traffic::tcp_both_ways(&net.v4, &net.v6, v6_host, 2 << 20);
            }
        }
        if mode == BORDER {
            let own = ("2001:db8:6::2".parse().unwrap(), "198.51.100.2".parse().unwrap());
            for len in [1, 1400] {
                traffic::udp_echo(&net.v4, &net.v6, (v6_host, own.0), len);
                traffic::udp_echo(&net.v6, &net.v4, (v4_host, own.1), len);
            }
            comes_directly(&net.v4, V6_HOST_AS_V4);
        }
        let after = daemon.stats("siit0");
        assert_eq!(dropped(&after), 0, "{after}");
        // What was counted has left: super-packets with all of their octets.
        let counted =
            count(&after, "kernel/v6_to_v4/octets") - count(&stats, "kernel/v6_to_v4/octets");
        assert!(counted > 4 << 20 && octets() - sent > 4 << 20, "{counted} {after}");
        assert_eq!(routed(&daemon), routed_before, "{after}");
        let output = run.output(&net.gateway, "down siit0");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        daemon.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
}

#[test]
fn neighbours_routes_and_links_are_followed() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {DIRECT}"));
    let unreachable = |what: &str| {
        poll(what, || {
            let output = net.v4.try_run(&format!("ping -n -c 1 -W 1 {V6_HOST_AS_V4}"));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // An error of the stack, translated.
            (text.contains("nreachable") || text.contains("rohibited")).then_some(())
        });
    };
    comes_directly(&net.v4, V6_HOST_AS_V4);

    let before = routed(&daemon);
    // Programs keep what they know until the daemon has heard of a change.
    poll("a packet without a known neighbour is the stack's", || {
        net.gateway.ip("neigh flush dev g6");
        assert!(ping(&net.v4, V6_HOST_AS_V4).is_some(), "the stack finds the neighbour");
        (routed(&daemon) > before).then_some(())
    });
    comes_directly(&net.v4, V6_HOST_AS_V4);

    net.v6.ip("link set h6 address 02:00:00:00:06:02");
    net.gateway.ip("neigh replace 2001:db8:6::2 lladdr 02:00:00:00:06:02 dev g6");
    comes_directly(&net.v4, V6_HOST_AS_V4);

    for kind in ["unreachable", "prohibit"] {
        net.gateway.ip(&format!("-6 route add {kind} 2001:db8:6::2/128"));
        unreachable(kind);
        net.gateway.ip(&format!("-6 route del {kind} 2001:db8:6::2/128"));
        comes_directly(&net.v4, V6_HOST_AS_V4);
    }
    // Rules may look at protocol and ports.
    net.gateway.ip("-6 route add table 100 prohibit default");
    net.gateway.ip("-6 rule add pref 100 ipproto udp dport 9 table 100");
    comes_directly(&net.v4, V6_HOST_AS_V4);
    let udp = (V6_HOST_AS_V4.parse().unwrap(), 9);
    net.v4.inside(|| {
        let socket = std::net::UdpSocket::bind("198.51.100.2:0").unwrap();
        socket.connect::<(std::net::IpAddr, u16)>(udp).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
        poll("datagrams to this port are prohibited", || {
            // The host itself may refuse one that has passed before.
            let _ = socket.send(b"discard");
            let refused = socket.recv(&mut [0; 8]).expect_err("an ICMP error");
            (refused.kind() == std::io::ErrorKind::HostUnreachable).then_some(())
        });
    });

    net.gateway.ip("link set g6 down");
    assert_eq!(ping(&net.v4, V6_HOST_AS_V4), None, "the link is down");
    net.gateway.ip("link set g6 up");
    net.gateway.configure(&["addr replace 2001:db8:6::1/64 dev g6"]);
    comes_directly(&net.v4, V6_HOST_AS_V4);
    daemon.stop();
}

#[test]
fn what_does_not_fit_is_answered() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {DIRECT}"));
    comes_directly(&net.v4, V6_HOST_AS_V4);
    net.gateway.ip("-6 route add 2001:db8:6::2/128 dev g6 mtu lock 1300");
    poll("the smaller MTU is told", || {
        let output = net.v4.try_run(&format!("ping -n -c 1 -W 1 -M do -s 1400 {V6_HOST_AS_V4}"));
        String::from_utf8_lossy(&output.stdout).contains("mtu = 1280").then_some(())
    });
    net.v4.ip("route flush cache");
    let v6_host = V6_HOST_AS_V4.parse().unwrap();
    let before = routed(&daemon);
    // Its first super-packets have segments that are too long.
    traffic::tcp_both_ways(&net.v4, &net.v6, v6_host, 1 << 20);
    assert!(routed(&daemon) > before, "the stack had to answer");
    assert_eq!(dropped(&daemon.stats("siit0")), 0);
    daemon.stop();
}

#[test]
fn rules_are_bypassed_only_if_asked_twice() {
    if !can_test_kernel() {
        return;
    }
    const BYPASSED: &str = "chain seen of nftables table inet filter";
    let (net, run) = (Border::new(), RunDir::new());
    let start = |options: &str| format!("{BORDER} {options}");
    net.gateway.run("nft add table inet filter");
    net.gateway.run("nft add table ip hidden");
    net.gateway.run(
        "nft add chain inet filter seen { type filter hook forward priority 0 ; policy drop ; }",
    );
    // Translated packets would leave with addresses that NAT was to hide.
    net.gateway.run("nft add chain ip hidden out { type nat hook postrouting priority srcnat ; }");
    let before = snapshot(&net.gateway);
    let refused = run.output(&net.gateway, &start(DIRECT));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(BYPASSED), "{said}");
    assert!(said.contains("chain out of nftables table ip hidden"), "{said}");
    assert!(said.contains("bypass_nftables = true"), "{said}");
    assert_same(&snapshot(&net.gateway), &before);

    let daemon = Daemon::start(&run, &net.gateway, &start(&format!("{DIRECT} --bypass-nftables")));
    // By the stack nothing passes, and so no neighbour is found.
    net.gateway.run("ping -n -c 1 198.51.100.2");
    net.gateway.run("ping -n -c 1 2001:db8:6::2");
    comes_directly(&net.v4, V6_HOST_AS_V4);
    let warnings =
        |daemon: &Daemon<'_>| daemon.status()["translators"][0]["kernel"]["warnings"].clone();
    assert_eq!(warnings(&daemon), serde_json::Value::Null);
    let output = run.output(&net.gateway, "status");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("direct: nftables"), "{text}");
    daemon.stop();

    // Reloading has the same rules, and rules that come later are warned of.
    net.gateway.run("nft delete table inet filter");
    net.gateway.run("nft delete table ip hidden");
    let config = |forward: &str| {
        let text = format!(
            "[[translator]]\nname = \"siit0\"\nmode = \"siit\"\npool6 = [\"2001:db8:64::/96\"]\n\
             eam = [[\"192.0.2.2\", \"2001:db8:6::2\"]]\nengine = \"kernel\"\nattach = \"ingress\"\n\
             devices = [\"g4\", \"g6\"]\n{forward}\n"
        );
        run.file("direct.toml", &text)
    };
    let reload = || {
        let output = run.output(&net.gateway, "reload");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let path = config("");
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", path.display()));
    assert_eq!(ping(&net.v4, V6_HOST_AS_V4), Some(62), "by the stack");
    config("forward = \"direct\"");
    assert_eq!(reload(), (true, String::new()));
    comes_directly(&net.v4, V6_HOST_AS_V4);
    net.gateway.run("nft add table inet filter");
    net.gateway.run("nft add chain inet filter seen { type filter hook forward priority 0 ; }");
    let found = warnings(&daemon);
    assert!(found[0]["text"].as_str().unwrap().contains(BYPASSED), "{found}");
    let (done, said) = reload();
    assert!(!done && said.contains(BYPASSED), "{said}");
    config("forward = \"direct\"\nbypass_nftables = true");
    assert_eq!(reload(), (true, String::new()));
    assert_eq!(warnings(&daemon), serde_json::Value::Null);
    comes_directly(&net.v4, V6_HOST_AS_V4);
    config("forward = \"stack\"");
    assert_eq!(reload(), (true, String::new()));
    assert_eq!(ping(&net.v4, V6_HOST_AS_V4), Some(62), "by the stack");
    daemon.stop();
}

#[test]
fn it_outlives_a_kill() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {DIRECT}"));
    comes_directly(&net.v4, V6_HOST_AS_V4);
    let pings = Ping::start(&net.v4, V6_HOST_AS_V4);
    daemon.kill();
    assert_eq!(ping(&net.v4, V6_HOST_AS_V4), Some(63), "its programs go on");
    for options in [DEVICES, DIRECT] {
        let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {options}"));
        let hops = if options == DIRECT { 63 } else { 62 };
        assert_eq!(ping(&net.v4, V6_HOST_AS_V4), Some(hops), "{options}");
        daemon.kill();
    }
    pings.end();
    Daemon::start(&run, &net.gateway, &format!("{BORDER} {DIRECT}")).stop();
    assert_same(&snapshot(&net.gateway), &before);
}
