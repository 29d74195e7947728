//! What can't be relayed is answered.

use std::io::ErrorKind;
use std::net::UdpSocket;

use nix::sys::socket::{setsockopt, sockopt};

use fordway_relay::{Limits, Settings};
use fordway_testhost::has_programs;
use fordway_xlat::IcmpErrors;

use super::world::{World, behind, settings, to};
use fordway_testhost::namespace::can_test;

/// What a client's socket is told about the datagrams that it sends.
fn error(client: &UdpSocket) -> ErrorKind {
    // Errors that may pass are told to those who ask for them.
    setsockopt(client, sockopt::Ipv6RecvErr, &true).unwrap();
    client.send(b"?").unwrap();
    client.recv(&mut [0; 16]).unwrap_err().kind()
}

#[test]
fn errors_of_the_ipv4_side_reach_the_client() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    world.relay.ip("route add 198.51.100.0/24 via 192.0.2.7");
    world.server.sysctl("ipv4/ip_forward", "1");
    world.server.ip("route add prohibit 198.51.100.1");
    world.server.ip("route add unreachable 198.51.100.2");
    for (asked, kind) in [
        (to(9), ErrorKind::ConnectionRefused),
        (behind("198.51.100.1", 9), ErrorKind::PermissionDenied),
        (behind("198.51.100.2", 9), ErrorKind::NetworkUnreachable),
    ] {
        let client = world.client_udp();
        client.connect(asked).unwrap();
        assert_eq!(error(&client), kind, "{asked}");
    }
    world.counted("the errors", |stats| stats.icmp_sent == 3);
}

#[test]
fn what_is_refused_is_said() {
    if !can_test() {
        return;
    }
    let limits = Limits { per_client: 2, ..Limits::default() };
    let world = World::new(Settings { limits, ..settings() });
    for refused in ["127.0.0.1", "192.0.2.1", "224.0.0.1"] {
        let client = world.client_udp();
        client.connect(behind(refused, 9)).unwrap();
        assert_eq!(error(&client), ErrorKind::PermissionDenied, "{refused}");
    }
    let (one, two, three) = (world.client_udp(), world.client_udp(), world.client_udp());
    let server = world.server_udp(53);
    for client in [&one, &two] {
        client.send_to(b"?", to(53)).unwrap();
        server.recv_from(&mut [0; 16]).unwrap();
    }
    three.connect(to(53)).unwrap();
    assert_eq!(error(&three), ErrorKind::HostUnreachable);
    let stats = world.stats();
    assert_eq!((stats.refused_address, stats.refused_own, stats.limited_client), (2, 1, 1));
    assert_eq!(stats.sessions, 2);
}

#[test]
fn no_more_errors_than_the_rate_allows() {
    if !can_test() {
        return;
    }
    let icmp = IcmpErrors::Limited { per_second: 1, burst: 3 };
    let world = World::new(Settings { icmp, threads: std::num::NonZeroUsize::MIN, ..settings() });
    let client = world.client_udp();
    for _ in 0..100 {
        client.send_to(b"?", behind("127.0.0.1", 9)).unwrap();
    }
    let stats = world.counted("all of them", |stats| stats.refused_address == 100);
    assert!((3..50).contains(&stats.icmp_sent), "{stats:?}");
    assert_eq!(stats.icmp_sent + stats.icmp_limited, 100);
}

#[test]
fn pings_and_other_protocols_are_prohibited() {
    if !can_test() || !has_programs(&["ping"]) {
        return;
    }
    let world = World::new(settings());
    let shown = world.client.run(|| {
        let mut ping = std::process::Command::new("ping");
        let output = ping.args(["-c", "1", "-W", "20", "2001:db8:64::c000:207"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    assert!(shown.contains("Administratively prohibited"), "{shown}");
}
