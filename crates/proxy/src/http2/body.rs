//! The content of a response, piece by piece.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::super::relay::{Broken, Passed};
use super::requests::{Request, Taking};

/// Pieces of content that wait for a client.
const WAITING: usize = 4;

/// Pieces of content on their way from an exchange to hyper, each of which has one of two handles.
#[derive(Clone, Default)]
pub(super) struct Queue(Rc<RefCell<Pieces>>);

#[derive(Default)]
struct Pieces {
    waiting: VecDeque<Frame<Bytes>>,
    /// There is no more. Content without this end has been cut.
    whole: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Queue {
    /// Waits for room for a piece. An error: the client wants no more, which also wakes a writer that waits for
    /// something else.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Passed {
        if self.is_alone() {
            return Poll::Ready(Err(Broken::To));
        }
        let mut pieces = self.0.borrow_mut();
        pieces.writer = Some(cx.waker().clone());
        if pieces.waiting.len() < WAITING { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    pub(super) fn put(&self, piece: Frame<Bytes>) {
        let mut pieces = self.0.borrow_mut();
        pieces.waiting.push_back(piece);
        wake(&mut pieces.reader);
    }

    /// Ends the content, with trailers if there are any.
    pub(super) fn end(&self, trailers: http::HeaderMap) {
        self.0.borrow_mut().whole = true;
        if trailers.is_empty() {
            wake(&mut self.0.borrow_mut().reader);
        } else {
            self.put(Frame::trailers(trailers));
        }
    }

    fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let mut pieces = self.0.borrow_mut();
        if let Some(piece) = pieces.waiting.pop_front() {
            wake(&mut pieces.writer);
            return Poll::Ready(Some(Ok(piece)));
        }
        if pieces.whole {
            return Poll::Ready(None);
        }
        if self.is_alone() {
            return Poll::Ready(Some(Err(std::io::ErrorKind::UnexpectedEof.into())));
        }
        pieces.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the other handle is gone.
    fn is_alone(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let pieces = &mut *self.0.borrow_mut();
        wake(&mut pieces.reader);
        wake(&mut pieces.writer);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The content of a response.
pub(super) enum Content {
    Whole(Option<Bytes>),
    Pieces(Queue),
}

impl Default for Content {
    /// None at all.
    fn default() -> Content {
        Content::Whole(None)
    }
}

/// The content of a response, which is under way until the client has all of it, or wants no more.
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
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let body = self.get_mut();
        let piece = match &mut body.content {
            Content::Whole(whole) => {
                return Poll::Ready(whole.take().map(|it| Ok(Frame::data(it))));
            }
            Content::Pieces(queue) => queue.poll_next(cx),
        };
        if let (Poll::Ready(_), Some(taking)) = (&piece, &body.taking) {
            taking.moves();
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(whole) => {
                SizeHint::with_exact(whole.as_ref().map_or(0, |whole| whole.len() as u64))
            }
            Content::Pieces(_) => SizeHint::default(),
        }
    }
}
