//! Counters of one thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread counts up and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. Only one thread may call this.
    pub fn add(&self, more: u64) {
        // Only one thread writes: no locked instruction is needed.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
