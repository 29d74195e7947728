//! Requests of a connection that are under way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How many there are, and since when it is so.
#[derive(Debug)]
pub(super) struct Requests {
    /// Exchanges that go on.
    number: Cell<usize>,
    /// Contents of answers that clients have not taken to the end, whether their exchanges go on or not.
    contents: Cell<usize>,
    /// When the last exchange ended, or a piece of content was taken.
    since: Cell<Instant>,
}

/// An exchange, from the header section of its request.
#[derive(Debug)]
pub(super) struct Request(Rc<Requests>);

/// The content of an answer, until the client has all of it, or wants no more.
#[derive(Debug)]
pub(super) struct Taking(Rc<Requests>);

/// How long a connection may be idle.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleTimes {
    /// If nothing is under way.
    pub(super) idle: Duration,
    /// If the client takes none of the content under way: it may never open a window (RFC 9113 section 5.2).
    pub(super) taking: Duration,
}

impl Requests {
    pub(super) fn new() -> Rc<Requests> {
        let since = Cell::new(Instant::now());
        Rc::new(Requests { number: Cell::new(0), contents: Cell::new(0), since })
    }

    pub(super) fn begin(self: &Rc<Self>) -> Rc<Request> {
        self.number.set(self.number.get() + 1);
        Rc::new(Request(Rc::clone(self)))
    }

    /// Returns when there was no request for so long, from now on or from when the last one ended, or when only content
    /// is left that the client does not take.
    pub(super) async fn idle(&self, times: IdleTimes) {
        loop {
            let until = match (self.number.get(), self.contents.get()) {
                (0, 0) => self.since.get() + times.idle,
                (0, _) => self.since.get() + times.taking,
                _ => Instant::now() + times.idle,
            };
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Restarts the time.
    pub(super) fn restart(&self) {
        self.since.set(Instant::now());
    }
}

impl Request {
    /// The content of its answer.
    pub(super) fn taking(&self) -> Taking {
        self.0.contents.set(self.0.contents.get() + 1);
        Taking(Rc::clone(&self.0))
    }
}

impl Taking {
    /// The client has taken some.
    pub(super) fn moves(&self) {
        self.0.since.set(Instant::now());
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.number.set(self.0.number.get() - 1);
        self.0.since.set(Instant::now());
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.contents.set(self.0.contents.get() - 1);
        self.0.since.set(Instant::now());
    }
}
