//! Counters that all threads write.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many so far.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the resolver counts.
#[derive(Debug, Default)]
pub(super) struct ResolverCounters {
    pub(super) lookups: Counter,
    pub(super) cache_hits: Counter,
    pub(super) cache_misses: Counter,
    pub(super) merged: Counter,
    pub(super) busy: Counter,
    pub(super) failures: Counter,
    pub(super) secure: Counter,
    pub(super) insecure: Counter,
    pub(super) bogus: Counter,
}

/// What is counted by server; [`super::stats::ServerStats`] says what each is.
#[derive(Debug, Default)]
pub(super) struct ServerCounters {
    pub(super) queries: Counter,
    pub(super) answers: Counter,
    pub(super) errors: Counter,
    pub(super) timeouts: Counter,
    pub(super) unreachable: Counter,
    pub(super) mismatches: Counter,
    pub(super) case_mismatches: Counter,
    pub(super) malformed: Counter,
    pub(super) spoof_suspicions: Counter,
    pub(super) truncated: Counter,
    pub(super) connections: Counter,
}
