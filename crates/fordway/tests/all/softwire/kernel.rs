//! The kernel engine at its attach points.

use fordway_testhost::{can_use_tun, has_programs, poll};

use super::{B4, CLIENT, LEN, Net, SERVER, TEP, host};
use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::traffic;

#[test]
fn the_kernel_engine_carries_softwires_and_outlives_its_daemon() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let before = (host(&net.tep), host(&net.client));
    let (tep_line, b4_line) =
        (TEP.replace("engine user", "engine kernel"), B4.replace("engine user", "engine kernel"));
    let tep = Daemon::start(&tep_dir, &net.tep, &tep_line);
    let b4 = Daemon::start(&b4_dir, &net.client, &b4_line);
    // What does not fit is cut by the user engine.
    net.exchange(&[100, 9_000]);
    for end in [&tep, &b4] {
        let stats = end.stats("softwire0");
        assert!(count(&stats, "kernel/v4_to_v6/packets") > 20, "{stats}");
        assert!(count(&stats, "kernel/v6_to_v4/packets") > 20, "{stats}");
        assert_eq!(dropped(&stats), 0, "{stats}");
        assert_eq!(end.status()["translators"][0]["engine"], "kernel");
    }
    tep.kill();
    b4.kill();
    traffic::tcp_both_ways(&net.client, &net.server, SERVER, LEN);
    let tep = Daemon::start(&tep_dir, &net.tep, &tep_line);
    let b4 = Daemon::start(&b4_dir, &net.client, &b4_line);
    traffic::tcp_both_ways(&net.client, &net.server, SERVER, LEN);
    b4.stop();
    tep.stop();
    assert_eq!((host(&net.tep), host(&net.client)), before);
}

#[test]
fn at_the_uplink_a_client_is_carried_in_place() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let before = (host(&net.tep), host(&net.client));
    let tep = Daemon::start(&tep_dir, &net.tep, TEP);
    let line = B4.replace("engine user", "engine kernel --attach uplink");
    let b4 = Daemon::start(&b4_dir, &net.client, &line);
    let status = b4.status();
    let status = &status["translators"][0];
    assert_eq!((&status["engine"], &status["attach"]), (&"kernel".into(), &"uplink".into()));
    let programs = status["kernel"]["programs"].as_array().unwrap();
    assert_eq!(
        programs.iter().map(|it| &it["device"]).collect::<Vec<_>>(),
        ["c0", "c0", "softwire0"]
    );
    let default = || net.client.ip("-4 route show default");
    let shown = default();
    assert!(shown.contains("via inet6 2001:db8:1::1 dev c0"), "{shown}");
    assert!(shown.contains("src 192.0.2.1 metric 2048 mtu 1460 advmss 1420"), "{shown}");
    // The hops are those of the interface.
    net.assert_one_hop();
    // The end point cuts what does not fit, and what comes in pieces is the user engine's.
    net.exchange(&[100, 1_432, 9_000]);
    let stats = b4.counts_at_least("softwire0", "queues/0/v6_to_v4/packets", 1);
    assert_eq!(dropped(&stats), 0, "{stats}");
    for direction in ["v4_to_v6", "v6_to_v4"] {
        assert!(count(&stats, &format!("kernel/{direction}/packets")) > 20, "{stats}");
    }
    // The way to the end point changes.
    net.router.ip("addr add 2001:db8:1::9/64 dev r1 nodad");
    net.client.ip("-6 route replace default via 2001:db8:1::9");
    poll("the route follows", || default().contains("via inet6 2001:db8:1::9").then_some(()));
    traffic::tcp_both_ways(&net.client, &net.server, SERVER, LEN);
    net.client.ip("-6 route replace default via 2001:db8:1::1");
    poll("the route follows", || default().contains("via inet6 2001:db8:1::1").then_some(()));
    b4.kill();
    traffic::tcp_both_ways(&net.client, &net.server, SERVER, LEN);
    let b4 = Daemon::start(&b4_dir, &net.client, &line);
    traffic::tcp_both_ways(&net.server, &net.client, CLIENT, LEN);
    b4.stop();
    tep.stop();
    assert_eq!((host(&net.tep), host(&net.client)), before);
}

/// Hops, octets and errors are those of the interface, and routes decide what is taken, as they do there.
#[test]
fn at_the_ingress_an_end_point_takes_what_would_be_routed_to_it() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let before = host(&net.tep);
    let line = TEP.replace("engine user", "engine kernel --attach ingress --device t6 --device t4");
    let b4 = Daemon::start(&b4_dir, &net.client, B4);
    let tep = Daemon::start(&tep_dir, &net.tep, &line);
    let status = tep.status();
    let status = &status["translators"][0];
    assert_eq!((&status["engine"], &status["attach"]), (&"kernel".into(), &"ingress".into()));
    net.assert_one_hop();
    // Nothing has come to the interface: what has, was taken in front of routing.
    tep.counts("softwire0", "kernel/v4_to_v6/packets", 6);
    tep.counts("softwire0", "kernel/v6_to_v4/packets", 6);
    let interface = net.tep.run("ip -j -s link show softwire0");
    let interface: serde_json::Value = serde_json::from_str(&interface).unwrap();
    assert_eq!(interface[0]["stats64"]["tx"]["packets"], 0, "{interface}");
    // What does not fit is cut by the user engine; with DF its sender is told.
    net.exchange(&[100, 1_432, 9_000]);
    net.server.ip("route flush cache");
    let said = net.server.try_run("ping -n -c 1 -W 30 -M do -s 1472 192.0.2.1");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("mtu = 1460") || said.contains("mtu=1460"), "{said}");
    // The last hop is the end point, which says so.
    let expired = net.server.try_run("ping -n -c 1 -W 30 -t 1 192.0.2.1");
    let expired = String::from_utf8_lossy(&expired.stdout).into_owned();
    assert!(expired.contains("From 198.51.100.1") && expired.contains("exceeded"), "{expired}");
    let stats = tep.counts("softwire0", "drops/too_big", 1);
    assert_eq!(dropped(&stats), 1, "{stats}");
    // Where the client is routed elsewhere, its packets are not the softwire's.
    net.tep.configure(&[
        "route add unreachable 192.0.2.1 metric 0 table 100",
        "rule add iif t4 to 192.0.2.1 lookup 100 priority 90",
    ]);
    // Programs keep what routing has answered until the daemon has heard of the change.
    poll("the end point leaves the client's packets to routing", || {
        let said = net.server.try_run("ping -n -c 1 -W 30 192.0.2.1");
        String::from_utf8_lossy(&said.stdout).contains("Unreachable").then_some(())
    });
    net.tep.ip("rule del iif t4 to 192.0.2.1 lookup 100 priority 90");
    net.tep.ip("route flush table 100");
    tep.kill();
    traffic::tcp_both_ways(&net.client, &net.server, SERVER, LEN);
    let tep = Daemon::start(&tep_dir, &net.tep, &line);
    traffic::tcp_both_ways(&net.server, &net.client, CLIENT, LEN);
    b4.stop();
    tep.stop();
    assert_eq!(host(&net.tep), before);
}

#[test]
fn at_the_uplink_another_port_of_a_shared_address_is_refused() {
    if !can_use_tun() || !has_programs(&["nft"]) {
        return;
    }
    let net = Net::new();
    let dirs = [RunDir::new(), RunDir::new()];
    let tep = "softwire --engine user --local 2001:db8:f::1 --binding 192.0.2.3:1/4=2001:db8:1::46";
    let _tep = Daemon::start(&dirs[0], &net.tep, tep);
    let b4 = "softwire --engine kernel --attach uplink --v4 192.0.2.3:1/4 --remote 2001:db8:f::1 \
              --local 2001:db8:1::46";
    let b4 = Daemon::start(&dirs[1], &net.client, b4);
    assert_eq!(b4.status()["translators"][0]["attach"], "uplink");
    let bare = net.router.counter("ip saddr 192.0.2.3");
    let send = |port: u16| {
        net.client.inside(move || {
            let socket = std::net::UdpSocket::bind(("192.0.2.3", port)).unwrap();
            socket.send_to(b"x", (SERVER, 9)).unwrap();
        });
    };
    send(4_100);
    let stats = b4.counts("softwire0", "kernel/v4_to_v6/packets", 1);
    assert_eq!(dropped(&stats), 0, "{stats}");
    // It does not leave outside of the tunnel either.
    send(5);
    poll("another one is dropped, and counted", || {
        (dropped(&b4.stats("softwire0")) == 1).then_some(())
    });
    assert_eq!(bare(), 0);
}
