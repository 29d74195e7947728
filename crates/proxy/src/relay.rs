//! The content of a message, from one connection to another.

use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};

use super::chunked::Chunked;
use super::conn::{Conn, LITTLE, MUCH};
use super::fields::{Delimited, put};
use super::response::Content;

/// Octets in front of content that are copied together with it rather than sent apart.
const WAITING: usize = 64 << 10;

/// How the end of the content is found.
#[derive(Debug)]
enum Source {
    /// So many octets are still to come.
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
        from: &mut Conn,
        to: &mut Conn,
    ) -> Poll<Result<(), Broken>> {
        loop {
            self.encode(&mut from.buf)?;
            let ready_made = self.ready_made(&from.buf);
            if !self.out.is_empty() || ready_made > 0 {
                self.waits_for_source = false;
                let put = ready!(to.poll_put(cx, &self.out, &from.buf[..ready_made]));
                let put = put.map_err(|_| Broken::To)?;
                self.moved = true;
                self.octets += put as u64;
                let of_out = put.min(self.out.len());
                self.out.advance(of_out);
                self.take(&mut from.buf, put - of_out)?;
                continue;
            }
            if self.all {
                self.waits_for_source = false;
                return to.poll_flush(cx).map_err(|_| Broken::To);
            }
            // What TLS has held back must not wait for the reader's side.
            ready!(to.poll_flush(cx)).map_err(|_| Broken::To)?;
            self.waits_for_source = true;
            let room = match &self.source {
                Source::Length(left) if *left <= LITTLE as u64 => LITTLE,
                _ => MUCH,
            };
            match ready!(from.poll_fill(cx, room)) {
                Ok(0) => match self.source {
                    Source::Close => self.finish(&[]),
                    _ => return Poll::Ready(Err(Broken::From)),
                },
                Ok(_) => self.moved = true,
                Err(_) => return Poll::Ready(Err(Broken::From)),
            }
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
        if octets == 0 {
            return Ok(());
        }
        from.advance(octets);
        self.room = self.room.checked_sub(octets as u64).ok_or(Broken::TooLarge)?;
        if let Source::Length(left) = &mut self.source {
            *left -= octets as u64;
            self.all = *left == 0;
        }
        Ok(())
    }

    /// Converts received content to the coding in which it is sent, if that differs.
    fn encode(&mut self, from: &mut BytesMut) -> Result<(), Broken> {
        match &mut self.source {
            _ if self.all => {}
            Source::Chunked(chunked) => {
                while self.out.len() < WAITING
                    && let Some(piece) = chunked.next(from).map_err(|_| Broken::Coding)?
                {
                    self.room =
                        self.room.checked_sub(piece.len() as u64).ok_or(Broken::TooLarge)?;
                    append(&mut self.out, &piece, self.chunks);
                }
                if chunked.is_done() {
                    let trailer = chunked.trailer().map_err(|_| Broken::Coding)?;
                    self.finish(&trailer);
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

    fn finish(&mut self, trailer: &[(Vec<u8>, Vec<u8>)]) {
        self.all = true;
        if self.chunks {
            self.out.put_slice(b"0\r\n");
            trailer.iter().for_each(|(name, value)| put(&mut self.out, name, value));
            self.out.put_slice(b"\r\n");
        }
    }
}

/// Appends content, as a chunk or as it is.
pub(super) fn append(out: &mut BytesMut, piece: &[u8], chunks: bool) {
    out.reserve(piece.len() + 20);
    if chunks {
        out.put_slice(format!("{:x}\r\n", piece.len()).as_bytes());
    }
    out.put_slice(piece);
    if chunks {
        out.put_slice(b"\r\n");
    }
}
