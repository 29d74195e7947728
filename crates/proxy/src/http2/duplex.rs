//! A connection to a server that one future writes while another reads.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until};

use super::super::fields::{Delimited, may_trail, put};
use super::super::pool::Server;
use super::super::reason::Reason;
use super::super::relay::append;
use super::super::request::Request;
use super::super::shared::Active;
use super::lines;

/// A connection to a server that one future writes while another reads.
pub(super) struct Duplex<'a> {
    pub(super) server: RefCell<Server>,
    /// When something last came or went.
    pub(super) moved: Cell<Instant>,
    pub(super) active: &'a Active,
}

impl<'a> Duplex<'a> {
    pub(super) fn new(server: Server, active: &'a Active) -> Duplex<'a> {
        Duplex { server: RefCell::new(server), moved: Cell::new(Instant::now()), active }
    }

    pub(super) fn into_server(self) -> Server {
        self.server.into_inner()
    }

    /// The output of `future`; `None` if it is not ready and no octet moves for `time`.
    pub(super) async fn patient<T>(
        &self,
        time: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
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
    pub(super) async fn fill(&self, room: usize) -> usize {
        let filled = poll_fn(|cx| self.server.borrow_mut().conn.poll_fill(cx, room)).await;
        self.moved.set(Instant::now());
        filled.unwrap_or(0)
    }

    /// Sends the request; tells how many octets. `None` as an error: the server does not read.
    pub(super) async fn upload(
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
