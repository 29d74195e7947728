//! The PROXY protocol: from proxies in front, and towards servers.

use std::net::SocketAddr;

use fordway_proxy::{Backend, Mode, SendProxy, Settings};
use fordway_serve::Acl;
use fordway_testhost::namespace::{can_test, in_namespace};
use fordway_testhost::{has_programs, poll};

use super::nginx::{Nginx, certificate, curl};
use super::world::{OK, RawServer, World, reverse};

const V1: &str = "PROXY TCP6 2001:db8::77 2001:db8::80 1025 80\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: www.example\r\n\r\n";

/// Behind a front proxy on loopback; two clients may ask.
fn behind(server: &RawServer) -> Settings {
    let nets = |texts: &[&str]| Acl::new(texts.iter().map(|it| it.parse().unwrap()));
    Settings {
        accept_proxy: nets(&["::1/128"]),
        allow: nets(&["2001:db8::77/128", "192.0.2.7/32"]),
        ..reverse(&[server.address])
    }
}

fn v2() -> Vec<u8> {
    let front = &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c"[..];
    [front, &[192, 0, 2, 7, 192, 0, 2, 80], &[4, 1, 0, 80]].concat()
}

#[test]
fn a_proxy_in_front_tells_the_client() {
    let server = RawServer::saying(OK);
    let world = World::new(&behind(&server));
    let mut client = world.client();
    // In pieces: octet by octet, and with the request behind it.
    for octet in V1.as_bytes() {
        client.send([*octet]);
    }
    assert!(client.send(GET).response().starts_with("HTTP/1.1 200 "));
    assert!(
        server.wait(|it| it.contains("\r\n\r\n")).contains("X-Forwarded-For: 2001:db8::77\r\n")
    );
    let mut other = world.client();
    other.send([v2(), GET.as_bytes().to_vec()].concat());
    assert!(other.response().starts_with("HTTP/1.1 200 "));
    poll("the second client", || {
        let all = server.received().concat();
        all.contains("X-Forwarded-For: 192.0.2.7\r\n").then_some(())
    });
    // The access list is about clients, not about the proxy in front.
    let denied = V1.replace("::77", "::78");
    assert!(world.ask(denied + GET).starts_with("HTTP/1.1 403 "));
    // The proxy in front asks for itself.
    assert!(world.ask(format!("PROXY UNKNOWN\r\n{GET}")).starts_with("HTTP/1.1 403 "));
    assert_eq!(world.server.stats().proxy_headers_refused, 0);
}

#[test]
fn one_in_front_must_tell_and_others_may_not() {
    let server = RawServer::saying(OK);
    let world = World::new(&behind(&server));
    for wrong in
        [GET.as_bytes(), b"PROXY TCP6 a b 1 2\r\n", &[b"PROXY TCP6 ", &[b'1'; 200][..]].concat()]
    {
        assert_eq!(world.ask(wrong), "", "{wrong:?}");
    }
    poll("three refused", || (world.server.stats().proxy_headers_refused == 3).then_some(()));
    let world = World::new(&reverse(&[server.address]));
    for (header, status) in [(V1.as_bytes().to_vec(), "505"), (v2(), "400")] {
        let got = world.ask([header, GET.as_bytes().to_vec()].concat());
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
    }
    assert_eq!((world.refused("version"), world.refused("malformed")), (1, 1));
    assert!(server.received().is_empty());
}

#[test]
fn clients_behind_one_proxy_count_by_themselves() {
    let server = RawServer::saying(OK);
    let mut settings = behind(&server);
    settings.limits.connections_per_client = 1;
    let world = World::new(&settings);
    let (mut one, mut other) = (world.client(), world.client());
    assert!(one.send(format!("{V1}{GET}")).response().starts_with("HTTP/1.1 200 "));
    assert!(other.send([v2(), GET.into()].concat()).response().starts_with("HTTP/1.1 200 "));
    assert_eq!(world.ask(format!("{V1}{GET}")), "");
    assert_eq!(world.server.stats().connections_refused, 1);
}

/// Servers that get headers of this version.
fn telling(servers: &[SocketAddr], send_proxy: SendProxy) -> Settings {
    let mut settings = reverse(servers);
    if let Mode::Reverse(reverse) = &mut settings.mode {
        reverse.backend = Backend { send_proxy, ..reverse.backend.clone() };
    }
    settings
}

#[test]
fn each_client_has_connections_of_its_own() {
    let server = RawServer::saying(OK);
    let world = World::new(&telling(&[server.address], SendProxy::V1));
    let mut clients = [world.client(), world.client()];
    for client in &mut clients {
        for _ in 0..2 {
            assert!(client.send(GET).response().starts_with("HTTP/1.1 200 "));
        }
    }
    let ports = clients.each_ref().map(|it| it.0.local_addr().unwrap().port());
    let own = world.address.port();
    let received = server.received();
    assert_eq!(received.len(), 2);
    for (received, port) in received.iter().zip(ports) {
        assert!(
            received.starts_with(&format!("PROXY TCP6 ::1 ::1 {port} {own}\r\nGET / ")),
            "{received}"
        );
        assert_eq!(received.matches("PROXY").count(), 1);
        assert_eq!(received.matches("GET / ").count(), 2);
    }
}

#[test]
fn nginx_demands_headers_and_gets_them() {
    if !can_test() || !has_programs(&["nginx", "curl"]) {
        return;
    }
    in_namespace(|| {
        let _nginx = Nginx::start(
            "server { listen [::1]:8080 proxy_protocol;\n\
             location / { return 200 \"$proxy_protocol_addr $proxy_protocol_server_port\\n\"; } }",
            8080,
        );
        let server: SocketAddr = "[::1]:8080".parse().unwrap();
        for send_proxy in [SendProxy::V1, SendProxy::V2] {
            let world = World::new(&telling(&[server], send_proxy));
            let port = world.address.port();
            // With HTTP/2, too.
            for version in ["--http1.1", "--http2-prior-knowledge"] {
                let got = curl(&[version, &format!("http://[::1]:{port}/")]);
                assert_eq!(got, format!("::1 {port}\n"), "{send_proxy:?} {version}");
            }
        }
        // Without one, nginx refuses.
        let world = World::new(&reverse(&[server]));
        let got =
            curl(&["-o", "/dev/null", "-w", "%{http_code}", &format!("http://{}/", world.address)]);
        assert_ne!(got, "200");
    });
}

#[test]
fn a_header_comes_before_tls() {
    if !has_programs(&["curl"]) {
        return;
    }
    let server = RawServer::saying(OK);
    let folder = tempfile::tempdir().unwrap();
    let tls = vec![certificate(folder.path(), "one", &["proxy.example"])];
    let world = World::new(&Settings {
        tls,
        allow: Acl::new(["::1/128".parse().unwrap()]),
        ..behind(&server)
    });
    let got = curl(&["--haproxy-protocol", &format!("https://{}/", world.address)]);
    assert_eq!(got, "ok");
    assert_eq!(world.server.stats().proxy_headers_refused, 0);
}
