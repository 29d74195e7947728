//! What is translated at the ingress of a gateway's devices goes on in place: it arrives from the device that it came by, as a
//! packet of the other family, and the stack and its rules see it there.

use fordway_testhost::poll;

use crate::common::daemon::{Daemon, RunDir, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::topology::{BORDER, Border, V4_HOST_AS_V6, V6_HOST_AS_V4};
use crate::common::{can_test_kernel, traffic};

const IN_PLACE: &str =
    "--engine kernel --attach ingress --device g4 --device g6 --forward in-place";
const NAT64: &str = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.1 --interface siit0";

/// Packets that a rule of nftables has counted, by the interface and the family that it is for.
fn forwarded(gateway: &Netns, from: &str, family: &str) -> u64 {
    let text = gateway.run("nft list chain inet seen forwarded");
    let rule = format!("iifname \"{from}\" meta nfproto {family} counter packets ");
    let (_, count) = text.split_once(&rule).expect("the rule");
    count.split(' ').next().unwrap().parse().unwrap()
}

fn count_forwarded(gateway: &Netns) {
    gateway.run("nft add table inet seen");
    gateway.run("nft add chain inet seen forwarded { type filter hook forward priority 0 ; }");
    for (from, family) in [("g4", "ipv6"), ("g6", "ipv4"), ("siit0", "ipv4"), ("siit0", "ipv6")] {
        gateway.run(&format!(
            "nft add rule inet seen forwarded iifname {from} meta nfproto {family} counter"
        ));
    }
}

#[test]
fn packets_arrive_from_the_device_that_they_came_by() {
    if !can_test_kernel() {
        return;
    }
    for mode in [BORDER, NAT64] {
        let (net, run) = (Border::new(), RunDir::new());
        count_forwarded(&net.gateway);
        let before = snapshot(&net.gateway);
        let daemon = Daemon::start(&run, &net.gateway, &format!("{mode} {IN_PLACE}"));
        assert_eq!(daemon.status()["translators"][0]["forward"], "in-place");
        let ping = net.v6.run(&format!("ping -n -c 2 -i 0.2 {V4_HOST_AS_V6}"));
        assert!(ping.contains("ttl=62"), "two hops, as at the interface: {ping}");
        let (v6_host, v4_host) = (V6_HOST_AS_V4.parse().unwrap(), V4_HOST_AS_V6.parse().unwrap());
        for state in ["on", "off"] {
            let features = ["tx", "sg", "tso", "gso", "gro"].map(|name| format!("{name} {state}"));
            for device in ["g4", "g6"] {
                net.gateway.run(&format!("ethtool -K {device} {}", features.join(" ")));
            }
            traffic::tcp_both_ways(&net.v6, &net.v4, v4_host, 1 << 20);
            if mode == BORDER {
                traffic::tcp_both_ways(&net.v4, &net.v6, v6_host, 1 << 20);
            }
        }
        assert_eq!(dropped(&daemon.stats("siit0")), 0);
        let seen = |from, family| forwarded(&net.gateway, from, family);
        assert!(seen("g6", "ipv4") > 100 && seen("g4", "ipv6") > 100);
        // A subscriber's first packet is the user engine's.
        assert!(seen("siit0", "ipv4") + seen("siit0", "ipv6") < 10);
        let text = daemon.stop();
        assert!(text.contains("the ingress of the devices, in place"), "{text}");
        assert_same(&snapshot(&net.gateway), &before);
    }
}

#[test]
fn a_rule_for_the_device_sees_them() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    net.gateway.run("nft add table inet filter");
    net.gateway.run(
        "nft add chain inet filter forwarded { type filter hook forward priority 0 ; policy accept ; }",
    );
    net.gateway.run("nft add rule inet filter forwarded iifname g6 meta nfproto ipv4 drop");
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {IN_PLACE}"));
    let ping = || net.v6.try_run(&format!("ping -n -c 1 -W 1 {V4_HOST_AS_V6}")).status.success();
    assert!(!ping());
    daemon.counts("siit0", "v6_to_v4/packets", 1);
    net.gateway.run("nft delete table inet filter");
    poll("nothing to drop them", || ping().then_some(()));
    daemon.stop();
}

#[test]
fn what_would_drop_them_is_told_and_refused() {
    if !can_test_kernel() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let before = snapshot(&net.gateway);
    for (key, wrong, right, why) in [
        ("net.ipv4.conf.g6.rp_filter", 1, 0, "the reverse path filter of g6 is 1"),
        ("net.ipv4.conf.all.rp_filter", 1, 0, "the reverse path filter of g4 is 1"),
        ("net.ipv6.conf.g4.disable_ipv6", 1, 0, "net.ipv6.conf.g4.disable_ipv6 is 1"),
    ] {
        net.gateway.run(&format!("sysctl -qw {key}={wrong}"));
        let output = run.output(&net.gateway, &format!("{BORDER} {IN_PLACE}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert!(said.contains("sysctl -w") && said.contains("forward = \"stack\""), "{said}");
        net.gateway.run(&format!("sysctl -qw {key}={right}"));
    }
    let own = NAT64.replace("192.0.2.1", "198.51.100.1:20000-29999");
    let output = run.output(&net.gateway, &format!("{own} {IN_PLACE}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("pool4 has an address of this host"),
        "{said}"
    );
    assert_same(&snapshot(&net.gateway), &before);

    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} {IN_PLACE}"));
    let warnings = || daemon.status()["translators"][0]["kernel"]["warnings"].clone();
    assert_eq!(warnings(), serde_json::Value::Null);
    net.gateway.run("sysctl -qw net.ipv4.conf.g6.rp_filter=1");
    let found = warnings();
    let text = found[0]["text"].as_str().unwrap();
    assert!(text.contains("would be lost: the reverse path filter of g6 is 1"), "{found}");
    net.gateway.run("sysctl -qw net.ipv4.conf.g6.rp_filter=2");
    let text = warnings()[0]["text"].to_string();
    assert!(text.contains("the reverse path filter of g6 is 2"), "it has no IPv4 address: {text}");
    net.gateway.ip("addr add 203.0.113.1/32 dev g6");
    assert_eq!(warnings(), serde_json::Value::Null);
    let ping = net.v6.run(&format!("ping -n -c 1 {V4_HOST_AS_V6}"));
    assert!(ping.contains("ttl=62"), "a loose filter lets them pass: {ping}");
    net.gateway.run("sysctl -qw net.ipv4.conf.g6.forwarding=0");
    assert!(warnings()[0]["text"].as_str().unwrap().contains("forwarding is 0"), "{}", warnings());
    daemon.stop();
}
