//! A request of an HTTP/2 client, and its response.

use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::super::access::{About, Outcome};
use super::super::chunked::Chunked;
use super::super::conn::{Conn, LITTLE, MUCH, Stream, Watch};
use super::super::fields::Delimited;
use super::super::pool::Server;
use super::super::reason::{ALLOW, Reason};
use super::super::request::{Method, Request, Scene};
use super::super::response::{self, Asked, Content};
use super::super::shared::Active;
use super::super::tunnel;
use super::super::worker::Worker;
use super::body::{Body, Content as Told, Piece};
use super::duplex::Duplex;
use super::requests::Request as UnderWay;
use super::{Answer, read};

/// Pieces of content that wait for a client.
const WAITING: usize = 4;

/// A request while it is served.
pub(super) struct Exchange {
    worker: Rc<Worker>,
    active: Arc<Active>,
    client: IpAddr,
    outcome: Outcome,
    about: Option<About>,
    under_way: Rc<UnderWay>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let (Some(log), Some(about)) = (&self.active.log, &self.about) {
            log.write(about, &self.outcome);
        }
    }
}

impl Exchange {
    pub(super) fn new(
        worker: Rc<Worker>,
        active: Arc<Active>,
        client: IpAddr,
        about: Option<About>,
        under_way: Rc<UnderWay>,
    ) -> Exchange {
        Exchange { worker, active, client, outcome: Outcome::default(), about, under_way }
    }

    /// Serves it. `tell` gets the response, of which content may still be on its way.
    pub(super) async fn run(
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
            return say(&mut tell, answer.body(self.body(Told::Empty)).unwrap_or_default());
        }
        let most = active.settings.limits.body;
        if read.exceeds(most) {
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
                Err(Reason::Incomplete) if reused && tell.is_some() && read.can_be_repeated() => {
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
        let duplex = Duplex::new(server, &active);
        let content = if request.delimited == Delimited::Not { None } else { body.take() };
        let mut uploaded = None;
        let down = {
            let mut uploading = pin!(duplex.upload(request, content));
            let mut downloading = pin!(self.download(&duplex, request, tell));
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
        let server = duplex.into_server();
        Ok(Some(server).filter(|server| reusable && server.conn.buf.is_empty()))
    }

    /// Passes the response on; true: the connection is free for another request.
    async fn download(
        &mut self,
        duplex: &Duplex<'_>,
        request: &Request,
        tell: &mut Option<oneshot::Sender<Answer>>,
    ) -> Result<bool, Reason> {
        let limits = &duplex.active.settings.limits;
        let mut seen = 0;
        let (content, reusable, queue) = loop {
            let end = {
                let server = duplex.server.borrow();
                response::end(&server.conn.buf, &mut seen)
            };
            let Some(len) = end else {
                if duplex.server.borrow().conn.buf.len() > limits.header {
                    return Err(Reason::ResponseTooLarge);
                }
                match duplex.patient(limits.response_time, duplex.fill(LITTLE)).await {
                    None => return Err(Reason::ResponseTimeout),
                    Some(0) => return Err(Reason::Incomplete),
                    Some(_) => continue,
                }
            };
            let mut server = duplex.server.borrow_mut();
            let asked = Asked { method: request.method, upgrades: false, own: &duplex.active.own };
            let response = response::read(&server.conn.buf[..len], asked)?;
            let (status, content) = (response.status, response.content);
            // A connection that was authenticated as a whole serves this client alone.
            let reusable = response.is_reusable() && !request.binds && !response.binds();
            // hyper has no way to pass interim responses on.
            if status >= 200 {
                let builder = response.http2(&self.worker.date()).ok_or(Reason::BadResponse)?;
                let (queue, pieces) = mpsc::channel(WAITING);
                let body = match content {
                    Content::None => Told::Empty,
                    _ => Told::Pieces(pieces),
                };
                say(tell, builder.body(self.body(body)).map_err(|_| Reason::BadResponse)?);
                self.outcome.status = status;
                self.worker.counters().response(status);
                server.conn.buf.advance(len);
                break (content, reusable, queue);
            }
            server.conn.buf.advance(len);
            seen = 0;
        };
        let whole = self.content(duplex, content, &queue).await;
        self.worker.counters().octets_out.add(self.outcome.octets);
        Ok(whole.is_some() && reusable)
    }

    /// Passes content on; `None`: not all of it, which the client is made to see.
    async fn content(
        &mut self,
        duplex: &Duplex<'_>,
        content: Content,
        queue: &mpsc::Sender<Piece>,
    ) -> Option<()> {
        let idle = duplex.active.settings.limits.idle_time;
        let mut left = match content {
            Content::None => return Some(()),
            Content::Length(length) => length,
            Content::Chunked | Content::Close => u64::MAX,
        };
        let mut chunked = (content == Content::Chunked).then(Chunked::new);
        loop {
            let piece = {
                let buf = &mut duplex.server.borrow_mut().conn.buf;
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
                duplex.patient(idle, queue.send(piece)).await?.ok()?;
                duplex.moved.set(Instant::now());
                continue;
            }
            if let Some(chunked) = chunked.as_ref().filter(|it| it.is_done()) {
                let mut trailers = http::HeaderMap::new();
                for (name, value) in chunked.trailer().ok()? {
                    let name = http::HeaderName::from_bytes(&name).ok()?;
                    trailers.append(name, http::HeaderValue::from_bytes(&value).ok()?);
                }
                if !trailers.is_empty() {
                    duplex.patient(idle, queue.send(Piece::Trailers(trailers))).await?.ok()?;
                }
                break;
            }
            if left == 0 {
                break;
            }
            let filled = tokio::select! {
                biased;
                filled = duplex.patient(idle, duplex.fill(MUCH)) => filled?,
                // The client wants no more.
                () = queue.closed() => return None,
            };
            match filled {
                0 if content == Content::Close => break,
                0 => return None,
                _ => {}
            }
        }
        duplex.patient(idle, queue.send(Piece::End)).await?.ok()
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
        say(tell, http::Response::new(self.body(Told::Empty)));
        let limits = &active.settings.limits;
        let Ok(Ok(upgraded)) = timeout(limits.header_time, upgrading).await else { return };
        let mut client = Conn::new(Stream::Http2(Box::new(TokioIo::new(upgraded))));
        let mut watch = Watch::new(Instant::now() + limits.idle_time);
        let (idle, worker) = (limits.idle_time, &self.worker);
        self.outcome.octets =
            tunnel::run(&mut client, &mut server.conn, &mut watch, idle, worker).await;
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
        let body = Told::Whole(Some(Bytes::from(page)));
        say(tell, answer.body(self.body(body)).unwrap_or_default());
    }

    fn body(&self, content: Told) -> Body {
        Body::of(content, &self.under_way)
    }
}

fn say(tell: &mut Option<oneshot::Sender<Answer>>, answer: Answer) {
    if let Some(tell) = tell.take() {
        // The client has gone away: so does its answer.
        let _ = tell.send(answer);
    }
}
