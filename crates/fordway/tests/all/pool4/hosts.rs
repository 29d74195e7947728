//! What hosts behind the gateway get.

use std::net::{TcpListener, UdpSocket};

use fordway_testhost::{PATIENCE, can_use_tun, poll};

use super::site::{
    CLIENT, INGRESS, NAT64, OWN, OWN_AS_V6, PORTS, ROUTER_AS_V6, SERVER, SERVER_AS_V6, Site, XDP,
    ip, local_ports, says,
};
use crate::common::daemon::{Daemon, RunDir, count, dropped};
use crate::common::traffic;

#[test]
fn streams_datagrams_and_pings_pass() {
    if !can_use_tun() {
        return;
    }
    // Whatever the host says of reverse paths.
    for (engine, rp_filter) in
        [("user", 0), ("user", 1), ("kernel", 0), ("kernel", 2), (INGRESS, 1), (XDP, 1)]
    {
        let (net, run) = (Site::new(), RunDir::new());
        net.gateway.sysctl("net.ipv4.conf.all.rp_filter", &rp_filter.to_string());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        let ping = net.client.run(&format!("ping -n -c 2 -i 0.2 {SERVER_AS_V6}"));
        assert!(ping.contains("2 received"), "{engine} {rp_filter}: {ping}");
        let peer = traffic::tcp_both_ways(&net.client, &net.server, ip(SERVER_AS_V6), 4 << 20);
        assert!(peer.ip() == ip(OWN) && PORTS.contains(&peer.port()), "{peer}");
        // Those that the server has to fragment, too.
        for len in [1, 1452, 1473, 65_507] {
            let server = (ip(SERVER_AS_V6), ip(SERVER));
            let peer = traffic::udp_echo(&net.client, &net.server, server, len);
            assert!(peer.ip() == ip(OWN) && PORTS.contains(&peer.port()), "{peer}");
        }
        let stats = daemon.stats("nat64");
        assert_eq!(dropped(&stats), 0, "{engine} {rp_filter}: {stats}");
        daemon.stop();
    }
}

#[test]
fn errors_of_routers_arrive() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel", INGRESS] {
        let (net, run) = (Site::new(), RunDir::new());
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        // One probe at a time: hosts limit the rate of their errors.
        let trace = net.client.run(&format!("traceroute -6 -n -q 1 -N 1 -w 30 {SERVER_AS_V6}"));
        let hops: Vec<&str> =
            trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        let gateway = "2001:db8:6::1";
        assert_eq!(hops, [gateway, OWN_AS_V6, ROUTER_AS_V6, SERVER_AS_V6], "{engine}: {trace}");

        // Behind the router packets have to be smaller; behind the gateway itself, then, smaller still.
        for (netns, device, mtu) in [(&net.router, "r5", 1400), (&net.gateway, "g4", 1320)] {
            netns.ip(&format!("link set {device} mtu {mtu}"));
            let ping = format!("ping -n -c 3 -i 0.2 -M do -s {} {SERVER_AS_V6}", mtu - 20);
            let output = net.client.try_run(&ping);
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(text.contains(&format!("mtu={}", mtu + 20)), "{engine} {device}: {text}");
            let fits = format!("ping -n -c 1 -M do -s {} {SERVER_AS_V6}", mtu - 28);
            assert!(net.client.run(&fits).contains("1 received"), "{engine} {device}");
            let peer = traffic::tcp_both_ways(&net.client, &net.server, ip(SERVER_AS_V6), 1 << 20);
            assert_eq!(peer.ip(), ip(OWN));
        }
        daemon.stop();
    }
}

#[test]
fn the_gateways_own_services_can_be_reached_by_its_ipv4_address() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel", INGRESS] {
        let (net, run) = (Site::new(), RunDir::new());
        local_ports(&net.gateway, "10000 19999");
        let daemon = Daemon::start(&run, &net.gateway, &format!("{NAT64} --engine {engine}"));
        for size in [56, 3000] {
            let ping = net.client.run(&format!("ping -n -c 2 -i 0.2 -s {size} {OWN_AS_V6}"));
            assert!(ping.contains("2 received"), "{engine}: {ping}");
        }
        let peer = traffic::tcp_both_ways(&net.client, &net.gateway, ip(OWN_AS_V6), 4 << 20);
        assert!(peer.ip() == ip(OWN) && PORTS.contains(&peer.port()), "{peer}");
        for len in [1, 1452, 20_000] {
            let gateway = (ip(OWN_AS_V6), ip(OWN));
            let peer = traffic::udp_echo(&net.client, &net.gateway, gateway, len);
            assert!(peer.ip() == ip(OWN) && PORTS.contains(&peer.port()), "{peer}");
        }
        // A port of it where nobody waits refuses at once.
        traffic::assert_refused(&net.client, ip(OWN_AS_V6), 81);
        let stats = daemon.stats("nat64");
        assert_eq!(dropped(&stats), 0, "{engine}: {stats}");
        daemon.stop();
    }
}

#[test]
fn ports_of_the_gateways_address_are_forwarded() {
    if !can_use_tun() {
        return;
    }
    for engine in ["user", "kernel", INGRESS] {
        let (net, run) = (Site::new(), RunDir::new());
        // From a port of the pool, the gateway would be taken for a host behind it.
        local_ports(&net.gateway, "10000 19999");
        let daemon = Daemon::start(
            &run,
            &net.gateway,
            &format!(
                "{NAT64} --engine {engine} --bib tcp:{OWN}:80=[{CLIENT}]:8080 \
                 --bib udp:{OWN}:53=[{CLIENT}]:53"
            ),
        );
        let _web = net.client.inside(|| TcpListener::bind("[::]:8080").unwrap());
        let _mail = net.client.inside(|| TcpListener::bind("[::]:2525").unwrap());
        // Forwarding was asked for, so a service of the gateway does not stand in its way.
        let hidden = net.gateway.inside(|| TcpListener::bind("0.0.0.0:80").unwrap());
        hidden.set_nonblocking(true).unwrap();
        for from in [&net.server, &net.router, &net.gateway] {
            traffic::assert_connects(from, ip(OWN), 80);
        }
        assert!(hidden.accept().is_err(), "{engine}");

        let resolver = net.client.inside(|| UdpSocket::bind("[::]:53").unwrap());
        let asker = net.server.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        for socket in [&resolver, &asker] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        asker.send_to(b"question", (OWN, 53)).unwrap();
        let mut buffer = [0; 16];
        let (len, from) = resolver.recv_from(&mut buffer).unwrap();
        resolver.send_to(&buffer[..len], from).unwrap();
        let (_, from) = asker.recv_from(&mut buffer).unwrap();
        assert_eq!((from.ip(), from.port()), (ip(OWN), 53));

        // The same by hand, while it runs.
        traffic::assert_refused(&net.server, ip(OWN), 25);
        says(&run, &net.gateway, &format!("bib add tcp {OWN}:25 [{CLIENT}]:2525"));
        for from in [&net.server, &net.gateway] {
            traffic::assert_connects(from, ip(OWN), 25);
        }
        says(&run, &net.gateway, &format!("bib del tcp {OWN}:25"));
        traffic::assert_refused(&net.server, ip(OWN), 25);
        daemon.stop();
    }
}

#[test]
fn a_masquerade_may_share_the_address() {
    if !can_use_tun() {
        return;
    }
    let (net, run) = (Site::new(), RunDir::new());
    net.client.configure(&["addr add 192.0.2.2/24 dev c6", "route add default via 192.0.2.1"]);
    net.gateway.ip("addr add 192.0.2.1/24 dev g6");
    net.gateway.sysctl("net.ipv4.ip_forward", "1");
    net.gateway.run("nft add table ip site");
    net.gateway.run("nft add chain ip site out { type nat hook postrouting priority srcnat ; }");
    net.gateway.run("nft add rule ip site out oifname g4 masquerade");
    let daemon = Daemon::start(&run, &net.gateway, NAT64);
    // The client's own ports are kept by both, so both have some of the same range, at the same time.
    local_ports(&net.client, "40000 40001");
    let peer = traffic::tcp_both_ways(&net.client, &net.server, ip(SERVER), 1 << 20);
    assert!(peer.ip() == ip(OWN) && PORTS.contains(&peer.port()), "masquerade: {peer}");
    let peer = traffic::tcp_both_ways(&net.client, &net.server, ip(SERVER_AS_V6), 1 << 20);
    assert_eq!(peer.ip(), ip(OWN), "NAT64");
    let udp = |to| traffic::udp_echo(&net.client, &net.server, (ip(to), ip(SERVER)), 3000);
    assert_eq!(udp(SERVER).ip(), ip(OWN));
    assert_eq!(udp(SERVER_AS_V6).ip(), ip(OWN));
    for to in [SERVER, SERVER_AS_V6] {
        let ping = net.client.run(&format!("ping -n -c 2 -i 0.2 -e 40000 {to}"));
        assert!(ping.contains("2 received"), "{ping}");
    }
    // The gateway's own are not lost in between.
    let peer = traffic::tcp_both_ways(&net.gateway, &net.server, ip(SERVER), 1 << 20);
    assert_eq!(peer.ip(), ip(OWN));
    let created = || count(&daemon.stats("nat64"), "nat64/sessions_created/tcp");
    poll("the one session of TCP", || (created() == 1).then_some(()));
    daemon.stop();
}
