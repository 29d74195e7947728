//! The HTTP endpoint, on a thread without capabilities.
//!
//! The counters are taken on the daemon's own thread, once for all who ask within [`AGE`]: however many scrape, signals
//! and requests of the operator come in between.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::encode;
use crate::failure::Failure;
use fordway_control::Stats;

/// Clients at once; the others wait.
const MAX_CLIENTS: usize = 16;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Time that a client may stay connected: for one request and its answer.
const CONNECTION: Duration = Duration::from_secs(20);

/// How long a snapshot of the counters is served before another is taken.
const AGE: Duration = Duration::from_secs(1);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot listen on {address} for metrics: {error}"))
            .hint("choose another address or port in [metrics] listen")
    };
    let bind = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if address.is_ipv6() {
            // An address of IPv4 with the same port is another.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(128)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    bind().map_err(failed)
}

/// Serves clients for ever. `take` takes the counters.
pub(crate) async fn serve<T>(listeners: Vec<std::net::TcpListener>, take: T)
where
    T: AsyncFn() -> std::io::Result<Stats> + 'static,
{
    let snapshot = Rc::new(Snapshot::new(take));
    let mut servers = tokio::task::JoinSet::new();
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => drop(servers.spawn_local(accept(listener, Rc::clone(&snapshot)))),
            Err(error) => warn!("metrics: {error}"),
        }
    }
    while servers.join_next().await.is_some() {}
}

async fn accept<T>(listener: TcpListener, snapshot: Rc<Snapshot<T>>)
where
    T: AsyncFn() -> std::io::Result<Stats> + 'static,
{
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let snapshot = Rc::clone(&snapshot);
                tokio::task::spawn_local(async move {
                    converse(stream, &snapshot).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!("metrics: {error}");
                // Out of descriptors, most likely: give those who hold some time to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The counters as text, as they were a moment ago.
struct Snapshot<T> {
    take: T,
    latest: Mutex<Option<(Instant, Bytes)>>,
}

impl<T: AsyncFn() -> std::io::Result<Stats>> Snapshot<T> {
    fn new(take: T) -> Snapshot<T> {
        Snapshot { take, latest: Mutex::new(None) }
    }

    /// The text. Requests that come while it is made wait for the same snapshot.
    async fn text(&self) -> Result<Bytes, Failure> {
        let mut latest = self.latest.lock().await;
        if let Some((taken, text)) = &*latest
            && taken.elapsed() < AGE
        {
            return Ok(text.clone());
        }
        let stats = (self.take)().await.map_err(|error| Failure::failed(error.to_string()))?;
        let text = Bytes::from(encode(stats)?);
        *latest = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

async fn converse<T>(stream: TcpStream, snapshot: &Rc<Snapshot<T>>)
where
    T: AsyncFn() -> std::io::Result<Stats> + 'static,
{
    let service = service_fn(|request| {
        let snapshot = Rc::clone(snapshot);
        async move { Ok::<_, Infallible>(respond(&request, &snapshot).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        // Who waits for the next scrape would hold a place that another wants.
        .keep_alive(false)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION, connection).await {
        debug!("metrics: {error}");
    }
}

async fn respond<T>(request: &Request<Incoming>, snapshot: &Snapshot<T>) -> Response<Full<Bytes>>
where
    T: AsyncFn() -> std::io::Result<Stats>,
{
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match snapshot.text().await {
            Ok(text) => (StatusCode::OK, OPENMETRICS, text),
            Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, failure.line().into()),
        },
        (&Method::GET | &Method::HEAD, "/") => {
            (StatusCode::OK, PLAIN, Bytes::from("The counters of fordway are at /metrics\n"))
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, PLAIN, Bytes::from("The counters are at /metrics\n"))
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, Bytes::from("Only GET is understood\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::task::JoinSet;

    use super::*;

    /// However many clients ask, the daemon is asked once, and no client is refused for it.
    #[tokio::test(start_paused = true)]
    async fn counters_are_taken_once_for_all_who_ask() {
        let taken = Rc::new(Cell::new(0));
        let (count, (open, opened)) = (Rc::clone(&taken), tokio::sync::watch::channel(false));
        let take = async move || {
            count.set(count.get() + 1);
            // The daemon has something else to do.
            let _ = opened.clone().wait_for(|open| *open).await;
            Ok(Stats::default())
        };
        let snapshot = Rc::new(Snapshot::new(take));
        let scrape = || {
            let snapshot = Rc::clone(&snapshot);
            async move { snapshot.text().await.is_ok() }
        };
        let all = async {
            let mut scrapes = JoinSet::new();
            (0..1000).for_each(|_| drop(scrapes.spawn_local(scrape())));
            tokio::task::yield_now().await;
            assert_eq!(taken.get(), 1);
            open.send_replace(true);
            assert_eq!(scrapes.join_all().await, [true; 1000]);
            assert_eq!(taken.get(), 1);
            tokio::time::advance(AGE - Duration::from_millis(1)).await;
            assert!(scrape().await);
            assert_eq!(taken.get(), 1);
            // They are not told for ever.
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(scrape().await);
            assert_eq!(taken.get(), 2);
        };
        tokio::task::LocalSet::new().run_until(all).await;
    }

    /// What could not be taken is not kept.
    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_tried_again() {
        let taken = Cell::new(0);
        let snapshot = Snapshot::new(async || {
            taken.set(taken.get() + 1);
            match taken.get() {
                1 => Err(std::io::Error::other("not now")),
                _ => Ok(Stats::default()),
            }
        });
        assert!(snapshot.text().await.is_err());
        assert!(snapshot.text().await.is_ok());
    }
}
