//! Servers of which a thread has ended by itself: the server begins anew, and nobody else notices.

use std::time::{Duration, Instant};

use fordway_config::Config;
use tracing::{info, warn};

use super::Services;

/// Time between two beginnings, for one that fails again and again.
const AGAIN: Duration = Duration::from_secs(1);

/// What is to be mended.
#[derive(Debug, Default)]
pub(super) struct Mending {
    /// A server is missing.
    broken: bool,
    last: Option<Instant>,
}

impl Mending {
    /// Whether it is time to begin what is missing.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.broken && self.last.is_none_or(|last| now >= last + AGAIN);
        if due {
            self.last = Some(now);
        }
        due
    }
}

impl Services {
    /// Ends servers that are not whole, and begins them anew. Sockets are taken again with the privileges that are kept
    /// for a reload.
    pub(in super::super) fn mend(&mut self, config: &Config, now: Instant) {
        let broken = [
            self.dns64.discard_broken(),
            self.router.discard_broken(),
            self.relays.discard_broken(),
            self.proxies.discard_broken(),
            self.dstm_server.discard_broken(),
            self.dstm_tep.discard_broken(),
        ];
        self.mending.broken |= broken.contains(&true);
        if !self.mending.is_due(now) {
            return;
        }
        match self.change(config, config) {
            Ok(before) => {
                self.settle(before, config);
                self.mending.broken = false;
                info!("services: all run again");
            }
            Err(failure) => warn!("services: one does not run: {}", failure.line()),
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
        mending.broken = true;
        assert!(mending.is_due(start));
        assert!(!mending.is_due(start + AGAIN / 2));
        assert!(mending.is_due(start + AGAIN));
        mending.broken = false;
        assert!(!mending.is_due(start + 3 * AGAIN));
    }
}
