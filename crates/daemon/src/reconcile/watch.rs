//! Kernel notifications of changes of the host.

use std::collections::BTreeSet;
use std::future::pending;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use fordway_net::{ChangeWatch, Topic};
use tokio::io::unix::AsyncFd;
use tracing::{debug, warn};

/// Shortest time between two reads of the host, for hosts whose routes change all the time.
const GAP: Duration = Duration::from_millis(20);

/// Reading the host may take this share of the time at most: with a million routes it is slow.
pub(super) const SHARE: u32 = 20;

/// Longest time between two reads: the kernel does not notify of everything.
const LONGEST: Duration = Duration::from_secs(5);

/// Notifies of changes. If no socket can be opened there are no notifications, and changes are found by periodic reads.
pub(crate) struct Watch {
    routing: Option<AsyncFd<ChangeWatch>>,
    nftables: Option<AsyncFd<ChangeWatch>>,
}

impl Watch {
    /// Listens for `topics`.
    pub(crate) fn open(topics: &[Topic]) -> Watch {
        let opened = ChangeWatch::open(topics).map_err(|error| error.to_string());
        let opened = opened.and_then(|it| own_fd(it).map_err(|error| error.to_string()));
        let routing = opened.inspect_err(|error| unheard(error)).ok();
        Watch { routing, nftables: None }
    }

    /// Listens for everything of which [`crate::apply::upkeep`] takes care.
    pub(crate) fn of_everything() -> Watch {
        let topics = [
            Topic::Links,
            Topic::Addresses4,
            Topic::Addresses6,
            Topic::Routes4,
            Topic::Routes6,
            Topic::Rules,
            Topic::Settings,
        ];
        let opened = ChangeWatch::open_nftables().map_err(|error| error.to_string());
        let opened = opened.and_then(|it| own_fd(it).map_err(|error| error.to_string()));
        // A daemon without privileges can't subscribe, and has no nftables rules to keep.
        let nftables = opened.inspect_err(|error| debug!("nftables: {error}")).ok();
        Watch { nftables, ..Watch::open(&topics) }
    }

    /// Waits for a change; adds devices that were down. May be dropped while it waits.
    pub(crate) async fn changed(&mut self, down: &mut BTreeSet<u32>) {
        tokio::select! {
            found = heard(&mut self.routing) => down.extend(found),
            _ = heard(&mut self.nftables) => {}
        }
    }
}

async fn heard(watch: &mut Option<AsyncFd<ChangeWatch>>) -> BTreeSet<u32> {
    let Some(socket) = watch else { return pending().await };
    let error = loop {
        match socket.readable_mut().await {
            Ok(mut ready) => {
                // All there is gets read.
                ready.clear_ready();
                match ready.get_inner_mut().take() {
                    Ok(Some(changes)) => return changes.down,
                    Ok(None) => {}
                    Err(error) => break error.to_string(),
                }
            }
            Err(error) => break error.to_string(),
        }
    };
    unheard(&error);
    *watch = None;
    pending().await
}

#[allow(deprecated, reason = "the descriptor is the same for as long as the value lives")]
pub(super) fn own_fd<T: AsRawFd>(inner: T) -> std::io::Result<AsyncFd<T>> {
    AsyncFd::new(inner)
}

fn unheard(error: &str) {
    warn!("changes of the network are noticed with a delay: {error}");
}

/// When to look at the host.
pub(crate) struct Looks {
    due: Instant,
    not_before: Instant,
}

impl Looks {
    pub(crate) fn new(now: Instant) -> Looks {
        Looks { due: now + LONGEST, not_before: now }
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Something has changed.
    pub(crate) fn changed(&mut self, now: Instant) {
        self.due = self.due.min(self.not_before.max(now + GAP / 4));
    }

    /// The host has been read, which took `spent`; `again`: when it must be read again at the latest.
    pub(crate) fn looked(&mut self, now: Instant, spent: Duration, again: Option<Instant>) {
        let not_before = now + spent.saturating_mul(SHARE).max(GAP);
        let due = again.map_or(now + LONGEST, |again| again.min(now + LONGEST));
        *self = Looks { due: due.max(not_before), not_before };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_comes_at_once_but_not_again_and_again() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        assert_eq!(looks.due(), start + LONGEST);
        let ms = |ms| start + Duration::from_millis(ms);
        looks.changed(ms(100));
        assert_eq!(looks.due(), ms(105));
        // What comes after is seen with it.
        looks.changed(ms(104));
        assert_eq!(looks.due(), ms(105));
        looks.looked(ms(106), Duration::from_millis(1), None);
        looks.changed(ms(107));
        assert_eq!(looks.due(), ms(126));
        // One that takes long takes a twentieth of the time.
        looks.looked(ms(226), Duration::from_millis(100), None);
        looks.changed(ms(300));
        assert_eq!(looks.due(), ms(2226));
        looks.looked(ms(2227), Duration::ZERO, None);
        assert_eq!(looks.due(), ms(7227));
        // What waits is not forgotten.
        looks.looked(ms(2227), Duration::ZERO, Some(ms(3000)));
        assert_eq!(looks.due(), ms(3000));
        looks.looked(ms(2227), Duration::ZERO, Some(ms(2220)));
        assert_eq!(looks.due(), ms(2247));
    }
}
