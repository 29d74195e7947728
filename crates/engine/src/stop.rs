//! The signal that ends the threads of an engine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fordway_tun::Waker;

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

    /// What ends a wait.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
