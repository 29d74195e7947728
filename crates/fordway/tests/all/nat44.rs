//! Mode nat44: what the kernel translates by itself, beside the host's own rules.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use fordway_testhost::{PATIENCE, can_use_tun, has_programs, poll, poll_or};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::connection::Connection;
use crate::common::daemon::{Daemon, RunDir, count};
use crate::common::host::{assert_same, snapshot};
use crate::common::netns::Netns;
use crate::common::traffic;

const OUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 2));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 130));

/// The shortest options.
const PLAIN: &str = "nat44 --clients 198.51.100.0/24 --uplink wan0";

/// Two hosts with a gateway in front of them, and a server that knows no way back to their addresses.
///
/// ```text
/// a 198.51.100.2/25 ──── .1 lan0 ┐
///                                ├ gateway wan0 203.0.113.1/24 ──── 203.0.113.2 s0 server
/// b 198.51.100.130/25 ─ .129 lan1 ┘
/// ```
struct Home {
    a: Netns,
    b: Netns,
    gateway: Netns,
    server: Netns,
}

impl Home {
    fn new() -> Option<Home> {
        if !can_use_tun() || !has_programs(&["nft"]) {
            return None;
        }
        let (a, b) = (Netns::new("a"), Netns::new("b"));
        let (gateway, server) = (Netns::new("gw"), Netns::new("server"));
        gateway.link("lan0", &a, "a0");
        gateway.link("lan1", &b, "b0");
        gateway.link("wan0", &server, "s0");
        gateway.configure(&[
            "addr add 198.51.100.1/25 dev lan0",
            "addr add 198.51.100.129/25 dev lan1",
            "addr add 203.0.113.1/24 dev wan0",
        ]);
        a.configure(&["addr add 198.51.100.2/25 dev a0", "route add default via 198.51.100.1"]);
        b.configure(&["addr add 198.51.100.130/25 dev b0", "route add default via 198.51.100.129"]);
        server.ip("addr add 203.0.113.2/24 dev s0");
        Some(Home { a, b, gateway, server })
    }

    /// All that could be changed: addresses, routes, settings, rules, and conntrack's timeouts.
    fn snapshot(&self) -> Vec<String> {
        let mut lines = snapshot(&self.gateway);
        let rules = self.gateway.run("nft list ruleset");
        let timeouts = self.gateway.settings(&[
            "nf_conntrack_udp_timeout",
            "nf_conntrack_tcp_timeout",
            "nf_conntrack_icmp",
        ]);
        lines.extend(rules.lines().chain(timeouts.lines()).map(str::to_owned));
        lines
    }
}

/// A listener at this port. A process that another test is about to start may still hold the one before it.
fn listen(at: &Netns, port: u16) -> TcpListener {
    let bind = || at.inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).ok();
    let listener = poll("the port is free", bind);
    listener.set_nonblocking(true).unwrap();
    listener
}

/// A TCP connection to a listener at this port. Gives whom the listener sees, or why there is none.
fn connect(from: &Netns, to: SocketAddr, at: &Netns, port: u16) -> io::Result<SocketAddr> {
    let listener = listen(at, port);
    let mut client = from.inside(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    let (mut server, peer) = poll("the listener is reached", || listener.accept().ok());
    server.set_nonblocking(false).unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let mut buffer = [0; 4];
    client.write_all(b"ping").unwrap();
    server.read_exact(&mut buffer).unwrap();
    server.write_all(b"pong").unwrap();
    client.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"pong");
    Ok(peer)
}

/// A datagram and its answer. Gives whom the server sees.
fn datagram(from: &Netns, to: IpAddr, at: &Netns) -> SocketAddr {
    let any = (Ipv4Addr::UNSPECIFIED, 0);
    let server = at.inside(|| UdpSocket::bind(any).unwrap());
    let client = from.inside(|| UdpSocket::bind(any).unwrap());
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    client.send_to(b"ping", (to, server.local_addr().unwrap().port())).unwrap();
    let mut buffer = [0; 16];
    let (_, peer) = server.recv_from(&mut buffer).unwrap();
    server.send_to(b"pong", peer).unwrap();
    let (length, _) = client.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"pong");
    peer
}

/// A counter of the only entry.
fn counted(daemon: &Daemon<'_>, name: &str) -> u64 {
    count(&nat44(daemon), &format!("counters/{name}/packets"))
}

/// Waits until a counter of the only entry has at least this value.
fn until_counted(daemon: &Daemon<'_>, name: &str, least: u64) {
    let reached = || (counted(daemon, name) >= least).then_some(());
    poll_or(reached, || format!("{least} {name}: {}", nat44(daemon)));
}

fn nat44(daemon: &Daemon<'_>) -> Value {
    daemon.all_stats()["nat44"][0].clone()
}

#[test]
fn hosts_share_the_address_and_ctrl_c_leaves_the_host_as_it_was() {
    let Some(home) = Home::new() else { return };
    // The operator's own rules, which must stay what they are, counters apart.
    home.gateway.run("nft add table inet mine");
    home.gateway
        .run("nft add chain inet mine transit { type filter hook forward priority filter ; }");
    home.gateway.run("nft add rule inet mine transit tcp dport 9 drop");
    let before = home.snapshot();
    let run = RunDir::new();
    let mut daemon = Daemon::start(&run, &home.gateway, PLAIN);

    let mut connection = Connection::open(&home.a, &home.server, SERVER);
    assert_eq!(connection.peer.ip(), OUTER);
    assert_eq!(datagram(&home.a, SERVER, &home.server).ip(), OUTER);
    home.b.run("ping -n -c 2 -i 0.05 -W 30 203.0.113.2");
    connection.check();
    for (name, least) in [("sessions", 3), ("out", 8), ("in", 6)] {
        until_counted(&daemon, name, least);
    }
    let stats = nat44(&daemon);
    assert!(count(&stats, "conntrack/connections") >= 3, "{stats}");
    let status = daemon.status()["nat44"][0].clone();
    assert_eq!(status["table"], "fordway-nat44-nat44");
    let settings = status["settings"].to_string();
    assert!(settings.contains("udp_timeout to 300"), "{status}");
    for command in ["status", "stats", "stats --prometheus"] {
        let output = run.output(&home.gateway, command);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("nat44"), "{command}: {text}");
    }
    let established =
        home.gateway.run("sysctl -n net.netfilter.nf_conntrack_tcp_timeout_established");
    assert_eq!(established.trim(), "7440");

    daemon.signal(Signal::INT);
    assert!(daemon.wait().success(), "{}", daemon.log());
    assert_same(&home.snapshot(), &before);
}

#[test]
fn forwarded_ports_are_reached_from_outside_and_from_inside() {
    let Some(home) = Home::new() else { return };
    let run = RunDir::new();
    let forwards =
        "--forward tcp:80=198.51.100.130:8080 --forward udp:203.0.113.1:53=198.51.100.130:5353";
    let daemon = Daemon::start(&run, &home.gateway, &format!("{PLAIN} {forwards}"));
    let outer = SocketAddr::new(OUTER, 80);
    let peer = connect(&home.server, outer, &home.b, 8080).unwrap();
    assert_eq!(peer.ip(), SERVER);
    // RFC 4787 REQ-9: from inside, at the outer address, seen as the outer address.
    let peer = connect(&home.a, outer, &home.b, 8080).unwrap();
    assert_eq!(peer.ip(), OUTER);
    assert_eq!((counted(&daemon, "forwarded"), counted(&daemon, "hairpin")), (2, 1));
    // A port that nobody forwards is the gateway's own.
    let _listener = listen(&home.b, 8081);
    traffic::assert_refused(&home.server, OUTER, 81);
    // The uplink gets another address: the port is forwarded there, too.
    home.gateway.ip("addr add 203.0.113.9/24 dev wan0");
    poll("the new address is forwarded", || {
        connect(&home.server, "203.0.113.9:80".parse().unwrap(), &home.b, 8080).ok()
    });
    daemon.stop();
}

#[test]
fn what_nobody_waits_for_does_not_come_in() {
    let Some(home) = Home::new() else { return };
    home.server.ip("route add 198.51.100.0/24 via 203.0.113.1");
    let run = RunDir::new();
    let daemon = Daemon::start(&run, &home.gateway, PLAIN);
    let listener = listen(&home.b, 8080);
    traffic::assert_unanswered(&home.server, B, 8080, || counted(&daemon, "unsolicited"));
    drop(listener);
    drop(daemon);
    let daemon = Daemon::start(&run, &home.gateway, &format!("{PLAIN} --set inbound=route"));
    let peer = connect(&home.server, SocketAddr::new(B, 8080), &home.b, 8080).unwrap();
    assert_eq!(peer.ip(), SERVER);
    daemon.stop();
}

#[test]
fn connections_outlive_a_daemon_that_is_killed() {
    let Some(home) = Home::new() else { return };
    let before = home.snapshot();
    let run = RunDir::new();
    let daemon = Daemon::start(&run, &home.gateway, PLAIN);
    let mut connection = Connection::open(&home.a, &home.server, SERVER);
    daemon.kill();
    connection.check();
    assert_eq!(
        connect(&home.a, SocketAddr::new(SERVER, 81), &home.server, 81).unwrap().ip(),
        OUTER
    );

    // The next one takes it over, and counts on.
    let daemon = Daemon::start(&run, &home.gateway, PLAIN);
    connection.check();
    until_counted(&daemon, "sessions", 2);
    daemon.kill();
    // Another daemon of the host does not take it for left over.
    let other = RunDir::new();
    drop(Daemon::start(&other, &home.gateway, "dual-stack --device lan0"));
    connection.check();
    let output = run.output(&home.gateway, "down nat44");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_same(&home.snapshot(), &before);
    let arrived = home.gateway.counter("iifname lan0 ip saddr 198.51.100.2 tcp flags psh");
    connection.assert_cut(|| {
        let arrived = arrived();
        // What the gateway has seen before this has reached the server before it, or never does.
        home.gateway.run("ping -n -c 1 -W 30 203.0.113.2");
        arrived
    });
}

#[test]
fn pools_are_answered_for_on_the_uplink() {
    let Some(home) = Home::new() else { return };
    let before = home.snapshot();
    let run = RunDir::new();
    let options =
        "--pool4 203.0.113.16-203.0.113.17:20000-20999 --netmap 198.51.100.128/25=203.0.113.128/25";
    let daemon = Daemon::start(&run, &home.gateway, &format!("{PLAIN} {options}"));
    let pool = ["203.0.113.16", "203.0.113.17"].map(|it| it.parse::<IpAddr>().unwrap());
    let first = datagram(&home.a, SERVER, &home.server);
    assert!(pool.contains(&first.ip()) && (20_000..=20_999).contains(&first.port()), "{first}");
    // RFC 4787 REQ-2: a host has one address.
    for _ in 0..4 {
        assert_eq!(datagram(&home.a, SERVER, &home.server).ip(), first.ip());
    }
    // Each host of a mapped network has an address of its own, both ways.
    let own: IpAddr = "203.0.113.130".parse().unwrap();
    assert_eq!(datagram(&home.b, SERVER, &home.server).ip(), own);
    let peer = connect(&home.server, SocketAddr::new(own, 8080), &home.b, 8080).unwrap();
    assert_eq!(peer.ip(), SERVER);
    // And from inside.
    let peer = connect(&home.a, SocketAddr::new(own, 8080), &home.b, 8080).unwrap();
    assert_eq!(peer.ip(), own);
    daemon.stop();
    assert_same(&home.snapshot(), &before);
}

#[test]
fn a_reload_keeps_connections_and_a_flushed_ruleset_comes_back() {
    let Some(home) = Home::new() else { return };
    let run = RunDir::new();
    let text = |more: &str| {
        format!(
            "[[translator]]\nname = 'home'\nmode = 'nat44'\nclients = ['198.51.100.0/24']\n\
             uplink = 'wan0'\n{more}\n"
        )
    };
    let file = run.file("fordway.toml", &text(""));
    let daemon = Daemon::start(&run, &home.gateway, &format!("run {}", file.display()));
    let mut connection = Connection::open(&home.a, &home.server, SERVER);
    let reload = |more: &str| {
        std::fs::write(&file, text(more)).unwrap();
        let output = run.output(&home.gateway, "reload");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let (good, said) =
        reload("forward = [['tcp', '80', '198.51.100.130:8080']]\nlifetimes = 'host'");
    assert!(good && said.contains("changed: home"), "{said}");
    connection.check();
    let established =
        home.gateway.run("sysctl -n net.netfilter.nf_conntrack_tcp_timeout_established");
    assert_eq!(established.trim(), "432000");
    connect(&home.server, SocketAddr::new(OUTER, 80), &home.b, 8080).unwrap();
    until_counted(&daemon, "sessions", 1);
    let (good, said) = reload("forward = 7");
    assert!(!good && said.contains("forward"), "{said}");
    connect(&home.server, SocketAddr::new(OUTER, 80), &home.b, 8080).unwrap();

    home.gateway.run("nft flush ruleset");
    poll("the table is there again", || {
        home.gateway.run("nft list ruleset").contains("fordway-nat44-home").then_some(())
    });
    connect(&home.server, SocketAddr::new(OUTER, 80), &home.b, 8080).unwrap();
    // The line follows the change.
    let put_back = "removed by another program; put back: add nftables table";
    poll("the log says so", || daemon.log().contains(put_back).then_some(()));

    // Down at run time, and up again by the file.
    let output = run.output(&home.gateway, "down home");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(home.gateway.run("nft list ruleset"), "");
    let (good, said) = reload("");
    assert!(good && said.contains("new: home"), "{said}");
    assert_eq!(datagram(&home.a, SERVER, &home.server).ip(), OUTER);
    daemon.stop();
}

#[test]
fn a_host_has_no_more_connections_than_its_quota() {
    let Some(home) = Home::new() else { return };
    let run = RunDir::new();
    let daemon = Daemon::start(&run, &home.gateway, &format!("{PLAIN} --sessions 3"));
    let open: Vec<Connection> =
        (0..3).map(|_| Connection::open(&home.a, &home.server, SERVER)).collect();
    let listener = listen(&home.server, 81);
    traffic::assert_unanswered(&home.a, SERVER, 81, || counted(&daemon, "sessions_limit"));
    drop(listener);
    // Somebody else's are his own.
    connect(&home.b, SocketAddr::new(SERVER, 81), &home.server, 81).unwrap();
    drop(open);
    daemon.stop();
}

#[test]
fn segments_fit_a_narrow_uplink() {
    let Some(home) = Home::new() else { return };
    home.gateway.ip("link set wan0 mtu 1300");
    let run = RunDir::new();
    let daemon = Daemon::start(&run, &home.gateway, PLAIN);
    let connection = Connection::open(&home.a, &home.server, SERVER);
    let text = home.server.run("ss -tin state established");
    let sizes = text.split_whitespace().filter_map(|word| word.strip_prefix("mss:"));
    let sizes: Vec<u32> = sizes.map(|size| size.parse().unwrap()).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size <= 1260), "{text}");
    drop(connection);
    daemon.stop();
}

#[test]
fn a_device_that_is_not_there_takes_part_when_it_comes() {
    let Some(home) = Home::new() else { return };
    home.gateway.ip("link set wan0 name later0");
    let run = RunDir::new();
    let options = format!("{PLAIN} --pool4 203.0.113.16");
    let daemon = Daemon::start(&run, &home.gateway, &options);
    assert!(daemon.log().contains("there is no interface wan0"), "{}", daemon.log());
    home.gateway.configure(&[
        "link set later0 down",
        "link set later0 name wan0",
        "link set wan0 up",
    ]);
    poll("the address is there", || {
        home.gateway.ip("addr show dev wan0").contains("203.0.113.16/32").then_some(())
    });
    assert_eq!(datagram(&home.a, SERVER, &home.server).ip().to_string(), "203.0.113.16");
    daemon.stop();
}

#[test]
fn what_a_client_says_never_leaves_untranslated() {
    let Some(home) = Home::new() else { return };
    let run = RunDir::new();
    let leaked = home.server.counter("ip saddr 198.51.100.0/24");
    let daemon = Daemon::start(&run, &home.gateway, PLAIN);
    // A segment of no connection, which conntrack calls invalid.
    home.gateway.sysctl("net.netfilter.nf_conntrack_tcp_loose", "0");
    let text = "from socket import *; s=socket(AF_INET,SOCK_RAW,IPPROTO_TCP); \
                s.sendto(bytes.fromhex('1000005000000001000000015010200000000000'),('203.0.113.2',0))";
    let mut command = home.a.command("python3");
    assert!(command.args(["-c", text]).status().unwrap().success());
    until_counted(&daemon, "invalid", 1);
    assert_eq!(leaked(), 0);
    daemon.stop();
}
