//! Addresses of a device as pool4, while they come and go.

use fordway_testhost::{can_use_tun, poll};

use super::site::{NAT64, OWN, PORTS, SERVER, SERVER_AS_V6, Site, WITHOUT_POOL, ip};
use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::ping::Request;
use crate::common::traffic;

#[test]
fn the_addresses_of_a_device_are_followed() {
    if !can_use_tun() {
        return;
    }
    for (engine, rp_filter) in [("user", 0), ("user", 2), ("kernel", 1)] {
        let (net, run) = (Site::new(), RunDir::new());
        net.gateway.sysctl("net.ipv4.conf.all.rp_filter", &rp_filter.to_string());
        let default = "route add default via 198.51.100.254";
        net.gateway.ip("addr flush dev g4 scope global");
        let daemon = Daemon::start(
            &run,
            &net.gateway,
            &format!("{WITHOUT_POOL} --pool4 interface:g4:20000-60000 --engine {engine}"),
        );
        // Without an address it runs, and says why nothing passes.
        let request = Request::send(&net.client, SERVER_AS_V6);
        daemon.counts_at_least("nat64", "drops/pool_exhausted", 1);
        assert!(!request.is_answered(), "{engine}");

        let seen_as = |address: &str| {
            let peer = traffic::tcp_both_ways(&net.client, &net.server, ip(SERVER_AS_V6), 1 << 16);
            assert!(peer.ip() == ip(address) && PORTS.contains(&peer.port()), "{engine}: {peer}");
        };
        net.gateway.ip("addr add 198.51.100.1/24 dev g4");
        net.gateway.ip(default);
        poll("the address is taken up", || net.pings().then_some(()));
        seen_as(OWN);

        // Another lease: the old address goes, as do its sessions, and a new one comes.
        net.gateway
            .configure(&["addr del 198.51.100.1/24 dev g4", "addr add 198.51.100.7/24 dev g4"]);
        net.gateway.ip(default);
        let diverted = |address: &str| {
            let ruleset = net.gateway.run("nft list ruleset");
            ruleset.contains(&format!("ip daddr {address} "))
        };
        poll("the other address is taken up", || {
            (diverted("198.51.100.7") && !diverted(OWN)).then_some(())
        });
        poll("it can be used", || net.pings().then_some(()));
        seen_as("198.51.100.7");

        // The device goes and comes back, as with a modem.
        net.gateway.ip("link del g4");
        let exhausted = || count(&daemon.stats("nat64"), "drops/pool_exhausted");
        let before = exhausted();
        poll("no address is left", || {
            Request::send(&net.client, SERVER_AS_V6);
            (exhausted() > before).then_some(())
        });
        net.gateway.link("g4", &net.router, "r4");
        net.router.ip("addr add 198.51.100.254/24 dev r4");
        net.gateway.ip("addr add 198.51.100.1/24 dev g4");
        net.gateway.ip(default);
        poll("the device is taken up again", || net.pings().then_some(()));
        seen_as(OWN);
        let reach = traffic::tcp_both_ways(&net.gateway, &net.server, ip(SERVER), 1 << 16);
        assert_eq!(reach.ip(), ip(OWN));
        daemon.stop();
    }
}

#[test]
fn connections_live_on_while_another_address_comes_and_goes() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel"] {
        let (net, run) = (Site::new(), RunDir::new());
        let daemon = Daemon::start(
            &run,
            &net.gateway,
            &format!("{WITHOUT_POOL} --pool4 interface:g4:20000-60000 --engine {engine}"),
        );
        let mut connection = Connection::open(&net.client, &net.server, ip(SERVER_AS_V6));
        let pools = |addresses: usize| {
            poll("the addresses are taken up", || {
                let ruleset = net.gateway.run("nft list ruleset");
                let found =
                    ruleset.lines().filter(|it| it.contains("ip daddr") && it.contains("goto"));
                (found.count() == addresses).then_some(())
            });
        };
        pools(1);
        net.gateway.ip("addr add 198.51.100.7/24 dev g4");
        pools(2);
        connection.check();
        net.gateway.ip("addr del 198.51.100.7/24 dev g4");
        pools(1);
        connection.check();
        assert_eq!(dropped(&daemon.stats("nat64")), 0);
        daemon.stop();
    }
}

#[test]
fn an_address_of_the_pool_may_become_the_hosts() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    // Of the other one it is told at once, for it is routed to it as well.
    let pool4 = NAT64.replace(OWN, "198.51.100.9");
    net.router.ip("route add 198.51.100.9/32 via 198.51.100.1");
    let daemon = Daemon::start(&run, &net.gateway, &pool4);
    let seen = || traffic::tcp_both_ways(&net.client, &net.server, ip(SERVER_AS_V6), 1 << 16).ip();
    assert_eq!(seen(), ip("198.51.100.9"));
    let diverts = || net.gateway.run("nft list tables").contains("fordway-nat64");
    assert!(!diverts());
    net.gateway.ip("addr add 198.51.100.9/32 dev g4");
    poll("it is diverted", || diverts().then_some(()));
    assert_eq!(seen(), ip("198.51.100.9"));
    assert!(net.server.run("ping -n -c 1 -W 30 198.51.100.9").contains("1 received"));
    net.gateway.ip("addr del 198.51.100.9/32 dev g4");
    poll("it is routed", || (!diverts()).then_some(()));
    assert_eq!(seen(), ip("198.51.100.9"));
    daemon.stop();
}

#[test]
fn addresses_that_cannot_be_taken_up_are_told_once() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    let daemon = Daemon::start(
        &run,
        &net.gateway,
        &format!("{WITHOUT_POOL} --pool4 interface:g4:20000-60000 --engine kernel"),
    );
    // A look may fall between the first and the others, which is then an address of the pool like any other.
    net.router.ip(&format!("route add 192.0.2.0/24 via {OWN}"));
    // More than the kernel engine knows, in one step.
    // Not one behind the other: these would be one range.
    let add = |last| format!("addr add 192.0.2.{last}/32 dev g4\n");
    let batch: String = (2..202).step_by(2).map(add).collect();
    let batch = run.file("batch", &batch);
    net.gateway.ip(&format!("-batch {}", batch.display()));
    let told = || daemon.log().matches("new addresses are not applied").count();
    poll("it says so", || (told() > 0).then_some(()));
    // It has looked once more when it has put a deleted table back for the second time.
    let put_back = || daemon.log().matches("; put back: ").count();
    let look_again = || {
        for _ in 0..2 {
            let before = put_back();
            poll("it is put back", || {
                let is_there = net.gateway.run("nft list tables").contains("fordway-nat64");
                let is_put_back = put_back() > before;
                // A look that was under way has made it, too.
                if is_there && !is_put_back {
                    net.gateway.run("nft flush ruleset");
                }
                (is_there && is_put_back).then_some(())
            });
        }
    };
    // Addresses may come while it looks; then it looks again.
    look_again();
    let before = told();
    look_again();
    assert_eq!(told(), before, "{}", daemon.log());
    net.assert_pings();
    // Fewer are taken up again.
    net.gateway.ip("addr flush dev g4 to 192.0.2.0/24");
    net.gateway.ip("addr add 192.0.2.9/32 dev g4");
    poll("they are followed", || daemon.log().contains("addresses of g4: ").then_some(()));
    daemon.stop();
}
