//! A client that speaks HTTP/1.x.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::conn::{Conn, LITTLE, Watch, put_all};
use super::exchange::{Client, Pinned};
use super::reason::{Answer, Reason};
use super::relay::{Passed, Relay};
use super::response::Response;
use super::settings::Limits;

/// How long a client that has ended its direction is still expected to read the answer: most such clients have gone.
pub(super) const HALF_CLOSED: Duration = Duration::from_secs(5);

/// A client's connection during one exchange.
pub(super) struct Http1<'a> {
    conn: &'a mut Conn,
    watch: &'a mut Watch,
    pinned: &'a mut Option<Pinned>,
    /// Time in which the client takes an answer of the proxy's own.
    idle: Duration,
    /// Until when a client that has ended its direction is waited for.
    half_closed: Option<Instant>,
}

impl<'a> Http1<'a> {
    pub(super) fn new(
        conn: &'a mut Conn,
        watch: &'a mut Watch,
        pinned: &'a mut Option<Pinned>,
        idle: Duration,
    ) -> Http1<'a> {
        Http1 { conn, watch, pinned, idle, half_closed: None }
    }

    /// Writes octets, within the idle time.
    async fn write(&mut self, out: &[u8]) -> Result<(), ()> {
        let deadline = Instant::now() + self.idle;
        let written = self.watch.within(deadline, put_all(self.conn, out)).await;
        written.ok_or(())?.map_err(drop)
    }

    /// A client that sends or takes octets is there.
    fn moves(&mut self, relay: &Relay) {
        if relay.moved {
            self.half_closed = None;
        }
    }
}

impl Client for Http1<'_> {
    fn upload_time(limits: &Limits) -> Duration {
        limits.idle_time
    }

    fn watch(&mut self) -> &mut Watch {
        self.watch
    }

    fn pinned(&mut self) -> Option<&mut Option<Pinned>> {
        Some(self.pinned)
    }

    fn poll_up(&mut self, cx: &mut Context<'_>, up: &mut Relay, server: &mut Conn) -> Passed {
        let result = up.poll(cx, self.conn, server);
        self.moves(up);
        result
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, down: &mut Relay, server: &mut Conn) -> Passed {
        let result = down.poll(cx, server, self.conn);
        self.moves(down);
        result
    }

    /// A client has gone if it has reset the connection, or ended its direction some time ago. RFC 9112 section 9.5: the
    /// end of a connection is acted on.
    ///
    /// The end of a direction alone does not tell a client that has gone from one that has sent everything and still
    /// reads. So such a client is waited for a while: as long as it usually needs, and much less than a server may take.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        // What comes is the client's next request: so much of it is read in advance.
        while !self.conn.ended && self.conn.buf.len() < LITTLE {
            match self.conn.poll_fill(cx, LITTLE) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return true,
                Poll::Pending => return false,
            }
        }
        if !self.conn.ended {
            return false;
        }
        let until = *self.half_closed.get_or_insert_with(|| Instant::now() + HALF_CLOSED);
        self.watch.poll_late(cx, until)
    }

    async fn interim(&mut self, response: &Response<'_>, minor: u8) -> Result<(), ()> {
        // HTTP/1.0 has no interim responses.
        if minor == 0 {
            return Ok(());
        }
        let mut out = BytesMut::new();
        response.http1(minor, true, "", &mut out);
        self.write(&out).await
    }

    fn begin(
        &mut self,
        response: &Response<'_>,
        minor: u8,
        persists: bool,
        date: &str,
    ) -> Result<(Relay, bool), Reason> {
        let mut out = BytesMut::new();
        let persists = response.http1(minor, persists && !self.conn.ended, date, &mut out);
        Ok((Relay::response(out, response.content, minor > 0), persists))
    }

    async fn answer(&mut self, answer: Answer, persists: bool, head: bool) -> Result<u64, ()> {
        let octets = answer.http1(!persists, head);
        self.write(&octets).await.map(|()| octets.len() as u64)
    }

    async fn establish(&mut self) -> Result<(), ()> {
        // RFC 9110 section 9.3.6: no content, and no field about any.
        self.write(b"HTTP/1.1 200 Connection established\r\n\r\n").await
    }

    fn tunnel(&mut self) -> Option<(&mut Conn, &mut Watch)> {
        Some((self.conn, self.watch))
    }
}
