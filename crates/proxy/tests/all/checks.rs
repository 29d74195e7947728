//! Active checks of servers.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use fordway_proxy::{Backend, Check, CheckKind, Mode, SendProxy, ServerStats, Settings};
use fordway_serve::Service as _;
use fordway_testhost::namespace::{can_test, in_namespace};
use fordway_testhost::{PATIENCE, has_programs, poll};

use super::nginx::{Nginx, certificate};
use super::world::{RawServer, World, reverse};

fn check(kind: CheckKind) -> Check {
    let interval = Duration::from_millis(20);
    Check { kind, interval, timeout: PATIENCE, rise: 2, fall: 3 }
}

fn http() -> CheckKind {
    CheckKind::Http { path: "/healthz".to_owned(), host: None, status: 200..=299 }
}

fn checked(servers: &[std::net::SocketAddr], check: Check, send_proxy: SendProxy) -> Settings {
    let mut settings = reverse(servers);
    if let Mode::Reverse(reverse) = &mut settings.mode {
        reverse.host = Some("site.example".to_owned());
        let check = Some(check);
        reverse.backend = Backend { send_proxy, check, ..reverse.backend.clone() };
    }
    settings
}

/// Waits until this holds of the servers.
fn until(what: &str, world: &World, wanted: impl Fn(&[ServerStats]) -> bool) -> Vec<ServerStats> {
    poll(what, || Some(world.server.stats().servers).filter(|it| wanted(it)))
}

/// A server whose status for checks can be set.
fn server(name: &'static str) -> (RawServer, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(200));
    let set = Arc::clone(&status);
    let server = RawServer::start(move |_, head| {
        let status =
            if head.starts_with("GET /healthz ") { set.load(Ordering::Acquire) } else { 200 };
        Some(format!("HTTP/1.1 {status} X\r\nContent-Length: 1\r\n\r\n{name}").into_bytes())
    });
    (server, status)
}

fn ask(world: &World) -> String {
    world.client().send("GET / HTTP/1.1\r\nHost: www.example\r\n\r\n").response()
}

#[test]
fn a_server_that_says_so_is_not_used() {
    let ((one, status), (two, _)) = (server("1"), server("2"));
    let settings = checked(&[one.address, two.address], check(http()), SendProxy::Off);
    let world = World::new(&settings);
    until("checks", &world, |it| it.iter().all(|it| it.checks >= 2));
    assert!(ask(&world).ends_with('1'));
    assert!(one.received().concat().contains("GET /healthz HTTP/1.1\r\nHost: site.example\r\n"));
    status.store(503, Ordering::Release);
    let seen = until("it is down", &world, |it| !it[0].alive);
    assert_eq!(seen[0].check_failure.as_deref(), Some("status 503"));
    assert!(seen[0].checks_failed >= 3 && seen[1].alive && seen[1].check_failure.is_none());
    assert!(ask(&world).ends_with('2'));
    // Requests have found nothing wrong.
    assert_eq!(seen[0].failures, 0);
    status.store(204, Ordering::Release);
    until("it is back", &world, |it| it[0].alive);
    assert!(ask(&world).ends_with('1'));
    // Without checks, what they have found counts no more.
    status.store(503, Ordering::Release);
    until("it is down", &world, |it| !it[0].alive);
    world.server.replace(reverse(&[one.address, two.address])).unwrap();
    let seen = until("no checks", &world, |it| it[0].alive);
    assert!(ask(&world).ends_with('1'), "{seen:?}");
}

#[test]
fn what_another_check_has_found_does_not_count() {
    let (one, status) = server("1");
    status.store(503, Ordering::Release);
    let of = |kind: CheckKind| {
        // Once the first has been made, there is none.
        let check = Check { interval: Duration::from_secs(3600), fall: 1, ..check(kind) };
        checked(&[one.address], check, SendProxy::Off)
    };
    let world = World::new(&of(http()));
    until("it is down", &world, |it| !it[0].alive);
    // The same check in other settings.
    world.server.replace(Settings { via: Some("other".to_owned()), ..of(http()) }).unwrap();
    assert!(!world.server.stats().servers[0].alive);
    let other = CheckKind::Http { path: "/".to_owned(), host: None, status: 200..=299 };
    world.server.replace(of(other)).unwrap();
    let seen = world.server.stats().servers;
    assert!(seen[0].alive && seen[0].check_failure.is_none(), "{seen:?}");
}

#[test]
fn an_interim_response_is_not_the_outcome_of_a_check() {
    let server = RawServer::saying(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    );
    let world = World::new(&checked(&[server.address], check(http()), SendProxy::Off));
    let seen = until("checks", &world, |it| it[0].checks >= 3);
    assert_eq!((seen[0].checks_failed, seen[0].alive), (0, true), "{seen:?}");
}

#[test]
fn connections_are_checked_and_all_that_fail_are_tried_all_the_same() {
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut settings = checked(&[address], check(CheckKind::Tcp), SendProxy::V1);
    if let Mode::Reverse(reverse) = &mut settings.mode {
        // What requests have found is not what this is about.
        reverse.backend.pause = Duration::from_millis(1);
    }
    let world = World::new(&settings);
    let seen = until("it is down", &world, |it| !it[0].alive);
    assert_eq!(seen[0].check_failure.as_deref(), Some("The server refuses connections."));
    assert!(ask(&world).starts_with("HTTP/1.1 502 "));
    socket.listen(16).unwrap();
    let listener: TcpListener = socket.into();
    let server = RawServer::on(listener, |_, _| Some(super::world::OK.into()));
    until("it is up", &world, |it| it[0].alive);
    // Checks are the proxy's own connections.
    assert!(server.received().concat().starts_with("PROXY UNKNOWN\r\n"));
}

#[test]
fn a_tls_server_is_checked_by_a_handshake() {
    if !can_test() || !has_programs(&["nginx"]) {
        return;
    }
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let tls = certificate(folder.path(), "one", &["a.example"]);
        let (file, key) = (tls.certificate.display(), tls.key.display());
        let _nginx = Nginx::start(
            &format!(
                "server {{ listen [::1]:8443 ssl proxy_protocol; ssl_certificate {file}; ssl_certificate_key {key}; }}\n\
                 server {{ listen [::1]:8080; }}"
            ),
            8443,
        );
        let servers = ["[::1]:8443", "[::1]:8080"].map(|it| it.parse().unwrap());
        let kind = CheckKind::Tls { name: Some("a.example".to_owned()) };
        let world = World::new(&checked(&servers[..1], check(kind.clone()), SendProxy::V2));
        let seen = until("checks", &world, |it| it[0].checks >= 3);
        assert_eq!((seen[0].checks_failed, seen[0].alive), (0, true), "{seen:?}");
        // One that speaks HTTP.
        let world = World::new(&checked(&servers[1..], check(kind), SendProxy::Off));
        let seen = until("it is down", &world, |it| !it[0].alive);
        assert!(
            seen[0].check_failure.as_ref().is_some_and(|it| it.starts_with("TLS: ")),
            "{seen:?}"
        );
    });
}
