//! The HTTP endpoint, on a thread without capabilities.
//!
//! Counters and health are taken on the daemon's own thread, once for all who ask within [`AGE`]: however many scrape or
//! probe, signals and requests of the operator come in between.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::access::{Access, Guards};
use super::encode;
use crate::failure::Failure;
use fordway_control::Stats;

/// Clients at once; the others wait.
const MAX_CLIENTS: usize = 16;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Time that a client may stay connected: for one request and its answer.
const CONNECTION: Duration = Duration::from_secs(20);

/// Time that the daemon has for an answer about its health.
const HEALTH: Duration = Duration::from_secs(5);

/// How long a snapshot of the counters, or of the health, is served before another is taken.
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

/// Serves clients for ever. `take` takes the counters; `waits_for` asks the daemon what it waits for before it does all of
/// its work.
pub(crate) async fn serve<T, W>(
    listeners: Vec<std::net::TcpListener>,
    access: Access,
    take: T,
    waits_for: W,
) where
    T: AsyncFn() -> std::io::Result<Stats> + 'static,
    W: AsyncFn() -> std::io::Result<Vec<String>> + 'static,
{
    let encoded = async move || -> Result<Bytes, Failure> {
        let stats = take().await.map_err(|error| Failure::failed(error.to_string()))?;
        Ok(encode(stats)?.into())
    };
    let waits_for = Snapshot::new(waits_for);
    let served = Rc::new(Served { access, counters: Snapshot::new(encoded), waits_for });
    let mut servers = tokio::task::JoinSet::new();
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => drop(servers.spawn_local(accept(listener, Rc::clone(&served)))),
            Err(error) => warn!("metrics: {error}"),
        }
    }
    while servers.join_next().await.is_some() {}
}

async fn accept<T, W>(listener: TcpListener, served: Rc<Served<T, W>>)
where
    T: AsyncFn() -> Result<Bytes, Failure> + 'static,
    W: AsyncFn() -> std::io::Result<Vec<String>> + 'static,
{
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let served = Rc::clone(&served);
                tokio::task::spawn_local(async move {
                    converse(stream, &served).await;
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

/// What clients are answered from.
struct Served<T, W> {
    access: Access,
    counters: Snapshot<T, Bytes>,
    waits_for: Snapshot<W, Vec<String>>,
}

impl<T, W: AsyncFn() -> std::io::Result<Vec<String>>> Served<T, W> {
    /// What the daemon waits for; an error if it does not answer.
    async fn waits_for(&self) -> Result<Vec<String>, String> {
        match tokio::time::timeout(HEALTH, self.waits_for.get()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("the daemon does not answer in time".to_owned()),
        }
    }
}

/// What `take` has given a moment ago.
struct Snapshot<T, V> {
    take: T,
    latest: Mutex<Option<(Instant, V)>>,
}

impl<T, V: Clone> Snapshot<T, V> {
    fn new(take: T) -> Snapshot<T, V> {
        Snapshot { take, latest: Mutex::new(None) }
    }

    /// The value. Requests that come while it is taken wait for the same snapshot. An error is not kept.
    async fn get<E>(&self) -> Result<V, E>
    where
        T: AsyncFn() -> Result<V, E>,
    {
        let mut latest = self.latest.lock().await;
        if let Some((taken, value)) = &*latest
            && taken.elapsed() < AGE
        {
            return Ok(value.clone());
        }
        let value = (self.take)().await?;
        *latest = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

async fn converse<T, W>(stream: TcpStream, served: &Rc<Served<T, W>>)
where
    T: AsyncFn() -> Result<Bytes, Failure> + 'static,
    W: AsyncFn() -> std::io::Result<Vec<String>> + 'static,
{
    let guards = served.access.now();
    let Some(tls) = &guards.tls else { return exchange(stream, served, &guards).await };
    // Changed files count from a later connection on, once they rest: a disk holds up nobody.
    let certificates = Arc::clone(&tls.certificates);
    tokio::task::spawn_blocking(move || certificates.look());
    match tokio::time::timeout(HEAD, tls.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => exchange(stream, served, &guards).await,
        Ok(Err(error)) => debug!("metrics: {error}"),
        Err(_) => debug!("metrics: a client took too long for TLS"),
    }
}

/// One request and its answer.
async fn exchange<S, T, W>(stream: S, served: &Rc<Served<T, W>>, guards: &Arc<Guards>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    T: AsyncFn() -> Result<Bytes, Failure> + 'static,
    W: AsyncFn() -> std::io::Result<Vec<String>> + 'static,
{
    let service = service_fn(|request| {
        let (served, guards) = (Rc::clone(served), Arc::clone(guards));
        async move { Ok::<_, Infallible>(respond(&request, &served, &guards).await) }
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

async fn respond<T, W>(
    request: &Request<Incoming>,
    served: &Served<T, W>,
    guards: &Guards,
) -> Response<Full<Bytes>>
where
    T: AsyncFn() -> Result<Bytes, Failure>,
    W: AsyncFn() -> std::io::Result<Vec<String>>,
{
    let is_allowed = guards.allow(request.headers());
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") if !is_allowed => (
            StatusCode::UNAUTHORIZED,
            PLAIN,
            Bytes::from("Show the token of [metrics] token_file\n"),
        ),
        (&Method::GET | &Method::HEAD, "/metrics") => match served.counters.get().await {
            Ok(text) => (StatusCode::OK, OPENMETRICS, text),
            Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, failure.line().into()),
        },
        (&Method::GET | &Method::HEAD, path @ ("/healthz" | "/readyz")) => {
            let (status, text) = health(path, served.waits_for().await);
            // Names of translators are for those who may read.
            let text = if is_allowed || status.is_success() { text } else { format!("{status}\n") };
            (status, PLAIN, text.into())
        }
        (&Method::GET | &Method::HEAD, "/") => (StatusCode::OK, PLAIN, Bytes::from(PATHS)),
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, PLAIN, Bytes::from(PATHS)),
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, Bytes::from("Only GET is understood\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"fordway\""));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// The answer of a path about the daemon's health. It is alive if it answers, and ready if it waits for nothing.
fn health(path: &str, waits_for: Result<Vec<String>, String>) -> (StatusCode, String) {
    match waits_for {
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Ok(_) if path == "/healthz" => (StatusCode::OK, "alive\n".to_owned()),
        Ok(waits_for) if waits_for.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        Ok(waits_for) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", waits_for.join("\n"))),
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

const PATHS: &str = "fordway: counters at /metrics, health at /healthz and /readyz\n";

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
            Ok::<_, Infallible>(Bytes::new())
        };
        let snapshot = Rc::new(Snapshot::new(take));
        let scrape = || {
            let snapshot = Rc::clone(&snapshot);
            async move { snapshot.get().await.is_ok() }
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

    /// A daemon that does not answer is neither alive nor ready; one that waits is alive.
    #[tokio::test(start_paused = true)]
    async fn health_is_what_the_daemon_answers() {
        async fn of(
            served: &Served<(), impl AsyncFn() -> std::io::Result<Vec<String>>>,
        ) -> [String; 2] {
            let mut answers = Vec::new();
            for path in ["/healthz", "/readyz"] {
                let (status, text) = health(path, served.waits_for().await);
                answers.push(format!("{} {}", status.as_u16(), text.trim_end()));
            }
            answers.try_into().unwrap()
        }
        fn served<W>(waits_for: W) -> Served<(), W>
        where
            W: AsyncFn() -> std::io::Result<Vec<String>>,
        {
            let (counters, waits_for) = (Snapshot::new(()), Snapshot::new(waits_for));
            Served { access: Access::default(), counters, waits_for }
        }
        let ready = served(async || Ok(Vec::new()));
        assert_eq!(of(&ready).await, ["200 alive", "200 ready"]);
        let waits = || vec!["clat0: no prefix".to_owned(), "clat1: no uplink".to_owned()];
        let waiting = served(async || Ok(waits()));
        let both = "503 clat0: no prefix\nclat1: no uplink";
        assert_eq!(of(&waiting).await, ["200 alive", both]);
        // Time is paused: the limit is reached at once.
        let stuck = served(async || std::future::pending().await);
        let late = "503 the daemon does not answer in time";
        assert_eq!(of(&stuck).await, [late, late]);
        // The daemon is asked once, however many probe.
        let asked = Cell::new(0);
        let counted = served(async || {
            asked.set(asked.get() + 1);
            Ok(Vec::new())
        });
        for asks in 1..=2 {
            for _ in 0..100 {
                assert_eq!(of(&counted).await, ["200 alive", "200 ready"]);
            }
            assert_eq!(asked.get(), asks);
            tokio::time::advance(AGE).await;
        }
    }

    /// What could not be taken is not kept.
    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_tried_again() {
        let taken = Cell::new(0);
        let snapshot = Snapshot::new(async || {
            taken.set(taken.get() + 1);
            match taken.get() {
                1 => Err(std::io::Error::other("not now")),
                _ => Ok(Bytes::new()),
            }
        });
        assert!(snapshot.get().await.is_err());
        assert!(snapshot.get().await.is_ok());
    }
}
