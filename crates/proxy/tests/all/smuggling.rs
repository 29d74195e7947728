//! Messages that two recipients could read differently: refused, or made unambiguous.

use super::world::{OK, RawServer, World, reverse};

/// The status of the answer to octets in which `URL` is the server's, and what the server has got.
fn sent(octets: &str) -> (String, Vec<String>) {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let mut client = world.client();
    client.send(octets.replace("URL", &server.url()));
    let answer = client.response();
    drop(client);
    let status = answer.split(' ').nth(1).unwrap_or("none").to_owned();
    (status, server.received())
}

#[test]
fn what_is_ambiguous_never_reaches_a_server() {
    for (octets, status) in [
        // Two lengths.
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
            "400",
        ),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
            "400",
        ),
        ("POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\nabcd", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: 0x4\r\n\r\nabcd", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", "400"),
        // Codings that hide.
        ("POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400"),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
            "400",
        ),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "501",
        ),
        ("POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        ("POST URL HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "400"),
        (
            "POST URL HTTP/1.1\r\nHost: a\r\nTransfer\u{2d}Encoding\0: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        ("POST URL HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        // Line ends.
        ("GET URL HTTP/1.1\nHost: a\n\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a\r\nX: y\rContent-Length: 3\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a\r\nX: y\r\n folded: z\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n", "400"),
        // The first line.
        ("GET URL\r\nHost: a\r\n\r\n", "400"),
        ("GET  URL HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET URL HTTP/1.1 \r\nHost: a\r\n\r\n", "400"),
        ("GET URL HTTP/1.1 x\r\nHost: a\r\n\r\n", "400"),
        ("G\x01T URL HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET URL HTTP/2.0\r\nHost: a\r\n\r\n", "505"),
        ("GET URL#x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        (" GET URL HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        // Hosts.
        ("GET URL HTTP/1.1\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a/b\r\n\r\n", "400"),
        ("GET URL HTTP/1.1\r\nHost: a@b\r\n\r\n", "400"),
    ] {
        let (found, received) = sent(octets);
        assert_eq!(found, status, "{octets:?}");
        assert_eq!(received, Vec::<String>::new(), "{octets:?}");
    }
}

#[test]
fn after_an_ambiguous_message_nothing_more_is_taken() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let url = server.url();
    let answer = world.ask(format!(
        "POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET {url}smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    ));
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(server.received().is_empty());
    assert_eq!(world.refused("framing"), 1);
}

#[test]
fn chunks_that_are_none_end_the_request() {
    for content in [
        "3\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "g\r\n",
    ] {
        let server = RawServer::start(|_, _| Some(Vec::new()));
        let world = World::forward();
        let url = server.url();
        let answer = world.ask(format!(
            "POST {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{content}"
        ));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{content:?}: {answer}");
        // What the server has got is no whole request.
        assert!(server.received().iter().all(|it| !it.contains("0\r\n\r\n")), "{content:?}");
    }
}

#[test]
fn what_goes_on_is_written_anew() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    let (url, host) = (server.url(), server.address);
    let answer = world
        .client()
        .send(format!(
            "\r\nPOST {url}a?b HTTP/1.1\r\nHost: elsewhere.example\r\n\
             Connection: keep-alive, X-Hop, Content-Length\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n\
             Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nTrailer: X-T\r\nX-End:   to end \r\n\
             Transfer-Encoding: chunked\r\n\r\n\
             5;ext=\"x\"\r\nhello\r\n0006\r\n world\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\n\r\n"
        ))
        .response();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nVia: 1.1 px\r\n"), "{answer}");
    let received = server.wait(|it| it.ends_with("\r\n\r\n") && it.contains("\r\n0\r\n"));
    let (head, content) = received.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        head,
        format!(
            "POST /a?b HTTP/1.1\r\nHost: {host}\r\nX-End: to end\r\nVia: 1.1 px\r\n\
             Transfer-Encoding: chunked"
        )
    );
    let mut plain = String::new();
    let mut rest = content;
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            rest = more;
            break;
        }
        plain += &more[..size];
        rest = &more[size + 2..];
    }
    assert_eq!((plain.as_str(), rest), ("hello world", "X-T: 1\r\n\r\n"));
}

#[test]
fn responses_that_are_ambiguous_never_reach_a_client() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nX: y\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\r\n\r\n",
    ] {
        let server = RawServer::start(move |_, _| Some(answer.as_bytes().to_vec()));
        let world = World::forward();
        let url = server.url();
        let got = world.client().send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        assert!(got.starts_with("HTTP/1.1 502 "), "{answer:?}: {got}");
        assert!(got.contains("Proxy-Status: px; error=http_protocol_error"), "{got}");
    }
}

#[test]
fn octets_behind_a_response_are_not_the_next_one() {
    // A server that says more than it was asked is not asked again on that connection.
    let server = RawServer::start(|_, _| {
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil".to_vec())
    });
    let world = World::forward();
    let url = server.url();
    let mut client = world.client();
    for _ in 0..2 {
        let got = client.send(format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        assert!(got.ends_with("\r\n\r\nok"), "{got}");
    }
    assert_eq!(server.received().len(), 2);
}

#[test]
fn a_site_is_guarded_alike() {
    let server = RawServer::saying(OK);
    let world = World::new(&reverse(&[server.address]));
    for octets in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
    ] {
        assert!(world.ask(octets).starts_with("HTTP/1.1 400 "), "{octets:?}");
    }
    assert!(server.received().is_empty());
}
