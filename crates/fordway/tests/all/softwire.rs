//! Softwires between a client, an IPv6-only router, and a tunnel end point.

mod kernel;

use std::net::{IpAddr, Ipv4Addr};

use fordway_testhost::{can_use_tun, has_programs, poll};

use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::netns::Netns;
use crate::common::traffic;

/// ```text
/// client c0 2001:db8:1::2/64 ── 2001:db8:1::1 r1 router r2 2001:db8:2::1 ── 2001:db8:2::2 t6 tep
/// tep t4 198.51.100.1/24 ── 198.51.100.2 h4 server; to the tunnel end point 2001:db8:f::1, routed to the tep
/// ```
struct Net {
    client: Netns,
    other: Netns,
    router: Netns,
    tep: Netns,
    server: Netns,
}

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const TEP: &str = "softwire --engine user --local 2001:db8:f::1 --binding 192.0.2.1=2001:db8:1::46";
const B4: &str =
    "softwire --engine user --v4 192.0.2.1 --remote 2001:db8:f::1 --local 2001:db8:1::46";

impl Net {
    fn new() -> Net {
        let net = Net {
            client: Netns::new("client"),
            other: Netns::new("other"),
            router: Netns::new("router"),
            tep: Netns::new("tep"),
            server: Netns::new("server"),
        };
        let Net { client, other, router, tep, server } = &net;
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        client.link("c0", router, "r1");
        other.link("o0", router, "r3");
        tep.link("t6", router, "r2");
        tep.link("t4", server, "h4");
        router.configure(&[
            "addr add 2001:db8:1::1/64 dev r1 nodad",
            "addr add 2001:db8:3::1/64 dev r3 nodad",
            "addr add 2001:db8:2::1/64 dev r2 nodad",
            "route add 2001:db8:f::/64 via 2001:db8:2::2",
        ]);
        for (netns, device, address, gateway) in [
            (client, "c0", "2001:db8:1::2/64", "2001:db8:1::1"),
            (other, "o0", "2001:db8:3::2/64", "2001:db8:3::1"),
            (tep, "t6", "2001:db8:2::2/64", "2001:db8:2::1"),
        ] {
            netns.configure(&[
                &format!("addr add {address} dev {device} nodad"),
                &format!("route add default via {gateway}"),
            ]);
        }
        tep.ip("addr add 198.51.100.1/24 dev t4");
        server
            .configure(&["addr add 198.51.100.2/24 dev h4", "route add default via 198.51.100.1"]);
        net
    }

    /// Each end reaches the other, whose packets have made one hop: into the tunnel a host's own packet makes none.
    fn assert_one_hop(&self) {
        let up = self.ping(&self.client, "198.51.100.2");
        assert!(up.contains("64 bytes from 198.51.100.2: icmp_seq=1 ttl=63"), "{up}");
        let down = self.ping(&self.server, "192.0.2.1");
        assert!(down.contains("64 bytes from 192.0.2.1: icmp_seq=1 ttl=63"), "{down}");
    }

    /// Connections from either end carry octets both ways, and datagrams of these lengths come back.
    fn exchange(&self, lens: &[usize]) {
        let seen = traffic::tcp_both_ways(&self.client, &self.server, SERVER, LEN);
        assert_eq!(seen.ip(), CLIENT);
        traffic::tcp_both_ways(&self.server, &self.client, CLIENT, LEN);
        for len in lens {
            traffic::udp_echo(&self.client, &self.server, (SERVER, SERVER), *len);
            traffic::udp_echo(&self.server, &self.client, (CLIENT, CLIENT), *len);
        }
    }

    fn ping(&self, from: &Netns, to: &str) -> String {
        let output = from.try_run(&format!("ping -n -c 3 -i 0.2 -W 30 {to}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Octets of a transfer.
const LEN: usize = 2 << 20;

/// What of a host a daemon changes.
fn host(netns: &Netns) -> String {
    let all = [
        netns.ip_batch("-4", &["rule", "route show table all"]),
        netns.ip_batch("-6", &["rule", "route show table all", "neigh show proxy"]),
        netns.ip_batch("", &["addr show"]),
        netns.settings(&["ipv4.ip_forward", "ipv6.conf.all.forwarding"]),
    ]
    .concat();
    // Lifetimes and caches move by themselves.
    let lines = all.lines().filter(|line| !line.contains("valid_lft") && !line.contains("cache"));
    lines.map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn traffic_passes_both_ways_and_nothing_stays() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let before = (host(&net.tep), host(&net.client));
    let tep = Daemon::start(&tep_dir, &net.tep, TEP);
    let b4 = Daemon::start(&b4_dir, &net.client, B4);
    net.assert_one_hop();
    // What has DF and does not fit is lost once, as on any path; 1,432 is the most that fits.
    net.exchange(&[100, 1_432, 9_000, 40_000]);
    tep.counts_at_least("softwire0", "v4_to_v6/fragments", 1);
    assert_eq!(dropped(&b4.stats("softwire0")), 0);
    let status = tep.status();
    assert_eq!(status["translators"][0]["softwire"]["bindings"], 1, "{status}");
    b4.stop();
    tep.stop();
    assert_eq!((host(&net.tep), host(&net.client)), before);
}

#[test]
fn a_narrow_link_in_the_tunnel_is_found() {
    for engine in ["user", "kernel"] {
        narrow_link(engine);
    }
}

fn narrow_link(engine: &str) {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let with = |line: &str| line.replace("engine user", &format!("engine {engine}"));
    net.client.ip("link set c0 mtu 1400");
    net.router.ip("link set r1 mtu 1400");
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let tep = Daemon::start(&tep_dir, &net.tep, &format!("{} --set mss_clamp=false", with(TEP)));
    let _b4 = Daemon::start(&b4_dir, &net.client, &format!("{} --set mss_clamp=false", with(B4)));
    // The answer is longer than the link: the router tells the end point, and that the server.
    poll("the server is told", || {
        let ping = net.server.try_run("ping -n -M do -s 1420 -c 1 -W 1 192.0.2.1");
        let ping = String::from_utf8_lossy(&ping.stdout);
        (ping.contains("mtu=1360") || ping.contains("mtu = 1360")).then_some(())
    });
    traffic::tcp_both_ways(&net.server, &net.client, CLIENT, 1 << 20);
    // Without DF the end point cuts by what it has learnt.
    traffic::udp_echo(&net.client, &net.server, (SERVER, SERVER), 8_000);
    let status = tep.status();
    assert_eq!(status["translators"][0]["softwire"]["lowered_paths"], 1, "{status}");
}

#[test]
fn a_forged_source_is_dropped_counted_and_told() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let tep = Daemon::start(&tep_dir, &net.tep, TEP);
    let forged = B4.replace("192.0.2.1", "192.0.2.9");
    let _b4 = Daemon::start(&b4_dir, &net.client, &forged);
    let arrives = net.server.counter("ip saddr 192.0.2.9");
    let ping = net.ping(&net.client, "198.51.100.2");
    // The end point's error comes out of the tunnel as an ICMPv4 error.
    assert!(ping.contains("From 192.0.0.8") && ping.contains("Host Unreachable"), "{ping}");
    assert_eq!(arrives(), 0);
    tep.counts("softwire0", "drops/softwire_source", 3);
}

#[test]
fn an_error_inside_the_tunnel_reaches_the_ipv4_sender() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let run = RunDir::new();
    let _tep = Daemon::start(&run, &net.tep, &format!("{TEP} --binding 192.0.2.7=2001:db8:99::7"));
    // Routers limit the rate of their errors: there is one for one request.
    let ping = net.server.try_run("ping -n -c 1 -W 30 192.0.2.7");
    let ping = String::from_utf8_lossy(&ping.stdout);
    assert!(ping.contains("From 192.0.0.8") && ping.contains("Host Unreachable"), "{ping}");
}

#[test]
fn two_clients_share_an_address() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let dirs = [RunDir::new(), RunDir::new(), RunDir::new()];
    let tep = "softwire --engine user --local 2001:db8:f::1 --binding 192.0.2.3:1/4=2001:db8:1::46 \
               --binding 192.0.2.3:2/4=2001:db8:3::46";
    let tep = Daemon::start(&dirs[0], &net.tep, tep);
    let b4 = |psid: u8, local: &str| {
        format!(
            "softwire --engine user --v4 192.0.2.3:{psid}/4 --remote 2001:db8:f::1 --local {local}"
        )
    };
    let _one = Daemon::start(&dirs[1], &net.client, &b4(1, "2001:db8:1::46"));
    let _two = Daemon::start(&dirs[2], &net.other, &b4(2, "2001:db8:3::46"));
    for (client, ports) in [(&net.client, "4096 8191"), (&net.other, "8192 12287")] {
        client.sysctl("net.ipv4.ip_local_port_range", ports);
    }
    for len in [100, 5_000] {
        for (client, ports) in [(&net.client, 4096..=8191), (&net.other, 8192..=12287)] {
            let seen = traffic::udp_echo(client, &net.server, (SERVER, SERVER), len);
            assert_eq!(seen.ip().to_string(), "192.0.2.3");
            assert!(ports.contains(&seen.port()), "{seen}");
        }
    }
    traffic::tcp_both_ways(&net.client, &net.server, SERVER, 1 << 18);
    traffic::tcp_both_ways(&net.other, &net.server, SERVER, 1 << 18);
    assert_eq!(dropped(&tep.stats("softwire0")), 0);
}

#[test]
fn clients_reach_each_other() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let dirs = [RunDir::new(), RunDir::new(), RunDir::new()];
    let tep = format!("{TEP} --binding 192.0.2.2=2001:db8:3::46");
    let _tep = Daemon::start(&dirs[0], &net.tep, &tep);
    let _one = Daemon::start(&dirs[1], &net.client, B4);
    let two = B4.replace("192.0.2.1", "192.0.2.2").replace("2001:db8:1::46", "2001:db8:3::46");
    let _two = Daemon::start(&dirs[2], &net.other, &two);
    let ping = net.ping(&net.client, "192.0.2.2");
    assert!(ping.contains("64 bytes from 192.0.2.2"), "{ping}");
}

#[test]
fn a_killed_end_point_starts_again_and_ends_clean() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let before = host(&net.tep);
    Daemon::start(&tep_dir, &net.tep, TEP).kill();
    let tep = Daemon::start(&tep_dir, &net.tep, TEP);
    let _b4 = Daemon::start(&b4_dir, &net.client, B4);
    let ping = net.ping(&net.client, "198.51.100.2");
    assert!(ping.contains("64 bytes from 198.51.100.2"), "{ping}");
    tep.stop();
    assert_eq!(host(&net.tep), before);
}

#[test]
fn bindings_change_while_packets_flow() {
    if !can_use_tun() {
        return;
    }
    let net = Net::new();
    let (tep_dir, b4_dir) = (RunDir::new(), RunDir::new());
    let text = |more: &str| {
        format!(
            "[[translator]]\nname = \"softwire0\"\nmode = \"softwire\"\nrole = \"tep\"\nengine = \"user\"\n\
             local = \"2001:db8:f::1\"\nbindings = [\n{{ v4 = \"192.0.2.1\", remote = \"2001:db8:1::46\" }},\n\
             {more}]\n"
        )
    };
    let file = tep_dir.file("tep.toml", &text(""));
    let tep = Daemon::start(&tep_dir, &net.tep, &format!("run -c {}", file.display()));
    let _b4 = Daemon::start(&b4_dir, &net.client, B4);
    let second = "{ v4 = \"192.0.2.2\", remote = \"2001:db8:3::46\" },\n";
    let replies = std::thread::scope(|scope| {
        let ping = scope.spawn(|| net.client.run("ping -n -c 60 -i 0.02 -W 30 198.51.100.2"));
        for more in [second, "", second] {
            tep_dir.file("tep.toml", &text(more));
            let output = tep_dir.output(&net.tep, "reload");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        ping.join().unwrap()
    });
    assert!(replies.contains("60 received"), "{replies}");
    let status = tep.status();
    assert_eq!(status["translators"][0]["softwire"]["bindings"], 2, "{status}");
    poll("the new address is routed", || {
        net.tep.ip("route show").contains("192.0.2.2").then_some(())
    });
}

/// A network of IPv4 behind a client, whose NAT44 shares the client's one address; and at the end point one that shares
/// the public address among the clients (as DS-Lite does at its AFTR).
///
/// ```text
/// lan 203.0.113.2/24 ── 203.0.113.1 l0 client 198.18.0.1 ══ softwire ══ tep 198.51.100.1 ── server
/// other 198.18.0.2 ══ softwire ══╝
/// ```
#[test]
fn an_island_behind_a_softwire_shares_the_end_points_address() {
    if !can_use_tun() || !has_programs(&["nft"]) {
        return;
    }
    for engine in ["user", "kernel"] {
        let net = Net::new();
        let lan = Netns::new("lan");
        net.client.link("l0", &lan, "h0");
        net.client.ip("addr add 203.0.113.1/24 dev l0");
        lan.configure(&["addr add 203.0.113.2/24 dev h0", "route add default via 203.0.113.1"]);
        let before = [&net.client, &net.other, &net.tep].map(host);
        let dirs = [RunDir::new(), RunDir::new(), RunDir::new()];
        let start = |dir: usize, netns, text: &str| {
            let file = dirs[dir].file("fordway.toml", &text.replace("ENGINE", engine));
            let netns: &Netns = netns;
            Daemon::start(&dirs[dir], netns, &format!("run -c {}", file.display()))
        };
        let tep = start(
            0,
            &net.tep,
            r#"
            [[translator]]
            name = "softwire0"
            mode = "softwire"
            engine = "ENGINE"
            role = "tep"
            local = "2001:db8:f::1"
            bindings = [
                { v4 = "198.18.0.1", remote = "2001:db8:1::46" },
                { v4 = "198.18.0.2", remote = "2001:db8:3::46" },
            ]

            [[translator]]
            name = "nat"
            mode = "nat44"
            clients = ["198.18.0.0/24"]
            uplink = "t4"
            "#,
        );
        let client = start(
            1,
            &net.client,
            r#"
            [[translator]]
            name = "softwire0"
            mode = "softwire"
            engine = "ENGINE"
            role = "client"
            v4 = "198.18.0.1"
            remote = "2001:db8:f::1"
            local = "2001:db8:1::46"

            [[translator]]
            name = "lan"
            mode = "nat44"
            clients = ["203.0.113.0/24"]
            uplink = "softwire0"
            "#,
        );
        let line = "softwire --v4 198.18.0.2 --remote 2001:db8:f::1 --local 2001:db8:3::46";
        let other = Daemon::start(&dirs[2], &net.other, &format!("{line} --engine {engine}"));
        let public = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
        for from in [&lan, &net.client, &net.other] {
            let ping = net.ping(from, "198.51.100.2");
            assert!(
                ping.contains("3 received"),
                "{engine}: {ping}\n{}\n{}",
                client.log(),
                tep.log()
            );
            let seen = traffic::tcp_both_ways(from, &net.server, SERVER, 1 << 20);
            assert_eq!(seen.ip(), public, "{engine}");
            for len in [100, 9_000] {
                traffic::udp_echo(from, &net.server, (SERVER, SERVER), len);
            }
        }
        // A large echo, whose answer comes back through both, and a path that is too narrow for it.
        lan.run("ping -n -c 2 -i 0.2 -W 30 -s 3000 198.51.100.2");
        let said = lan.try_run("ping -n -c 1 -W 30 -M do -s 1472 198.51.100.2");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("mtu = 1460") || said.contains("mtu=1460"), "{engine}: {said}");
        assert_eq!(dropped(&other.stats("softwire0")), 0);
        assert!(count(&client.all_stats()["nat44"][0], "conntrack/connections") > 0);
        let stats = tep.all_stats();
        assert!(count(&stats["nat44"][0], "conntrack/connections") > 0, "{stats}");
        for daemon in [other, client, tep] {
            daemon.stop();
        }
        assert_eq!([&net.client, &net.other, &net.tep].map(host), before, "{engine}");
    }
}
