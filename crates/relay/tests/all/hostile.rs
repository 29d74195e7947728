//! Limits, and what strangers try.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};

use fordway_relay::{Limits, Settings};
use fordway_serve::Acl;

use super::world::{World, behind, pattern, read_all, settings, to};
use fordway_testhost::namespace::can_test;

#[test]
fn a_client_network_has_so_many_connections() {
    if !can_test() {
        return;
    }
    let limits = Limits { per_client: 3, ..Limits::default() };
    let world = World::new(Settings { limits, ..settings() });
    let listener = world.listen(80);
    let mut pairs: Vec<_> = (0..3).map(|_| world.pair(&listener)).collect();
    let mut fourth = world.connect(80);
    assert_eq!(read_all(&mut fourth).1, Some(ErrorKind::ConnectionReset));
    // Another network is not concerned.
    world.client.add_address("2001:db8:1:1::5/64", "up0");
    world.relay.add_address("2001:db8:1:1::1/64", "lan0");
    let other = world.client.run(|| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        let from: std::net::SocketAddrV6 = "[2001:db8:1:1::5]:0".parse().unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&to(80).into()).unwrap();
        TcpStream::from(socket)
    });
    let _server = listener.accept().unwrap();
    pairs.pop();
    world.counted("an end", |stats| stats.connections == 3);
    let _again = world.pair(&listener);
    drop(other);
    let stats = world.stats();
    assert_eq!((stats.limited_client, stats.limited_total), (1, 0));
}

#[test]
fn all_together_have_so_many_connections() {
    if !can_test() {
        return;
    }
    let limits = Limits { connections: 2, ..Limits::default() };
    let world = World::new(Settings { limits, ..settings() });
    let listener = world.listen(80);
    let _pairs: Vec<_> = (0..2).map(|_| world.pair(&listener)).collect();
    for _ in 0..20 {
        let mut more = world.connect(80);
        assert_eq!(read_all(&mut more).1, Some(ErrorKind::ConnectionReset));
    }
    assert_eq!(world.stats().limited_total, 20);
}

#[test]
fn who_may_not_and_what_may_not_be_reached() {
    if !can_test() {
        return;
    }
    let refuse4 = Acl::new(["192.0.2.7/32".parse().unwrap()]);
    let allow = Acl::new(["2001:db8:1::5/128".parse().unwrap()]);
    let world = World::new(Settings { refuse4, allow, ..settings() });
    let _listener = world.listen(80);
    for refused in ["192.0.2.7", "127.0.0.1", "192.0.2.1", "0.0.0.0", "255.255.255.255"] {
        assert!(world.is_reset(behind(refused, 80)), "{refused}");
    }
    world.client.add_address("2001:db8:1::6/64", "up0");
    world.client.ip("address del 2001:db8:1::5/64 dev up0");
    world.client.ip("-6 route replace default via 2001:db8:1::1");
    assert!(world.is_reset(to(80)));
    let stats = world.stats();
    assert_eq!((stats.refused_listed, stats.refused_own, stats.refused_address), (1, 1, 3));
    assert_eq!((stats.refused_client, stats.tcp_accepted), (1, 6));
    // Whoever comes to the relay's own port asks for nothing that it has.
    let port = world.running().intercept(0, 0, false).tcp.unwrap();
    let mut near = world.relay.run(move || TcpStream::connect(("::1", port)).unwrap());
    assert_eq!(read_all(&mut near).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_slow_reader_stops_the_sender() {
    if !can_test() {
        return;
    }
    let world = World::new(Settings { threads: std::num::NonZeroUsize::MIN, ..settings() });
    let listener = world.listen(80);
    let (mut client, mut server) = world.pair(&listener);
    let (beside, its_server) = world.pair(&listener);
    server.set_nonblocking(true).unwrap();
    let octets = pattern(1 << 20);
    let mut sent = 0;
    let mut quiet = 0;
    // Nobody reads: what both kernels and the relay hold has an end.
    while quiet < 5 {
        match server.write(&octets[sent % octets.len()..]) {
            Ok(count) => (sent, quiet) = (sent + count, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                quiet += 1;
                // The relay's one thread has had its turn at the first connection when it has passed this on.
                for (mut from, mut to) in [(&beside, &its_server), (&its_server, &beside)] {
                    from.write_all(b"?").unwrap();
                    to.read_exact(&mut [0]).unwrap();
                }
            }
        }
        assert!(sent < 100 << 20, "{sent} octets and no end");
    }
    // Then all of it arrives.
    let expected = sent;
    let reader = std::thread::spawn(move || {
        let mut room = vec![0; 1 << 20];
        let mut got = 0;
        while got < expected {
            let count = client.read(&mut room).unwrap();
            assert!(count > 0, "{got} of {expected}");
            for (at, octet) in room[..count].iter().enumerate() {
                let at = (got + at) % (1 << 20);
                assert_eq!(*octet, (at ^ at >> 8 ^ at >> 16) as u8);
            }
            got += count;
        }
    });
    reader.join().unwrap();
}

#[test]
fn many_sources_of_datagrams_are_bounded() {
    if !can_test() {
        return;
    }
    let limits = Limits { sessions: 100, per_client: 80, ..Limits::default() };
    let world = World::new(Settings { limits, ..settings() });
    let _server = world.server_udp(53);
    // So few at once that a socket of the relay holds them.
    for first in (20_000..20_500u16).step_by(50) {
        world.client.run(move || {
            for port in first..first + 50 {
                let socket = UdpSocket::bind(("2001:db8:1::5", port)).unwrap();
                socket.send_to(b"?", to(53)).unwrap();
            }
        });
        let sent = u64::from(first - 20_000 + 50);
        world.counted("all of them", |it| it.udp_opened + it.limited_client == sent);
    }
    let stats = world.stats();
    assert_eq!((stats.sessions, stats.udp_opened), (80, 80), "{stats:?}");
}

#[test]
fn connections_that_nobody_completes_are_not_the_relays() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    // SYNs from addresses that nobody has: their answers go nowhere.
    world.client.run(|| {
        use socket2::{Domain, Protocol, Socket, Type};
        let raw = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(6))).unwrap();
        raw.set_freebind_v6(true).unwrap();
        for index in 0..2_000u16 {
            let from: std::net::Ipv6Addr = format!("2001:db8:1::beef:{index:x}").parse().unwrap();
            let mut syn = Vec::new();
            syn.extend((1024 + index).to_be_bytes());
            syn.extend(80u16.to_be_bytes());
            syn.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
            let sum = fordway_wire::checksum::pseudo_v6(from, *to(80).ip(), 6, 20);
            let sum = sum.add_bytes(&syn).finish();
            syn[16..18].copy_from_slice(&sum.to_be_bytes());
            let to = std::net::SocketAddrV6::new(*to(80).ip(), 0, 0, 0);
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(6))).unwrap();
            socket.set_freebind_v6(true).unwrap();
            socket.bind(&std::net::SocketAddrV6::new(from, 0, 0, 0).into()).unwrap();
            socket.send_to(&syn, &to.into()).unwrap();
        }
    });
    // Who means it is served.
    let (_client, _server) = world.pair(&listener);
    let stats = world.stats();
    assert_eq!((stats.tcp_accepted, stats.connections), (1, 1));
}
