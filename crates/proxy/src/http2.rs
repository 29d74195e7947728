//! Clients that speak HTTP/2 (RFC 9113), by hyper; servers are asked by HTTP/1.1.

mod body;
mod client;
mod requests;

use std::rc::Rc;
use std::time::Duration;

use fordway_serve::{http2, spawn_here};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::access::{About, Record};
use super::conn::{Conn, Stream};
use super::ends::Ends;
use super::exchange::Exchange;
use super::fields::Line;
use super::reason::Reason;
use super::request::{FirstLine, Request, RequestContext, Target, make};
use super::worker::Worker;
use body::Body;
use client::Http2;
use requests::{IdleTimes, Request as UnderWay, Requests};

/// How often a silent client gets a PING.
const PING: Duration = Duration::from_secs(20);
/// Octets under way to a client, or from it, of one stream and of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Serves a connection until its end.
pub(super) async fn serve(conn: Conn, ends: Ends, worker: Rc<Worker>) {
    let active = worker.active();
    let limits = &active.settings.limits;
    let tls = matches!(conn.stream, Stream::Tls(_));
    let mut builder = http2::builder();
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(limits.header_time);
    let (there, requests) = (Rc::clone(&worker), Requests::new());
    let all = Rc::clone(&requests);
    let answer = move |request| answer(request, ends, tls, Rc::clone(&there), all.begin());
    let usual = IdleTimes { idle: limits.keep_alive, taking: limits.idle_time };
    let last = IdleTimes { idle: limits.header_time, taking: limits.header_time };
    drop(active);
    let mut serving = http2::serve(&builder, conn, answer);
    tokio::select! {
        _ = &mut serving => return,
        () = worker.drained() => {}
        () = requests.idle(usual) => {}
    }
    serving.shut_down();
    requests.restart();
    tokio::select! {
        _ = serving => {}
        // A client without requests under way has had GOAWAY, and does not close.
        () = requests.idle(last) => {}
    }
}

/// Begins an exchange in a task of its own, and returns the response once it has begun.
async fn answer(
    request: http::Request<Incoming>,
    ends: Ends,
    tls: bool,
    worker: Rc<Worker>,
    under_way: Rc<UnderWay>,
) -> http::Response<Body> {
    let active = worker.active();
    let address = ends.address();
    worker.counters().requests_http2.add(1);
    let about = active.settings.log.is_some().then(|| {
        let target = request.uri().to_string();
        let mut about = About::new(address, request.method().as_str(), &target, "HTTP/2");
        about.fields(lines(request.headers()));
        about
    });
    let (tell, told) = oneshot::channel();
    spawn_here(async move {
        // A record from outside would be captured in part: the task would write to a copy of its outcome.
        let mut record = Record::new(active.log.as_ref());
        record.about = about;
        let settings = &active.settings;
        let context = RequestContext { settings, own: &active.own, client: address, tls };
        let read = match read(&request, context) {
            _ if !settings.allow.contains(address) => Err(Reason::ClientDenied),
            read => read,
        };
        let exchange = Exchange {
            worker: &worker,
            active: &active,
            ends: &ends,
            client: Http2::new(request, tell, under_way, settings.limits.header_time),
            last: true,
            outcome: &mut record.outcome,
        };
        exchange.run(read).await;
    });
    told.await.unwrap_or_else(|_| no_answer())
}

/// The answer of an exchange that has none of its own: its task has panicked, or was ended with its thread.
fn no_answer() -> http::Response<Body> {
    let mut answer = http::Response::<Body>::default();
    *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
    let never = http::HeaderValue::from_static("no-store");
    answer.headers_mut().insert(http::header::CACHE_CONTROL, never);
    answer
}

fn lines(headers: &http::HeaderMap) -> impl Iterator<Item = Line<'_>> {
    headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Reads a request as those of HTTP/1.1 are read.
fn read(request: &http::Request<Incoming>, context: RequestContext<'_>) -> Result<Request, Reason> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let path = uri.path_and_query().map_or("", |it| it.as_str());
    if path.len() > context.settings.limits.target {
        return Err(Reason::TargetTooLong);
    }
    if headers.len() > context.settings.limits.fields {
        return Err(Reason::FieldsTooLarge);
    }
    if !path.bytes().all(|c| matches!(c, 0x21..=0x7e)) {
        return Err(Reason::Malformed);
    }
    let target = match (uri.authority(), uri.scheme_str()) {
        (Some(authority), _) if method == http::Method::CONNECT => {
            Target::Authority(authority.as_str())
        }
        (Some(authority), Some(scheme)) => {
            // RFC 9113 section 8.3.1.
            let host = headers.get(http::header::HOST);
            if host.is_some_and(|host| {
                !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
            }) {
                return Err(Reason::Host);
            }
            Target::Absolute { scheme, authority: authority.as_str(), path }
        }
        (None, _) if path == "*" => Target::Asterisk,
        (None, _) => Target::Origin(path),
        (Some(_), None) => return Err(Reason::Malformed),
    };
    // Section 8.2.3: Cookie in pieces is one field in HTTP/1.1.
    let cookies: Vec<&[u8]> =
        headers.get_all(http::header::COOKIE).iter().map(http::HeaderValue::as_bytes).collect();
    let cookie = cookies.join(&b"; "[..]);
    let others = lines(headers).filter(|(name, _)| *name != b"cookie");
    let joined = (!cookies.is_empty()).then_some((&b"cookie"[..], &cookie[..]));
    let all: Vec<Line<'_>> = others.chain(joined).collect();
    let content = !http_body::Body::is_end_stream(request.body());
    let line = FirstLine { method: method.as_str(), target, minor: None, content };
    make(context, &line, &all.iter().copied())
}
