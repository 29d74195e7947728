//! One exchange, whatever version of HTTP the client speaks: a request, the server that answers it, and the response.
//!
//! The versions differ in how octets come from the client and go to it: that is a [`Client`], which
//! [`Http1`](super::http1::Http1) and [`Http2`](super::http2::Http2) are.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use tokio::time::Instant;

use super::access::Outcome;
use super::authority::Authority;
use super::conn::{Conn, LITTLE, Watch};
use super::ends::Ends;
use super::pool::Server;
use super::reason::{Answer, Reason};
use super::relay::{Broken, Passed, Relay};
use super::request::{Method, Request};
use super::response::{self, Asked, Response};
use super::settings::Limits;
use super::shared::Active;
use super::tunnel;
use super::worker::Worker;

/// Interim responses (1xx) that a server may send before its final one.
const MOST_INTERIM: u32 = 32;

/// A connection to a server that belongs to one client, and the destination that the client named.
pub(super) type Pinned = (Option<Authority>, Server);

/// The client's side of an exchange.
pub(super) trait Client {
    /// How long the client may send nothing of its content while no response has begun.
    fn upload_time(limits: &Limits) -> Duration;

    /// The timer of this exchange.
    fn watch(&mut self) -> &mut Watch;

    /// Where a connection is kept on which the client has authenticated; `None`: such a connection is closed.
    fn pinned(&mut self) -> Option<&mut Option<Pinned>>;

    /// Sends the request to the server until it would block.
    fn poll_up(&mut self, cx: &mut Context<'_>, up: &mut Relay, server: &mut Conn) -> Passed;

    /// Sends the response to the client until it would block.
    fn poll_down(&mut self, cx: &mut Context<'_>, down: &mut Relay, server: &mut Conn) -> Passed;

    /// Whether the client has disconnected. Called while it has nothing to send and the server is waited for.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool;

    /// Forwards an interim response (RFC 9110 section 15.2) to a client with this minor version.
    async fn interim(&mut self, response: &Response<'_>, minor: u8) -> Result<(), ()>;

    /// Begins the final response: how its content is to be carried, and whether another request may follow, as far as
    /// `persists` says so.
    fn begin(
        &mut self,
        response: &Response<'_>,
        minor: u8,
        persists: bool,
        date: &str,
    ) -> Result<(Relay, bool), Reason>;

    /// Sends an answer of the proxy's own; returns the octets sent. `head`: without its content.
    async fn answer(&mut self, answer: Answer, persists: bool, head: bool) -> Result<u64, ()>;

    /// Accepts CONNECT: what follows are octets for [`Client::tunnel`].
    async fn establish(&mut self) -> Result<(), ()>;

    /// The client's end of a tunnel.
    fn tunnel(&mut self) -> Option<(&mut Conn, &mut Watch)>;
}

/// What an exchange works with.
pub(super) struct Exchange<'a, C> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) active: &'a Active,
    pub(super) ends: &'a Ends,
    pub(super) client: C,
    /// The client may not send another request on this connection.
    pub(super) last: bool,
    pub(super) outcome: &'a mut Outcome,
}

/// What becomes of the client's connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Another request may come.
    Persists,
    /// It is to be closed, once the client has read what was written.
    Close,
    /// It can't be used any more.
    Broken,
}

/// Why an exchange ends before a response has begun.
enum Stop {
    Refused(Reason),
    /// The client has disconnected.
    Gone,
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Stop {
        Stop::Refused(reason)
    }
}

impl<C: Client> Exchange<'_, C> {
    /// Serves a request, or says why it could not be read.
    pub(super) async fn run(mut self, read: Result<Request, Reason>) -> End {
        let request = match read {
            Ok(request) => request,
            Err(reason) => return self.refuse(reason, None).await,
        };
        match self.serve(&request).await {
            Ok(end) => end,
            Err(Stop::Refused(reason)) => self.refuse(reason, Some(&request)).await,
            Err(Stop::Gone) => {
                self.worker.counters().abandoned.add(1);
                End::Broken
            }
        }
    }

    async fn serve(&mut self, request: &Request) -> Result<End, Stop> {
        if request.method == Method::Connect {
            return self.connect(request).await;
        }
        if request.for_us {
            self.worker.counters().response(204);
            let persists = request.keep_alive && !self.last && request.is_bare();
            let answer = Answer::options(&self.worker.date());
            return Ok(self.answer(answer, persists, false).await);
        }
        if request.exceeds(self.active.settings.limits.body) {
            return Err(Reason::BodyTooLarge.into());
        }
        let mut fresh = false;
        loop {
            let server = self.server(request, fresh).await?;
            if let Some(end) = self.ask(server, request).await? {
                return Ok(end);
            }
            self.worker.counters().retried.add(1);
            fresh = true;
        }
    }

    /// A connection to the server: the one that belongs to this client if it fits, else an idle or a new one. `fresh`: a
    /// new one.
    async fn server(&mut self, request: &Request, fresh: bool) -> Result<Server, Stop> {
        let (worker, active) = (self.worker, self.active);
        let pinned = self.client.pinned().and_then(Option::take).filter(|(whose, server)| {
            !fresh
                && *whose == request.to
                && server.generation == active.generation
                && server.conn.is_quiet()
        });
        let server = match pinned {
            Some((_, server)) => server,
            None => self.unless_gone(worker.server(active, self.ends, request, fresh)).await?,
        };
        self.outcome.server = Some(server.address);
        Ok(server)
    }

    /// Sends the request and forwards the response; `None`: the request is to be sent again, by a new connection.
    async fn ask(&mut self, mut server: Server, request: &Request) -> Result<Option<End>, Stop> {
        let (worker, active) = (self.worker, self.active);
        let mut up =
            Relay::request(request.head.clone(), request.delimited, active.settings.limits.body);
        let asked = Asked { method: request.method, upgrades: request.upgrades, own: &active.own };
        let (mut interim, mut seen) = (0, 0);
        let (status, reusable, (mut down, persists)) = loop {
            let Some(len) = self.head(&mut server, &mut up, &mut seen).await? else {
                // RFC 9112 section 9.3.1: an idle connection may have ended meanwhile. Then the server has not seen the
                // request, and one that may be repeated does no harm if it has.
                let again = server.reused && interim == 0 && request.can_be_repeated();
                return if again { Ok(None) } else { Err(Reason::Incomplete.into()) };
            };
            let response = response::read(&server.conn.buf[..len], asked)?;
            let status = response.status;
            if status >= 200 || status == 101 {
                // Content that the client has not sent yet would be taken for its next request.
                let persists = request.keep_alive && !self.last && up.has_taken_all();
                let reusable = response.is_reusable();
                let binds = request.binds || response.binds();
                let begun =
                    self.client.begin(&response, request.minor, persists, &worker.date())?;
                server.bound |= binds;
                server.conn.buf.advance(len);
                break (status, reusable, begun);
            }
            if interim == MOST_INTERIM {
                return Err(Reason::BadResponse.into());
            }
            let forwarded = self.client.interim(&response, request.minor).await;
            forwarded.map_err(|()| Stop::Gone)?;
            server.conn.buf.advance(len);
            (interim, seen) = (interim + 1, 0);
        };
        let counters = worker.counters();
        self.outcome.status = status;
        counters.response(status);
        let carried = self.carry(&mut server, &mut up, &mut down).await;
        counters.octets_in.add(up.octets);
        counters.octets_out.add(down.octets);
        self.outcome.octets = down.octets;
        if let Err(reason) = carried {
            self.outcome.reason = reason;
            // The client must not take what it has for all.
            return Ok(Some(End::Broken));
        }
        if status == 101 {
            self.tunnel(&mut server.conn).await;
            return Ok(Some(End::Broken));
        }
        if reusable && up.is_done() && server.conn.buf.is_empty() {
            if !server.bound {
                worker.keep(server);
            } else if let Some(pinned) = self.client.pinned() {
                server.reused = true;
                *pinned = Some((request.to.clone(), server));
            }
        }
        Ok(Some(if persists && up.is_done() { End::Persists } else { End::Close }))
    }

    /// Sends the request, and waits for the header section of a response, whose length it returns: either may come
    /// first. `None`: the server has closed the connection without a response.
    async fn head(
        &mut self,
        server: &mut Server,
        up: &mut Relay,
        seen: &mut usize,
    ) -> Result<Option<usize>, Stop> {
        let limits = &self.active.settings.limits;
        let upload_time = C::upload_time(limits);
        let client = &mut self.client;
        let mut deadline = Instant::now() + limits.response_time;
        let mut broken = false;
        let refused = |reason| Poll::Ready(Err(Stop::Refused(reason)));
        poll_fn(|cx| {
            if !broken
                && !up.is_done()
                && let Poll::Ready(Err(error)) = client.poll_up(cx, up, &mut server.conn)
            {
                match error {
                    Broken::From => return Poll::Ready(Err(Stop::Gone)),
                    Broken::Coding => return refused(Reason::Framing),
                    Broken::TooLarge => return refused(Reason::BodyTooLarge),
                    // The server may have said why before it stopped reading.
                    Broken::To => broken = true,
                }
            }
            loop {
                match response::end(&server.conn.buf, seen) {
                    Some(len) if len <= limits.header => return Poll::Ready(Ok(Some(len))),
                    None if server.conn.buf.len() <= limits.header => {}
                    _ => return refused(Reason::ResponseTooLarge),
                }
                match server.conn.poll_fill(cx, LITTLE) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) if server.conn.buf.is_empty() => return Poll::Ready(Ok(None)),
                    Poll::Ready(_) => return refused(Reason::Incomplete),
                    Poll::Pending => break,
                }
            }
            if up.moved {
                up.moved = false;
                let time = if up.is_done() { limits.response_time } else { upload_time };
                deadline = Instant::now() + time;
            }
            if up.is_done() && client.poll_gone(cx) {
                return Poll::Ready(Err(Stop::Gone));
            }
            match client.watch().poll_late(cx, deadline) {
                true if !up.is_done() && up.waits_for_source && upload_time == limits.idle_time => {
                    refused(Reason::BodyTimeout)
                }
                true => refused(Reason::ResponseTimeout),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Carries the content of the response until its end, and the rest of the request beside it. An error: it was cut,
    /// with the reason if the request is to blame.
    async fn carry(
        &mut self,
        server: &mut Server,
        up: &mut Relay,
        down: &mut Relay,
    ) -> Result<(), Option<Reason>> {
        let idle = self.active.settings.limits.idle_time;
        let client = &mut self.client;
        let mut deadline = Instant::now() + idle;
        let mut uploads = !up.is_done();
        poll_fn(|cx| {
            if uploads && let Poll::Ready(done) = client.poll_up(cx, up, &mut server.conn) {
                // A server that has answered may well read no more.
                uploads = false;
                match done {
                    Ok(()) | Err(Broken::To) => {}
                    Err(Broken::From) => return Poll::Ready(Err(None)),
                    Err(Broken::Coding) => return Poll::Ready(Err(Some(Reason::Framing))),
                    Err(Broken::TooLarge) => return Poll::Ready(Err(Some(Reason::BodyTooLarge))),
                }
            }
            if let Poll::Ready(done) = client.poll_down(cx, down, &mut server.conn) {
                return Poll::Ready(done.map_err(|_| None));
            }
            if up.moved || down.moved {
                (up.moved, down.moved) = (false, false);
                deadline = Instant::now() + idle;
            }
            if !uploads && client.poll_gone(cx) {
                return Poll::Ready(Err(None));
            }
            match client.watch().poll_late(cx, deadline) {
                true if !uploads => Poll::Ready(Err(None)),
                true if up.waits_for_source => Poll::Ready(Err(Some(Reason::BodyTimeout))),
                true => Poll::Ready(Err(Some(Reason::ResponseTimeout))),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// The output of `future`, unless the client disconnects first.
    async fn unless_gone<T>(
        &mut self,
        future: impl Future<Output = Result<T, Reason>>,
    ) -> Result<T, Stop> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done.map_err(Stop::Refused)),
            Poll::Pending if self.client.poll_gone(cx) => Poll::Ready(Err(Stop::Gone)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    async fn connect(&mut self, request: &Request) -> Result<End, Stop> {
        let mut server = self.server(request, true).await?;
        self.outcome.status = 200;
        self.worker.counters().response(200);
        if self.client.establish().await.is_ok() {
            self.tunnel(&mut server.conn).await;
        }
        Ok(End::Broken)
    }

    async fn tunnel(&mut self, server: &mut Conn) {
        let idle = self.active.settings.limits.idle_time;
        if let Some((client, watch)) = self.client.tunnel() {
            self.outcome.octets += tunnel::run(client, server, watch, idle, self.worker).await;
        }
    }

    /// Answers with an error of the proxy's own; `request`: the one that was read.
    async fn refuse(&mut self, reason: Reason, request: Option<&Request>) -> End {
        self.worker.counters().refused(reason);
        self.outcome.reason = Some(reason);
        // HTTP/1.0 is not told more than it asks for.
        let persists = request.is_some_and(|it| it.keep_alive && it.minor > 0 && it.is_bare())
            && !self.last
            && !reason.ends_connection();
        let head = request.is_some_and(|it| it.method == Method::Head);
        let answer = reason.answer(&self.active.own, &self.worker.date());
        self.answer(answer, persists, head).await
    }

    async fn answer(&mut self, answer: Answer, persists: bool, head: bool) -> End {
        self.outcome.status = answer.status;
        match self.client.answer(answer, persists, head).await {
            Ok(octets) => {
                self.outcome.octets = octets;
                if persists { End::Persists } else { End::Close }
            }
            Err(()) => End::Broken,
        }
    }
}
