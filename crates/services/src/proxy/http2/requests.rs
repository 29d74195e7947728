//! The requests of a connection that are under way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How many there are, and since when it is so.
#[derive(Debug)]
pub(super) struct Requests {
    number: Cell<usize>,
    since: Cell<Instant>,
}

/// One of them, from its header section until the client has all of the answer, or wants no more.
#[derive(Debug)]
pub(super) struct Request(Rc<Requests>);

impl Requests {
    pub(super) fn new() -> Rc<Requests> {
        Rc::new(Requests { number: Cell::new(0), since: Cell::new(Instant::now()) })
    }

    pub(super) fn begin(self: &Rc<Self>) -> Rc<Request> {
        self.number.set(self.number.get() + 1);
        Rc::new(Request(Rc::clone(self)))
    }

    /// Returns when there was no request for so long, from now on or from when the last one ended.
    pub(super) async fn rest(&self, time: Duration) {
        loop {
            let from = if self.number.get() == 0 { self.since.get() } else { Instant::now() };
            let until = from + time;
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// What was before does not count.
    pub(super) fn begin_anew(&self) {
        self.since.set(Instant::now());
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.number.set(self.0.number.get() - 1);
        self.0.since.set(Instant::now());
    }
}
