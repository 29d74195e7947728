//! When nobody looks any more at table entries that were taken out.
//!
//! A queue's thread raises its number before a burst of packets and after it: an odd number says that it may
//! hold references to entries. Whoever wants to give entries back waits until each thread was seen with an
//! even number, or another one than before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A thread's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bursts(Arc<AtomicU64>);

/// What was seen of all threads at a moment.
#[derive(Debug)]
pub(crate) struct Grace(Vec<(Bursts, u64)>);

impl Bursts {
    /// Before the first table is looked at.
    #[inline]
    pub(crate) fn begin(&self) {
        // The thread is the only one that writes. Whoever sees this number knows by it that the burst before
        // has ended, so it is released as that end was.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// After the last reference is gone.
    #[inline]
    pub(crate) fn end(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Grace {
    /// Begins to wait, for the threads that are in a burst now.
    pub(crate) fn begin<'a>(threads: impl IntoIterator<Item = &'a Bursts>) -> Grace {
        fence(Ordering::SeqCst);
        let seen = |bursts: &Bursts| (bursts.clone(), bursts.0.load(Ordering::Acquire));
        Grace(threads.into_iter().map(seen).filter(|(_, number)| number % 2 == 1).collect())
    }

    /// Whether all of them have ended their bursts.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.retain(|(bursts, number)| bursts.0.load(Ordering::Acquire) == *number);
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bursts_that_were_under_way_are_waited_for() {
        let threads = [Bursts::default(), Bursts::default()];
        threads[0].begin();
        let mut grace = Grace::begin(&threads);
        assert!(!grace.is_over());
        threads[1].begin();
        threads[0].end();
        assert!(grace.is_over());
        let mut grace = Grace::begin(&threads);
        threads[1].end();
        threads[1].begin();
        assert!(grace.is_over(), "another burst than the one seen");
    }
}
