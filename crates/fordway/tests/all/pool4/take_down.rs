//! The gateway is left as it was found.

use fordway_testhost::can_use_tun;

use super::site::{CLIENT, NAT64, OWN, SERVER_AS_V6, Site, ip, says};
use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir};
use crate::common::host::{assert_same, snapshot};

/// All that the translator may change.
fn whole(net: &Site) -> Vec<String> {
    let of_interface = |line: &String| line.contains("nat64") && line.contains("fe80:");
    let all = [snapshot(&net.gateway), net.of_pool4()].concat();
    all.into_iter().filter(|line| !of_interface(line)).collect()
}

/// Options with everything that pool4 can need.
fn options(engine: &str) -> String {
    format!("{NAT64} --engine {engine} --bib tcp:{OWN}:80=[{CLIENT}]:80")
}

#[test]
fn nothing_is_left_at_the_end() {
    if !can_use_tun() {
        return;
    }
    for (engine, rp_filter) in [("user", 0), ("user", 1), ("kernel", 2)] {
        let (net, run) = (Site::new(), RunDir::new());
        net.gateway.sysctl("net.ipv4.conf.all.rp_filter", &rp_filter.to_string());
        // Somebody else's rules and tables are nobody's business.
        net.gateway.ip("rule add priority 7 fwmark 7 table 77");
        net.gateway.run("nft add table ip fordway");
        let before = whole(&net);
        let daemon = Daemon::start(&run, &net.gateway, &options(engine));
        net.assert_pings();
        assert!(net.gateway.run("nft list tables").contains("fordway-nat64"));
        daemon.stop();
        assert_same(&whole(&net), &before);
    }
}

#[test]
fn what_a_killed_daemon_left_is_taken_back() {
    if !can_use_tun() {
        return;
    }
    for (engine, rp_filter) in [("user", 0), ("user", 2), ("kernel", 0)] {
        let (net, run) = (Site::new(), RunDir::new());
        net.gateway.sysctl("net.ipv4.conf.all.rp_filter", &rp_filter.to_string());
        let before = whole(&net);
        let daemon = Daemon::start(&run, &net.gateway, &options(engine));
        net.assert_pings();
        daemon.kill();
        assert!(net.gateway.run("nft list tables").contains("fordway-nat64"));
        // The host is still itself meanwhile.
        assert!(net.gateway.run("ping -n -c 1 -W 30 203.0.113.2").contains("1 received"));
        says(&run, &net.gateway, "down nat64");
        assert_same(&whole(&net), &before);
    }
}

#[test]
fn the_next_daemon_takes_over_what_a_killed_one_left() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"] {
        let (net, run) = (Site::new(), RunDir::new());
        let before = whole(&net);
        let daemon = Daemon::start(&run, &net.gateway, &options(engine));
        let mut connection = Connection::open(&net.client, &net.server, ip(SERVER_AS_V6));
        daemon.kill();
        if engine == "kernel" {
            connection.check();
        }
        let daemon = Daemon::start(&run, &net.gateway, &options(engine));
        net.assert_pings();
        if engine == "kernel" {
            connection.check();
        }
        drop(connection);
        // There is one table, one rule and one route of it, not two.
        let rules = net.gateway.ip("rule");
        assert_eq!(rules.matches("fwmark 0x464f").count(), 1, "{rules}");
        daemon.stop();
        assert_same(&whole(&net), &before);
    }
}

#[test]
fn two_translators_may_share_the_address() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    let before = whole(&net);
    let one = |name: &str, pool6: &str, ports: &str| {
        format!(
            "[[translator]]\nname = '{name}'\nmode = 'nat64'\npool6 = ['{pool6}']\n\
             pool4 = ['interface:g4:{ports}']\n"
        )
    };
    let text =
        one("a", "2001:db8:64::/96", "20000-29999") + &one("b", "2001:db8:65::/96", "40000-49999");
    let file = run.file("two.toml", &text);
    let daemon = Daemon::start(&run, &net.gateway, &format!("run -c {}", file.display()));
    for (server, ports) in
        [("2001:db8:64::cb00:7102", 20_000..30_000), ("2001:db8:65::cb00:7102", 40_000..50_000)]
    {
        let connection = Connection::open(&net.client, &net.server, ip(server));
        assert_eq!(connection.peer.ip(), ip(OWN));
        assert!(ports.contains(&connection.peer.port()), "{}", connection.peer);
        let ping = net.client.run(&format!("ping -n -c 2 -i 0.2 {server}"));
        assert!(ping.contains("2 received"), "{ping}");
    }
    daemon.stop();
    assert_same(&whole(&net), &before);
}
