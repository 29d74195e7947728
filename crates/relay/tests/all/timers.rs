//! What ends by itself.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use fordway_relay::{Limits, Settings};
use fordway_serve::Service as _;
use fordway_testhost::poll;

use super::world::{World, behind, read_all, settings, to};
use fordway_testhost::namespace::can_test;

/// What is over as soon as it is looked at.
const SHORT: Duration = Duration::from_millis(1);

fn with(limits: Limits) -> Settings {
    Settings { limits, ..settings() }
}

#[test]
fn a_silent_connection_is_reset_on_both_sides() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let listener = world.listen(80);
    let (mut client, mut server) = world.pair(&listener);
    client.write_all(b"x").unwrap();
    let mut read = [0];
    server.read_exact(&mut read).unwrap();
    world.running().replace(with(Limits { idle: SHORT, ..Limits::default() })).unwrap();
    assert_eq!(read_all(&mut client), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    assert_eq!(read_all(&mut server), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    world.counted("the end", |stats| stats.tcp_idle == 1 && stats.connections == 0);
}

#[test]
fn half_of_a_connection_has_a_time_of_its_own() {
    if !can_test() {
        return;
    }
    let world = World::new(with(Limits { half_closed: SHORT, ..Limits::default() }));
    let listener = world.listen(80);
    let (mut whole, mut its_server) = world.pair(&listener);
    let (client, mut server) = world.pair(&listener);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), (Vec::new(), None));
    world.counted("the end", |stats| stats.tcp_idle == 1 && stats.connections == 1);
    // The other one is whole, and as old.
    whole.write_all(b"x").unwrap();
    its_server.read_exact(&mut [0]).unwrap();
    let stats = world.stats();
    assert_eq!((stats.tcp_idle, stats.connections), (1, 1));
}

#[test]
fn a_server_has_so_long_to_answer() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    world.relay.ip("neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev wan0");
    let mut client = world.connect_to(behind("192.0.2.99", 80));
    world.counted("a connection", |stats| stats.connections == 1);
    world.running().replace(with(Limits { connect: SHORT, ..Limits::default() })).unwrap();
    assert_eq!(read_all(&mut client), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    world.counted("the end", |stats| stats.failed_timeout == 1 && stats.connections == 0);
    // No route at all is known at once.
    assert!(world.is_reset(behind("203.0.113.1", 80)));
    world.counted("the failure", |stats| stats.failed_unreachable == 1);
}

#[test]
fn a_session_without_datagrams_is_forgotten() {
    if !can_test() {
        return;
    }
    let world = World::new(settings());
    let (client, server) = (world.client_udp(), world.server_udp(53));
    client.send_to(b"?", to(53)).unwrap();
    let mut room = [0; 16];
    let (_, from) = server.recv_from(&mut room).unwrap();
    world.running().replace(with(Limits { udp_idle: SHORT, ..Limits::default() })).unwrap();
    world.counted("the end", |stats| stats.udp_idle == 1 && stats.sessions == 0);
    world.running().replace(settings()).unwrap();
    // Its port is nobody's now, and the next session is another one.
    server.send_to(b"late", from).unwrap();
    server.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    // A thread that does not know the change yet forgets this one, too.
    let len = poll("an answer", || {
        let _full = client.send_to(b"?", to(53));
        while let Ok((_, from)) = server.recv_from(&mut room) {
            server.send_to(b"!", from).unwrap();
        }
        client.recv(&mut room).ok()
    });
    assert_eq!(len, 1);
    assert!(world.stats().udp_opened >= 2);
}
