//! Grace periods: until when threads may hold references to table entries that were unlinked.
//!
//! A queue's thread increments its number before a burst of packets and after it; while the number is odd, it may hold
//! references to entries. Before entries are freed, each thread must have been seen with an even number, or with
//! another one than at the start of the grace period.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A thread's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bursts(Arc<AtomicU64>);

/// The threads of an engine's queues. Clones are of the same threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Vec<Bursts>);

/// A grace period: the threads that were in a burst when it began.
#[derive(Debug)]
pub struct Grace(Vec<(Bursts, u64)>);

impl Threads {
    pub(crate) fn add(&mut self, thread: Bursts) {
        self.0.push(thread);
    }

    /// Begins a grace period. When it is over, every packet has been sent or dropped whose translation had begun before;
    /// all others see what the caller has changed before, such as a shard that it has disabled.
    pub(crate) fn grace(&self) -> Grace {
        Grace::begin(&self.0)
    }
}

impl Bursts {
    /// Before the first access to a table.
    #[inline]
    pub(crate) fn begin(&self) {
        // Only this thread writes. The store is a release, because a reader of this number concludes that the previous
        // burst has ended.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// After the last reference was dropped.
    #[inline]
    pub(crate) fn end(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Grace {
    /// Begins a grace period, for the threads that are in a burst now.
    pub(crate) fn begin<'a>(threads: impl IntoIterator<Item = &'a Bursts>) -> Grace {
        fence(Ordering::SeqCst);
        let seen = |bursts: &Bursts| (bursts.clone(), bursts.0.load(Ordering::Acquire));
        Grace(threads.into_iter().map(seen).filter(|(_, number)| number % 2 == 1).collect())
    }

    /// Whether all of them have ended their bursts.
    pub fn is_over(&mut self) -> bool {
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
