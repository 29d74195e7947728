//! What active checks have found of a server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use fordway_counters::Counter;

use super::settings::Check;

/// What checks have found of a server.
#[derive(Debug, Default)]
pub(super) struct Health {
    down: AtomicBool,
    pub(super) checks: Counter,
    pub(super) failed: Counter,
    /// Why the last one failed.
    failure: Mutex<Option<String>>,
}

impl Health {
    /// Nothing is known by another check; the counts go on.
    pub(super) fn for_another_check(&self) -> Health {
        let health = Health::default();
        health.checks.add(self.checks.get());
        health.failed.add(self.failed.get());
        health
    }

    /// Whether it has failed as many checks as it takes.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the outcome of a check, the last of `row` ones with that outcome; returns whether that changes the state.
    pub(super) fn note(&self, outcome: Result<(), String>, row: u32, check: &Check) -> bool {
        self.checks.add(1);
        let succeeded = outcome.is_ok();
        self.failed.add(u64::from(!succeeded));
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
        let changes =
            self.is_down() == succeeded && row >= if succeeded { check.rise } else { check.fall };
        if changes {
            self.down.store(!succeeded, Ordering::Relaxed);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::settings::CheckKind;
    use super::*;

    #[test]
    fn it_takes_several_in_a_row() {
        let (interval, timeout) = (Duration::from_secs(1), Duration::from_secs(1));
        let check = Check { kind: CheckKind::Tcp, interval, timeout, rise: 2, fall: 3 };
        let health = Health::default();
        let bad = || Err("refused".to_owned());
        assert!(!health.note(bad(), 1, &check) && !health.note(bad(), 2, &check));
        assert!(!health.is_down());
        assert!(health.note(bad(), 3, &check) && health.is_down());
        assert!(!health.note(bad(), 4, &check));
        assert_eq!(health.failure().as_deref(), Some("refused"));
        assert!(!health.note(Ok(()), 1, &check) && health.is_down());
        assert!(health.note(Ok(()), 2, &check) && !health.is_down());
        assert_eq!((health.checks.get(), health.failed.get(), health.failure()), (6, 4, None));
        let changes = [1, 2, 3].map(|row| health.note(bad(), row, &check));
        assert_eq!(changes, [false, false, true]);
        let other = health.for_another_check();
        assert!(health.is_down() && !other.is_down());
        assert_eq!((other.checks.get(), other.failed.get(), other.failure()), (9, 7, None));
    }
}
