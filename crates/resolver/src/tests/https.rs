//! Questions by HTTPS.

use std::net::SocketAddr;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use tokio::net::TcpListener;

use super::super::Protocol;
use super::fake::respond;
use super::tls::Authority;
use super::*;

/// What a server has seen of a request.
#[derive(Debug, PartialEq)]
struct Seen {
    method: Method,
    path: String,
    authority: String,
    id: [u8; 2],
}

struct Web {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    authority: Authority,
}

impl Web {
    /// A server that answers with a status, and closes the connection after so many requests.
    async fn new(status: StatusCode, requests: usize) -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = authority.acceptor(&[b"h2"]);
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let tls = acceptor.accept(tcp).await.unwrap();
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(tls).await.unwrap();
                    let mut left = requests;
                    while let Some(Ok((request, reply))) = connection.accept().await {
                        let log = Arc::clone(&log);
                        tokio::spawn(answer(request, reply, status, log));
                        left -= 1;
                        if left == 0 {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
        Self { address, seen, authority }
    }

    fn resolver(&self) -> Arc<Resolver> {
        let name = Some("dns.example.net".to_owned());
        let protocol = Protocol::Https { name, path: "/dns-query".to_owned() };
        let servers = vec![Server { address: self.address, protocol }];
        let ca = Some(self.authority.file.path().to_owned());
        Resolver::new(Settings { ca, ..Settings::new(servers) }).unwrap()
    }
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut reply: h2::server::SendResponse<Bytes>,
    status: StatusCode,
    log: Arc<Mutex<Vec<Seen>>>,
) {
    let (head, mut body) = request.into_parts();
    let mut query = Vec::new();
    while let Some(data) = body.data().await {
        query.extend_from_slice(&data.unwrap());
    }
    log.lock().unwrap().push(Seen {
        method: head.method,
        path: head.uri.path().to_owned(),
        authority: head.uri.authority().unwrap().to_string(),
        id: [query[0], query[1]],
    });
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/dns-message")
        .body(())
        .unwrap();
    let mut stream = reply.send_response(response, false).unwrap();
    stream.send_data(Bytes::from(respond(&query, answer_with(1))), true).unwrap();
}

#[tokio::test(start_paused = true)]
async fn questions_go_by_post_and_share_a_connection() {
    let _still = Still::begin();
    let web = Web::new(StatusCode::OK, usize::MAX).await;
    let resolver = web.resolver();
    let questions: Vec<_> = (0..150).map(|n| question(&format!("n{n}.example.net."))).collect();
    let lookups = questions.iter().map(|question| resolver.lookup(question));
    for answer in futures_util::future::join_all(lookups).await {
        assert_eq!(addresses(&answer.unwrap()), [1]);
    }
    let expected = Seen {
        method: Method::POST,
        path: "/dns-query".to_owned(),
        authority: "dns.example.net".to_owned(),
        id: [0, 0],
    };
    let seen = web.seen.lock().unwrap();
    assert_eq!(seen.len(), questions.len());
    assert!(seen.iter().all(|seen| *seen == expected), "{seen:?}");
    assert_eq!(resolver.stats().servers[0].connections, 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_server_closes_is_made_again() {
    let _still = Still::begin();
    let web = Web::new(StatusCode::OK, 1).await;
    let resolver = web.resolver();
    for number in 0..4 {
        let question = question(&format!("n{number}.example.net."));
        assert_eq!(addresses(&resolver.lookup(&question).await.unwrap()), [1]);
    }
    assert!(resolver.stats().servers[0].connections >= 4);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_that_page_gives_no_answer() {
    let _still = Still::begin();
    let web = Web::new(StatusCode::NOT_FOUND, usize::MAX).await;
    let resolver = web.resolver();
    let error = resolver.lookup(&question("www.example.net.")).await.unwrap_err();
    assert_eq!(error, LookupError::Unusable);
}
