//! The content of an answer, piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// A piece of content on its way to the client.
pub(super) enum Piece {
    Data(Bytes),
    Trailers(http::HeaderMap),
    /// There is no more; without it, content has been cut.
    End,
}

/// The content of an answer.
#[derive(Default)]
pub(super) enum Body {
    #[default]
    Empty,
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Piece>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let pieces = match self.get_mut() {
            Body::Empty => return Poll::Ready(None),
            Body::Whole(whole) => return Poll::Ready(whole.take().map(|it| Ok(Frame::data(it)))),
            Body::Pieces(pieces) => pieces,
        };
        pieces.poll_recv(cx).map(|piece| match piece {
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
        matches!(self, Body::Empty | Body::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty | Body::Whole(None) => SizeHint::with_exact(0),
            Body::Whole(Some(whole)) => SizeHint::with_exact(whole.len() as u64),
            Body::Pieces(_) => SizeHint::default(),
        }
    }
}
