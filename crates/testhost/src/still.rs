//! Time that stands still while sockets work.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// Stops the time of a runtime that was started with its clock paused: it passes by [`Still::pass`] alone.
///
/// Without it such a clock jumps to the next timer whenever no task can run, though a datagram may be on its way. Where
/// a test waits for what never comes, the clock jumps after [`PATIENCE`], so that timeouts end what waits.
#[derive(Debug)]
pub struct Still {
    _over: Sender<()>,
}

impl Still {
    /// In the runtime of the caller, until it is dropped.
    pub fn begin() -> Still {
        let (over, ended) = channel::<()>();
        // A paused clock does not jump while a blocking task runs.
        drop(tokio::task::spawn_blocking(move || ended.recv_timeout(PATIENCE)));
        Still { _over: over }
    }

    /// Lets time pass. What is due by then is done when this returns.
    pub async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until `ready`, while the other tasks of the runtime go on. Panics after [`PATIENCE`], naming `what` was waited
/// for.
pub async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
        tokio::task::yield_now().await;
        thread::sleep(Duration::from_micros(100));
    }
}
