//! A connection with the octets that have been read from it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::server::TlsStream;

/// Octets that are read at once where a header section or little content is expected.
pub(super) const LITTLE: usize = 16 << 10;
/// Octets that are read at once of much content.
pub(super) const MUCH: usize = 128 << 10;

/// Buffers that a thread keeps for the next connection that something comes on.
const MOST_SPARE: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// What octets go over.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// What CONNECT is on HTTP/2.
    Http2(Box<TokioIo<Upgraded>>),
    /// For tests whose time passes without sockets.
    #[cfg(test)]
    Memory(tokio::io::DuplexStream),
}

/// Reads and writes octets.
pub(super) trait Octets: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Octets for T {}

impl Stream {
    pub(super) fn octets(&mut self) -> Pin<&mut dyn Octets> {
        match self {
            Stream::Plain(tcp) => Pin::new(tcp),
            Stream::Tls(tls) => Pin::new(tls),
            Stream::Http2(http2) => Pin::new(http2),
            #[cfg(test)]
            Stream::Memory(memory) => Pin::new(memory),
        }
    }
}

/// A connection. Read, as [`AsyncRead`], it gives the octets in `buf` first.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) stream: Stream,
    /// Octets that have come and have not been taken.
    pub(super) buf: BytesMut,
    /// The peer has ended its direction.
    pub(super) ended: bool,
}

impl Conn {
    pub(super) fn new(stream: Stream) -> Conn {
        Conn { stream, buf: BytesMut::new(), ended: false }
    }

    /// Reads what is there, `room` octets at most if there are none yet; 0: the other side has ended.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        if self.buf.capacity() == 0
            && let Some(spare) = SPARE.with_borrow_mut(Vec::pop)
        {
            self.buf = spare;
        }
        if self.buf.capacity() - self.buf.len() < LITTLE {
            self.buf.reserve(room);
        }
        let read = ready!(pin!(self.stream.octets().read_buf(&mut self.buf)).poll(cx))?;
        self.ended = read == 0;
        Poll::Ready(Ok(read))
    }

    /// Reads what is there.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_fill(cx, LITTLE)).await
    }

    /// Gives the memory back while nothing is expected soon.
    pub(super) fn release(&mut self) {
        if self.buf.is_empty() {
            let buf = mem::take(&mut self.buf);
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < MOST_SPARE && (1..=LITTLE).contains(&buf.capacity()) {
                    spare.push(buf);
                }
            });
        }
    }

    /// Writes two pieces, one after the other, as far as there is room; tells how many octets.
    pub(super) fn poll_put(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream.octets();
        let written = match (first, second) {
            (one, []) | ([], one) => ready!(stream.poll_write(cx, one))?,
            _ => {
                let both = [IoSlice::new(first), IoSlice::new(second)];
                ready!(stream.poll_write_vectored(cx, &both))?
            }
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        Poll::Ready(Ok(written))
    }

    /// Has written octets sent; TCP alone holds none back.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            other => other.octets().poll_flush(cx),
        }
    }

    /// Whether a connection that waits has neither ended nor said anything.
    pub(super) fn is_quiet(&self) -> bool {
        let Stream::Plain(tcp) = &self.stream else { return false };
        let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.buf.is_empty() && !self.ended && tcp.try_read(&mut [0]).is_err_and(waits)
    }
}

/// Writes all octets.
pub(super) async fn put_all(conn: &mut Conn, octets: &[u8]) -> io::Result<()> {
    let mut left = octets;
    std::future::poll_fn(|cx| {
        while !left.is_empty() {
            let written = ready!(conn.poll_put(cx, left, &[]))?;
            left = &left[written..];
        }
        conn.poll_flush(cx)
    })
    .await
}

impl AsyncRead for Conn {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.buf.is_empty() {
            let most = this.buf.len().min(out.remaining());
            out.put_slice(&this.buf[..most]);
            this.buf.advance(most);
            return Poll::Ready(Ok(()));
        }
        this.stream.octets().poll_read(cx, out)
    }
}

impl AsyncWrite for Conn {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream.octets().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream.octets().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.octets().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.octets().poll_shutdown(cx)
    }
}

/// One timer for all that a connection waits for. It goes off and looks again, rather than be set anew each time: most
/// of what is waited for comes.
pub(super) struct Watch(Pin<Box<Sleep>>);

impl Watch {
    pub(super) fn new(first: Instant) -> Watch {
        Watch(Box::pin(sleep_until(first)))
    }

    /// Whether it is later than `deadline`; the task wakes when it is.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>, deadline: Instant) -> bool {
        if self.0.deadline() > deadline {
            self.0.as_mut().reset(deadline);
        }
        while self.0.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            self.0.as_mut().reset(deadline);
        }
        false
    }

    /// The output of `future`; `None` if it is not ready by `deadline`.
    pub(super) async fn within<T>(
        &mut self,
        deadline: Instant,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            if self.poll_late(cx, deadline) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}
