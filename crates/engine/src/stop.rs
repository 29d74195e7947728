//! The signal that ends the threads of an engine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fordway_tun::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A signal that a busy thread can look at and that wakes a sleeping one. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    set: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Stop> {
        Ok(Stop { set: Arc::default(), waker: Waker::new()? })
    }

    /// Gives the signal, for good.
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether it has been given.
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Waits for the signal, or until the time is up. Whether it has been given.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut event = [PollFd::new(&self.waker, PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // A signal of the system ends a wait early, which does no harm.
        let _ = poll(&mut event, Some(&timeout));
        self.is_set()
    }

    /// What ends a wait.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
