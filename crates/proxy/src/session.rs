//! A connection of a client, from its first octet to its last.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Buf;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::access::{About, Record};
use super::conn::{Conn, Stream, Watch};
use super::ends::Ends;
use super::exchange::{End, Exchange, Pinned};
use super::http1::Http1;
use super::reason::Reason;
use super::request::{Request, RequestContext};
use super::settings::Mode;
use super::shared::{Active, Held};
use super::worker::Worker;
use super::{head, http2, passthrough};
use fordway_serve::{Network, Ticket, spawn_here};

/// Empty lines that may stand in front of a request (RFC 9112 section 2.2).
const MOST_EMPTY: u32 = 4;
/// How long, and for how many octets, a connection that is closed is still read: a reset would discard what the client
/// has not read yet (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_OCTETS: usize = 256 << 10;
/// How long a new connection may take for its first request once its proxy ends: the request may be on its way, and
/// unlike that of a connection that was used before, no client sends it again by itself (RFC 9112 section 9.3.1).
const FIRST: Duration = Duration::from_secs(2);

/// Serves a connection, if its client may have one more.
pub(super) fn admit(stream: TcpStream, peer: SocketAddr, worker: &Rc<Worker>) {
    let active = worker.active();
    let ends = Ends::of(&stream, peer);
    let is_front = active.settings.accept_proxy.contains(ends.address());
    // Behind a proxy in front there may be any number of client networks; each counts by itself once it is known.
    let Some(ticket) = place(worker, &active, &ends, is_front) else { return };
    worker.counters().connections_accepted.add(1);
    // Writes are whole: Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    spawn_here(serve(stream, ends, Rc::clone(worker), active, ticket, is_front));
}

/// A place among the connections of clients; `is_front`: of a proxy in front, which has no bound of its own.
fn place(worker: &Worker, active: &Active, ends: &Ends, is_front: bool) -> Option<Ticket> {
    let limits = &active.settings.limits;
    let most = if is_front { limits.connections } else { limits.connections_per_client };
    let network = Network::of(ends.address(), limits.client_len);
    let ticket = worker.shared.connections.enter(network, limits.connections, most).ok();
    if ticket.is_none() {
        worker.counters().connections_refused.add(1);
    }
    ticket
}

async fn serve(
    mut stream: TcpStream,
    mut ends: Ends,
    worker: Rc<Worker>,
    active: Rc<Held>,
    mut ticket: Ticket,
    is_front: bool,
) {
    let _guard = worker.client_guard();
    let deadline = Instant::now() + active.settings.limits.header_time;
    let mut watch = Watch::new(deadline);
    if is_front {
        let Some(Ok(told)) = watch.within(deadline, ends.told(&mut stream)).await else {
            worker.counters().proxy_headers_refused.add(1);
            return;
        };
        ends = told;
        drop(ticket);
        let Some(own) = place(&worker, &active, &ends, false) else { return };
        ticket = own;
    }
    let _ticket = ticket;
    if let Mode::Passthrough(passthrough) = &active.settings.mode {
        let conn = Conn::new(Stream::Plain(stream));
        let conn = passthrough::serve(conn, &ends, &worker, &active, passthrough, watch).await;
        if let Some(conn) = conn {
            linger(conn).await;
        }
        return;
    }
    let (stream, is_http2) = match &active.tls {
        None => (Stream::Plain(stream), None),
        Some(tls) => match watch.within(deadline, tls.acceptor.accept(stream)).await {
            Some(Ok(tls)) => {
                let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                (Stream::Tls(Box::new(tls)), Some(is_http2))
            }
            // A client that does not speak TLS can't read an answer of HTTP.
            _ => return,
        },
    };
    drop(active);
    talk(stream, is_http2, watch, ends, worker).await;
}

/// Serves requests, over TLS or not.
async fn talk(
    stream: Stream,
    is_http2: Option<bool>,
    watch: Watch,
    ends: Ends,
    worker: Rc<Worker>,
) {
    let conn = Conn::new(stream);
    let mut session = Session { worker, ends, conn, watch, served: 0, is_http2, pinned: None };
    let end = session.run().await;
    let Session { worker, ends, conn, .. } = session;
    match end {
        Next::Http2 => http2::serve(conn, ends, worker).await,
        Next::Close => linger(conn).await,
        Next::Gone => {}
    }
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Http2,
    Close,
    Gone,
}

struct Session {
    worker: Rc<Worker>,
    ends: Ends,
    conn: Conn,
    watch: Watch,
    /// Requests so far.
    served: u64,
    /// What TLS has negotiated; `None`: the first octets decide.
    is_http2: Option<bool>,
    /// A connection to a server that is this client's alone, and whom it is for.
    pinned: Option<Pinned>,
}

impl Session {
    async fn run(&mut self) -> Next {
        if self.is_http2 == Some(true) {
            return self.preface().await;
        }
        loop {
            let active = self.worker.active();
            if !self.wait(&active).await {
                return Next::Gone;
            }
            // A request is served by the settings of the moment at which it comes.
            let active = self.worker.active();
            let mut record = Record::new(active.log.as_ref());
            let read = match self.read(&active, &mut record.about).await {
                Read::Request(request) => Ok(request),
                Read::Refused(reason) => Err(reason),
                Read::Http2 => return Next::Http2,
                Read::Gone => return Next::Gone,
            };
            self.served += 1;
            self.worker.counters().requests_http1.add(1);
            let last = self.worker.is_draining()
                || self.served >= active.settings.limits.requests
                || self.conn.ended;
            let idle = active.settings.limits.idle_time;
            let exchange = Exchange {
                worker: &self.worker,
                active: &active,
                ends: &self.ends,
                client: Http1::new(&mut self.conn, &mut self.watch, &mut self.pinned, idle),
                last,
                outcome: &mut record.outcome,
            };
            match exchange.run(read).await {
                End::Persists if !self.worker.is_draining() => {}
                End::Persists | End::Close => return Next::Close,
                End::Broken => return Next::Gone,
            }
        }
    }

    /// Waits for what every connection of HTTP/2 begins with (RFC 9113 section 3.4), for as long as for a header section.
    async fn preface(&mut self) -> Next {
        let limits = &self.worker.active().settings.limits;
        let deadline = Instant::now() + limits.header_time;
        while self.conn.buf.len() < head::PREFACE.len() {
            match self.watch.within(deadline, self.conn.fill()).await {
                Some(Ok(1..)) => {}
                _ => return Next::Gone,
            }
        }
        if self.conn.buf.starts_with(head::PREFACE) { Next::Http2 } else { Next::Gone }
    }

    /// Waits for the first octet of a request; false: there will be none.
    async fn wait(&mut self, active: &Active) -> bool {
        let deadline = Instant::now() + active.settings.limits.keep_alive;
        for _ in 0..MOST_EMPTY {
            if self.conn.buf.is_empty() {
                self.conn.release();
                let (worker, conn, is_first) = (&self.worker, &mut self.conn, self.served == 0);
                let filled = self.watch.within(deadline, async {
                    tokio::select! {
                        biased;
                        filled = conn.fill() => filled.unwrap_or(0),
                        () = request_may_come(worker, is_first) => 0,
                    }
                });
                if filled.await.unwrap_or(0) == 0 {
                    return false;
                }
            }
            match self.conn.buf.first() {
                Some(b'\r') if self.conn.buf.len() == 1 || self.conn.buf[1] == b'\n' => {
                    let most = self.conn.buf.len().min(2);
                    if most == 2 {
                        self.conn.buf.advance(2);
                    } else if !matches!(
                        self.watch.within(deadline, self.conn.fill()).await,
                        Some(Ok(1..))
                    ) {
                        return false;
                    }
                }
                _ => break,
            }
        }
        // Further empty lines are read, and refused, as a request.
        true
    }

    /// Reads a request whose first octets are there.
    async fn read(&mut self, active: &Active, about: &mut Option<About>) -> Read {
        let limits = &active.settings.limits;
        let deadline = Instant::now() + limits.header_time;
        let mut seen = 0;
        let len = loop {
            let buf = &self.conn.buf;
            if self.may_be_http2(active) {
                if buf.len() >= head::PREFACE.len() {
                    return Read::Http2;
                }
            } else {
                match head::whole(buf, &mut seen, limits) {
                    Ok(Some(len)) => break len,
                    Ok(None) => {}
                    Err(reason) => return Read::Refused(reason),
                }
            }
            match self.watch.within(deadline, self.conn.fill()).await {
                Some(Ok(1..)) => {}
                Some(_) => return Read::Gone,
                None => return Read::Refused(Reason::HeaderTimeout),
            }
        };
        let context = RequestContext {
            settings: &active.settings,
            own: &active.own,
            client: self.ends.address(),
            tls: self.is_http2.is_some(),
        };
        let read = head::request(&self.conn.buf[..len], context, about);
        self.conn.buf.advance(len);
        match read {
            _ if !active.settings.allow.contains(self.ends.address()) => {
                Read::Refused(Reason::ClientDenied)
            }
            Ok(request) => Read::Request(request),
            Err(reason) => Read::Refused(reason),
        }
    }

    /// Whether the octets are the beginning of HTTP/2 with prior knowledge (RFC 9113 section 3.3).
    fn may_be_http2(&self, active: &Active) -> bool {
        let most = self.conn.buf.len().min(head::PREFACE.len());
        self.served == 0
            && self.is_http2.is_none()
            && active.settings.http2
            && self.conn.buf[..most] == head::PREFACE[..most]
    }
}

enum Read {
    Request(Request),
    Refused(Reason),
    Http2,
    Gone,
}

/// Returns when the proxy ends and no request of the connection is expected any more.
async fn request_may_come(worker: &Worker, is_first: bool) {
    worker.drained().await;
    if is_first {
        tokio::time::sleep(FIRST).await;
    }
}

/// Closes a connection so that the client gets what was written.
async fn linger(mut conn: Conn) {
    let deadline = Instant::now() + LINGER;
    let mut watch = Watch::new(deadline);
    let closing = async {
        if poll_fn(|cx| conn.stream.octets().poll_shutdown(cx)).await.is_err() {
            return;
        }
        let mut octets = conn.buf.len();
        while octets < LINGER_OCTETS {
            conn.buf.clear();
            match conn.fill().await {
                Ok(more @ 1..) => octets += more,
                _ => return,
            }
        }
    };
    watch.within(deadline, closing).await;
}
