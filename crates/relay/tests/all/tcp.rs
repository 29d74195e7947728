//! Connections: octets, ends, resets, urgent data.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use fordway_relay::{Settings, Urgent};
use fordway_serve::Service as _;
use fordway_testhost::{has_programs, poll};
use fordway_xlat::TrafficClass;
use nix::sys::socket::{MsgFlags, recv};
use socket2::SockRef;

use super::world::{World, behind, pattern, read_all, send_all, settings, to};
use fordway_testhost::namespace::can_test;

#[test]
fn octets_arrive_in_both_directions_and_both_ends_are_told() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    let octets = pattern(9_000_000);
    let (mut client, mut server) = world.pair(&listener);
    assert_eq!(client.peer_addr().unwrap(), SocketAddr::V6(to(80)), "it came from the server");
    assert_eq!(server.peer_addr().unwrap().ip().to_string(), "192.0.2.1");
    let up = send_all(client.try_clone().unwrap(), octets.clone());
    let down = send_all(server.try_clone().unwrap(), octets.clone());
    let reader = thread::spawn(move || read_all(&mut server));
    assert!(read_all(&mut client) == (octets.clone(), None));
    assert!(reader.join().unwrap() == (octets, None));
    up.join().unwrap();
    down.join().unwrap();
    let stats = world.counted("the end", |stats| stats.tcp_finished == 1 && stats.connections == 0);
    assert_eq!((stats.tcp_accepted, stats.tcp_established), (1, 1));
    assert_eq!((stats.tcp_octets_up, stats.tcp_octets_down), (9_000_000, 9_000_000));
}

#[test]
fn a_direction_ends_alone() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    for first in ["client", "server"] {
        let (client, server) = world.pair(&listener);
        let (mut early, mut late) =
            if first == "client" { (client, server) } else { (server, client) };
        early.write_all(b"question").unwrap();
        early.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut late), (b"question".to_vec(), None), "{first}");
        // The other direction is as it was, for as long as it takes.
        for round in 0..3u8 {
            late.write_all(&[round; 1000]).unwrap();
            let mut answer = [0xff; 1000];
            early.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round; 1000]);
        }
        drop(late);
        assert_eq!(read_all(&mut early), (Vec::new(), None), "{first}");
    }
    world.counted("the ends", |stats| stats.tcp_finished == 2);
}

#[test]
fn a_server_that_refuses_resets_the_client() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    assert!(world.is_reset(to(81)));
    let stats =
        world.counted("the refusal", |stats| stats.failed_refused == 1 && stats.connections == 0);
    assert_eq!(stats.tcp_established, 0);
}

#[test]
fn a_reset_comes_after_what_was_sent_before_it() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    let octets = pattern(100_000);
    for first in ["client", "server"] {
        let (client, server) = world.pair(&listener);
        let (mut early, mut late) =
            if first == "client" { (client, server) } else { (server, client) };
        early.write_all(&octets).unwrap();
        // What has not left yet would be thrown away by the sender's own system.
        poll("an acknowledgement", || {
            (fordway_net::unacknowledged(&early).unwrap() == 0).then_some(())
        });
        SockRef::from(&early).set_linger(Some(Duration::ZERO)).unwrap();
        drop(early);
        let (read, error) = read_all(&mut late);
        assert!(read == octets, "{first}: {} octets", read.len());
        assert_eq!(error, Some(ErrorKind::ConnectionReset), "{first}");
    }
    let stats = world.counted("the resets", |it| {
        it.tcp_reset_client + it.tcp_reset_server == 2 && it.connections == 0
    });
    assert_eq!(stats.tcp_reset_client, 1);
}

#[test]
fn a_client_that_is_gone_while_the_server_is_asked() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    // A neighbour that never answers.
    world.relay.ip("neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev wan0");
    let client = world.connect_to(behind("192.0.2.99", 80));
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    world.counted("the reset", |stats| stats.tcp_abandoned == 1 && stats.connections == 0);
}

/// What the server reads, and what it reads as urgent, of "ab", urgent "!", "cd".
fn urgent(policy: Urgent) -> (Vec<u8>, Vec<u8>) {
    let world = World::new(Settings { urgent: policy, ..settings() });
    let listener = world.listen(80);
    let (mut client, mut server) = world.pair(&listener);
    client.write_all(b"ab").unwrap();
    SockRef::from(&client).send_out_of_band(b"!").unwrap();
    client.write_all(b"cd").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut marked = Vec::new();
    if policy == Urgent::Carry {
        // What is read behind the mark takes it away.
        let mut one = [0];
        poll("urgent data", || recv(server.as_raw_fd(), &mut one, MsgFlags::MSG_OOB).ok());
        marked.extend(one);
    }
    let (whole, _) = read_all(&mut server);
    world.counted("the mark", |stats| stats.tcp_urgent == 1);
    (whole, marked)
}

#[test]
fn urgent_data_is_carried_put_in_its_place_or_left_out() {
    if !can_test() {
        return;
    }
    // The server does not read urgent data in its place.
    assert_eq!(urgent(Urgent::Carry), (b"abcd".to_vec(), b"!".to_vec()));
    assert_eq!(urgent(Urgent::Inline), (b"ab!cd".to_vec(), Vec::new()));
    assert_eq!(urgent(Urgent::Discard), (b"abcd".to_vec(), Vec::new()));
}

#[test]
fn many_connections_at_once() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (read, _) = read_all(&mut stream);
                let _ = stream.write_all(&read);
            });
        }
    });
    let streams: Vec<TcpStream> = (0..200).map(|_| world.connect(80)).collect();
    for (index, mut stream) in (0u32..).zip(&streams) {
        stream.write_all(&index.to_be_bytes()).unwrap();
    }
    world.counted("all of them", |stats| stats.tcp_established == 200 && stats.connections == 200);
    for (index, mut stream) in (0u32..).zip(streams) {
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut stream), (index.to_be_bytes().to_vec(), None));
    }
    world.counted("the ends", |stats| stats.tcp_finished == 200 && stats.connections == 0);
}

#[test]
fn connections_come_from_an_address_of_the_pool_with_the_class_of_the_client() {
    if !can_test() || !has_programs(&["nft"]) {
        return;
    }
    let pool = ["192.0.2.2".parse().unwrap()];
    let world = World::new(Settings { source4: pool.to_vec(), ..settings() });
    for rule in [
        "add table ip t",
        "add chain ip t c { type filter hook prerouting priority 0 ; }",
        "add rule ip t c ip saddr 192.0.2.2 tcp flags syn ip dscp af21 counter accept",
    ] {
        world.server.output("nft", rule);
    }
    let listener = world.listen(80);
    let client = world.client.run(|| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        socket.set_tclass_v6(0x48).unwrap();
        socket.connect(&to(80).into()).unwrap();
        socket
    });
    let (server, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "192.0.2.2");
    let rules = world.server.output("nft", "list chain ip t c");
    assert!(rules.contains("packets 1"), "{rules}");
    drop((client, server));
    let fixed = Settings { class: TrafficClass::Set(0), source4: Vec::new(), ..settings() };
    world.running().replace(fixed).unwrap();
    // A thread that does not know the change yet takes the pool once more.
    poll("a connection from the other address", || {
        let (_client, server) = world.pair(&listener);
        (server.peer_addr().unwrap().ip().to_string() == "192.0.2.1").then_some(())
    });
    assert!(world.server.output("nft", "list chain ip t c").contains("packets 1"));
}

#[test]
fn other_settings_leave_connections_as_they_are() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    let (mut client, mut server) = world.pair(&listener);
    let nobody = Settings { allow: fordway_serve::Acl::default(), ..settings() };
    world.running().replace(nobody).unwrap();
    // A thread that does not know the change yet passes a connection on; then there are both ends of it.
    listener.set_nonblocking(true).unwrap();
    poll("a refusal", || {
        let mut client = match world.client.run(|| TcpStream::connect(to(80))) {
            Ok(client) => client,
            Err(error) => return (error.kind() == ErrorKind::ConnectionReset).then_some(()),
        };
        client.set_nonblocking(true).unwrap();
        let is_reset = poll("a refusal, or a connection", || match client.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(true),
            _ => listener.accept().is_ok().then_some(false),
        });
        is_reset.then_some(())
    });
    assert_eq!(world.stats().refused_client, 1);
    client.write_all(b"still").unwrap();
    let mut read = [0; 5];
    server.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"still");
    let other = Settings { name: "other".to_owned(), ..settings() };
    assert!(world.running().replace(other).is_err());
}

#[test]
fn the_host_itself_uses_its_relay_and_keeps_its_own_services() {
    if !can_test() {
        return;
    }
    let mut world = World::new(settings());
    let listener = world.listen(80);
    let own = world.relay.run(|| std::net::TcpListener::bind("[::]:80").unwrap());
    // A client reaches the service of the host at the host's address, the server behind the prefix.
    let _direct = world.connect_to("[2001:db8:1::1]:80".parse().unwrap());
    assert_eq!(own.accept().unwrap().1.ip().to_string(), "2001:db8:1::5");
    let (_client, _server) = world.pair(&listener);
    let relay = world.relay.run(|| TcpStream::connect(to(80)).unwrap());
    let (server, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "192.0.2.1");
    drop((relay, server));
    world.counted("both", |stats| stats.tcp_established == 2);
    world.stop();
    // Nobody listens any more: the client is told, and the service of the host is not taken for the server's.
    // A program that another test is starting may still hold the relay's listener for a moment.
    let refused = poll("nobody listens", || world.client.run(|| TcpStream::connect(to(80)).err()));
    assert_ne!(refused.kind(), ErrorKind::TimedOut, "{refused}");
}
