//! Queries by HTTPS (RFC 8484) with HTTP/2, by hyper.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

use super::query::{MAX_MESSAGE, least_ttl};
use super::unread::{Octets, Unread};
use super::worker::{Client, Worker};
use fordway_serve::{Network, http2};

/// The path of queries: clients use it unless told otherwise (RFC 8484 section 4.1.1 has it in its examples).
const PATH: &str = "/dns-query";
/// The type of their content (section 6).
const MESSAGE: &str = "application/dns-message";
/// Queries of one connection that may be under way.
const STREAMS: u32 = 100;
/// Octets of a request's header section: that of GET has the query in it.
const HEADER_SECTION: u32 = 128 << 10;

/// Serves a connection until its end, or until it was silent for `idle`.
pub(super) async fn serve(
    stream: TlsStream<TcpStream>,
    client: Client,
    network: Network,
    idle: Duration,
    worker: Rc<Worker>,
) {
    let unread = Unread::new(Arc::clone(&worker.shared.unread), network);
    let connection = Rc::new(Connection {
        worker,
        client,
        idle,
        unread: Rc::clone(&unread),
        under_way: Cell::new(0),
        since: Cell::new(Instant::now()),
    });
    let mut limits = http2::builder();
    limits.max_concurrent_streams(STREAMS).max_header_list_size(HEADER_SECTION);
    let here = Rc::clone(&connection);
    let mut serving = http2::serve(&limits, stream, move |request| {
        let connection = Rc::clone(&here);
        async move { connection.answer(request).await }
    });
    tokio::select! {
        _ = &mut serving => return,
        () = connection.silent() => {}
        () = unread.over() => {
            connection.worker.counters().connections_unread.add(1);
            return;
        }
    }
    serving.shut_down();
    // Answers that the client does not take have no more time than that.
    let _ = timeout(idle, serving).await;
}

/// A connection of a client.
struct Connection {
    worker: Rc<Worker>,
    client: Client,
    idle: Duration,
    unread: Rc<Unread>,
    under_way: Cell<usize>,
    /// When the last query came, or its answer was there.
    since: Cell<Instant>,
}

impl Connection {
    /// Returns when no query was under way for so long as a connection may be silent.
    async fn silent(&self) {
        loop {
            let until = self.since.get() + self.idle;
            if self.under_way.get() == 0 && Instant::now() >= until {
                return;
            }
            sleep_until(until.max(Instant::now() + self.idle / 4)).await;
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let _query = UnderWay::begin(self);
        let answer = match timeout(self.idle, query(request)).await {
            Ok(Ok(octets)) => self.resolve(&octets).await,
            Ok(Err(refused)) => Err(refused),
            Err(_elapsed) => Err(Refused(StatusCode::REQUEST_TIMEOUT)),
        };
        answer.unwrap_or_else(|refused| {
            self.worker.counters().https_refused.add(1);
            refused.response()
        })
    }

    async fn resolve(&self, octets: &[u8]) -> Result<Response<Answer>, Refused> {
        let worker = &self.worker;
        let active = worker.shared.active.load_full();
        let now = worker.now();
        let mut answer = Vec::new();
        let waiting = worker.handle(&active, self.client, octets, now, &mut answer);
        drop(active);
        match waiting {
            None => {
                let took = worker.now().instant.saturating_duration_since(now.instant);
                worker.counters().took(took.as_micros() as u64, 1);
            }
            Some(waiting) => {
                worker.finish(waiting, |write| write(&mut answer)).await;
            }
        }
        // What is no query has no answer.
        if answer.is_empty() {
            return Err(Refused(StatusCode::BAD_REQUEST));
        }
        let held = self.unread.add(answer.len());
        let held = held.ok_or(Refused(StatusCode::SERVICE_UNAVAILABLE))?;
        // RFC 8484 section 5.1: fresh for no longer than the least TTL.
        let age = format!("max-age={}", least_ttl(&answer).unwrap_or(0));
        let mut response = Response::new(Answer { octets: Some(answer.into()), _held: Some(held) });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MESSAGE));
        headers.extend(HeaderValue::try_from(age).ok().map(|age| (CACHE_CONTROL, age)));
        Ok(response)
    }
}

/// A query, until it has its answer or its client has given it up.
struct UnderWay<'a>(&'a Connection);

impl<'a> UnderWay<'a> {
    fn begin(connection: &'a Connection) -> Self {
        connection.under_way.set(connection.under_way.get() + 1);
        connection.since.set(Instant::now());
        UnderWay(connection)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.since.set(Instant::now());
    }
}

/// Why a request has no DNS answer.
struct Refused(StatusCode);

impl Refused {
    fn response(&self) -> Response<Answer> {
        let mut response = Response::new(Answer { octets: None, _held: None });
        *response.status_mut() = self.0;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.0 == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, POST"));
        }
        response
    }
}

/// The query of a request (RFC 8484 section 4.1).
async fn query(request: Request<Incoming>) -> Result<Vec<u8>, Refused> {
    if request.uri().path() != PATH {
        return Err(Refused(StatusCode::NOT_FOUND));
    }
    match *request.method() {
        Method::GET => {
            let mut variables = request.uri().query().unwrap_or_default().split('&');
            let text = variables.find_map(|it| it.strip_prefix("dns="));
            let text = text.ok_or(Refused(StatusCode::BAD_REQUEST))?.as_bytes();
            BASE64URL_NOPAD.decode(text).map_err(|_| Refused(StatusCode::BAD_REQUEST))
        }
        Method::POST => {
            let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case(MESSAGE.as_bytes())) {
                return Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE));
            }
            let body = Limited::new(request.into_body(), MAX_MESSAGE).collect().await;
            let body = body.map_err(|_| Refused(StatusCode::PAYLOAD_TOO_LARGE))?;
            Ok(body.to_bytes().to_vec())
        }
        _ => Err(Refused(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

/// The content of a response, whose octets count until the client has taken them.
struct Answer {
    octets: Option<Bytes>,
    _held: Option<Octets>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.get_mut().octets.take().map(|octets| Ok(Frame::data(octets))))
    }

    fn is_end_stream(&self) -> bool {
        self.octets.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.octets.as_ref().map_or(0, |octets| octets.len() as u64))
    }
}
