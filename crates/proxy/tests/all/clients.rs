//! Connections of clients: keep-alive, pipelines, versions, methods, expectations, ends.

use std::net::Shutdown;
use std::time::Duration;

use fordway_proxy::{Forward, Limits, Mode, Rules, Server, Settings};
use fordway_serve::Service as _;
use fordway_testhost::{PATIENCE, poll};

use super::world::{OK, RawClient, RawServer, World, all_ports, forward, loopback, reverse};
use fordway_testhost::namespace::in_namespace;

#[test]
fn connections_of_both_sides_serve_again() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let mut client = world.client();
    for _ in 0..3 {
        let got =
            client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url())).response();
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("ok"), "{got}");
        assert!(got.contains("\r\nDate: "), "{got}");
    }
    assert_eq!(server.received().len(), 1, "one connection");
    let stats = world.server.stats();
    assert_eq!((stats.requests_http1, stats.reused, stats.servers_v6), (3, 2, 1));
    assert_eq!((stats.responses[0], stats.connections_accepted), (3, 1));
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = RawServer::start(|_, head| {
        let path = head.split(' ').nth(1).unwrap();
        Some(
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes(),
        )
    });
    let world = World::forward();
    let url = server.url();
    let many: String = (0..20)
        .map(|i| format!("GET {url}{i:02} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .chain([format!("GET {url}last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")])
        .collect();
    let got = world.ask(many);
    let order: Vec<usize> = (0..20).map(|i| got.find(&format!("/{i:02}")).unwrap()).collect();
    assert!(order.is_sorted() && got.ends_with("/last"), "{got}");
}

#[test]
fn http_1_0_persists_with_a_site_but_not_with_a_proxy() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let got = world.ask(format!("GET {} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", server.url()));
    assert!(got.contains("\r\nConnection: close\r\n"), "{got}");
    let world = World::new(&reverse(&[server.address]));
    let mut client = world.client();
    for _ in 0..2 {
        let got = client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").response();
        assert!(got.contains("\r\nConnection: keep-alive\r\n"), "{got}");
    }
}

#[test]
fn content_of_unknown_length() {
    let server = RawServer::start(|_, _| None);
    drop(server);
    let server = RawServer::start(|n, _| {
        // The second request does not come: the connection ends with the content.
        (n == 0).then(|| b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec())
    });
    let world = World::forward();
    let url = server.url();
    let got = world.ask(format!("GET {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    assert!(
        got.ends_with("3\r\nabc\r\n0\r\n\r\n") && got.contains("Transfer-Encoding: chunked"),
        "{got}"
    );
    // HTTP/1.0 knows no chunks.
    let got = world.ask(format!("GET {url} HTTP/1.0\r\n\r\n"));
    assert!(got.ends_with("\r\n\r\nabc") && !got.contains("Transfer-Encoding"), "{got}");
}

#[test]
fn head_and_no_content() {
    let server = RawServer::start(|_, head| {
        let answer: &[u8] = if head.starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\nContent-Length: 173225\r\n\r\n"
        } else {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"
        };
        Some(answer.to_vec())
    });
    let world = World::forward();
    let url = server.url();
    let mut client = world.client();
    client.send(format!("HEAD {url} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let got = client.until(|it| it.contains("\r\n\r\n"));
    assert!(got.contains("Content-Length: 173225") && got.ends_with("\r\n\r\n"), "{got}");
    let got = client.send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
    assert!(got.starts_with("HTTP/1.1 304 ") && got.contains("ETag"), "{got}");
}

#[test]
fn expectations_and_interim_responses_pass() {
    let server = RawServer::start(|n, _| {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
        let more = "HTTP/1.1 100 Continue\r\n\r\n";
        Some(if n == 0 { format!("{hints}{more}") } else { OK.to_owned() }.into_bytes())
    });
    let world = World::forward();
    let url = server.url();
    let mut client = world.client();
    client.send(format!(
        "POST {url} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 28\r\n\r\n"
    ));
    let got = client.until(|it| it.contains("100 Continue\r\n"));
    assert!(got.contains("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nVia: 1.1 px\r\n\r\n"), "{got}");
    // The server answers to what looks like a header section to it.
    client.send("twenty-four octets HTTP/\r\n\r\n");
    let got = client.until(|it| it.contains("ok"));
    assert!(got.contains("HTTP/1.1 200 OK"), "{got}");
    let received = server.wait(|it| it.contains("twenty"));
    assert!(received.contains("\r\nExpect: 100-continue\r\n"), "{received}");
    let got = world
        .ask(format!("GET {url} HTTP/1.1\r\nHost: a\r\nExpect: x\r\nConnection: close\r\n\r\n"));
    assert!(got.starts_with("HTTP/1.1 417 "), "{got}");
}

#[test]
fn interim_responses_are_none_for_http_1_0() {
    let server = RawServer::start(|_, _| {
        Some(format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{OK}").into_bytes())
    });
    let world = World::forward();
    let got = world.ask(format!("GET {} HTTP/1.0\r\n\r\n", server.url()));
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
}

#[test]
fn options_and_max_forwards() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let url = server.url();
    let mut client = world.client();
    let last = format!("OPTIONS {url} HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n");
    for octets in [last.as_str(), "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let got = client.send(octets).response();
        assert!(got.starts_with("HTTP/1.1 204 ") && got.contains("\r\nAllow: "), "{got}");
    }
    assert!(server.received().is_empty());
    client.send(last.replace("Forwards: 0", "Forwards: 1").replace("\nHost", "\nhost")).response();
    let received = server.wait(|it| it.ends_with("\r\n\r\n"));
    assert!(received.starts_with("OPTIONS / HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("\r\nMax-Forwards: 0\r\n"), "{received}");
    let got = world.ask(format!("TRACE {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    assert!(got.starts_with("HTTP/1.1 405 ") && got.contains("\r\nAllow: "), "{got}");
    let looped =
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nVia: 1.1 px\r\nConnection: close\r\n\r\n");
    assert!(world.ask(looped).starts_with("HTTP/1.1 508 "));
}

#[test]
fn a_connection_that_was_gone_is_replaced() {
    // Each connection serves once, and ends when it is asked again.
    let server = RawServer::start(|n, _| (n == 0).then(|| OK.as_bytes().to_vec()));
    let world = World::forward();
    let url = server.url();
    let mut client = world.client();
    for _ in 0..3 {
        let got = client.send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    }
    assert_eq!(world.server.stats().retried, 2);
    // What may not be repeated is not (RFC 9110 section 9.2.2).
    let got = client
        .send(format!("POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"))
        .response();
    assert!(got.starts_with("HTTP/1.1 502 "), "{got}");
}

#[test]
fn half_a_response_is_not_taken_for_a_whole_one() {
    let server = RawServer::start(|n, _| {
        (n == 0)
            .then(|| b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec())
    });
    let world = World::forward();
    let url = server.url();
    // The second header section makes the server end.
    let mut client = world.client();
    client.send(format!(
        "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nHTTP/\r\n\r\n!"
    ));
    let got = client.all();
    assert!(got.contains("abc") && !got.contains("0\r\n\r\n"), "{got}");
}

#[test]
fn a_client_that_has_said_all_gets_its_answer() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let mut client = world.client();
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()));
    client.0.shutdown(Shutdown::Write).unwrap();
    let got = client.all();
    assert!(got.ends_with("ok"), "{got}");
    poll("the connection is gone", || (world.server.stats().connections == 0).then_some(()));
}

#[test]
fn a_client_that_resets_its_connection_ends_its_request() {
    // It takes the request, and says nothing.
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let world = World::forward();
    let mut client = world.client();
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()));
    server.wait(|got| got.ends_with("\r\n\r\n"));
    socket2::SockRef::from(&client.0).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    poll("it is counted", || (world.server.stats().abandoned == 1).then_some(()));
    poll("the server is told", || (server.ended() == 1).then_some(()));
    poll("the connection is gone", || (world.server.stats().connections == 0).then_some(()));
}

#[test]
fn strangers_are_refused() {
    let server = RawServer::saying(OK);
    let allow = fordway_serve::Acl::new(["2001:db8::/32".parse().unwrap()]);
    let world = World::new(&Settings { allow, ..forward() });
    let got = world.ask(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()));
    assert!(got.starts_with("HTTP/1.1 403 ") && got.contains("Connection: close"), "{got}");
    assert_eq!(world.refused("client_denied"), 1);
    assert!(server.received().is_empty());
}

#[test]
fn another_server_takes_the_sockets_over() {
    in_namespace(|| {
        let origin = RawServer::saying(OK);
        let first = World::forward();
        let ask = |client: &mut RawClient| {
            client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", origin.url()));
            client.response()
        };
        let mut before = first.client();
        assert!(ask(&mut before).ends_with("ok"));
        let address = first.address;
        let settings = Settings { threads: 3.try_into().unwrap(), ..forward() };
        let second = Server::start(first.server.succeed(&settings).unwrap()).unwrap();
        // Whoever of both takes it.
        let mut meanwhile = RawClient::to(address);
        assert!(ask(&mut meanwhile).ends_with("ok"));
        first.server.stop();
        assert_eq!(second.local_addrs(), [address]);
        let third = Server::start(second.succeed(&forward()).unwrap()).unwrap();
        second.stop();
        // Fewer threads than sockets: each of these is served by somebody.
        for _ in 0..20 {
            assert!(ask(&mut RawClient::to(address)).ends_with("ok"));
        }
        drop(third);
        assert!(std::net::TcpStream::connect(address).is_err());
    });
}

/// How long it has for that is in `src/proxy/session/tests.rs`.
#[test]
fn a_connection_that_has_just_come_has_its_first_request() {
    let origin = RawServer::saying(OK);
    let settings = Settings { threads: 1.try_into().unwrap(), ..forward() };
    let limits = Limits { drain: PATIENCE, ..settings.limits.clone() };
    let first = World::new(&Settings { limits, ..settings });
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", origin.url());
    let [mut used, mut new] = [(); 2].map(|()| first.client());
    used.send(&request).response();
    poll("both are there", || (first.server.stats().connections == 2).then_some(()));
    let second = Server::start(first.server.succeed(&forward()).unwrap()).unwrap();
    // It has come to the server, and is read as soon as anything is.
    new.send(&request);
    first.server.stop();
    assert!(new.all().ends_with("ok"));
    assert_eq!(used.all(), "");
    drop(second);
}

#[test]
fn other_settings_are_taken_while_connections_go_on() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let mut client = world.client();
    let octets = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
    assert!(client.send(&octets).response().starts_with("HTTP/1.1 200 "));
    let mut deny = loopback();
    deny.allow = false;
    let rules = Rules { rules: vec![deny], default: true };
    let mode = Mode::Forward(Forward { connect_ports: all_ports(), ports: all_ports(), rules });
    world.server.replace(Settings { mode, ..forward() }).unwrap();
    let got = client.send(&octets).response();
    assert!(got.starts_with("HTTP/1.1 403 "), "not even by the connection that is there: {got}");
}

#[test]
fn who_shows_on_a_connection_who_he_is_has_it_alone() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let get = |more: &str| format!("GET {} HTTP/1.1\r\nHost: a\r\n{more}\r\n", server.url());
    let (mut one, mut other) = (world.client(), world.client());
    for more in ["Authorization: NTLM TlRM\r\n", "", "X: 1\r\n"] {
        assert!(one.send(get(more)).response().ends_with("ok"));
        assert!(other.send(get("X: other\r\n")).response().ends_with("ok"));
    }
    let received = server.received();
    let [ones, others] = &received[..] else { panic!("{received:?}") };
    assert!(ones.contains("NTLM") && ones.matches("GET ").count() == 3, "{ones}");
    assert!(!ones.contains("other") && others.matches("X: other").count() == 3, "{others}");
}

#[test]
fn what_a_server_asks_for_once_per_connection_binds_it_as_well() {
    let server = RawServer::saying(
        "HTTP/1.1 401 Who?\r\nWWW-Authenticate: Negotiate\r\nContent-Length: 2\r\n\r\nok",
    );
    let world = World::forward();
    let get = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url());
    let (mut one, mut other) = (world.client(), world.client());
    assert!(one.send(&get).response().ends_with("ok"));
    assert!(other.send(&get).response().ends_with("ok"));
    assert!(one.send(&get).response().ends_with("ok"));
    let number = |text: &String| text.matches("GET ").count();
    assert_eq!(server.received().iter().map(number).collect::<Vec<_>>(), [2, 1]);
}
