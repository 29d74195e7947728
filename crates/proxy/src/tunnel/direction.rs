//! One direction of a tunnel.
//!
//! Small amounts are copied: one call reads, another writes. Large amounts between plain TCP sockets go through a pipe
//! without a copy, which takes one more call at the end.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::super::conn::{Conn, LITTLE, Stream};
use fordway_serve::pipe::{Pipes, Splice, TURN};

/// Octets that are copied where the pipe takes none.
const FEW: usize = 4096;

/// State of one direction.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// The last read returned much.
    bulk: bool,
    /// Octets that were read and not written yet.
    splice: Splice,
    /// The sender has ended the direction.
    ended: bool,
    /// The end was forwarded to the receiver.
    done: bool,
    octets: u64,
    taken: u64,
}

/// One side has failed.
#[derive(Debug)]
pub(super) struct Broken;

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Broken {
        Broken
    }
}

impl Direction {
    /// Octets that were forwarded.
    pub(super) fn octets(&self) -> u64 {
        self.octets
    }

    /// Octets read and written; grows with every progress.
    pub(super) fn moved(&self) -> u64 {
        self.octets + self.taken
    }

    /// Passes on octets until it would block; ready when the direction has ended.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Conn,
        pipes: &RefCell<Pipes>,
    ) -> Poll<Result<(), Broken>> {
        let result = self.pump(cx, from, to, pipes);
        // A direction that waits needs no pipe.
        self.splice.return_pipe(&mut pipes.borrow_mut());
        result
    }

    fn pump(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Conn,
        pipes: &RefCell<Pipes>,
    ) -> Poll<Result<(), Broken>> {
        let most = self.octets + TURN;
        while !self.done {
            if self.octets >= most {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // The request's header section may have had octets behind it; they come first.
            if !from.buf.is_empty() {
                let put = ready!(to.poll_put(cx, &from.buf, &[]))?;
                from.buf.advance(put);
                self.octets += put as u64;
            } else if self.splice.held() > 0 {
                ready!(self.give(cx, to))?;
            } else if self.ended {
                // Half-close: the other direction may go on.
                let _ = ready!(to.stream.octets().poll_shutdown(cx));
                self.done = true;
            } else {
                // What TLS has held back must not wait for the sender.
                ready!(to.poll_flush(cx))?;
                ready!(self.take(cx, from, to, pipes))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what there is.
    fn take(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &Conn,
        pipes: &RefCell<Pipes>,
    ) -> Poll<Result<(), Broken>> {
        if self.bulk
            && let (Stream::Plain(tcp), Stream::Plain(_)) = (&from.stream, &to.stream)
            && self.splice.borrow_pipe(&mut pipes.borrow_mut())
        {
            ready!(tcp.poll_read_ready(cx))?;
            let mut few = [0; FEW];
            // A pipe takes nothing in front of urgent data, as if there were nothing, or no more.
            let taken = ready_or_not(tcp, Interest::READABLE, || match self.splice.read(tcp) {
                Ok(0) | Err(Errno::AGAIN) => {
                    let (_, count) = recv(tcp, &mut few[..], RecvFlags::DONTWAIT)?;
                    Ok(Taken::Copied(count))
                }
                other => other.map(Taken::Held),
            })?;
            match taken {
                Some(Taken::Held(count)) => {
                    self.taken += count as u64;
                    self.bulk = count >= LITTLE;
                }
                Some(Taken::Copied(count)) => {
                    from.buf.extend_from_slice(&few[..count]);
                    self.ended = count == 0;
                    self.taken += count as u64;
                    self.bulk = false;
                }
                None => {}
            }
            return Poll::Ready(Ok(()));
        }
        let count = ready!(from.poll_fill(cx, LITTLE))?;
        self.ended = count == 0;
        self.taken += count as u64;
        self.bulk = count >= LITTLE;
        Poll::Ready(Ok(()))
    }

    /// Gives what is held.
    fn give(&mut self, cx: &mut Context<'_>, to: &Conn) -> Poll<Result<(), Broken>> {
        let Stream::Plain(tcp) = &to.stream else { return Poll::Ready(Err(Broken)) };
        ready!(tcp.poll_write_ready(cx))?;
        let given = ready_or_not(tcp, Interest::WRITABLE, || self.splice.write(tcp))?;
        if let Some(count) = given {
            self.octets += count as u64;
        }
        Poll::Ready(Ok(()))
    }
}

/// What was taken: it is in the pipe, or was copied.
enum Taken {
    Held(usize),
    Copied(usize),
}

/// The result; `None`: the socket is not ready after all, and the task will be woken.
fn ready_or_not<T>(
    tcp: &TcpStream,
    interest: Interest,
    call: impl FnOnce() -> Result<T, Errno>,
) -> io::Result<Option<T>> {
    match tcp.try_io(interest, || call().map_err(io::Error::from)) {
        Ok(done) => Ok(Some(done)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}
