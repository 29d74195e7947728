//! Restarts servers of which a thread has ended by itself; other servers go on.

use std::time::{Duration, Instant};

use fordway_config::Config;
use tracing::info;

use super::Services;
use super::servers::Group;

/// Delay before a server that fails is restarted: at first, doubled each time, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// What is to be mended.
#[derive(Debug, Default)]
pub(super) struct Mending {
    /// A server is missing.
    broken: bool,
    last: Option<Instant>,
    /// How often it was tried.
    tries: u32,
}

impl Mending {
    /// Something does not run as it should.
    pub(super) fn is_broken(&mut self) {
        self.broken = true;
    }

    /// All runs as it should.
    fn is_whole(&mut self) {
        (self.broken, self.tries) = (false, 0);
    }

    /// Whether it is time to begin what is missing.
    fn is_due(&mut self, now: Instant) -> bool {
        let pause = AGAIN.saturating_mul(1 << self.tries.saturating_sub(1).min(6)).min(MOST);
        let due = self.broken && self.last.is_none_or(|last| now >= last + pause);
        if due {
            self.last = Some(now);
            self.tries += 1;
        }
        due
    }
}

impl Services {
    /// Ends servers that are not whole, and restarts them. Sockets are opened with the privileges that are kept for a
    /// reload.
    pub(crate) fn mend(&mut self, config: &Config, now: Instant) {
        let broken: Vec<bool> = self.all().into_iter().map(Group::discard_broken).collect();
        self.mending.broken |= broken.contains(&true);
        if !self.mending.is_due(now) {
            return;
        }
        if self.follow_each(config) {
            self.mending.is_whole();
            info!("services: all are running again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_waits() {
        let start = Instant::now();
        let mut mending = Mending::default();
        assert!(!mending.is_due(start));
        mending.is_broken();
        assert!(mending.is_due(start));
        assert!(!mending.is_due(start + AGAIN / 2));
        assert!(mending.is_due(start + AGAIN));
        assert!(!mending.is_due(start + 2 * AGAIN));
        assert!(mending.is_due(start + 3 * AGAIN));
        mending.is_whole();
        assert!(!mending.is_due(start + MOST));
        mending.is_broken();
        assert!(mending.is_due(start + MOST));
        assert!(mending.is_due(start + MOST + AGAIN));
    }
}
