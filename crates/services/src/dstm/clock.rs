//! The time: ms since 1970 when the process began, and going on from there whatever is done to the clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clock;

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base: u64,
    started: Instant,
}

impl Clock {
    pub(super) fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: millis(since), started: clock::now() }
    }

    /// Now, in ms since 1970.
    pub(super) fn now(&self) -> u64 {
        self.base + millis(clock::since(self.started))
    }

    /// The moment `at`, in ms since 1970.
    pub(super) fn instant(&self, at: u64) -> Instant {
        self.started + Duration::from_millis(at.saturating_sub(self.base))
    }

    /// A number that grows from one life of a process to the next: µs since 1970.
    pub(super) fn number(&self) -> u64 {
        self.base * 1000
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
