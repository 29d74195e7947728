//! A gateway between an IPv4 and an IPv6 network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fordway_testhost::{can_use_tun, poll};

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::host::{assert_same, snapshot};
use crate::common::topology::{BORDER, Border, V4_HOST_AS_V6, V6_HOST_AS_V4};
use crate::common::traffic;

#[test]
fn ping_both_ways_counts_two_hops() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, BORDER);
    let from_v4 = net.v4.run(&format!("ping -n -c 2 -i 0.2 {V6_HOST_AS_V4}"));
    assert!(from_v4.contains("64 bytes from 192.0.2.2: icmp_seq=1 ttl=62"), "{from_v4}");
    let from_v6 = net.v6.run(&format!("ping -n -c 2 -i 0.2 {V4_HOST_AS_V6}"));
    assert!(
        from_v6.contains(&format!("64 bytes from {V4_HOST_AS_V6}: icmp_seq=1 ttl=62")),
        "{from_v6}"
    );
    daemon.counts("siit0", "v4_to_v6/packets", 4);
    let stats = daemon.counts("siit0", "v6_to_v4/packets", 4);
    assert_eq!(dropped(&stats), 0, "{stats}");
    assert_eq!(net.gateway.run("sysctl -n net.ipv4.ip_forward").trim(), "1");
    daemon.stop();
    assert_eq!(net.gateway.run("sysctl -n net.ipv4.ip_forward").trim(), "0");
}

/// The hosts' own addresses.
const V4_OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
const V6_OWN: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 2));

/// The hops of a traceroute, by number.
fn hops(output: &str) -> Vec<String> {
    let lines = output.lines().skip(1);
    lines.filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect()
}

#[test]
fn traceroute_shows_the_gateway_twice_from_either_side() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, BORDER);
    // One probe at a time: hosts limit the rate of their errors, and several queues may reorder.
    // Into the interface the IPv4 side of the gateway counts; out of it the IPv6 side, whose address
    // has no IPv4 counterpart and is shown as the configured one (RFC 6791).
    let from_v4 = net.v4.run(&format!("traceroute -n -q 1 -N 1 -w 30 {V6_HOST_AS_V4}"));
    assert_eq!(hops(&from_v4), ["198.51.100.1", "192.0.0.8", V6_HOST_AS_V4], "{from_v4}");
    let from_v6 = net.v6.run(&format!("traceroute -6 -n -q 1 -N 1 -w 30 {V4_HOST_AS_V6}"));
    let gateway_as_v6 = "2001:db8:64::c633:6401";
    assert_eq!(hops(&from_v6), ["2001:db8:6::1", gateway_as_v6, V4_HOST_AS_V6], "{from_v6}");
    let stats = daemon.stats("siit0");
    assert_eq!(dropped(&stats), 0, "{stats}");
    daemon.stop();
}

/// The gateway's own address as the source of errors whose own source has no IPv4 address (RFC 6791 section 3.1): the kernel
/// drops what arrives with such a source unless it is told to believe the interface.
#[test]
fn errors_may_come_from_an_address_of_the_gateway() {
    if !can_use_tun() {
        return;
    }
    for rp_filter in ["0", "1", "2"] {
        let (net, run) = (Border::new(), RunDir::new());
        net.gateway.sysctl("net.ipv4.conf.all.rp_filter", rp_filter);
        let before = snapshot(&net.gateway);
        let daemon =
            Daemon::start(&run, &net.gateway, &format!("{BORDER} --icmp-source4 198.51.100.1"));
        let from_v4 = net.v4.run(&format!("traceroute -n -q 1 -N 1 -w 30 {V6_HOST_AS_V4}"));
        assert_eq!(hops(&from_v4), ["198.51.100.1", "198.51.100.1", V6_HOST_AS_V4], "{from_v4}");
        daemon.stop();
        assert_same(&snapshot(&net.gateway), &before);
    }
}

#[test]
fn an_address_that_becomes_the_gateways_is_believed_then() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, &format!("{BORDER} --icmp-source4 203.0.113.1"));
    let is = |value: &str| {
        let setting = net.gateway.run("sysctl -n net.ipv4.conf.siit0.accept_local");
        (setting.trim() == value).then_some(())
    };
    assert_eq!(is("0"), Some(()));
    net.gateway.ip("addr add 203.0.113.1/32 dev g4");
    poll("the address is believed", || is("1"));
    net.gateway.ip("addr del 203.0.113.1/32 dev g4");
    poll("it is as before", || is("0"));
    daemon.stop();
}

#[test]
fn errors_that_the_kernel_would_drop_are_refused_beforehand() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    net.gateway.ip("tuntap add dev siit0 mode tun multi_queue vnet_hdr");
    let arguments = format!("{BORDER} --no-manage --icmp-source4 198.51.100.1");
    let refused = |advice: &str| {
        let output = run.output(&net.gateway, &arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("198.51.100.1 is an address of this host"), "{text}");
        assert!(text.contains(advice), "{text}");
    };
    refused("sysctl -w net.ipv4.conf.siit0.accept_local=1");
    net.gateway.sysctl("net.ipv4.conf.siit0.accept_local", "1");
    net.gateway.sysctl("net.ipv4.conf.siit0.rp_filter", "2");
    refused("ip address add 127.0.0.64/32 dev siit0 scope host");
    net.gateway.ip("addr add 127.0.0.64/32 dev siit0 scope host");
    Daemon::start(&run, &net.gateway, &arguments).stop();
}

#[test]
fn streams_and_datagrams_pass_in_both_directions() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, BORDER);
    let (v6_host, v4_host) = (V6_HOST_AS_V4.parse().unwrap(), V4_HOST_AS_V6.parse().unwrap());
    const LEN: usize = 4 << 20;
    for state in ["on", "off"] {
        let features = ["tx", "sg", "tso", "gso", "gro"].map(|name| format!("{name} {state}"));
        for (netns, devices) in
            [(&net.v4, &["h4"][..]), (&net.gateway, &["g4", "g6"]), (&net.v6, &["h6"])]
        {
            for device in devices {
                netns.run(&format!("ethtool -K {device} {}", features.join(" ")));
            }
        }
        let peer = traffic::tcp_both_ways(&net.v4, &net.v6, v6_host, LEN);
        assert_eq!(peer.ip(), v4_host);
        let peer = traffic::tcp_both_ways(&net.v6, &net.v4, v4_host, LEN);
        assert_eq!(peer.ip(), v6_host);
    }
    for len in [1, 1452, 65_507] {
        assert_eq!(traffic::udp_echo(&net.v4, &net.v6, (v6_host, V6_OWN), len).ip(), v4_host);
        assert_eq!(traffic::udp_echo(&net.v6, &net.v4, (v4_host, V4_OWN), len).ip(), v6_host);
    }
    let stats = daemon.stats("siit0");
    assert_eq!(count(&stats, "drops/bad_offload"), 0);
    assert_eq!(count(&stats, "io/send_refused"), 0);
    daemon.stop();
}

#[test]
fn what_comes_out_is_not_routed_back_in() {
    if !can_use_tun() {
        return;
    }
    let rules = "iif siit0 lookup main suppress_ifgroup";
    for (engine, errors) in [
        ("kernel", ["Time exceeded", "Time to live exceeded"]),
        ("user", ["unreachable: No route", "Destination Host Unreachable"]),
    ] {
        let (net, run) = (Border::new(), RunDir::new());
        let more = "--routes4 203.0.113.0/24 --set hairpin=false --set ipv4_translatable=true";
        let more = format!("{BORDER} {more} --engine {engine}");
        let daemon = Daemon::start(&run, &net.gateway, &more);
        // 203.0.113.9 has no mapping: from the IPv6 side it is a pool6 address, and IPv4 routing sends
        // it back to the translator. Twice that way, and it would go round until its TTL runs out. So it is
        // from the IPv4 side.
        let asked = [(&net.v6, "2001:db8:64::203.0.113.9"), (&net.v4, "203.0.113.9")];
        for ((host, to), error) in asked.into_iter().zip(errors) {
            // The kernel's redirects come first, and it sends a host one error each second.
            poll("the gateway's own error, translated back", || {
                let ping = host.try_run(&format!("ping -n -c 10 -i 0.3 -W 1 {to}"));
                String::from_utf8_lossy(&ping.stdout).contains(error).then_some(())
            });
        }
        let stats = daemon.stats("siit0");
        let asked = count(&stats, "v6_to_v4/packets").min(count(&stats, "v4_to_v6/packets"));
        assert!(asked >= 10, "{engine}: {stats}");
        // By rules nothing comes back to the interface.
        let ended = count(&stats, "drops/loop");
        assert!(if engine == "kernel" { ended >= 20 } else { ended == 0 }, "{engine}: {stats}");
        for family in ["-4", "-6"] {
            let seen = net.gateway.ip(&format!("{family} rule"));
            assert_eq!(seen.contains(rules), engine == "user", "{engine}: {seen}");
        }
        daemon.stop();
    }
}

#[test]
fn two_translators_may_follow_each_other() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Border::new(), RunDir::new());
    let file = run.file(
        "two.toml",
        "[[translator]]\nname = 'a'\nmode = 'siit'\npool6 = ['2001:db8:64::/96']\n\
         eam = [['192.0.2.2', '2001:db8:6::2']]\n\
         [[translator]]\nname = 'b'\nmode = 'siit'\npool6 = ['2001:db8:65::/96']\n\
         eam = [['203.0.113.5', '2001:db8:6::2']]\n",
    );
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    // To IPv4 in a, back to IPv6 in b, and the answer the other way round.
    let ping = net.v6.run("ping -n -c 2 -i 0.2 2001:db8:64::203.0.113.5");
    assert!(ping.contains("2 received"), "{ping}");
    for (name, first) in [("a", "v6_to_v4"), ("b", "v4_to_v6")] {
        daemon.counts(name, "v4_to_v6/packets", 2);
        let stats = daemon.counts(name, "v6_to_v4/packets", 2);
        assert_eq!(count(&stats, &format!("{first}/fragments")), 0);
        assert_eq!(dropped(&stats), 0, "{stats}");
    }
    daemon.stop();
}

#[test]
fn a_clat_and_a_plat_make_464xlat() {
    if !can_use_tun() {
        return;
    }
    let (net, plat_dir, clat_dir) = (Border::new(), RunDir::new(), RunDir::new());
    let plat = Daemon::start(
        &plat_dir,
        &net.gateway,
        "siit --pool6 2001:db8:64::/96 --eam 192.0.2.64=2001:db8:6::464 --interface plat0",
    );
    let clat = "clat --pref64 2001:db8:64::/96 --v6 2001:db8:6::464";
    let clat = Daemon::start(&clat_dir, &net.v6, clat);
    // An IPv4 application on the IPv6 host reaches the IPv4 host: three hops back.
    let ping = net.v6.run("ping -n -c 2 -i 0.2 198.51.100.2");
    assert!(ping.contains("64 bytes from 198.51.100.2: icmp_seq=1 ttl=61"), "{ping}");
    let peer = traffic::tcp_both_ways(&net.v6, &net.v4, V4_OWN, 1 << 20);
    assert_eq!(peer.ip().to_string(), "192.0.2.64");
    clat.stop();
    plat.stop();
}
