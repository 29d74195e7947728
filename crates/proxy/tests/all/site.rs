//! In front of a site: its servers, and those of them that are gone.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use fordway_proxy::{Mode, Server, Settings};
use fordway_serve::Service as _;
use fordway_testhost::poll;
use socket2::{Domain, Socket, Type};

use super::world::{RawServer, World, reverse};

fn named(name: &'static str) -> RawServer {
    RawServer::start(move |_, _| {
        Some(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}").into_bytes())
    })
}

/// A server that does not listen yet: its port is taken, and connections to it are refused.
struct Nobody {
    address: SocketAddr,
    socket: Socket,
}

fn nobody() -> Nobody {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into()).unwrap();
    Nobody { address: socket.local_addr().unwrap().as_socket().unwrap(), socket }
}

impl Nobody {
    /// Listens from now on.
    fn begin(self) -> TcpListener {
        self.socket.listen(16).unwrap();
        self.socket.into()
    }
}

fn ask(world: &World) -> String {
    world.client().send("GET / HTTP/1.1\r\nHost: www.example\r\n\r\n").response()
}

#[test]
fn the_first_that_works_serves() {
    let (second, third, gone) = (named("2"), named("3"), nobody());
    let world = World::new(&reverse(&[gone.address, second.address, third.address]));
    for _ in 0..3 {
        assert!(ask(&world).ends_with('2'));
    }
    let servers = world.server.stats().servers;
    assert_eq!(servers[0].failures, 1, "it is left alone for a while");
    assert_eq!(servers.iter().map(|it| it.alive).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(servers.iter().map(|it| it.requests).collect::<Vec<_>>(), [0, 3, 0]);
}

#[test]
fn they_take_turns_if_told_so() {
    let (one, two) = (named("1"), named("2"));
    let mut settings = reverse(&[one.address, two.address]);
    if let Mode::Reverse(reverse) = &mut settings.mode {
        reverse.backend.balance = true;
    }
    let world = World::new(&settings);
    let answers: Vec<char> = (0..4).map(|_| ask(&world).pop().unwrap()).collect();
    assert_eq!(answers, ['1', '2', '1', '2']);
}

#[test]
fn none_is_there() {
    let gone = [nobody(), nobody()];
    let world = World::new(&reverse(&gone.each_ref().map(|it| it.address)));
    let got = ask(&world);
    assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
    assert!(world.server.stats().servers.iter().all(|it| !it.alive && it.failures == 1));
}

#[test]
fn one_that_comes_back_serves_again() {
    let gone = nobody();
    let mut settings = reverse(&[gone.address]);
    if let Mode::Reverse(reverse) = &mut settings.mode {
        reverse.backend.pause = std::time::Duration::from_millis(1);
    }
    let world = World::new(&settings);
    assert!(ask(&world).starts_with("HTTP/1.1 502 "));
    let server = RawServer::on(gone.begin(), |_, _| {
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    poll("it serves", || ask(&world).starts_with("HTTP/1.1 200 ").then_some(()));
    assert!(world.server.stats().servers[0].alive);
    let head = server.wait(|it| it.ends_with("\r\n\r\n"));
    assert!(head.contains("\r\nHost: www.example\r\n"), "{head}");
    assert!(head.contains("\r\nX-Forwarded-For: ::1\r\n"), "{head}");
    assert!(
        head.contains("\r\nForwarded: for=\"[::1]\";proto=http;host=\"www.example\"\r\n"),
        "{head}"
    );
}

#[test]
fn settings_that_change_nothing_of_the_servers_keep_what_is_known() {
    let (two, gone) = (named("2"), nobody());
    let settings = reverse(&[gone.address, two.address]);
    let world = World::new(&settings);
    ask(&world);
    world.server.replace(Settings { via: Some("other".to_owned()), ..settings }).unwrap();
    assert!(ask(&world).contains("\r\nVia: 1.1 other\r\n"));
    assert_eq!(world.server.stats().servers[0].failures, 1);
}

#[test]
fn more_threads_take_over_and_keep_what_is_known() {
    let (two, gone) = (named("2"), nobody());
    let settings = reverse(&[gone.address, two.address]);
    let first = World::new(&settings);
    assert!(ask(&first).ends_with('2'));
    let more = Settings { threads: 4.try_into().unwrap(), ..settings };
    let server = Server::start(first.server.succeed(&more).unwrap()).unwrap();
    let second = World { address: first.address, server };
    drop(first);
    // By many connections, so that every thread serves.
    for _ in 0..64 {
        assert!(ask(&second).ends_with('2'));
    }
    let servers = second.server.stats().servers;
    assert_eq!((servers[0].failures, servers[1].requests), (1, 65));
}

#[test]
fn servers_that_stay_keep_what_is_known() {
    let (one, two, gone) = (named("1"), named("2"), nobody());
    let world = World::new(&reverse(&[gone.address, two.address]));
    assert!(ask(&world).ends_with('2'));
    world.server.replace(reverse(&[gone.address, one.address, two.address])).unwrap();
    assert!(ask(&world).ends_with('1'));
    let servers = world.server.stats().servers;
    assert_eq!(servers.iter().map(|it| it.failures).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(servers.iter().map(|it| it.requests).collect::<Vec<_>>(), [0, 1, 1]);
}
