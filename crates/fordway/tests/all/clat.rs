//! A CLAT in a namespace: real programs, real traffic.

use std::io::ErrorKind;
use std::net::UdpSocket;

use fordway_testhost::{can_use_tun, poll};

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::netns::Netns;
use crate::common::topology::{Access, PREF64, SERVER, SERVER_V4, SERVER_V6};
use crate::common::traffic;

fn clat(more: &str) -> String {
    format!("clat --pref64 {PREF64} --queues 2 {more}")
}

/// The CLAT's IPv6 address, from the status.
fn clat_v6(daemon: &Daemon<'_>) -> String {
    daemon.status()["translators"][0]["clat"]["v6"].as_str().unwrap().to_owned()
}

#[test]
fn ping_comes_back_with_the_right_addresses_and_hop_counts() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat(""));
    let v6 = clat_v6(&daemon);
    assert!(v6.starts_with("2001:db8:1:0:") || v6.starts_with("2001:db8:1::"), "{v6}");
    // One hop there: out of the CLAT's interface into the uplink.
    let arrived = format!("ip6 hoplimit 63 ip6 saddr {v6} ip6 daddr {SERVER_V6}");
    let count_arrived = net.server.counter(&format!("{arrived} icmpv6 type echo-request"));
    let ping = net.client.run(&format!("ping -n -c 3 -i 0.2 -s 1000 {SERVER_V4}"));
    assert!(ping.contains("3 received, 0% packet loss"), "{ping}");
    // One hop back: out of the uplink's link into the CLAT's interface.
    assert!(ping.contains("1008 bytes from 198.51.100.1: icmp_seq=1 ttl=63"), "{ping}");
    assert_eq!(count_arrived(), 3);
    daemon.counts("clat0", "v4_to_v6/packets", 3);
    daemon.counts("clat0", "v4_to_v6/octets", 3 * 1028);
    daemon.counts("clat0", "v6_to_v4/packets", 3);
    let stats = daemon.counts("clat0", "v6_to_v4/octets", 3 * 1048);
    // Nothing of the kernel's own talk reaches the interface.
    assert_eq!(dropped(&stats), 0, "{stats}");
    daemon.stop();
}

#[test]
fn the_interface_and_its_routes_have_the_right_mtu() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat(""));
    assert!(net.client.ip("link show clat0").contains("mtu 1500"));
    let default = net.client.ip("-4 route show default");
    for part in ["dev clat0", "src 192.0.0.1", "mtu 1500", "advmss 1440", "metric 2048"] {
        assert!(default.contains(part), "{part}: {default}");
    }
    let own = net.client.ip(&format!("-6 route show {}", clat_v6(&daemon)));
    assert!(own.contains("dev clat0") && own.contains("mtu 1500"), "{own}");
    assert!(net.client.ip("-4 addr show clat0").contains("inet 192.0.0.1/32"));
    // A host's CLAT makes it no IPv4 router.
    assert_eq!(net.client.run("sysctl -n net.ipv4.ip_forward").trim(), "0");
    daemon.stop();
    // On a link with jumbo frames everything follows.
    net.client.ip("link set c0 mtu 9000");
    let daemon = Daemon::start(&run, &net.client, &clat(""));
    assert!(net.client.ip("link show clat0").contains("mtu 9000"));
    assert!(net.client.ip("-4 route show default").contains("mtu 9000 advmss 8940"));
    assert_eq!(daemon.status()["translators"][0]["mtu"], 9000);
    daemon.stop();
}

#[test]
fn the_address_is_stable_and_answered_for() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let first = Daemon::start(&run, &net.client, &clat(""));
    let v6 = clat_v6(&first);
    // The server asks the link for the address; nobody else has it.
    let to_server = traffic::udp_echo(&net.client, &net.server, SERVER, 100);
    assert_eq!(to_server.ip().to_string(), v6);
    let neighbours = net.server.ip("-6 neigh show dev s0");
    assert!(neighbours.contains(&v6), "{neighbours}");
    first.stop();
    let second = Daemon::start(&run, &net.client, &clat(""));
    assert_eq!(clat_v6(&second), v6);
    second.stop();
    // Another network, another address.
    net.client.configure(&[
        "addr del 2001:db8:1::2/64 dev c0",
        "addr add 2001:db8:2::2/64 dev c0",
        &format!("route replace {PREF64} dev c0"),
    ]);
    let third = Daemon::start(&run, &net.client, &clat(""));
    let other = clat_v6(&third);
    assert!(other.starts_with("2001:db8:2:"), "{other}");
    assert_ne!(other.rsplit(':').next(), v6.rsplit(':').next());
    third.stop();
}

#[test]
fn an_address_of_the_host_itself_is_refused() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let mut daemon = Daemon::spawn(&run, &net.client, &clat("--v6 2001:db8:1::2"));
    assert_eq!(daemon.wait().code(), Some(1));
    let log = daemon.log();
    assert!(
        log.contains("the CLAT's IPv6 address 2001:db8:1::2 is the host's own, on c0"),
        "{log}"
    );
}

#[test]
fn without_an_ipv6_network_the_reason_is_said() {
    if !can_use_tun() {
        return;
    }
    let (netns, run) = (Netns::new("alone"), RunDir::new());
    let mut daemon = Daemon::spawn(&run, &netns, &clat(""));
    assert_eq!(daemon.wait().code(), Some(1));
    let log = daemon.log();
    assert!(log.contains("there is no route to 2001:db8:64::/96"), "{log}");
    assert!(log.contains("bring the IPv6 network up first, or give v6"), "{log}");
}

#[test]
fn tcp_passes_whole_with_offloads_and_without() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat(""));
    let v6 = clat_v6(&daemon);
    let mut before = daemon.stats("clat0");
    const LEN: usize = 4 << 20;
    for state in ["on", "off"] {
        net.offloads(state);
        let peer = traffic::tcp_both_ways(&net.client, &net.server, SERVER.0, LEN);
        assert_eq!(peer.ip().to_string(), v6);
        for direction in ["v4_to_v6", "v6_to_v4"] {
            // 4 MiB in segments of at most 1440 octets.
            let path = format!("{direction}/segments");
            daemon.counts_at_least("clat0", &path, count(&before, &path) + 2913);
        }
        let stats = daemon.stats("clat0");
        let since = |path: &str| count(&stats, path) - count(&before, path);
        for direction in ["v4_to_v6", "v6_to_v4"] {
            let octets = since(&format!("{direction}/octets"));
            assert!(octets > LEN as u64, "{direction}: {octets}");
        }
        // Towards the network the client's own stack makes super-packets in either case.
        assert!(since("v4_to_v6/packets") * 2 < since("v4_to_v6/segments"), "{state}: {stats}");
        assert_eq!(since("drops/bad_offload"), 0);
        before = stats;
    }
    daemon.stop();
}

#[test]
fn the_largest_datagram_passes_both_ways() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat(""));
    // Datagrams of 1453 to 1472 octets, which leave with DF until the path is known, are in `path_mtu.rs`.
    for len in [0, 1, 1452, 1473, 65_507] {
        traffic::udp_echo(&net.client, &net.server, SERVER, len);
    }
    assert_eq!(dropped(&daemon.stats("clat0")), 0);
    daemon.stop();
}

#[test]
fn a_closed_port_is_told_to_the_application() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat(""));
    net.client.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((SERVER_V4, 9)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.send(b"anybody?").unwrap();
        let error = poll("the error comes back", || match socket.recv(&mut [0; 16]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(error),
            Ok(_) => panic!("somebody answered"),
        });
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
    daemon.stop();
}

/// Client, two routers with a link between them that takes 1280 octets only, server.
#[test]
fn path_mtu_discovery_works_through_a_narrow_link() {
    if !can_use_tun() {
        return;
    }
    let (client, server) = (Netns::new("client"), Netns::new("server"));
    let (near, far) = (Netns::new("near"), Netns::new("far"));
    client.link("c0", &near, "c0");
    near.link("narrow", &far, "narrow");
    far.link("s0", &server, "s0");
    for (router, device, address) in [
        (&near, "c0", "2001:db8:1::1/64"),
        (&near, "narrow", "2001:db8:2::1/64"),
        (&far, "narrow", "2001:db8:2::2/64"),
        (&far, "s0", "2001:db8:3::1/64"),
    ] {
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        router.ip(&format!("addr add {address} dev {device}"));
    }
    near.configure(&["link set narrow mtu 1280", "route add default via 2001:db8:2::2"]);
    far.configure(&[
        "link set narrow mtu 1280",
        "route add 2001:db8:1::/64 via 2001:db8:2::1",
        &format!("route add {PREF64} via 2001:db8:3::2"),
    ]);
    client.configure(&["addr add 2001:db8:1::2/64 dev c0", "route add default via 2001:db8:1::1"]);
    server.configure(&[
        "addr add 2001:db8:3::2/64 dev s0",
        &format!("addr add {SERVER_V6}/128 dev s0"),
        "route add default via 2001:db8:3::1",
    ]);
    let run = RunDir::new();
    let daemon = Daemon::start(&run, &client, &clat("--set mss_clamp=false"));
    let ping = client.try_run(&format!("ping -n -c 2 -i 0.2 -M do -s 1400 {SERVER_V4}"));
    let text =
        String::from_utf8_lossy(&ping.stdout).into_owned() + &String::from_utf8_lossy(&ping.stderr);
    assert!(text.contains("mtu = 1260") || text.contains("mtu=1260"), "{text}");
    let route = client.ip(&format!("-4 route get {SERVER_V4}"));
    assert!(route.contains("mtu 1260"), "{route}");
    // And a stream finds its way without any help of the MSS.
    client.ip("-4 route flush cache");
    traffic::tcp_both_ways(&client, &server, SERVER.0, 1 << 20);
    // What may be fragmented passes at once.
    traffic::udp_echo(&client, &server, SERVER, 4000);
    daemon.stop();
}

#[test]
fn the_mss_is_clamped_to_the_path() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let daemon = Daemon::start(&run, &net.client, &clat("--mtu 1300"));
    let clamped = "tcp flags & (syn | ack) == syn tcp option maxseg size 1240";
    let count_clamped = net.server.counter(clamped);
    traffic::tcp_both_ways(&net.client, &net.server, SERVER.0, 100_000);
    assert_eq!(count_clamped(), 1);
    daemon.stop();
}

/// What `fordway-clat.service` starts listens at a place of its own.
#[test]
fn status_finds_the_service_and_what_changes_something_does_not() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Access::new(), RunDir::new());
    let socket = run.path().join("clat.sock");
    let arguments = format!("--socket {} clat --engine user --pref64 {PREF64}", socket.display());
    let service = Daemon::start(&run, &net.client, &arguments);
    let said = |arguments: &str| {
        let output = run.output(&net.client, arguments);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    for arguments in ["status", "stats"] {
        let (good, text) = said(arguments);
        assert!(good && text.contains("clat0"), "{arguments}: {text}");
    }
    for arguments in ["leave", "reload"] {
        let (good, text) = said(arguments);
        assert!(!good && text.contains("control.sock"), "{arguments}: {text}");
    }
    assert!(!said("down clat0").0);
    // A daemon at the usual place comes first: status shows both, counters are those of the first.
    let usual = "siit --engine user --pool6 2001:db8:66::/96 --eam 192.0.2.2=2001:db8:6::2";
    let other = Daemon::start(&run, &net.client, usual);
    let (good, text) = said("status");
    let place = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(good && place("siit0") < place("clat0"), "{text}");
    let (good, text) = said("stats");
    assert!(good && text.contains("siit0") && !text.contains("clat0"), "{text}");
    other.stop();
    service.stop();
}
