//! The content of an answer, piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

use super::requests::{Request, Taking};

/// A piece of content on its way to the client.
pub(super) enum Piece {
    Data(Bytes),
    Trailers(http::HeaderMap),
    /// There is no more; without it, content has been cut.
    End,
}

/// The content of an answer.
#[derive(Default)]
pub(super) enum Content {
    #[default]
    Empty,
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Piece>),
}

/// An answer's content, which is under way until the client has all of it, or wants no more.
#[derive(Default)]
pub(super) struct Body {
    content: Content,
    taking: Option<Taking>,
}

impl Body {
    /// Content of a request that is under way for as long.
    pub(super) fn of(content: Content, request: &Request) -> Body {
        Body { content, taking: Some(request.taking()) }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let body = self.get_mut();
        let pieces = match &mut body.content {
            Content::Empty => return Poll::Ready(None),
            Content::Whole(whole) => {
                return Poll::Ready(whole.take().map(|it| Ok(Frame::data(it))));
            }
            Content::Pieces(pieces) => pieces,
        };
        let piece = pieces.poll_recv(cx);
        if let (Poll::Ready(_), Some(taking)) = (&piece, &body.taking) {
            taking.moves();
        }
        piece.map(|piece| match piece {
            Some(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Piece::End) => {
                pieces.close();
                None
            }
            None => Some(Err(std::io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Empty | Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty | Content::Whole(None) => SizeHint::with_exact(0),
            Content::Whole(Some(whole)) => SizeHint::with_exact(whole.len() as u64),
            Content::Pieces(_) => SizeHint::default(),
        }
    }
}
