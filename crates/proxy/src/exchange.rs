//! A request of an HTTP/1.x client, and its response.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::Instant;

use super::access::Outcome;
use super::authority::Authority;
use super::conn::{Conn, LITTLE, Watch};
use super::fields::Delimited;
use super::pool::Server;
use super::reason::{ALLOW, Reason};
use super::relay::{Broken, Relay};
use super::request::{Method, Request};
use super::response::{self, Asked};
use super::shared::Active;
use super::tunnel;
use super::worker::Worker;

/// Interim responses (1xx) that a server may send before its final one.
const MOST_INTERIM: u32 = 32;

/// How long a client that has ended its direction is still taken for one that waits for its answer: most have gone.
pub(super) const HALF_CLOSED: Duration = Duration::from_secs(5);

/// What an exchange works with.
pub(super) struct Exchange<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) active: &'a Active,
    pub(super) client: &'a mut Conn,
    pub(super) client_address: std::net::IpAddr,
    pub(super) watch: &'a mut Watch,
    /// The client may not send another request on this connection.
    pub(super) last: bool,
    /// A connection to a server that is this client's alone, and whom it was for.
    pub(super) pinned: &'a mut Option<(Option<Authority>, Server)>,
    /// Until when a client that has ended its direction is waited for.
    pub(super) half_closed: Option<Instant>,
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

/// Outcome of waiting for a response.
enum Head {
    /// Its header section is there: so many octets.
    There(usize),
    /// The server has ended without one.
    Closed,
    Refused(Reason),
    /// The client is gone.
    Gone,
}

impl Exchange<'_> {
    /// Serves a request.
    pub(super) async fn run(mut self, request: Request, outcome: &mut Outcome) -> End {
        if request.method == Method::Connect {
            return self.connect(&request, outcome).await;
        }
        if request.for_us {
            return self.answer_options(&request, outcome).await;
        }
        let most = self.active.settings.limits.body;
        if request.exceeds(most) {
            return self.refuse(Reason::BodyTooLarge, &request, outcome).await;
        }
        let mut fresh = false;
        loop {
            let to = request.to.as_ref();
            let server = match self.pinned(to).filter(|_| !fresh) {
                Some(server) => Ok(server),
                None => {
                    let (worker, active) = (self.worker, self.active);
                    let found = worker.server(active, self.client_address, to, fresh);
                    match self.while_there(found).await {
                        Some(found) => found,
                        None => return self.gone(),
                    }
                }
            };
            let mut server = match server {
                Ok(server) => server,
                Err(reason) => return self.refuse(reason, &request, outcome).await,
            };
            outcome.server = Some(server.address);
            let mut up = Relay::request(request.head.clone(), request.delimited, most);
            let (mut interim, mut seen) = (0, 0);
            let head = loop {
                match self.head(&mut server, &mut up, &mut seen).await {
                    Head::There(len) => match self.interim(&mut server, &request, len).await {
                        Some(Ok(())) if interim < MOST_INTERIM => {
                            (interim, seen) = (interim + 1, 0);
                        }
                        Some(Ok(())) => break Head::Refused(Reason::BadResponse),
                        Some(Err(())) => break Head::Gone,
                        None => break Head::There(len),
                    },
                    other => break other,
                }
            };
            match head {
                Head::There(len) => {
                    return self.respond(server, up, &request, len, outcome).await;
                }
                Head::Closed => {
                    // RFC 9112 section 9.3.1: it may have ended while it waited; the server has seen nothing, or does
                    // not mind to see it again.
                    if server.reused && interim == 0 && request.can_be_repeated() {
                        self.worker.counters().retried.add(1);
                        fresh = true;
                        continue;
                    }
                    return self.refuse(Reason::Incomplete, &request, outcome).await;
                }
                Head::Refused(reason) => return self.refuse(reason, &request, outcome).await,
                Head::Gone => return self.gone(),
            }
        }
    }

    /// Sends the request, and waits for the header section of a response: either may come first.
    async fn head(&mut self, server: &mut Server, up: &mut Relay, seen: &mut usize) -> Head {
        let limits = &self.active.settings.limits;
        let mut deadline = Instant::now() + limits.response_time;
        let mut broken = None;
        poll_fn(|cx| {
            if broken.is_none()
                && !up.is_done()
                && let Poll::Ready(Err(error)) = up.poll(cx, self.client, &mut server.conn)
            {
                match error {
                    Broken::From => return Poll::Ready(Head::Gone),
                    Broken::Coding => return Poll::Ready(Head::Refused(Reason::Framing)),
                    Broken::TooLarge => return Poll::Ready(Head::Refused(Reason::BodyTooLarge)),
                    // The server may have said why before it stopped reading.
                    Broken::To => broken = Some(error),
                }
            }
            loop {
                if let Some(len) = response::end(&server.conn.buf, seen) {
                    return Poll::Ready(match len > limits.header {
                        true => Head::Refused(Reason::ResponseTooLarge),
                        false => Head::There(len),
                    });
                }
                if server.conn.buf.len() > limits.header {
                    return Poll::Ready(Head::Refused(Reason::ResponseTooLarge));
                }
                match server.conn.poll_fill(cx, LITTLE) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) if server.conn.buf.is_empty() => {
                        return Poll::Ready(Head::Closed);
                    }
                    Poll::Ready(_) => return Poll::Ready(Head::Refused(Reason::Incomplete)),
                    Poll::Pending => break,
                }
            }
            if up.moved {
                up.moved = false;
                let time = if up.is_done() { limits.response_time } else { limits.idle_time };
                deadline = Instant::now() + time;
            }
            if up.is_done() && self.poll_gone(cx) {
                return Poll::Ready(Head::Gone);
            }
            match self.watch.poll_late(cx, deadline) {
                true if !up.is_done() && up.waits_for_source => {
                    Poll::Ready(Head::Refused(Reason::BodyTimeout))
                }
                true => Poll::Ready(Head::Refused(Reason::ResponseTimeout)),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Passes an interim response on (RFC 9110 section 15.2); `None`: it is the final one, or 101.
    async fn interim(
        &mut self,
        server: &mut Server,
        request: &Request,
        len: usize,
    ) -> Option<Result<(), ()>> {
        let octets = &server.conn.buf[..len];
        let interim = response::read(octets, asked(self.active, request)).ok()?;
        if !(100..=199).contains(&interim.status) || interim.status == 101 {
            return None;
        }
        let mut out = BytesMut::new();
        interim.http1(request.minor, true, "", &mut out);
        server.conn.buf.advance(len);
        // HTTP/1.0 knows none.
        Some(if request.minor == 0 { Ok(()) } else { self.write(&mut out).await })
    }

    /// Passes the final response on, with the rest of the request beside it.
    async fn respond(
        &mut self,
        mut server: Server,
        mut up: Relay,
        request: &Request,
        len: usize,
        outcome: &mut Outcome,
    ) -> End {
        let counters = self.worker.counters();
        let response = match response::read(&server.conn.buf[..len], asked(self.active, request)) {
            Ok(response) => response,
            Err(reason) => return self.refuse(reason, request, outcome).await,
        };
        let status = response.status;
        // Content that the client has not sent yet would be taken for its next request.
        let persists = request.keep_alive && !self.last && up.has_taken_all() && !self.client.ended;
        let mut out = BytesMut::with_capacity(len + 128);
        let mut persists = response.http1(request.minor, persists, &self.worker.date(), &mut out);
        let reusable = response.is_reusable();
        server.bound |= request.binds || response.binds();
        let mut down = Relay::response(out, response.content, request.minor > 0);
        server.conn.buf.advance(len);
        outcome.status = status;
        counters.response(status);
        let done = self.carry(&mut server, &mut up, &mut down).await;
        counters.octets_in.add(up.octets);
        counters.octets_out.add(down.octets);
        outcome.octets = down.octets;
        if !done {
            // The client must not take what it has for all.
            return End::Broken;
        }
        if status == 101 {
            self.tunnel(&mut server.conn, outcome).await;
            return End::Broken;
        }
        persists &= up.is_done();
        if reusable && up.is_done() && server.conn.buf.is_empty() {
            if server.bound {
                server.reused = true;
                *self.pinned = Some((request.to.clone(), server));
            } else {
                self.worker.keep(server);
            }
        }
        if persists { End::Persists } else { End::Close }
    }

    /// The connection on which the client has shown who it is, if it is to the same server and of use.
    fn pinned(&mut self, to: Option<&Authority>) -> Option<Server> {
        let (whose, server) = self.pinned.take()?;
        let fits = whose.as_ref() == to
            && server.generation == self.active.generation
            && server.conn.is_quiet();
        fits.then_some(server)
    }

    /// Carries the content of the response until its end; false: it has none.
    async fn carry(&mut self, server: &mut Server, up: &mut Relay, down: &mut Relay) -> bool {
        let idle = self.active.settings.limits.idle_time;
        let mut deadline = Instant::now() + idle;
        let mut uploads = !up.is_done();
        poll_fn(|cx| {
            if uploads && let Poll::Ready(done) = up.poll(cx, self.client, &mut server.conn) {
                // A server that has answered may well read no more.
                uploads = false;
                if matches!(done, Err(Broken::From | Broken::Coding | Broken::TooLarge)) {
                    return Poll::Ready(false);
                }
            }
            if let Poll::Ready(done) = down.poll(cx, &mut server.conn, self.client) {
                return Poll::Ready(done.is_ok());
            }
            if up.moved || down.moved {
                (up.moved, down.moved) = (false, false);
                deadline = Instant::now() + idle;
                // Who takes octets is there.
                self.half_closed = None;
            }
            if !uploads && self.poll_gone(cx) {
                return Poll::Ready(false);
            }
            if self.watch.poll_late(cx, deadline) { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }

    /// Whether the client has gone while somebody else is waited for: it has reset the connection, or ended its direction
    /// some time ago. RFC 9112 section 9.5: who sees the end of a connection acts on it.
    ///
    /// An end alone does not tell a client that has gone from one that has said all and reads on. So it may still wait
    /// for a while, which is as long as such clients usually need, and much less than a server may take.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        // What comes is the client's next request: so much of it is read in advance.
        while !self.client.ended && self.client.buf.len() < LITTLE {
            match self.client.poll_fill(cx, LITTLE) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return true,
                Poll::Pending => return false,
            }
        }
        if !self.client.ended {
            return false;
        }
        let until = *self.half_closed.get_or_insert_with(|| Instant::now() + HALF_CLOSED);
        self.watch.poll_late(cx, until)
    }

    /// The output of `future`; `None` if the client disconnects first.
    async fn while_there<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.poll_gone(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn gone(&self) -> End {
        self.worker.counters().abandoned.add(1);
        End::Broken
    }

    async fn connect(&mut self, request: &Request, outcome: &mut Outcome) -> End {
        let (worker, active) = (self.worker, self.active);
        let far_end = worker.far_end(active, self.client_address, request.to.as_ref());
        let Some(far_end) = self.while_there(far_end).await else { return self.gone() };
        let mut server = match far_end {
            Ok(server) => server,
            Err(reason) => return self.refuse(reason, request, outcome).await,
        };
        outcome.server = Some(server.address);
        outcome.status = 200;
        self.worker.counters().response(200);
        // RFC 9110 section 9.3.6: no content, and no field about any.
        let mut out = BytesMut::from(&b"HTTP/1.1 200 Connection established\r\n\r\n"[..]);
        if self.write(&mut out).await.is_ok() {
            self.tunnel(&mut server.conn, outcome).await;
        }
        End::Broken
    }

    async fn tunnel(&mut self, server: &mut Conn, outcome: &mut Outcome) {
        let idle = self.active.settings.limits.idle_time;
        outcome.octets += tunnel::run(self.client, server, self.watch, idle, self.worker).await;
    }

    /// Answers OPTIONS for the proxy itself (RFC 9110 section 9.3.7).
    async fn answer_options(&mut self, request: &Request, outcome: &mut Outcome) -> End {
        let bare = matches!(request.delimited, Delimited::Not | Delimited::Length(0));
        let persists = request.keep_alive && !self.last && bare;
        let close = if persists { "" } else { "Connection: close\r\n" };
        let date = self.worker.date();
        let answer =
            format!("HTTP/1.1 204 No Content\r\nDate: {date}\r\nAllow: {ALLOW}\r\n{close}\r\n");
        outcome.status = 204;
        self.worker.counters().response(204);
        match self.write(&mut BytesMut::from(answer.as_bytes())).await {
            Ok(()) if persists => End::Persists,
            Ok(()) => End::Close,
            Err(()) => End::Broken,
        }
    }

    /// Answers with an error of the proxy's own.
    async fn refuse(&mut self, reason: Reason, request: &Request, outcome: &mut Outcome) -> End {
        let bare = matches!(request.delimited, Delimited::Not | Delimited::Length(0));
        // HTTP/1.0 is not told more than it asks for.
        let persists = request.keep_alive
            && request.minor > 0
            && !self.last
            && bare
            && !reason.ends_connection();
        match self.answer(reason, !persists, request.method == Method::Head, outcome).await {
            Ok(()) if persists => End::Persists,
            Ok(()) => End::Close,
            Err(()) => End::Broken,
        }
    }

    /// Writes an error of the proxy's own.
    pub(super) async fn answer(
        &mut self,
        reason: Reason,
        close: bool,
        head: bool,
        outcome: &mut Outcome,
    ) -> Result<(), ()> {
        self.worker.counters().refused(reason);
        let answer = reason.answer(&self.active.own, &self.worker.date(), close, head);
        *outcome = Outcome {
            status: reason.status(),
            octets: answer.len() as u64,
            reason: Some(reason),
            ..*outcome
        };
        self.write(&mut BytesMut::from(&answer[..])).await
    }

    /// Writes octets to the client, within the idle time.
    async fn write(&mut self, out: &mut BytesMut) -> Result<(), ()> {
        let deadline = Instant::now() + self.active.settings.limits.idle_time;
        let client = &mut *self.client;
        let writing = poll_fn(|cx| {
            while !out.is_empty() {
                match client.poll_put(cx, out, &[]) {
                    Poll::Ready(Ok(written)) => out.advance(written),
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(())),
                    Poll::Pending => return Poll::Pending,
                }
            }
            client.poll_flush(cx).map_err(drop)
        });
        self.watch.within(deadline, writing).await.unwrap_or(Err(()))
    }
}

/// What a response to this request answers.
fn asked<'a>(active: &'a Active, request: &Request) -> Asked<'a> {
    Asked { method: request.method, upgrades: request.upgrades, own: &active.own }
}
