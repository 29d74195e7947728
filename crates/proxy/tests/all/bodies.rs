//! Content of all sizes, both ways, in all framings.

use super::world::{RawServer, World, forward};
use fordway_proxy::{Limits, Settings};

/// Octets that differ, so that none is lost or twice.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 23) as u8).collect()
}

#[test]
fn pages_of_all_sizes_come_whole() {
    let server = RawServer::start(|_, head| {
        let len: usize = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").into_bytes();
        answer.extend(content(len));
        Some(answer)
    });
    let world = World::forward();
    let mut client = world.client();
    for len in [0, 1, 16_384, 65_535, 173_225, 1_000_000, 3] {
        let got = client
            .send(format!("GET {}{len} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()))
            .response();
        let (_, body) = got.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.as_bytes(), content(len), "{len}");
    }
    assert_eq!(server.received().len(), 1);
}

#[test]
fn content_in_chunks_comes_whole() {
    let server = RawServer::start(|_, _| {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in content(500_000).chunks(7_001) {
            answer.extend(format!("{:x};ext\r\n", piece.len()).into_bytes());
            answer.extend(piece);
            answer.extend(b"\r\n");
        }
        answer.extend(b"0\r\n\r\n");
        Some(answer)
    });
    let world = World::forward();
    // HTTP/1.0 gets the content as it is.
    let got = world.ask(format!("GET {} HTTP/1.0\r\n\r\n", server.url()));
    assert_eq!(got.split_once("\r\n\r\n").unwrap().1.as_bytes(), content(500_000));
    assert!(!got.contains("ext"), "extensions concern one connection");
}

#[test]
fn large_requests_go_whole_and_the_connection_goes_on() {
    let server = RawServer::start(|_, head| {
        head.starts_with("GET")
            .then(|| b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2".to_vec())
            .or(Some(Vec::new()))
    });
    let world = World::forward();
    let url = server.url();
    let mut client = world.client();
    client.send(format!("POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"));
    client.send(content(1_000_000));
    // The server answers when it sees the header section of what it takes for another request.
    let received = server.wait(|it| it.len() > 1_000_000);
    assert!(received.as_bytes().ends_with(&content(1_000_000)));
    let stats = world.server.stats();
    assert_eq!(stats.requests_http1, 1);
}

#[test]
fn content_beyond_the_limit_is_refused() {
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let limits = Limits { body: Some(1000), ..forward().limits };
    let world = World::new(&Settings { limits, ..forward() });
    let url = server.url();
    let got = world.ask(format!("POST {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"));
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
    assert!(server.received().is_empty(), "nobody is asked");
    let chunk = String::from_utf8(content(600)).unwrap();
    let got = world.ask(format!(
        "POST {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n258\r\n{chunk}\r\n258\r\n{chunk}\r\n0\r\n\r\n"
    ));
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
    assert_eq!(world.refused("body_too_large"), 2);
}

#[test]
fn an_early_answer_ends_the_connection() {
    // The rest of the request must not be taken for the next one.
    let server = RawServer::saying("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let world = World::forward();
    let mut client = world.client();
    client.send(format!(
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc",
        server.url()
    ));
    let got = client.until(|it| it.ends_with("no"));
    assert!(got.starts_with("HTTP/1.1 403 ") && got.contains("\r\nConnection: close\r\n"), "{got}");
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", server.url()));
    assert_eq!(client.all(), "");
}
