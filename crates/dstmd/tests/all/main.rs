//! DSTM over real sockets: server, clients, and tunnel end points in this process and beside it. What takes time is in
//! `src/dstm/server/tests.rs`.

mod bench;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV6};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bench::{Bench, PORT, Table, key, options, server_settings};
use fordway_dstmd::protocol::{Binding, Body, LinkSettings, Message};
use fordway_dstmd::{Agent, AgentSettings, Injector, TepPlace, Waiting, read_leases};
use fordway_serve::Service as _;
use fordway_testhost::{PATIENCE, poll, wait};

use fordway_testhost::namespace::{Namespace, can_test, in_namespace};

#[test]
fn a_packet_that_waits_gets_an_address_and_goes() {
    let bench = Bench::new();
    let server = bench.start();
    let client = bench.client(&server, "a");
    assert_eq!(client.stats().state, "idle");
    client.waiting.push(b"first", false);
    client.waiting.push(b"second", false);
    poll("packets are sent", || (client.sent() == ["first", "second"]).then_some(()));
    let stats = poll("told", || Some(client.stats()).filter(|stats| stats.v4.is_some()));
    let v4 = stats.v4.unwrap();
    assert_eq!((stats.state.as_str(), stats.granted, stats.waited), ("bound", 1, 2));
    // The tunnel end point knew it before the client did.
    let bound = client.bound().unwrap();
    assert_eq!(bench.table.all(), [Binding { v4, ports: None, remote: bound.1, local: bench.tep }]);
    let leases = server.leases().unwrap();
    assert_eq!((leases.len(), leases[0].v4, leases[0].client.as_str()), (1, v4, "a"));
    assert_eq!(read_leases(&bench.state).unwrap().leases.len(), 1);
    client.end();
    poll("given back", || bench.table.all().is_empty().then_some(()));
    poll("counted", || (server.stats().released == 1).then_some(()));
    assert!(client.bound().is_none());
    assert!(read_leases(&bench.state).unwrap().leases.is_empty());
}

/// A UDP datagram from 192.0.2.1 to 192.0.2.2, port 9, whose checksum is left to the device.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend([0x20, 0, 0, 9]);
    packet.extend(udp.to_be_bytes());
    packet.extend([0xff, 0xff]);
    packet.extend(payload);
    packet
}

#[test]
fn a_packet_that_has_waited_arrives_whole() {
    if !can_test() {
        return;
    }
    let host = Namespace::create();
    host.ip("address add 192.0.2.1/32 dev lo");
    host.ip("address add 192.0.2.2/32 dev lo");
    host.run(|| {
        let receiver = std::net::UdpSocket::bind("192.0.2.2:9").unwrap();
        let waiting = Waiting::default();
        waiting.push(&datagram(b"hello"), true);
        let injector = Injector::open("lo").unwrap();
        for packet in waiting.take() {
            injector.send(&packet).unwrap();
        }
        let mut buffer = [0; 100];
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let (len, from) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"hello"[..], "192.0.2.1:8192".parse().unwrap()));
        assert!(injector.send(&[0x60; 40]).is_err() && injector.send(b"").is_err());
        assert!(Injector::open("nowhere0").is_err());
    });
}

#[test]
fn another_life_of_the_server_knows_the_leases() {
    in_namespace(|| {
        let bench = Bench::new();
        let start = || bench.start_with(|settings| settings.listen[0].set_port(PORT));
        let server = start();
        let client = bench.client(&server, "a");
        client.waiting.push(b"x", false);
        let (grant, _) = poll("bound", || client.bound());
        // As after kill -9: what is in memory is gone, the file is as it is.
        let file = std::fs::read(&bench.state).unwrap();
        drop(server);
        std::fs::write(&bench.state, [&file[..], b"lent 192.0."].concat()).unwrap();
        bench.table.clear();
        let server = start();
        assert_eq!(bench.table.all().len(), 1, "the tunnel end point has it at once");
        let leases = server.leases().unwrap();
        assert_eq!((leases.len(), leases[0].v4), (1, grant.v4));
        // And nobody else gets it.
        let other = bench.client(&server, "b");
        other.waiting.push(b"y", false);
        let (others, _) = poll("bound", || other.bound());
        assert_ne!(others.v4, grant.v4);
    });
}

/// The file of the server that is killed: that is a process of its own, this test once more.
const KILLED: &str = "FORDWAY_TEST_DSTM_LEASES";

/// Serves until it is killed.
fn be_the_server(state: OsString) {
    let bench = Bench::new();
    let _server = bench.start_with(|settings| {
        settings.listen[0].set_port(PORT);
        settings.state = state.into();
    });
    eprintln!("serves");
    // Until it is killed, or the other end of standard input closes.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn kill_9_loses_no_lease() {
    if let Some(state) = std::env::var_os(KILLED) {
        return be_the_server(state);
    }
    in_namespace(|| {
        let bench = Bench::new();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill_9_loses_no_lease", "--nocapture"])
            .env(KILLED, &bench.state)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "serves\n");
        let clients = ["a", "b", "c"].map(|name| bench.run(options(PORT, name)));
        let bound = clients.each_ref().map(|client| {
            client.waiting.push(b"x", false);
            poll("bound", || client.bound()).0.v4
        });
        process.kill().unwrap();
        wait(&mut process, "a server that was killed");
        let server = bench.start_with(|settings| settings.listen[0].set_port(PORT));
        let leases = server.leases().unwrap();
        for (name, v4) in ["a", "b", "c"].iter().zip(bound) {
            assert!(leases.iter().any(|it| it.client == *name && it.v4 == v4), "{name} has {v4}");
        }
        assert_eq!((leases.len(), bench.table.all().len()), (3, 3));
        // They go on with the other life, whose cookies are others.
        for client in &clients {
            client.end();
        }
        poll("all given back", || server.leases().unwrap().is_empty().then_some(()));
    });
}

#[test]
fn a_damaged_lease_file_is_no_reason_not_to_start() {
    let bench = Bench::new();
    let octets: Vec<u8> = (0..200_000u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(&bench.state, octets).unwrap();
    let server = bench.start();
    assert_eq!(server.stats().leases, 0);
    let client = bench.client(&server, "a");
    client.waiting.push(b"x", false);
    poll("bound", || client.bound());
    assert_eq!(read_leases(&bench.state).unwrap().damaged, 0, "it was written anew");
}

#[test]
fn a_file_that_can_not_be_written_is_told() {
    let bench = Bench::new();
    let mut settings = server_settings(&bench);
    settings.state = "/proc/nowhere/leases".into();
    let error = fordway_dstmd::Server::bind(&settings).unwrap_err();
    assert!(error.to_string().contains("/proc/nowhere/leases"), "{error}");
}

#[test]
fn an_exhausted_pool_is_told_and_the_packets_wait_in_vain() {
    let bench = Bench::new();
    let server = bench.start_with(|settings| {
        settings.server.pool = vec!["192.0.2.1/32".parse().unwrap()];
    });
    let first = bench.client(&server, "a");
    first.waiting.push(b"x", false);
    poll("bound", || first.bound());
    let second = bench.client(&server, "b");
    second.waiting.push(b"y", false);
    poll("refused", || (second.stats().refusals == 1).then_some(()));
    let stats = second.stats();
    assert_eq!((stats.state.as_str(), stats.dropped), ("refused", 1));
    assert!(stats.refused.unwrap().contains("lent"), "in words");
    assert_eq!(server.stats().exhausted, 1);
    second.waiting.push(b"z", false);
    poll("dropped", || (second.stats().dropped == 2).then_some(()));
}

#[test]
fn who_has_another_key_gets_no_answer() {
    let bench = Bench::new();
    let server = bench.start();
    let mut wrong = options(bench.port(&server), "a");
    wrong.client.key = key(99);
    let client = bench.run(wrong);
    client.waiting.push(b"x", false);
    poll("forged", || (server.stats().forged >= 1).then_some(()));
    poll("it asks", || (client.stats().state == "asking").then_some(()));
    assert_eq!(server.stats().leases, 0);
}

#[test]
fn a_host_that_can_not_set_the_tunnel_up_gives_the_address_back() {
    let bench = Bench::new();
    let server = bench.start();
    let client = bench.client(&server, "a");
    client.refuse();
    client.waiting.push(b"x", false);
    poll("given back", || (server.stats().released == 1).then_some(()));
    poll("dropped", || (client.stats().dropped == 1).then_some(()));
}

#[test]
fn clients_share_an_address_by_its_ports() {
    let bench = Bench::new();
    let server = bench.start_with(|settings| {
        settings.server.pool = vec!["192.0.2.1/32".parse().unwrap()];
        settings.server.ports = Some(16_384);
    });
    let clients = ["a", "b", "c"].map(|name| bench.client(&server, name));
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for client in &clients {
        client.waiting.push(b"x", false);
        poll("bound", || client.bound());
        poll("told", || client.stats().ports.map(|range| ranges.push(range)));
        assert_eq!(client.stats().v4, Some(Ipv4Addr::new(192, 0, 2, 1)));
    }
    ranges.sort_unstable();
    assert_eq!(ranges, [(16_384, 32_767), (32_768, 49_151), (49_152, 65_535)]);
}

#[test]
fn other_settings_while_it_runs() {
    let bench = Bench::new();
    let server = bench.start();
    let client = bench.client(&server, "a");
    client.waiting.push(b"x", false);
    poll("bound", || client.bound());
    let mut settings = server_settings(&bench);
    settings.server.clients.retain(|client| client.id.as_str() != "a");
    server.replace(settings.clone()).unwrap();
    assert!(bench.table.all().is_empty(), "it is nobody's any more");
    let twice = settings.server.clients[0].clone();
    settings.server.clients.push(twice);
    assert!(server.replace(settings).is_err());
    assert!(!server.revoke("a").unwrap());
}

#[test]
fn a_lease_is_revoked() {
    let bench = Bench::new();
    let server = bench.start();
    let client = bench.client(&server, "a");
    client.waiting.push(b"x", false);
    poll("bound", || client.bound());
    assert!(server.revoke("a").unwrap());
    assert!(bench.table.all().is_empty() && server.leases().unwrap().is_empty());
}

#[test]
fn a_tunnel_end_point_on_another_host() {
    in_namespace(|| {
        let bench = Bench::new();
        let far = Table::default();
        let tep: SocketAddrV6 = "[::1]:10053".parse().unwrap();
        let agent = || {
            let bindings = Arc::new(far.clone());
            let settings = AgentSettings { listen: tep, key: key(50), bindings, most: 100 };
            Agent::start(Agent::bind(&settings).unwrap()).unwrap()
        };
        let link = LinkSettings { tep, key: key(50) };
        let start = || {
            bench.start_with(|settings| {
                settings.tep = TepPlace::There(link.clone());
                settings.listen[0].set_port(PORT);
            })
        };
        let running = agent();
        let server = start();
        poll("the link is up", || server.stats().tep_up.then_some(()));
        let client = bench.client(&server, "a");
        client.waiting.push(b"x", false);
        let (grant, own) = poll("bound", || client.bound());
        // The client hears of it only when the tunnel end point has it.
        let has = Binding { v4: grant.v4, ports: None, remote: own, local: bench.tep };
        assert_eq!(far.all(), [has]);
        // The tunnel end point starts again.
        drop(running);
        assert!(far.all().is_empty(), "it leaves nothing");
        let running = agent();
        poll("told again", || (far.all() == [has]).then_some(()));
        // The server starts again.
        drop(server);
        assert_eq!(far.all(), [has], "valid as long as the lease");
        let server = start();
        poll("a session of the new life", || (running.stats().sessions == 2).then_some(()));
        assert_eq!((far.all(), server.stats().leases), (vec![has], 1));
        // Nobody else's messages do anything.
        let stranger = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let forged = Message { transaction: 1, number: 1, body: Body::Hello }.seal(&key(51));
        stranger.send_to(&forged, tep).unwrap();
        stranger.send_to(b"hello", tep).unwrap();
        client.end();
        poll("gone there, too", || far.all().is_empty().then_some(()));
        let stats = running.stats();
        assert_eq!((stats.forged, stats.malformed, stats.failed), (1, 1, 0));
    });
}

#[test]
fn without_the_tunnel_end_point_nothing_is_lent() {
    let bench = Bench::new();
    let nobody = std::net::UdpSocket::bind("[::1]:0").unwrap();
    let std::net::SocketAddr::V6(tep) = nobody.local_addr().unwrap() else { panic!("IPv6") };
    let link = LinkSettings { tep, key: key(50) };
    let server = bench.start_with(|settings| settings.tep = TepPlace::There(link));
    let client = bench.client(&server, "a");
    client.waiting.push(b"x", false);
    poll("refused", || (client.stats().refusals == 1).then_some(()));
    let refused = client.stats().refused.unwrap();
    assert!(refused.contains("trouble"), "{refused}");
    let stats = server.stats();
    assert_eq!((stats.leases, stats.tep_up, stats.failed), (0, false, 1));
    assert!(read_leases(&bench.state).unwrap().leases.is_empty());
}
