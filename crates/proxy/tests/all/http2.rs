//! Clients that speak HTTP/2, with prior knowledge and by TLS.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fordway_proxy::{Limits, Log, LogFormat, LogTarget, Settings};
use fordway_testhost::poll;
use h2::client::SendRequest;
use http::Request;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::nginx::certificate;
use super::world::{OK, RawServer, World, forward, reverse};

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await.unwrap() })
}

async fn open<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T) -> SendRequest<Bytes> {
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.ready().await.unwrap()
}

async fn plain(world: &World) -> SendRequest<Bytes> {
    open(TcpStream::connect(world.address).await.unwrap()).await
}

async fn text(mut body: h2::RecvStream) -> String {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn requests_go_on_as_http_1_1() {
    let server = RawServer::saying(OK);
    let world = World::forward();
    run(async {
        let mut sender = plain(&world).await;
        let request = Request::get(format!("{}a?b", server.url()))
            .header("cookie", "a=1")
            .header("x", "y")
            .header("cookie", "b=2")
            .body(())
            .unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(
            (&response.headers()["via"], &response.headers()["content-length"]),
            (&"1.1 px".parse().unwrap(), &"2".parse().unwrap())
        );
        assert_eq!(text(response.into_body()).await, "ok");
    });
    let received = server.wait(|it| it.ends_with("\r\n\r\n"));
    assert!(
        received.starts_with(&format!("GET /a?b HTTP/1.1\r\nHost: {}\r\n", server.address)),
        "{received}"
    );
    assert!(received.contains("\r\ncookie: a=1; b=2\r\n"), "{received}");
    assert!(received.contains("\r\nVia: 2 px\r\n"), "{received}");
    assert_eq!(world.server.stats().requests_http2, 1);
}

#[test]
fn content_and_trailers_both_ways() {
    let server = RawServer::start(|_, _| {
        Some(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\nContent-Length: 1\r\n\r\n".to_vec())
    });
    let world = World::forward();
    run(async {
        let mut sender = plain(&world).await;
        let request = Request::post(server.url()).body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-end", "1".parse().unwrap());
        trailers.insert("content-encoding", "gzip".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        let response = response.await.unwrap();
        let mut content = response.into_body();
        assert_eq!(content.data().await.unwrap().unwrap(), "abc");
        let trailers = content.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["x-sum"], "7");
        assert!(!trailers.contains_key("content-length"));
    });
    let received = server.wait(|it| it.contains("x-end"));
    assert!(
        received
            .contains("\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-end: 1\r\n\r\n"),
        "{received}"
    );
}

#[test]
fn many_streams_at_once_and_a_large_page() {
    let page = "x".repeat(173_225);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    let server = RawServer::start(move |_, _| Some(answer.clone().into_bytes()));
    let world = World::forward();
    run(async {
        let mut sender = plain(&world).await;
        let mut waiting = Vec::new();
        for _ in 0..20 {
            let request = Request::get(server.url()).body(()).unwrap();
            let response = sender.send_request(request, true).unwrap().0;
            // All are read at once: they share the window of the connection.
            waiting.push(tokio::spawn(async { text(response.await.unwrap().into_body()).await }));
        }
        for text in waiting {
            assert_eq!(text.await.unwrap().len(), 173_225);
        }
    });
}

#[test]
fn nobody_is_asked_for_what_the_client_has_reset() {
    // It never answers, and the proxy would wait for ever.
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let ever = Duration::from_secs(24 * 3600);
    let limits = Limits { response_time: ever, idle_time: ever, ..forward().limits };
    let world = World::new(&Settings { limits, ..forward() });
    run(async {
        let mut sender = plain(&world).await;
        for number in 1..=20 {
            let request = Request::get(server.url()).body(()).unwrap();
            let (response, mut stream) = sender.send_request(request, true).unwrap();
            let asked = || server.received().concat().matches("GET ").count() == number;
            while !asked() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            stream.send_reset(h2::Reason::CANCEL);
            drop(response);
        }
    });
    poll("all of its connections end", || (server.ended() == 20).then_some(()));
    poll("all are counted", || (world.abandoned() == 20).then_some(()));
}

#[test]
fn connect_is_a_stream() {
    let server = RawServer::saying("hello");
    let world = World::forward();
    run(async {
        let mut sender = plain(&world).await;
        let request = Request::connect(server.address.to_string()).body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        body.send_data(Bytes::from_static(b"any HTTP/\r\n\r\n"), false).unwrap();
        let mut content = response.into_body();
        assert_eq!(content.data().await.unwrap().unwrap(), "hello");
    });
    assert_eq!(world.server.stats().tunnels, 1);
}

#[test]
fn refusals_have_their_codes() {
    let world = World::forward();
    run(async {
        let mut sender = plain(&world).await;
        for (url, status, error) in [
            ("http://10.0.0.1/", 403, "destination_ip_prohibited"),
            ("https://a.example/", 501, "http_request_error"),
            ("http://127.1/", 400, "http_request_error"),
        ] {
            let request = Request::get(url).body(()).unwrap();
            let (response, _) = sender.send_request(request, true).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), status, "{url}");
            let told = response.headers()["proxy-status"].to_str().unwrap();
            assert_eq!(told, format!("px; error={error}"));
            assert!(text(response.into_body()).await.starts_with(&status.to_string()));
        }
        // RFC 9113 section 8.3.1: Host that differs from :authority.
        let request =
            Request::get("http://a.example/").header("host", "b.example").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), 400);
    });
}

#[test]
fn a_response_that_is_cut_is_reset() {
    let server = RawServer::start(|n, _| {
        (n == 0).then(|| {
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc".to_vec()
        })
    });
    let world = World::forward();
    run(async {
        let mut sender = plain(&world).await;
        let request = Request::post(server.url()).body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        // The server ends at the next header section.
        body.send_data(Bytes::from_static(b"HTTP/\r\n\r\n"), false).unwrap();
        let mut content = response.into_body();
        assert_eq!(content.data().await.unwrap().unwrap(), "abc");
        assert!(content.data().await.unwrap().is_err());
    });
}

#[test]
fn uploads_that_fail_after_the_response_has_begun_have_a_reason() {
    let begun = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    let server = RawServer::saying(begun);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let ever = Duration::from_secs(24 * 3600);
    let limits = Limits { body: Some(4), ..forward().limits };
    for (idle_time, last, reason) in [
        (Duration::from_millis(200), None, "body_timeout"),
        (ever, Some("hello"), "body_too_large"),
    ] {
        let target = LogTarget::File(path.clone());
        let log = Some(Log { target, format: LogFormat::Json });
        let limits = Limits { idle_time, ..limits };
        let world = World::new(&Settings { log, limits, ..forward() });
        run(async {
            let mut sender = plain(&world).await;
            let request = Request::post(server.url()).body(()).unwrap();
            let (response, mut body) = sender.send_request(request, false).unwrap();
            let mut content = response.await.unwrap().into_body();
            assert_eq!(content.data().await.unwrap().unwrap(), "abc");
            if let Some(last) = last {
                body.send_data(Bytes::from_static(last.as_bytes()), false).unwrap();
            }
            assert!(content.data().await.unwrap().is_err());
        });
        assert_eq!(world.refused(reason), 0, "the client has had its response");
        drop(world.server);
        let lines = std::fs::read_to_string(&path).unwrap();
        let line: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!((&line["status"], &line["reason"]), (&200.into(), &reason.into()));
    }
}

#[test]
fn an_upload_that_stalls_has_the_time_of_its_response() {
    // It never answers.
    let server = RawServer::start(|_, _| Some(Vec::new()));
    let (soon, ever) = (Duration::from_millis(50), Duration::from_secs(24 * 3600));
    for (response_time, idle_time, status, reason) in
        [(soon, ever, 504, "response_timeout"), (ever, soon, 408, "body_timeout")]
    {
        let limits = Limits { response_time, idle_time, ..forward().limits };
        let world = World::new(&Settings { limits, ..forward() });
        run(async {
            let mut sender = plain(&world).await;
            let request = Request::post(server.url()).body(()).unwrap();
            let (response, mut body) = sender.send_request(request, false).unwrap();
            body.send_data(Bytes::from_static(b"abc"), false).unwrap();
            assert_eq!(response.await.unwrap().status(), status);
        });
        assert_eq!(world.refused(reason), 1);
    }
}

#[test]
fn tls_agrees_on_a_version() {
    let server = RawServer::saying(OK);
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path(), "proxy", &["proxy.example"]);
    let own = CertificateDer::from_pem_file(&files.certificate).unwrap();
    let tls = vec![files];
    let world = World::new(&Settings { tls, ..reverse(&[server.address]) });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    run(async {
        for protocol in ["h2", "http/1.1"] {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            let stream = TcpStream::connect(world.address).await.unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let mut stream =
                connector.connect("proxy.example".try_into().unwrap(), stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
            if protocol == "h2" {
                let mut sender = open(stream).await;
                let request = Request::get("https://proxy.example/a").body(()).unwrap();
                let (response, _) = sender.send_request(request, true).unwrap();
                assert_eq!(text(response.await.unwrap().into_body()).await, "ok");
            } else {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let request =
                    b"GET /b HTTP/1.1\r\nHost: proxy.example\r\nConnection: close\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let mut got = String::new();
                stream.read_to_string(&mut got).await.unwrap();
                assert!(got.ends_with("ok"), "{got}");
            }
        }
    });
    let received = poll("both were asked", || {
        Some(server.received().concat()).filter(|it| it.contains("/b "))
    });
    assert!(received.contains("Host: proxy.example\r\n"), "{received}");
    assert!(received.contains("X-Forwarded-Proto: https\r\n"), "{received}");
}
