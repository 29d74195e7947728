//! What the gateway itself keeps.

use fordway_testhost::{can_use_tun, poll};

use super::site::{ENGINES, NAT64, OWN, SERVER, Site, ip};
use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::traffic;

#[test]
fn its_own_connections_services_and_pings_are_its_own_even_on_ports_of_the_pool() {
    if !can_use_tun() {
        return;
    }
    for engine in ENGINES {
        let (net, run) = (Site::new(), RunDir::new());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        let peer = traffic::tcp_both_ways(&net.gateway, &net.server, ip(SERVER), 1 << 20);
        assert!(peer.ip() == ip(OWN) && (30_000..31_000).contains(&peer.port()), "{peer}");
        for len in [1, 3000] {
            let peer = traffic::udp_echo(&net.gateway, &net.server, (ip(SERVER), ip(SERVER)), len);
            assert!((30_000..31_000).contains(&peer.port()), "{peer}");
        }
        // Services, one of them on a port that it should not have.
        for from in [&net.server, &net.router, &net.gateway] {
            traffic::tcp_both_ways(from, &net.gateway, ip(OWN), 1 << 20);
            traffic::udp_echo(from, &net.gateway, (ip(OWN), ip(OWN)), 3000);
        }
        for to in [SERVER, OWN] {
            for identifier in [7, 30_000] {
                let ping = format!("ping -n -c 2 -i 0.2 -s 3000 -e {identifier} {to}");
                assert!(net.gateway.run(&ping).contains("2 received"), "{engine} {to}");
            }
        }
        let ping = net.server.run(&format!("ping -n -c 2 -i 0.2 {OWN}"));
        assert!(ping.contains("2 received"), "{ping}");
        // Errors about its own packets, by port and by identifier.
        for by in ["", "-I"] {
            let trace = net.gateway.run(&format!("traceroute {by} -n -q 1 -N 1 -w 30 {SERVER}"));
            let hops: Vec<&str> =
                trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(hops, ["198.51.100.254", SERVER], "{engine}: {trace}");
        }
        let stats = daemon.stats("nat64");
        assert_eq!(count(&stats, "v4_to_v6/packets"), 0, "{engine}: {stats}");
        assert_eq!(dropped(&stats), 0, "{engine}: {stats}");
        // And between all that, the client's.
        net.assert_pings();
        daemon.stop();
    }
}

#[test]
fn what_others_undo_is_put_back() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, NAT64);
    net.assert_pings();
    let whole = net.of_pool4();
    for line in [
        "nft flush ruleset",
        "nft flush chain ip fordway-nat64 take",
        "ip rule del priority 0 not fwmark 0",
        "ip rule flush",
    ] {
        // The rule's mark has the interface's index in it.
        let rules = net.gateway.ip("rule");
        let mark = rules.split_whitespace().find(|word| word.starts_with("0x464f")).unwrap();
        let line = line.replace("not fwmark 0", &format!("fwmark {mark}"));
        net.gateway.run(&line);
        if line == "ip rule flush" {
            net.gateway.configure(&[
                "rule add priority 32766 table main protocol kernel",
                "rule add priority 32767 table default protocol kernel",
            ]);
        }
        poll("all is as it was", || (net.of_pool4() == whole).then_some(()));
        net.assert_pings();
    }
    let log = daemon.stop();
    assert!(log.contains("; put back: "), "{log}");
}

#[test]
fn without_the_translator_its_ports_are_the_gateways_again() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.gateway, NAT64);
    // Nobody has the port: a host refuses at once, the translator waits whether somebody takes it (RFC 5382 REQ-4: 6 s).
    traffic::assert_refused(&net.server, ip(OWN), 19_999);
    let to_translator = || {
        let shown = net.gateway.run("ip -j -s link show nat64");
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    traffic::assert_unanswered(&net.server, ip(OWN), 25_000, to_translator);
    daemon.stop();
    traffic::assert_refused(&net.server, ip(OWN), 25_000);
}
