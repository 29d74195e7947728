//! The content of a message, from where it comes to where it goes.

use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};

use super::chunked::{Chunked, Field};
use super::conn::{Conn, LITTLE, MUCH};
use super::fields::{Delimited, put};
use super::response::Content;

/// Octets in front of content that are copied together with it rather than sent apart.
const WAITING: usize = 64 << 10;

/// How the end of the content is found.
#[derive(Debug)]
enum Source {
    /// The octets that are still to come.
    Length(u64),
    Chunked(Chunked),
    /// All until the other side ends.
    Close,
}

/// Why content can't be passed on.
#[derive(Debug)]
pub(super) enum Broken {
    /// Reading failed, or ended too early.
    From,
    /// Writing failed.
    To,
    /// It is not in the coding that it says.
    Coding,
    /// It is larger than allowed.
    TooLarge,
}

/// The end of a direction.
pub(super) type Passed = Poll<Result<(), Broken>>;

/// Where content comes from: a connection, or the frames of HTTP/2.
pub(super) trait Origin {
    /// Octets that have come and are still in the coding of the message.
    fn buf(&mut self) -> &mut BytesMut;

    /// Waits for more: octets in [`Origin::buf`], content that is [added](Relay::add), or the [end](Relay::finish).
    fn poll_more(&mut self, cx: &mut Context<'_>, relay: &mut Relay) -> Passed;
}

/// Where content goes: a connection, or the frames of HTTP/2.
pub(super) trait Sink {
    /// Passes on some of what is there; `false`: nothing is.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        relay: &mut Relay,
        from: &mut BytesMut,
    ) -> Poll<Result<bool, Broken>>;

    /// Has everything sent that was passed on, and the end of the content if that has come.
    fn poll_flush(&mut self, cx: &mut Context<'_>, relay: &mut Relay) -> Passed;
}

/// The header section that is to be written, and the content behind it.
#[derive(Debug)]
pub(super) struct Relay {
    /// What is written next, in front of any content that is still with its reader.
    pub(super) out: BytesMut,
    source: Source,
    /// The content is written in chunks.
    chunks: bool,
    /// All has been taken, and what ends the content is in `out`.
    all: bool,
    /// How many octets of content may still come.
    room: u64,
    /// Octets written.
    pub(super) octets: u64,
    /// Something came or went since this was last set to false.
    pub(super) moved: bool,
    /// Whether the last thing waited for was the reader's side.
    pub(super) waits_for_source: bool,
}

impl Relay {
    /// A request.
    pub(super) fn request(head: BytesMut, delimited: Delimited, most: Option<u64>) -> Relay {
        let source = match delimited {
            Delimited::Not => Source::Length(0),
            Delimited::Length(length) => Source::Length(length),
            Delimited::Chunked => Source::Chunked(Chunked::new()),
        };
        let chunks = delimited == Delimited::Chunked;
        Relay { room: most.unwrap_or(u64::MAX), ..Relay::new(head, source, chunks) }
    }

    /// A response; `chunks`: the client takes chunks.
    pub(super) fn response(head: BytesMut, content: Content, chunks: bool) -> Relay {
        let (source, chunks) = match content {
            Content::None => (Source::Length(0), false),
            Content::Length(length) => (Source::Length(length), false),
            Content::Chunked => (Source::Chunked(Chunked::new()), chunks),
            Content::Close => (Source::Close, chunks),
        };
        Relay::new(head, source, chunks)
    }

    fn new(out: BytesMut, source: Source, chunks: bool) -> Relay {
        let all = matches!(source, Source::Length(0));
        Relay {
            out,
            source,
            chunks,
            all,
            room: u64::MAX,
            octets: 0,
            moved: false,
            waits_for_source: false,
        }
    }

    /// Whether all of the content has been taken from its reader.
    pub(super) fn has_taken_all(&self) -> bool {
        self.all
    }

    /// Whether all has been written.
    pub(super) fn is_done(&self) -> bool {
        self.all && self.out.is_empty()
    }

    /// Passes on octets until it would block.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl Origin,
        to: &mut impl Sink,
    ) -> Passed {
        loop {
            self.waits_for_source = false;
            if ready!(to.poll_pass(cx, self, from.buf()))? {
                self.moved = true;
                continue;
            }
            // What TLS has held back must not wait for more.
            ready!(to.poll_flush(cx, self))?;
            if self.all {
                return Poll::Ready(Ok(()));
            }
            self.waits_for_source = true;
            ready!(from.poll_more(cx, self))?;
        }
    }

    /// Goes on with the octets that there are, into memory; tells whether that is all.
    pub(super) fn rehearse(
        &mut self,
        from: &mut BytesMut,
        to: &mut Vec<u8>,
    ) -> Result<bool, Broken> {
        loop {
            self.encode(from)?;
            let ready_made = self.ready_made(from);
            if self.out.is_empty() && ready_made == 0 {
                return Ok(self.all);
            }
            to.extend_from_slice(&self.out.split());
            to.extend_from_slice(&from[..ready_made]);
            self.take(from, ready_made)?;
        }
    }

    /// Octets that can be written as they lie there.
    fn ready_made(&self, from: &BytesMut) -> usize {
        match &self.source {
            Source::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX).min(from.len()),
            Source::Close if !self.chunks => from.len(),
            _ => 0,
        }
    }

    /// Takes octets that were written from where they lay.
    fn take(&mut self, from: &mut BytesMut, octets: usize) -> Result<(), Broken> {
        from.advance(octets);
        self.took(octets)
    }

    /// Counts octets of content that were taken.
    fn took(&mut self, octets: usize) -> Result<(), Broken> {
        self.room = self.room.checked_sub(octets as u64).ok_or(Broken::TooLarge)?;
        if let Source::Length(left) = &mut self.source {
            *left = left.saturating_sub(octets as u64);
            self.all = *left == 0;
        }
        Ok(())
    }

    /// Takes the next piece of content as it lies there, without a copy; `None`: there is none yet, or no more.
    pub(super) fn piece(&mut self, from: &mut BytesMut) -> Result<Option<BytesMut>, Broken> {
        let piece = match &mut self.source {
            Source::Chunked(chunked) => {
                let piece = chunked.next(from).map_err(|_| Broken::Coding)?;
                self.all = chunked.is_done();
                piece
            }
            _ => {
                let most = self.ready_made(from);
                (most > 0).then(|| from.split_to(most))
            }
        };
        if let Some(piece) = &piece {
            self.took(piece.len())?;
        }
        Ok(piece)
    }

    /// The fields behind the content.
    pub(super) fn trailer(&self) -> Result<Vec<Field>, Broken> {
        match &self.source {
            Source::Chunked(chunked) => chunked.trailer().map_err(|_| Broken::Coding),
            _ => Ok(Vec::new()),
        }
    }

    /// Adds a piece of content that came without a coding.
    pub(super) fn add(&mut self, piece: &[u8]) -> Result<(), Broken> {
        if !piece.is_empty() {
            self.room = self.room.checked_sub(piece.len() as u64).ok_or(Broken::TooLarge)?;
            append(&mut self.out, piece, self.chunks);
        }
        Ok(())
    }

    /// Converts received content to the coding in which it is sent, if that differs.
    fn encode(&mut self, from: &mut BytesMut) -> Result<(), Broken> {
        match self.source {
            _ if self.all => {}
            Source::Chunked(_) => {
                while self.out.len() < WAITING
                    && let Some(piece) = self.piece(from)?
                {
                    append(&mut self.out, &piece, self.chunks);
                }
                if self.all {
                    self.finish(&self.trailer()?);
                }
            }
            Source::Close if self.chunks && !from.is_empty() => {
                append(&mut self.out, from, true);
                from.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the content.
    pub(super) fn finish(&mut self, trailer: &[Field]) {
        self.all = true;
        if self.chunks {
            self.out.put_slice(b"0\r\n");
            trailer.iter().for_each(|(name, value)| put(&mut self.out, name, value));
            self.out.put_slice(b"\r\n");
        }
    }
}

impl Origin for Conn {
    fn buf(&mut self) -> &mut BytesMut {
        &mut self.buf
    }

    fn poll_more(&mut self, cx: &mut Context<'_>, relay: &mut Relay) -> Passed {
        let room = match &relay.source {
            Source::Length(left) if *left <= LITTLE as u64 => LITTLE,
            _ => MUCH,
        };
        match ready!(self.poll_fill(cx, room)) {
            Ok(1..) => relay.moved = true,
            Ok(0) if matches!(relay.source, Source::Close) => relay.finish(&[]),
            _ => return Poll::Ready(Err(Broken::From)),
        }
        Poll::Ready(Ok(()))
    }
}

impl Sink for Conn {
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        relay: &mut Relay,
        from: &mut BytesMut,
    ) -> Poll<Result<bool, Broken>> {
        relay.encode(from)?;
        let ready_made = relay.ready_made(from);
        if relay.out.is_empty() && ready_made == 0 {
            return Poll::Ready(Ok(false));
        }
        let put = ready!(self.poll_put(cx, &relay.out, &from[..ready_made]));
        let put = put.map_err(|_| Broken::To)?;
        relay.octets += put as u64;
        let of_out = put.min(relay.out.len());
        relay.out.advance(of_out);
        if put > of_out {
            relay.take(from, put - of_out)?;
        }
        Poll::Ready(Ok(true))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, _: &mut Relay) -> Passed {
        Conn::poll_flush(self, cx).map_err(|_| Broken::To)
    }
}

/// Appends content, as a chunk or as it is.
fn append(out: &mut BytesMut, piece: &[u8], chunks: bool) {
    out.reserve(piece.len() + 20);
    if chunks {
        out.put_slice(format!("{:x}\r\n", piece.len()).as_bytes());
    }
    out.put_slice(piece);
    if chunks {
        out.put_slice(b"\r\n");
    }
}
