//! 464XLAT whole (RFC 6877): an application that writes IPv4 literals, a host with a CLAT, an IPv6-only
//! network, a PLAT, and a server that has IPv4 only.
//!
//! ```text
//! host c0 2001:db8:1::2/64 ─── 2001:db8:1::1/64 p6 PLAT p4 198.51.100.254/24 ─── 198.51.100.1/24 server
//! ```

use std::net::{IpAddr, Ipv4Addr};

use fordway_testhost::can_use_tun;

use crate::common::daemon::{Daemon, RunDir, dropped};
use crate::common::netns::Netns;
use crate::common::traffic;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

struct Network {
    host: Netns,
    plat: Netns,
    server: Netns,
}

impl Network {
    fn new() -> Network {
        let (host, plat, server) = (Netns::new("host"), Netns::new("plat"), Netns::new("server"));
        plat.link("p6", &host, "c0");
        plat.link("p4", &server, "s0");
        plat.configure(&["addr add 2001:db8:1::1/64 dev p6", "addr add 198.51.100.254/24 dev p4"]);
        host.configure(&[
            "addr add 2001:db8:1::2/64 dev c0",
            "route add default via 2001:db8:1::1",
        ]);
        server.configure(&[
            "addr add 198.51.100.1/24 dev s0",
            "route add 192.0.2.0/28 via 198.51.100.254",
        ]);
        Network { host, plat, server }
    }
}

/// All that an application may do with a literal, through a PLAT of this engine.
fn literals_work(engine: &str) {
    let net = Network::new();
    let (plat_dir, clat_dir) = (RunDir::new(), RunDir::new());
    let plat =
        format!("nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.0/28:1024-65535 --engine {engine}");
    let plat = Daemon::start(&plat_dir, &net.plat, &plat);
    let clat = Daemon::start(&clat_dir, &net.host, "clat --pref64 2001:db8:64::/96");
    let pool = |addr: IpAddr| addr.to_string().starts_with("192.0.2.");

    let seen = traffic::tcp_both_ways(&net.host, &net.server, SERVER, 2_000_000);
    assert!(pool(seen.ip()) && seen.port() >= 1024, "{seen}");
    let seen = traffic::udp_echo(&net.host, &net.server, (SERVER, SERVER), 100);
    assert!(pool(seen.ip()), "{seen}");
    // In fragments on every link, reassembled at the PLAT.
    traffic::udp_echo(&net.host, &net.server, (SERVER, SERVER), 6000);
    let ping = net.host.run("ping -n -c 3 -i 0.2 198.51.100.1");
    assert!(ping.contains("3 received, 0% packet loss"), "{ping}");
    // Fragments of ICMP can't pass a stateless translator (RFC 7915 section 1.2), but NAT64, which has them
    // whole.
    let ping = net.host.run("ping -n -c 3 -i 0.2 -s 3000 2001:db8:64::c633:6401");
    assert!(ping.contains("3 received, 0% packet loss"), "{ping}");
    for (daemon, name) in [(&plat, "nat64"), (&clat, "clat0")] {
        let stats = daemon.stats(name);
        assert_eq!(dropped(&stats), 0, "{name}: {stats}");
    }
    clat.stop();
    plat.stop();
}

#[test]
fn literals_work_through_the_user_engine() {
    if can_use_tun() {
        literals_work("user");
    }
}

#[test]
fn literals_work_through_the_kernel_engine() {
    if can_use_tun() {
        literals_work("kernel");
    }
}

#[test]
fn a_small_path_mtu_behind_the_plat_is_learned() {
    if !can_use_tun() {
        return;
    }
    let net = Network::new();
    let (plat_dir, clat_dir) = (RunDir::new(), RunDir::new());
    // The server's way is narrower than the rest.
    net.plat.ip("route add 198.51.100.1/32 dev p4 mtu 1300");
    let plat = "nat64 --pool6 2001:db8:64::/96 --pool4 192.0.2.0/28:1024-65535";
    let plat = Daemon::start(&plat_dir, &net.plat, plat);
    let clat = Daemon::start(&clat_dir, &net.host, "clat --pref64 2001:db8:64::/96");
    traffic::tcp_both_ways(&net.host, &net.server, SERVER, 500_000);
    let too_long = net.host.try_run("ping -n -c 2 -W 30 -M do -s 1400 198.51.100.1");
    let said = String::from_utf8_lossy(&too_long.stdout).into_owned()
        + &String::from_utf8_lossy(&too_long.stderr);
    assert!(said.contains("1300") || said.contains("mtu"), "{said}");
    clat.stop();
    plat.stop();
}
