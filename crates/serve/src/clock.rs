//! The time that is measured by the same clock as tokio's timers, so that a test that stops these stops all of it.

use std::time::{Duration, Instant};

/// Now.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time since `then`.
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}
