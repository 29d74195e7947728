//! Datagrams: sessions, sources, sizes.

use std::net::{SocketAddr, UdpSocket};

use fordway_net::{RecvBatch, tell_fragmented};
use fordway_testhost::poll;
use socket2::SockRef;

use super::world::{World, behind, pattern, settings, to};
use fordway_testhost::namespace::can_test;

#[test]
fn answers_come_from_the_address_that_was_asked() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    world.server.add_address("192.0.2.8/24", "eth0");
    let (client, server) = (world.client_udp(), world.server_udp(53));
    let other = world.server.run(|| UdpSocket::bind("192.0.2.8:53").unwrap());
    let mut room = [0; 2048];
    for (octets, socket, asked) in [
        (&b"one"[..], &server, to(53)),
        (b"two", &other, behind("192.0.2.8", 53)),
        (b"", &server, to(53)),
    ] {
        client.send_to(octets, asked).unwrap();
        let (count, from) = socket.recv_from(&mut room).unwrap();
        assert_eq!(&room[..count], octets);
        assert_eq!(from.ip().to_string(), "192.0.2.1");
        socket.send_to(&[octets, b"!"].concat(), from).unwrap();
        let (count, from) = client.recv_from(&mut room).unwrap();
        assert_eq!(&room[..count], [octets, b"!"].concat());
        assert_eq!(from, SocketAddr::V6(asked));
    }
    let stats = world.stats();
    assert_eq!((stats.udp_opened, stats.sessions), (2, 2), "two servers, one port of a client");
    assert_eq!((stats.udp_datagrams_up, stats.udp_datagrams_down), (3, 3));
    assert_eq!((stats.udp_octets_up, stats.udp_octets_down), (6, 9));
}

#[test]
fn one_port_of_a_client_is_one_port_for_all_servers_and_strangers_are_not_heard() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let client = world.client_udp();
    let (one, two, stranger) =
        (world.server_udp(1001), world.server_udp(1002), world.server_udp(1003));
    let mut room = [0; 16];
    let mut seen = Vec::new();
    for (server, port) in [(&one, 1001), (&two, 1002)] {
        client.send_to(b"?", to(port)).unwrap();
        seen.push(server.recv_from(&mut room).unwrap().1);
    }
    assert_eq!(seen[0], seen[1]);
    stranger.send_to(b"spam", seen[0]).unwrap();
    world.counted("the stranger", |stats| stats.udp_unsolicited == 1);
    two.send_to(b"2", seen[0]).unwrap();
    assert_eq!(client.recv_from(&mut room).unwrap().1, SocketAddr::V6(to(1002)));
}

#[test]
fn long_datagrams_arrive_in_both_directions() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let (client, server) = (world.client_udp(), world.server_udp(53));
    let mut room = vec![0; 65_536];
    for count in [1_452, 1_453, 1_472, 8_000, 60_000] {
        let octets = pattern(count);
        client.send_to(&octets, to(53)).unwrap();
        let (got, from) = server.recv_from(&mut room).unwrap();
        assert!(room[..got] == octets, "{count} octets up: {got}");
        server.send_to(&octets, from).unwrap();
        let (got, _) = client.recv_from(&mut room).unwrap();
        assert!(room[..got] == octets, "{count} octets down: {got}");
    }
}

#[test]
fn many_datagrams_keep_their_order() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let (client, server) = (world.client_udp(), world.server_udp(53));
    let mut room = [0; 16];
    for round in 0..50u32 {
        for index in 0..20u32 {
            client.send_to(&(round * 20 + index).to_be_bytes(), to(53)).unwrap();
        }
        for index in 0..20u32 {
            let (count, from) = server.recv_from(&mut room).unwrap();
            assert_eq!(room[..count], (round * 20 + index).to_be_bytes());
            server.send_to(&room[..count], from).unwrap();
        }
        for index in 0..20u32 {
            let (count, _) = client.recv_from(&mut room).unwrap();
            assert_eq!(room[..count], (round * 20 + index).to_be_bytes());
        }
    }
    assert_eq!(world.stats().udp_opened, 1);
}

#[test]
fn the_class_of_a_datagram_is_copied_there_and_back() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let (client, server) = (world.client_udp(), world.server_udp(53));
    SockRef::from(&client).set_tclass_v6(0xb9).unwrap();
    SockRef::from(&client).set_recv_tclass_v6(true).unwrap();
    SockRef::from(&server).set_recv_tos_v4(true).unwrap();
    let heard = |socket: &UdpSocket| {
        let mut batch = RecvBatch::new(1, 64);
        poll("a datagram", || batch.recv(socket).ok());
        batch.iter().map(|it| (it.peer.address(), it.told.class)).next().unwrap()
    };
    client.send_to(b"?", to(53)).unwrap();
    let (from, class) = heard(&server);
    assert_eq!(class, Some(0xb9));
    SockRef::from(&server).set_tos_v4(0x2a).unwrap();
    server.send_to(b"!", from).unwrap();
    assert_eq!(heard(&client), (SocketAddr::V6(to(53)), Some(0x2a)));
}

#[test]
fn the_way_to_the_client_may_be_narrow() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let (client, server) = (world.client_udp(), world.server_udp(53));
    tell_fragmented(&client).unwrap();
    let octets = pattern(1_400);
    let exchange = || {
        client.send_to(b"?", to(53)).unwrap();
        let mut room = [0; 16];
        let (_, from) = server.recv_from(&mut room).unwrap();
        server.send_to(&octets, from).unwrap();
        let mut batch = RecvBatch::new(1, 2048);
        poll("an answer", || batch.recv(&client).ok());
        let answer = batch.iter().next().unwrap();
        assert!(answer.octets == octets);
        answer.told.fragmented
    };
    assert!(!exchange());
    // A router says that the answer was too long: ICMPv6 to the address that it came from, the answer inside.
    let port = client.local_addr().unwrap().port();
    world.client.run(move || {
        let icmp = socket2::Socket::new(
            socket2::Domain::IPV6,
            socket2::Type::RAW,
            Some(socket2::Protocol::ICMPV6),
        );
        let mut message = vec![2, 0, 0, 0, 0, 0, 5, 20];
        message.extend([0x60, 0, 0, 0, 5, 0x80, 17, 60]);
        message.extend(to(53).ip().octets());
        message.extend("2001:db8:1::5".parse::<std::net::Ipv6Addr>().unwrap().octets());
        message.extend(53u16.to_be_bytes());
        message.extend(port.to_be_bytes());
        message.extend([5, 0x80, 0, 0, 1, 2, 3, 4]);
        icmp.unwrap()
            .send_to(&message, &std::net::SocketAddrV6::new(*to(53).ip(), 0, 0, 0).into())
            .unwrap();
    });
    poll("fragments", || exchange().then_some(()));
}

#[test]
fn the_way_to_the_server_may_be_narrow() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    // A host behind the server, which can't be sent more than 1400 octets, and one with 1000.
    for (net, mtu) in [("198.51.100", 1400), ("203.0.113", 1000)] {
        world.server.ip(&format!("link add n{mtu} type veth peer name f{mtu}"));
        world.server.ip(&format!("address add {net}.1/24 dev n{mtu}"));
        world.server.ip(&format!("link set n{mtu} mtu {mtu} up"));
        world.server.ip(&format!("link set f{mtu} up"));
        world.server.ip(&format!("neigh add {net}.9 lladdr 02:00:00:00:00:09 dev n{mtu}"));
        world.relay.ip(&format!("route add {net}.0/24 via 192.0.2.7"));
    }
    world.server.sysctl("ipv4/ip_forward", "1");
    let client = world.client_udp();
    let narrow = behind("198.51.100.9", 53);
    let mtu = move |world: &World| {
        let shown = world.client.ip(&format!("-6 route get {}", narrow.ip()));
        shown
            .split("mtu ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u32>().ok())
    };
    let octets = pattern(1_452);
    poll("Packet Too Big", || {
        let _ = client.send_to(&octets, narrow);
        mtu(&world).filter(|mtu| *mtu == 1420)
    });
    let stats = world.stats();
    assert!(stats.udp_too_big >= 1 && stats.icmp_sent >= 1, "{stats:?}");
    // No client may be told of less than 1280: what it sends is cut for it.
    let narrower = behind("203.0.113.9", 53);
    let before = world.stats().udp_too_big;
    client.send_to(&pattern(1_200), narrower).unwrap();
    world.counted("the router's word", |stats| stats.udp_too_big > before);
    let arrived = || -> u64 {
        let shown = world.server.ip("-j -s link show dev f1000");
        let packets = shown.split("\"rx\":").nth(1).and_then(|it| it.split("\"packets\":").nth(1));
        let packets = packets.and_then(|it| it.split([',', '}']).next());
        packets.and_then(|it| it.trim().parse().ok()).expect("a number of packets")
    };
    let before = arrived();
    client.send_to(&pattern(1_200), narrower).unwrap();
    poll("two fragments", || (arrived() >= before + 2).then_some(()));
}
