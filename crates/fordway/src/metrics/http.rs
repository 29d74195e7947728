//! The HTTP endpoint.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::encode;
use crate::daemon::Handle;
use crate::failure::Failure;

/// Clients at once; the others wait.
const MAX_CLIENTS: usize = 16;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Time that a client may stay connected: for one request and its answer.
const CONNECTION: Duration = Duration::from_secs(20);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot listen on {address} for metrics: {error}"))
            .hint("choose another address or port in [metrics] listen")
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    TcpListener::from_std(listener).map_err(failed)
}

/// Serves clients for ever.
pub(crate) async fn serve(listener: TcpListener, daemon: Handle) {
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let daemon = daemon.clone();
                tokio::task::spawn_local(async move {
                    converse(stream, daemon).await;
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

async fn converse(stream: TcpStream, daemon: Handle) {
    let service = service_fn(move |request| {
        let response = respond(&request, &daemon);
        async move { Ok::<_, Infallible>(response) }
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

fn respond(request: &Request<Incoming>, daemon: &Handle) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match encode(daemon.stats()) {
            Ok(text) => (StatusCode::OK, OPENMETRICS, text),
            Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, failure.line()),
        },
        (&Method::GET | &Method::HEAD, "/") => {
            (StatusCode::OK, PLAIN, "The counters of fordway are at /metrics\n".to_owned())
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, PLAIN, "The counters are at /metrics\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "Only GET is understood\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";
