//! The clocks that the engine's threads, and the programs in the kernel, share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time of CLOCK_MONOTONIC.
#[must_use]
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

/// The time of CLOCK_BOOTTIME, which goes on while the host sleeps: that of leases.
#[must_use]
pub fn boottime() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    // Neither is ever negative.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
