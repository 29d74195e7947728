//! TLS that passes unread, by the name that a client asks for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fordway_proxy::{
    Authority, Backend, Destination, Mode, Passthrough, Route, SendProxy, Settings,
};
use fordway_serve::Acl;
use fordway_testhost::namespace::{can_test, in_namespace};
use fordway_testhost::{has_programs, poll};

use super::nginx::{Nginx, certificate, curl, run};
use super::world::{RawServer, World, backend, settings};

const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// Names and where they lead.
fn passing(routes: &[(&str, SocketAddr)], backend: Backend) -> Settings {
    let route = |(name, server): &(&str, SocketAddr)| Route {
        names: vec![match name.strip_prefix("*.") {
            Some(name) => Destination::Below(name.to_owned()),
            None => Destination::Name((*name).to_owned()),
        }],
        upstream: vec![Authority::from(*server)],
    };
    let routes = routes.iter().map(route).collect();
    settings(Mode::Passthrough(Passthrough { routes, backend }))
}

/// What a client that asks for `name` sends first.
fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut octets = Vec::new();
    client.write_tls(&mut octets).unwrap();
    octets
}

/// Sends octets, and reads all that comes.
fn answer(world: &World, octets: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut client = world.client();
    client.send(octets);
    let mut all = Vec::new();
    client.0.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn the_server_gets_every_octet_of_the_client() {
    let server = RawServer::start(|_, _| None);
    let world = World::new(&passing(&[("*.example.net", server.address)], backend()));
    let sent = hello("WWW.example.net");
    let mut client = world.client();
    // A ClientHello in pieces, and what comes behind it.
    for octet in &sent {
        client.send([*octet]);
    }
    client.send(b"behind it");
    let whole = sent.len() + "behind it".len();
    poll("all of it", || (server.octets() == whole).then_some(()));
    drop(client);
    let stats = poll("the end", || {
        let stats = world.server.stats();
        (stats.tunnels_open == 0 && stats.tunnels == 1).then_some(stats)
    });
    assert_eq!((stats.octets_in, stats.servers[0].requests), (whole as u64, 1));
}

#[test]
fn what_follows_a_hello_at_once_does_not_count_as_its_length() {
    let server = RawServer::start(|_, _| None);
    let world = World::new(&passing(&[("www.example.net", server.address)], backend()));
    // Early data, as with TLS 1.3's 0-RTT.
    let sent = [&hello("www.example.net")[..], &[7; 0x10000]].concat();
    let mut client = world.client();
    client.send(&sent);
    poll("all of it", || (server.octets() == sent.len()).then_some(()));
    assert_eq!(world.refused("hello"), 0);
}

#[test]
fn who_asks_for_no_known_name_is_refused() {
    let server = RawServer::start(|_, _| None);
    let mut settings = passing(&[("www.example.net", server.address)], backend());
    settings.limits.header_time = Duration::from_millis(200);
    let world = World::new(&settings);
    // Another name; an address, for which clients name nothing.
    for name in ["www.example.org", "example.net", "192.0.2.1"] {
        assert_eq!(answer(&world, &hello(name)), ALERT, "{name}");
    }
    assert_eq!(world.refused("unknown_name"), 3);
    // HTTP; half a ClientHello, and then nothing; one that is too long.
    let of_http = answer(&world, b"GET / HTTP/1.1\r\nHost: www.example.net\r\n\r\n");
    assert_eq!(of_http, [21, 3, 3, 0, 2, 2, 50]);
    assert_eq!(answer(&world, &hello("www.example.net")[..50]), b"");
    let record = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &[0; 0x4000 - 4]].concat();
    assert_eq!(answer(&world, &[&record[..], &record].concat()), b"");
    assert_eq!((world.refused("hello"), world.refused("header_timeout")), (2, 1));
    // Nobody may ask.
    let world = World::new(&Settings { allow: Acl::new([]), ..settings });
    assert_eq!(answer(&world, &hello("www.example.net")), b"");
    assert_eq!(world.refused("client_denied"), 1);
    assert!(server.received().is_empty());
}

#[test]
fn nginx_serves_clients_that_people_use() {
    if !can_test() || !has_programs(&["nginx", "curl", "openssl"]) {
        return;
    }
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] =
            ["a", "b"].map(|it| certificate(folder.path(), it, &[&format!("{it}.example")]));
        let server = |name: &str, tls: &fordway_proxy::Files, port: u16| {
            let (certificate, key) = (tls.certificate.display(), tls.key.display());
            format!(
                "server {{ listen [::1]:{port} ssl http2 proxy_protocol; ssl_certificate {certificate}; \
                 ssl_certificate_key {key};\n\
                 location / {{ return 200 \"{name} $ssl_server_name $proxy_protocol_addr $server_protocol\\n\"; }} }}\n"
            )
        };
        let _nginx = Nginx::start(&(server("first", &a, 8443) + &server("second", &b, 8444)), 8444);
        let to = |port: u16| SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port));
        let backend = Backend { send_proxy: SendProxy::V2, ..backend() };
        let routes = [("a.example", to(8443)), ("*.b.example", to(8444)), ("b.example", to(8444))];
        let world = World::new(&passing(&routes, backend));
        let port = world.address.port();
        let ask = |name: &str, version: &str| {
            let resolve = format!("{name}:{port}:[::1]");
            curl(&[version, "--resolve", &resolve, &format!("https://{name}:{port}/")])
        };
        assert_eq!(ask("a.example", "--http2"), "first a.example ::1 HTTP/2.0\n");
        assert_eq!(ask("b.example", "--http1.1"), "second b.example ::1 HTTP/1.1\n");
        assert_eq!(ask("www.b.example", "--http2"), "second www.b.example ::1 HTTP/2.0\n");
        assert!(ask("c.example", "--http2").contains("unrecognized name"));
        let connect = format!("[::1]:{port}");
        let client = |more: &[&str]| {
            let output = run("openssl", &[&["s_client", "-connect", &connect], more].concat());
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        let shown = client(&["-servername", "a.example"]);
        assert!(
            shown.contains("Verify return code") && !shown.contains("no peer certificate"),
            "{shown}"
        );
        let shown = client(&["-noservername"]);
        assert!(shown.contains("unrecognized name"), "{shown}");
    });
}
