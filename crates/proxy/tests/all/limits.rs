//! What clients and servers can make the proxy hold, and for how long.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use fordway_proxy::{Limits, Settings};
use fordway_serve::{Acl, ClientLen};
use fordway_testhost::{PATIENCE, poll};
use socket2::{Domain, Socket, Type};

use super::world::{OK, RawClient, RawServer, World, forward};
use fordway_testhost::namespace::in_namespace;

fn limited(change: impl FnOnce(&mut Limits)) -> World {
    let mut settings = forward();
    change(&mut settings.limits);
    World::new(&settings)
}

#[test]
fn header_sections() {
    let server = RawServer::saying(OK);
    let world = limited(|it| (it.header, it.target, it.fields) = (2000, 200, 10));
    let url = server.url();
    let head = |rest: String| format!("GET {url} HTTP/1.1\r\nHost: a\r\n{rest}\r\n");
    let long = "a".repeat(3000);
    for (octets, status) in [
        (head(format!("X: {long}\r\n")), "431"),
        (head("X: y\r\n".repeat(10)), "431"),
        (format!("GET {url}{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(200)), "414"),
        (format!("GET {url}{long}"), "414"),
        // Without an end, too.
        (format!("GET {url} HTTP/1.1\r\nHost: a\r\nX: {long}"), "431"),
    ] {
        let got = world.ask(&octets);
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{octets}: {got}");
        assert!(got.contains("\r\nConnection: close\r\n"), "{got}");
    }
    assert!(server.received().is_empty());
    let got = world.client().send(head("X: y\r\n".repeat(9))).response();
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
}

#[test]
fn a_servers_header_section() {
    let server = RawServer::start(|_, _| {
        Some(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(3000)).into_bytes())
    });
    let world = limited(|it| it.header = 2000);
    let got =
        world.client().send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url())).response();
    assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
    assert_eq!(world.refused("response_too_large"), 1);
}

/// How long each of these takes is in `src/proxy/session/tests.rs`.
#[test]
fn requests_that_do_not_come() {
    let world = limited(|it| it.header_time = Duration::from_millis(50));
    let got = world.ask("GET http://a/ HTTP/1.1\r\nHost: a\r\n");
    assert!(got.starts_with("HTTP/1.1 408 ") && got.contains("Connection: close"), "{got}");
    assert_eq!(world.refused("header_timeout"), 1);
    // Who says nothing is told nothing.
    let world = limited(|it| it.keep_alive = Duration::from_millis(50));
    assert_eq!(world.ask(""), "");
    assert_eq!(world.refused("header_timeout"), 0);
}

#[test]
fn content_that_does_not_come() {
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let world = limited(|it| it.idle_time = Duration::from_millis(50));
    let got = world
        .ask(format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", server.url()));
    assert!(got.starts_with("HTTP/1.1 408 "), "{got}");
    assert_eq!(world.refused("body_timeout"), 1);
}

#[test]
fn connections_to_servers_of_all_clients() {
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let world = limited(|it| it.server_connections = 2);
    let get = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
    let mut clients = [world.client(), world.client()];
    for client in &mut clients {
        client.send(&get);
    }
    poll("both are asked for", || {
        (server.received().concat().matches("GET ").count() == 2).then_some(())
    });
    let got = world.client().send(&get).response();
    assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    assert_eq!(world.refused("busy"), 1);
}

/// Whatever one client network asks for, others find a place; and that there is none says nothing of a site's servers.
#[test]
fn connections_to_servers_of_one_client_network() {
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let mut settings = forward();
    settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
    settings.allow = Acl::new(["127.0.0.0/8".parse().unwrap()]);
    settings.limits.server_connections = 8;
    settings.limits.client_len = ClientLen { v6: 128, v4: 32 };
    let world = World::new(&settings);
    let get = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
    let mut clients: Vec<_> = (0..6).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(&get);
    }
    poll("six are asked for", || {
        (server.received().concat().matches("GET ").count() == 6).then_some(())
    });
    let got = world.client().send(&get).response();
    assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&world.address.into()).unwrap();
    let mut other = RawClient(socket.into());
    other.send(&get);
    poll("another network's, too", || {
        (server.received().concat().matches("GET ").count() == 7).then_some(())
    });
}

#[test]
fn a_connection_that_waits_makes_way() {
    let world = limited(|it| it.server_connections = 1);
    let servers = [RawServer::saying(OK), RawServer::saying(OK)];
    for server in servers.iter().cycle().take(6) {
        let get = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
        let got = world.client().send(get).response();
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!(world.refused("busy"), 0);
}

#[test]
fn servers_that_do_not_answer() {
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let world = limited(|it| it.response_time = Duration::from_millis(50));
    let mut client = world.client();
    let got = client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url())).response();
    assert!(got.starts_with("HTTP/1.1 504 "), "{got}");
    assert!(got.contains("Proxy-Status: px; error=http_response_timeout"), "{got}");
    // The client may go on: its request was in order.
    assert!(!got.contains("Connection: close"), "{got}");
    // Half a header section is no answer.
    let server = RawServer::saying("HTTP/1.1 200 OK\r\nX: y");
    let got = client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url())).response();
    assert!(got.starts_with("HTTP/1.1 504 "), "{got}");
}

#[test]
fn servers_that_stop_in_the_middle() {
    let server = RawServer::saying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    let world = limited(|it| it.idle_time = Duration::from_millis(50));
    let got = world.ask(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()));
    assert!(got.ends_with("\r\n\r\nabc"), "{got}");
}

#[test]
fn servers_that_refuse_or_never_take_a_connection() {
    let world = World::forward();
    // Taken, so that nobody else listens there.
    let bound = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    bound.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into()).unwrap();
    let free = bound.local_addr().unwrap().as_socket().unwrap();
    let got =
        world.client().send(format!("GET http://{free}/ HTTP/1.1\r\nHost: a\r\n\r\n")).response();
    assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
    assert!(got.contains("error=connection_refused"), "{got}");
    assert!(got.contains("\r\n\r\n502 Bad Gateway\n\nThe server refuses connections.\n"), "{got}");
}

#[test]
fn connections_by_client_and_requests_by_connection() {
    let server = RawServer::saying(OK);
    let world = limited(|it| (it.connections_per_client, it.requests) = (2, 2));
    let octets = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
    let mut first = world.client();
    assert!(first.send(&octets).response().starts_with("HTTP/1.1 200 "));
    let mut second = world.client();
    assert!(second.send(&octets).response().starts_with("HTTP/1.1 200 "));
    assert_eq!(world.client().send(&octets).all(), "", "there are two of this network");
    assert_eq!(world.server.stats().connections_refused, 1);
    let got = first.send(&octets).all();
    assert!(got.contains("\r\nConnection: close\r\n"), "the second and last: {got}");
    drop(first);
    poll("its place is free", || (world.server.stats().connections == 1).then_some(()));
    assert!(world.client().send(&octets).response().starts_with("HTTP/1.1 200 "));
}

/// When they are is in `src/proxy/worker/tests.rs`.
#[test]
fn connections_to_servers_are_let_go() {
    let server = RawServer::saying(OK);
    let world = limited(|it| it.pool_time = Duration::from_millis(10));
    let mut client = world.client();
    let octets = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
    client.send(&octets).response();
    poll("the server sees its end", || (server.ended() == 1).then_some(()));
    poll("nothing waits", || (world.server.stats().idle == 0).then_some(()));
    assert!(client.send(&octets).response().starts_with("HTTP/1.1 200 "));
    assert_eq!((world.server.stats().reused, server.received().len()), (0, 2));

    let none = limited(|it| it.pool = 0);
    let mut client = none.client();
    for _ in 0..2 {
        client.send(&octets).response();
    }
    assert_eq!(none.server.stats().reused, 0);
}

#[test]
fn the_end_lets_requests_come_to_theirs() {
    in_namespace(|| {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let told = std::sync::Mutex::new(told);
        let server = RawServer::start(move |_, _| {
            told.lock().unwrap().recv().ok()?;
            Some(OK.as_bytes().to_vec())
        });
        let settings = forward();
        let limits = Limits { drain: PATIENCE, ..settings.limits.clone() };
        let world = World::new(&Settings { limits, ..settings });
        let address = world.address;
        let mut idle = world.client();
        idle.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").response();
        let mut busy = world.client();
        busy.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()));
        server.wait(|it| it.ends_with("\r\n\r\n"));
        poll("both are there", || (world.server.stats().connections == 2).then_some(()));
        let stopping = std::thread::spawn(move || drop(world.server));
        assert_eq!(idle.all(), "", "whoever waits for nothing is let go");
        poll("nobody else is taken", || TcpStream::connect(address).is_err().then_some(()));
        tell.send(()).unwrap();
        let got = busy.all();
        assert!(got.ends_with("ok"), "{got}");
        drop(busy);
        stopping.join().unwrap();
    });
}
