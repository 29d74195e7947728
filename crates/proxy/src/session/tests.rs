//! Connections in memory, whose time passes when nothing else can. What is asked is answered by the proxy itself.

use std::net::Ipv6Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{JoinHandle, LocalSet};

use super::super::http1::HALF_CLOSED;
use super::super::rules::{Destination, Rule, Rules};
use super::super::settings::Limits;
use super::super::worker::tests::{worker, worker_with};
use super::*;
use fordway_testhost::still::Still;

/// What the proxy answers itself.
const REQUEST: &[u8] = b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 204 No Content\r\n";

/// A client's connection.
struct Client {
    stream: DuplexStream,
    serving: JoinHandle<()>,
}

impl Client {
    /// One whose octets are taken one at a time.
    fn new(worker: &Rc<Worker>) -> Client {
        Client::of(worker, None)
    }

    /// `is_http2`: what TLS has agreed on.
    fn of(worker: &Rc<Worker>, is_http2: Option<bool>) -> Client {
        let (stream, served) = tokio::io::duplex(1);
        let watch = Watch::new(Instant::now());
        let client = (Ipv6Addr::LOCALHOST, 1).into();
        let ends = Ends { client, local: client };
        let talking = talk(Stream::Memory(served), is_http2, watch, ends, Rc::clone(worker));
        Client { stream, serving: spawn_here(talking) }
    }

    /// Sends a request, and reads the header section of the answer.
    async fn ask(&mut self) -> String {
        self.stream.write_all(REQUEST).await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            answer.push(self.stream.read_u8().await.unwrap().into());
        }
        answer
    }

    /// All that comes until the proxy ends the connection, and how long that takes.
    async fn rest(mut self) -> (String, Duration) {
        let begun = Instant::now();
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).await.unwrap();
        let after = begun.elapsed();
        drop(self.stream);
        self.serving.await.unwrap();
        (rest, after)
    }
}

fn refused(worker: &Worker, reason: &str) -> u64 {
    worker.shared.stats().refused[reason]
}

/// Runs a test whose tasks stay in its thread.
async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_do_not_come() {
    run(async {
        let worker = Rc::new(worker(Limits::default()));
        let Limits { header_time, keep_alive, .. } = Limits::default();
        let mut client = Client::new(&worker);
        client.stream.write_all(b"GET http://a/ HTTP/1.1\r\nHost: a\r\n").await.unwrap();
        let (got, after) = client.rest().await;
        assert!(got.starts_with("HTTP/1.1 408 ") && got.contains("Connection: close"), "{got}");
        assert_eq!((after, refused(&worker, "header_timeout")), (header_time, 1));

        // Octet by octet it takes no longer.
        let mut client = Client::new(&worker);
        let begun = Instant::now();
        for _ in 0..6 {
            client.stream.write_all(b"G").await.unwrap();
            tokio::time::sleep(header_time * 3 / 20).await;
        }
        let (got, _) = client.rest().await;
        assert!(got.starts_with("HTTP/1.1 408 "), "{got}");
        assert_eq!((begun.elapsed(), refused(&worker, "header_timeout")), (header_time, 2));

        // Who says nothing is told nothing.
        let (got, after) = Client::new(&worker).rest().await;
        assert_eq!((got.as_str(), after), ("", keep_alive));
        let mut client = Client::new(&worker);
        assert!(client.ask().await.starts_with(ANSWER));
        assert_eq!(client.rest().await, (String::new(), keep_alive));
        assert_eq!(refused(&worker, "header_timeout"), 2);
    })
    .await;
}

/// A request that has reached a server of loopback, and the server's end of its connection.
async fn under_way(worker: &Rc<Worker>) -> (Client, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = Client::new(worker);
    let request = format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n");
    client.stream.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(server.read_u8().await.unwrap());
    }
    (client, server)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ends_its_direction_has_a_while() {
    run(async {
        let still = Still::begin();
        let to = vec![Destination::Net("::1/128".parse().unwrap())];
        let rule = Rule { clients: None, to, ports: None, allow: true };
        let rules = Rules { rules: vec![rule], default: false };
        let worker = Rc::new(worker_with(Limits::default(), rules));
        let abandoned = || worker.shared.stats().abandoned;

        let (mut client, mut server) = under_way(&worker).await;
        client.stream.shutdown().await.unwrap();
        still.pass(Duration::ZERO).await;
        still.pass(HALF_CLOSED - Duration::from_millis(1)).await;
        assert_eq!(abandoned(), 0);
        still.pass(Duration::from_millis(1)).await;
        assert_eq!(abandoned(), 1);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "the server is told");
        client.serving.await.unwrap();

        // One that has not ended it has the server's time.
        let (client, mut server) = under_way(&worker).await;
        still.pass(2 * HALF_CLOSED).await;
        server.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await.unwrap();
        let answered = || worker.shared.stats().responses[0] == 1;
        fordway_testhost::still::until("an answer", answered).await;
        assert_eq!(abandoned(), 1);
        drop(client);

        // What comes in time reaches one that has, however long it takes as long as it goes on.
        let (mut client, mut server) = under_way(&worker).await;
        client.stream.shutdown().await.unwrap();
        still.pass(HALF_CLOSED / 2).await;
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").await.unwrap();
        let mut got = String::new();
        while !got.ends_with("\r\n\r\n") {
            got.push(client.stream.read_u8().await.unwrap().into());
        }
        for octet in *b"abcd" {
            still.pass(HALF_CLOSED / 2).await;
            server.write_all(&[octet]).await.unwrap();
            assert_eq!(client.stream.read_u8().await.unwrap(), octet);
        }
        assert_eq!(abandoned(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn http2_that_does_not_begin() {
    run(async {
        let worker = Rc::new(worker(Limits::default()));
        let Limits { header_time, .. } = Limits::default();
        for begun in [&b""[..], b"P", &head::PREFACE[..23]] {
            let mut client = Client::of(&worker, Some(true));
            client.stream.write_all(begun).await.unwrap();
            assert_eq!(client.rest().await, (String::new(), header_time));
        }
        let mut client = Client::of(&worker, Some(true));
        client.stream.write_all(b"GET / HTTP/1.1\r\nHost: ab\r\n\r\n").await.unwrap_err();
        client.serving.await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn http2_that_asks_for_nothing_more() {
    run(async {
        let worker = Rc::new(worker(Limits::default()));
        let Limits { header_time, keep_alive, .. } = Limits::default();
        let client = Client::of(&worker, Some(true));
        let (sender, connection) = h2::client::handshake(client.stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sender: h2::client::SendRequest<bytes::Bytes> = sender.ready().await.unwrap();
        tokio::time::sleep(keep_alive / 2).await;
        let request = http::Request::options("http://a/").header("max-forwards", "0");
        let (answer, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 204);
        // It answers every PING.
        let begun = Instant::now();
        connection.await.unwrap().unwrap();
        assert!((keep_alive..keep_alive + header_time).contains(&begun.elapsed()));
        client.serving.await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn http2_that_takes_nothing_of_an_answer() {
    run(async {
        let worker = Rc::new(worker(Limits::default()));
        let Limits { header_time, idle_time, .. } = Limits::default();
        let client = Client::of(&worker, Some(true));
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0);
        let (sender, connection) = builder.handshake(client.stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sender: h2::client::SendRequest<bytes::Bytes> = sender.ready().await.unwrap();
        let request = http::Request::builder().method("TRACE").uri("http://a/");
        let (answer, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        let answer = answer.await.unwrap();
        assert!(answer.status().is_client_error() || answer.status().is_server_error());
        // It answers every PING, and opens no window.
        let begun = Instant::now();
        let _ = connection.await.unwrap();
        assert!(begun.elapsed() <= idle_time + 2 * header_time, "{:?}", begun.elapsed());
        client.serving.await.unwrap();
        drop(answer);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_just_come_has_its_first_request_when_the_proxy_ends() {
    run(async {
        let worker = Rc::new(worker(Limits::default()));
        let [mut used, mut new, idle] = [(); 3].map(|()| Client::new(&worker));
        assert!(used.ask().await.starts_with(ANSWER));
        worker.drain();
        assert_eq!(used.rest().await, (String::new(), Duration::ZERO));
        tokio::time::sleep(FIRST - Duration::from_millis(1)).await;
        let got = new.ask().await;
        assert!(got.starts_with(ANSWER) && got.contains("\r\nConnection: close\r\n"), "{got}");
        // One that asks for nothing does not hold it up.
        assert_eq!(idle.rest().await, (String::new(), Duration::from_millis(1)));
    })
    .await;
}
