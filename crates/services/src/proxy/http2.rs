//! Clients that speak HTTP/2 (RFC 9113), by hyper; servers are asked by HTTP/1.1.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until, timeout};

use super::access::{About, Outcome};
use super::chunked::Chunked;
use super::conn::{Conn, LITTLE, MUCH, Stream, Watch};
use super::fields::{Delimited, Line, may_trail, put};
use super::pool::Server;
use super::reason::{ALLOW, Reason};
use super::relay::append;
use super::request::{FirstLine, Method, Request, Scene, Target, make};
use super::response::{self, Asked, Content};
use super::shared::Active;
use super::tunnel;
use super::worker::Worker;

/// How often a client that is silent is asked whether it is there.
const PING: Duration = Duration::from_secs(20);
/// Octets under way to a client, or from it, of one stream and of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Pieces of content that wait for a client.
const WAITING: usize = 4;

/// Tasks of hyper on this thread.
#[derive(Clone, Copy)]
struct Here;

impl<F> hyper::rt::Executor<F> for Here
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

/// Serves a connection until its end.
pub(super) async fn serve(conn: Conn, client: IpAddr, worker: Rc<Worker>) {
    let active = worker.shared.active.load_full();
    let limits = &active.settings.limits;
    let tls = matches!(conn.stream, Stream::Tls(_));
    let mut builder = Builder::new(Here);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(limits.header_time);
    let there = Rc::clone(&worker);
    let service = service_fn(move |request| {
        let worker = Rc::clone(&there);
        async move { Ok::<_, Infallible>(answer(request, client, tls, worker).await) }
    });
    drop(active);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(conn), service));
    tokio::select! {
        _ = &mut serving => return,
        () = worker.drained() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// A request while it is served.
struct Exchange {
    worker: Rc<Worker>,
    active: Arc<Active>,
    client: IpAddr,
    outcome: Outcome,
    about: Option<About>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let (Some(log), Some(about)) = (&self.active.log, &self.about) {
            log.write(about, &self.outcome);
        }
    }
}

/// What a response's task has for the client.
type Answer = http::Response<Body>;

async fn answer(
    request: http::Request<Incoming>,
    client: IpAddr,
    tls: bool,
    worker: Rc<Worker>,
) -> Answer {
    let active = worker.shared.active.load_full();
    worker.counters().requests_http2.add(1);
    let about = active.settings.log.as_ref().map(|_| {
        let target = request.uri().to_string();
        let mut about = About::new(client, request.method().as_str(), &target, "HTTP/2");
        about.fields(lines(request.headers()));
        about
    });
    let exchange = Exchange { worker, active, client, outcome: Outcome::default(), about };
    let (tell, told) = oneshot::channel();
    spawn_local(exchange.run(request, tls, tell));
    // The task tells, whatever happens; one that was ended by the end of the thread tells nobody.
    told.await.unwrap_or_else(|_| http::Response::new(Body::Empty))
}

fn lines(headers: &http::HeaderMap) -> impl Iterator<Item = Line<'_>> {
    headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Reads a request as those of HTTP/1.1 are read.
fn read(request: &http::Request<Incoming>, scene: Scene<'_>) -> Result<Request, Reason> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let path = uri.path_and_query().map_or("", |it| it.as_str());
    if path.len() > scene.settings.limits.target {
        return Err(Reason::TargetTooLong);
    }
    if headers.len() > scene.settings.limits.fields {
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
    make(scene, &line, &all.iter().copied())
}

impl Exchange {
    async fn run(
        mut self,
        request: http::Request<Incoming>,
        tls: bool,
        tell: oneshot::Sender<Answer>,
    ) {
        let active = Arc::clone(&self.active);
        let mut tell = Some(tell);
        let scene =
            Scene { settings: &active.settings, own: &active.own, client: self.client, tls };
        let read = match read(&request, scene) {
            _ if !active.settings.allow.contains(self.client) => Err(Reason::ClientDenied),
            read => read,
        };
        let read = match read {
            Ok(read) => read,
            Err(reason) => return self.refuse(reason, &mut tell),
        };
        if read.method == Method::Connect {
            return self.connect(request, &read, &mut tell).await;
        }
        if read.for_us {
            self.outcome.status = 204;
            self.worker.counters().response(204);
            let answer = http::Response::builder().status(204).header("allow", ALLOW);
            return say(&mut tell, answer.body(Body::Empty).unwrap_or_default());
        }
        let most = active.settings.limits.body;
        if let (Delimited::Length(length), Some(most)) = (read.delimited, most)
            && length > most
        {
            return self.refuse(Reason::BodyTooLarge, &mut tell);
        }
        let mut body = Some(request.into_body());
        let mut fresh = false;
        loop {
            let server = self.worker.server(&active, self.client, read.to.as_ref(), fresh).await;
            let server = match server {
                Ok(server) => server,
                Err(reason) => return self.refuse(reason, &mut tell),
            };
            self.outcome.server = Some(server.address);
            let reused = server.reused;
            match self.exchange(server, &read, &mut body, &mut tell).await {
                Ok(Some(server)) => return self.worker.keep(server),
                Ok(None) => return,
                Err(Reason::Incomplete)
                    if reused
                        && tell.is_some()
                        && read.delimited == Delimited::Not
                        && read.method.is_idempotent() =>
                {
                    self.worker.counters().retried.add(1);
                    fresh = true;
                }
                Err(reason) => return self.refuse(reason, &mut tell),
            }
        }
    }

    /// Sends the request and passes the response on; gives the connection back if it can take another request.
    async fn exchange(
        &mut self,
        server: Server,
        request: &Request,
        body: &mut Option<Incoming>,
        tell: &mut Option<oneshot::Sender<Answer>>,
    ) -> Result<Option<Server>, Reason> {
        let active = Arc::clone(&self.active);
        let worker = Rc::clone(&self.worker);
        let way =
            Way { server: RefCell::new(server), moved: Cell::new(Instant::now()), active: &active };
        let content = if request.delimited == Delimited::Not { None } else { body.take() };
        let mut uploaded = None;
        let down = {
            let mut uploading = pin!(way.upload(request, content));
            let mut downloading = pin!(self.download(&way, request, tell));
            loop {
                tokio::select! {
                    biased;
                    up = &mut uploading, if uploaded.is_none() => match up {
                        Ok(octets) => {
                            worker.counters().octets_in.add(octets);
                            uploaded = Some(true);
                        }
                        // The server may have answered before it stopped reading.
                        Err(None) => uploaded = Some(false),
                        Err(Some(reason)) => break Err(reason),
                    },
                    down = &mut downloading => break down,
                }
            }
        };
        let reusable = down? && uploaded == Some(true);
        let server = way.server.into_inner();
        Ok(Some(server).filter(|server| reusable && server.conn.buf.is_empty()))
    }

    /// Passes the response on; true: the connection is free for another request.
    async fn download(
        &mut self,
        way: &Way<'_>,
        request: &Request,
        tell: &mut Option<oneshot::Sender<Answer>>,
    ) -> Result<bool, Reason> {
        let limits = &way.active.settings.limits;
        let mut seen = 0;
        let (content, reusable, queue) = loop {
            let end = {
                let server = way.server.borrow();
                response::end(&server.conn.buf, &mut seen)
            };
            let Some(len) = end else {
                if way.server.borrow().conn.buf.len() > limits.header {
                    return Err(Reason::ResponseTooLarge);
                }
                match way.patient(limits.response_time, way.fill(LITTLE)).await {
                    None => return Err(Reason::ResponseTimeout),
                    Some(0) => return Err(Reason::Incomplete),
                    Some(_) => continue,
                }
            };
            let mut server = way.server.borrow_mut();
            let asked = Asked { method: request.method, upgrades: false, own: &way.active.own };
            let response = response::read(&server.conn.buf[..len], asked)?;
            let (status, content) = (response.status, response.content);
            let reusable = response.is_reusable();
            // hyper has no way to pass interim responses on.
            if status >= 200 {
                let builder = response.http2(&self.worker.date()).ok_or(Reason::BadResponse)?;
                let (queue, pieces) = mpsc::channel(WAITING);
                let body = match content {
                    Content::None => Body::Empty,
                    _ => Body::Pieces(pieces),
                };
                say(tell, builder.body(body).map_err(|_| Reason::BadResponse)?);
                self.outcome.status = status;
                self.worker.counters().response(status);
                server.conn.buf.advance(len);
                break (content, reusable, queue);
            }
            server.conn.buf.advance(len);
            seen = 0;
        };
        let whole = self.content(way, content, &queue).await;
        self.worker.counters().octets_out.add(self.outcome.octets);
        Ok(whole.is_some() && reusable)
    }

    /// Passes content on; `None`: not all of it, which the client is made to see.
    async fn content(
        &mut self,
        way: &Way<'_>,
        content: Content,
        queue: &mpsc::Sender<Piece>,
    ) -> Option<()> {
        let idle = way.active.settings.limits.idle_time;
        let mut left = match content {
            Content::None => return Some(()),
            Content::Length(length) => length,
            Content::Chunked | Content::Close => u64::MAX,
        };
        let mut chunked = (content == Content::Chunked).then(Chunked::new);
        loop {
            let piece = {
                let buf = &mut way.server.borrow_mut().conn.buf;
                match &mut chunked {
                    Some(chunked) => chunked.next(buf).ok()?,
                    None => {
                        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                        Some(buf.split_to(most)).filter(|piece| !piece.is_empty())
                    }
                }
            };
            if let Some(piece) = piece {
                left = left.saturating_sub(piece.len() as u64);
                self.outcome.octets += piece.len() as u64;
                let piece = Piece::Data(piece.freeze());
                way.patient(idle, queue.send(piece)).await?.ok()?;
                way.moved.set(Instant::now());
                continue;
            }
            if let Some(chunked) = chunked.as_ref().filter(|it| it.is_done()) {
                let mut trailers = http::HeaderMap::new();
                for (name, value) in chunked.trailer().ok()? {
                    let name = http::HeaderName::from_bytes(&name).ok()?;
                    trailers.append(name, http::HeaderValue::from_bytes(&value).ok()?);
                }
                if !trailers.is_empty() {
                    way.patient(idle, queue.send(Piece::Trailers(trailers))).await?.ok()?;
                }
                break;
            }
            if left == 0 {
                break;
            }
            match way.patient(idle, way.fill(MUCH)).await? {
                0 if content == Content::Close => break,
                0 => return None,
                _ => {}
            }
        }
        way.patient(idle, queue.send(Piece::End)).await?.ok()
    }

    async fn connect(
        &mut self,
        request: http::Request<Incoming>,
        read: &Request,
        tell: &mut Option<oneshot::Sender<Answer>>,
    ) {
        let active = Arc::clone(&self.active);
        let far_end = self.worker.far_end(&active, self.client, read.to.as_ref()).await;
        let mut server = match far_end {
            Ok(server) => server,
            Err(reason) => return self.refuse(reason, tell),
        };
        self.outcome = Outcome { status: 200, server: Some(server.address), ..self.outcome };
        self.worker.counters().response(200);
        let upgrading = hyper::upgrade::on(request);
        say(tell, http::Response::new(Body::Empty));
        let limits = &active.settings.limits;
        let Ok(Ok(upgraded)) = timeout(limits.header_time, upgrading).await else { return };
        let _open = self.worker.tunnel();
        let mut client = Conn::new(Stream::Http2(Box::new(TokioIo::new(upgraded))));
        let mut watch = Watch::new(Instant::now() + limits.idle_time);
        let (up, down) =
            tunnel::run(&mut client, &mut server.conn, &mut watch, limits.idle_time).await;
        self.worker.counters().octets_in.add(up);
        self.worker.counters().octets_out.add(down);
        self.outcome.octets = down;
    }

    /// Answers with an error of the proxy's own. If the response has begun, it ends in the middle.
    fn refuse(&mut self, reason: Reason, tell: &mut Option<oneshot::Sender<Answer>>) {
        self.outcome.reason = Some(reason);
        if tell.is_none() {
            return;
        }
        self.worker.counters().refused(reason);
        let page = reason.page();
        self.outcome.status = reason.status();
        self.outcome.octets = page.len() as u64;
        let mut answer = http::Response::builder()
            .status(reason.status())
            .header("date", &*self.worker.date())
            .header("content-type", "text/plain; charset=utf-8")
            .header("cache-control", "no-store")
            .header("proxy-status", reason.proxy_status(&self.active.own));
        if reason == Reason::Method {
            answer = answer.header("allow", ALLOW);
        }
        let body = Body::Whole(Some(Bytes::from(page)));
        say(tell, answer.body(body).unwrap_or_default());
    }
}

fn say(tell: &mut Option<oneshot::Sender<Answer>>, answer: Answer) {
    if let Some(tell) = tell.take() {
        // The client has gone away: so does its answer.
        let _ = tell.send(answer);
    }
}

/// A connection to a server that is written and read at once.
struct Way<'a> {
    server: RefCell<Server>,
    /// When something last came or went.
    moved: Cell<Instant>,
    active: &'a Active,
}

impl Way<'_> {
    /// What comes of `future`; `None`: nothing, and nothing else has moved for so long.
    async fn patient<T>(&self, time: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        loop {
            let deadline = self.moved.get() + time;
            tokio::select! {
                biased;
                done = &mut future => return Some(done),
                () = sleep_until(deadline) => {}
            }
            if self.moved.get() + time <= Instant::now() {
                return None;
            }
        }
    }

    /// Reads what is there; 0: there is no more.
    async fn fill(&self, room: usize) -> usize {
        let filled = poll_fn(|cx| self.server.borrow_mut().conn.poll_fill(cx, room)).await;
        self.moved.set(Instant::now());
        filled.unwrap_or(0)
    }

    /// Sends the request; tells how many octets. `None` as an error: the server does not read.
    async fn upload(
        &self,
        request: &Request,
        content: Option<Incoming>,
    ) -> Result<u64, Option<Reason>> {
        let limits = &self.active.settings.limits;
        let chunks = request.delimited == Delimited::Chunked;
        let mut out = request.head.clone();
        let (mut octets, mut room) = (0, limits.body.unwrap_or(u64::MAX));
        self.write(&mut out, &mut octets).await?;
        let Some(mut content) = content else { return Ok(octets) };
        let mut trailers = BytesMut::new();
        loop {
            let frame = self.patient(limits.idle_time, content.frame()).await;
            let frame = match frame.ok_or(Some(Reason::BodyTimeout))? {
                Some(frame) => frame.map_err(|_| Some(Reason::Framing))?,
                None => break,
            };
            self.moved.set(Instant::now());
            match frame.into_data() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    let left = room.checked_sub(piece.len() as u64);
                    room = left.ok_or(Some(Reason::BodyTooLarge))?;
                    append(&mut out, &piece, chunks);
                    self.write(&mut out, &mut octets).await?;
                }
                Err(frame) => {
                    let own = frame.into_trailers().unwrap_or_default();
                    let kept = lines(&own).filter(|(name, _)| may_trail(name));
                    kept.for_each(|(name, value)| put(&mut trailers, name, value));
                }
            }
        }
        if chunks {
            out.extend_from_slice(b"0\r\n");
            out.extend_from_slice(&trailers);
            out.extend_from_slice(b"\r\n");
            self.write(&mut out, &mut octets).await?;
        }
        Ok(octets)
    }

    async fn write(&self, out: &mut BytesMut, octets: &mut u64) -> Result<(), Option<Reason>> {
        let idle = self.active.settings.limits.idle_time;
        while !out.is_empty() {
            let putting = poll_fn(|cx| self.server.borrow_mut().conn.poll_put(cx, out, &[]));
            let put = self.patient(idle, putting).await.ok_or(Some(Reason::ResponseTimeout))?;
            let put = put.map_err(|_| None)?;
            self.moved.set(Instant::now());
            *octets += put as u64;
            out.advance(put);
        }
        Ok(())
    }
}

/// A piece of content on its way to the client.
enum Piece {
    Data(Bytes),
    Trailers(http::HeaderMap),
    /// There is no more; without it, content has been cut.
    End,
}

/// The content of an answer.
#[derive(Default)]
enum Body {
    #[default]
    Empty,
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Piece>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let pieces = match self.get_mut() {
            Body::Empty => return Poll::Ready(None),
            Body::Whole(whole) => return Poll::Ready(whole.take().map(|it| Ok(Frame::data(it)))),
            Body::Pieces(pieces) => pieces,
        };
        pieces.poll_recv(cx).map(|piece| match piece {
            Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Piece::End) => {
                pieces.close();
                None
            }
            None => Some(Err(std::io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Empty | Body::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty | Body::Whole(None) => SizeHint::with_exact(0),
            Body::Whole(Some(whole)) => SizeHint::with_exact(whole.len() as u64),
            Body::Pieces(_) => SizeHint::default(),
        }
    }
}
