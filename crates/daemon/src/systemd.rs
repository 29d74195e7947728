//! The service manager.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::warn;

/// Sends the state to systemd, if it listens.
pub(crate) fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("cannot tell the service manager: {error}");
    }
}

/// Since when the watchdog counts. Absent before [`ready`]: a message would start it while the daemon starts, for which the
/// unit allows more time.
static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();

/// Tells systemd that the daemon has started, and has [`alive`] keep its watchdog quiet from here on.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    if let Some(limit) = sd_notify::watchdog_enabled() {
        // There is one start.
        let _ = WATCHDOG.set(Watchdog::new(limit));
    }
}

/// Tells systemd that the daemon's loop makes progress, if the unit has `WatchdogSec`: three times in that time at most,
/// however often this is called. Work that may take long calls it between its steps.
pub(crate) fn alive() {
    if WATCHDOG.get().is_some_and(|watchdog| watchdog.is_due(Instant::now())) {
        notify(&[NotifyState::Watchdog]);
    }
}

/// When systemd is told.
struct Watchdog {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

impl Watchdog {
    /// `limit`: without a message for so long the service is killed.
    fn new(limit: Duration) -> Watchdog {
        Watchdog { interval: limit / 3, next: Mutex::new(None) }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_some_and(|next| now < next) {
            return false;
        }
        *next = Some(now + self.interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_told_three_times_in_its_limit() {
        let watchdog = Watchdog::new(Duration::from_secs(30));
        let start = Instant::now();
        let due: Vec<u64> =
            (0..=30).filter(|&at| watchdog.is_due(start + Duration::from_secs(at))).collect();
        assert_eq!(due, [0, 10, 20, 30]);
    }
}
