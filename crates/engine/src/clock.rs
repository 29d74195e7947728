//! The clock that the engine's threads, and the programs in the kernel, share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time of CLOCK_MONOTONIC.
#[must_use]
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
