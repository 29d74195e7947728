//! Where clients may have the proxy connect to, whatever they call it.

use std::net::SocketAddr;

use fordway_proxy::{Destination, Forward, Mode, Ports, Rule, Rules, Settings};

use fordway_testhost::namespace::{add_address, in_namespace};

use super::world::{OK, RawServer, World, all_ports, forward, loopback};

fn with(rules: Vec<Rule>) -> World {
    let rules = Rules { rules, default: true };
    let mode = Mode::Forward(Forward { connect_ports: all_ports(), ports: all_ports(), rules });
    World::new(&Settings { mode, ..forward() })
}

fn get(world: &World, authority: &str) -> String {
    world.client().send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: a\r\n\r\n")).response()
}

#[test]
fn this_host_is_out_of_reach_however_it_is_written() {
    let v6 = RawServer::saying(OK);
    let v4 = RawServer::at("127.0.0.1:0", |_, _| Some(OK.as_bytes().to_vec()));
    let world = with(Vec::new());
    let (p6, p4) = (v6.address.port(), v4.address.port());
    for (authority, status) in [
        (format!("[::1]:{p6}"), "403"),
        (format!("127.0.0.1:{p4}"), "403"),
        (format!("127.9.9.9:{p4}"), "403"),
        (format!("0.0.0.0:{p4}"), "403"),
        (format!("[::]:{p6}"), "403"),
        (format!("[::ffff:127.0.0.1]:{p4}"), "403"),
        (format!("[::127.0.0.1]:{p4}"), "403"),
        (format!("[64:ff9b::7f00:1]:{p4}"), "403"),
        (format!("[2002:7f00:1::]:{p4}"), "403"),
        (format!("localhost:{p6}"), "403"),
        (format!("LOCALHOST.:{p6}"), "403"),
        (format!("a.localhost:{p6}"), "403"),
        ("169.254.169.254".to_owned(), "403"),
        ("[fe80::1]".to_owned(), "403"),
        ("[ff02::1]".to_owned(), "403"),
        // No names, whatever a resolver may make of them.
        (format!("2130706433:{p4}"), "400"),
        (format!("0x7f000001:{p4}"), "400"),
        (format!("127.1:{p4}"), "400"),
        (format!("0177.0.0.1:{p4}"), "400"),
    ] {
        let got = get(&world, &authority);
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{authority}: {got}");
        let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = world.client().send(connect).response();
        assert!(got.starts_with("HTTP/1.1 4"), "CONNECT {authority}: {got}");
    }
    assert!(v6.received().is_empty() && v4.received().is_empty());
    assert!(world.refused("destination_denied") > 10);
}

#[test]
fn what_a_translator_beside_it_would_reach_is_out_of_reach_as_well() {
    let translated = vec!["2001:db8:64::/96".parse().unwrap(), "2001:db8:65::/48".parse().unwrap()];
    let rules = Rules { rules: Vec::new(), default: true };
    let mode = Mode::Forward(Forward { connect_ports: all_ports(), ports: all_ports(), rules });
    let world = World::new(&Settings { mode, translated, ..forward() });
    for authority in ["[2001:db8:64::192.168.1.1]", "[2001:db8:65:c0a8:1:100::]:8080"] {
        let got = get(&world, authority);
        assert!(got.starts_with("HTTP/1.1 403 "), "{authority}: {got}");
    }
    assert_eq!(world.refused("destination_denied"), 2);
}

#[test]
fn this_host_is_out_of_reach_through_a_translator_beside_it() {
    in_namespace(|| {
        add_address("203.0.113.7/32", "lo");
        let translated = vec!["2001:db8:64::/96".parse().unwrap()];
        let rules = Rules { rules: Vec::new(), default: true };
        let mode = Mode::Forward(Forward { connect_ports: all_ports(), ports: all_ports(), rules });
        let world = World::new(&Settings { mode, translated, ..forward() });
        let got = get(&world, "[2001:db8:64::203.0.113.7]");
        assert!(got.starts_with("HTTP/1.1 403 "), "{got}");
        assert_eq!(world.refused("destination_denied"), 1);
    });
}

#[test]
fn a_prefix_opens_it_and_a_name_does_not() {
    let server = RawServer::saying(OK);
    let port = server.address.port();
    let name = |name: &str| vec![Destination::Name(name.to_owned())];
    let rule = |to| Rule { to, ..loopback() };
    let world = with(vec![rule(name("a.localhost"))]);
    assert!(get(&world, &format!("a.localhost:{port}")).starts_with("HTTP/1.1 403 "));
    let world = with(vec![loopback()]);
    assert!(get(&world, &format!("a.localhost:{port}")).starts_with("HTTP/1.1 200 "));
    let refused = Rule { to: name("a.localhost"), allow: false, clients: None, ports: None };
    let world = with(vec![refused, loopback()]);
    assert!(get(&world, &format!("a.localhost:{port}")).starts_with("HTTP/1.1 403 "));
    assert!(get(&world, &format!("[::1]:{port}")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn ports_are_those_of_the_settings() {
    let server = RawServer::saying(OK);
    let SocketAddr::V6(address) = server.address else { panic!() };
    let only = |port: u16| Ports(vec![port..=port]);
    let rules = Rules { rules: vec![loopback()], default: true };
    let ports = Forward { connect_ports: only(443), ports: only(address.port()), rules };
    let world = World::new(&Settings { mode: Mode::Forward(ports), ..forward() });
    assert!(get(&world, &address.to_string()).starts_with("HTTP/1.1 200 "));
    assert!(get(&world, "[::1]:25").starts_with("HTTP/1.1 403 "));
    let got =
        world.client().send(format!("CONNECT {address} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
    assert!(got.starts_with("HTTP/1.1 403 "), "{got}");
    assert_eq!(world.refused("port_denied"), 2);
}

#[test]
fn other_schemes_are_not_served() {
    let world = World::forward();
    for scheme in ["https", "ftp", "file", "gopher"] {
        let got = world
            .client()
            .send(format!("GET {scheme}://a/ HTTP/1.1\r\nHost: a\r\n\r\n"))
            .response();
        assert!(got.starts_with("HTTP/1.1 501 "), "{scheme}: {got}");
    }
    assert!(world.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 400 "));
}
