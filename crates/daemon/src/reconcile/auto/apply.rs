//! Carries out a decision: the translator is set up, changed or taken down like any other, as a whole.

use std::time::{Duration, Instant};

use fordway_config::Translator;
use tracing::{debug, info, warn};

use super::decide::{Decision, Desired};
use super::{Auto, concrete};
use crate::apply::translators::{Translators, start_all};
use crate::failure::Failure;

/// Time until a failed attempt is made again: at first, and at most.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// How often a running translator is compared with the host: another program may have removed its changes
/// (systemd-networkd removes foreign rules), and the path MTU may have changed.
const REVIEW: Duration = Duration::from_secs(10);

/// What has come of attempts.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// Why the last one failed.
    failure: Option<String>,
    /// What it was for.
    wanted: Option<Desired>,
    /// How many have failed in a row.
    failed: u32,
    retry: Option<Instant>,
}

impl Attempt {
    /// Why the last one failed, and when there will be another.
    pub(super) fn failure(&self) -> Option<(&str, Option<Instant>)> {
        Some((self.failure.as_deref()?, self.retry))
    }

    /// Another one is to wait.
    fn waits(&self, wanted: Option<&Desired>, now: Instant) -> bool {
        like(wanted, self.wanted.as_ref()) && self.retry.is_some_and(|retry| retry > now)
    }

    fn succeeded(&mut self) {
        *self = Attempt::default();
    }

    /// Whether this is another failure than the last.
    fn has_failed(&mut self, wanted: Option<Desired>, failure: &Failure, now: Instant) -> bool {
        let line = failure.line();
        if !like(wanted.as_ref(), self.wanted.as_ref()) {
            self.failed = 0;
        }
        let delay = FIRST.saturating_mul(1 << self.failed.min(16)).min(MOST);
        let is_new = self.failure.as_ref() != Some(&line);
        let failed = self.failed.saturating_add(1);
        *self = Attempt { failure: Some(line), wanted, failed, retry: Some(now + delay) };
        is_new
    }
}

impl Auto {
    /// Makes the decision so. Gives the time of another attempt, if one has failed.
    pub(super) fn carry_out(
        &mut self,
        translators: &mut Translators,
        order: &[Translator],
        now: Instant,
    ) -> Option<Instant> {
        let wanted = match &self.decision {
            Some(Decision::Active(desired)) => Some(desired.clone()),
            _ => None,
        };
        let at = translators.running.iter().position(|one| one.name() == self.name());
        if let Some(at) = at.filter(|at| translators.running[*at].failed()) {
            let ended = self.take_down(translators, at).err();
            let failure = ended.unwrap_or_else(|| Failure::failed("the user engine has ended"));
            self.attempt.has_failed(wanted, &failure, now);
            warn!("{}: {}; it is set up again", self.name(), failure.line());
            return self.attempt.retry;
        }
        if like(wanted.as_ref(), self.applied.as_ref()) && wanted.is_some() == at.is_some() {
            // What does not change the translator is known all the same.
            self.applied = wanted;
            self.attempt.succeeded();
            return self.review(translators, at?, now);
        }
        if self.attempt.waits(wanted.as_ref(), now) {
            return self.attempt.retry;
        }
        match self.try_to(translators, order, wanted.as_ref(), at) {
            Ok(()) => {
                self.applied = wanted;
                self.attempt.succeeded();
                self.reviewed = now;
                self.applied.as_ref().map(|_| now + REVIEW)
            }
            Err(failure) => {
                if self.attempt.has_failed(wanted, &failure, now) {
                    warn!("{}: {}; will retry", self.name(), failure.line());
                }
                self.attempt.retry
            }
        }
    }

    /// Puts back what is missing. Returns the time of the next review.
    fn review(
        &mut self,
        translators: &mut Translators,
        at: usize,
        now: Instant,
    ) -> Option<Instant> {
        let desired = self.applied.as_ref()?;
        if self.reviewed + REVIEW <= now {
            self.reviewed = now;
            // What is missing at this moment will be there, or the decision will be another.
            if let Err(failure) =
                translators.running[at].reconfigure(&concrete(&self.template, desired))
            {
                debug!("{}: {}", self.name(), failure.line());
            }
        }
        Some(self.reviewed + REVIEW)
    }

    fn try_to(
        &mut self,
        translators: &mut Translators,
        order: &[Translator],
        wanted: Option<&Desired>,
        at: Option<usize>,
    ) -> Result<(), Failure> {
        match (at, wanted) {
            (None, None) => Ok(()),
            (Some(at), None) => self.take_down(translators, at),
            (None, Some(desired)) => self.set_up(translators, order, desired),
            // If changing it does not work, perhaps a new one does.
            (Some(at), Some(desired)) if self.attempt.failed > 1 => {
                self.take_down(translators, at)?;
                self.set_up(translators, order, desired)
            }
            (Some(at), Some(desired)) => {
                translators.running[at].reconfigure(&concrete(&self.template, desired))
            }
        }
    }

    fn set_up(
        &mut self,
        translators: &mut Translators,
        order: &[Translator],
        desired: &Desired,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let translator = concrete(&self.template, desired);
        let running = start_all(&[translator], &mut translators.context)?;
        translators.running.extend(running);
        let place = |name: &str| order.iter().position(|it| it.name.as_str() == name);
        translators.running.sort_by_key(|one| place(one.name()));
        // It has taken over what was left, or taken it back.
        self.left = None;
        info!("{}: set up in {} ms", self.name(), started.elapsed().as_millis());
        Ok(())
    }

    fn take_down(&mut self, translators: &mut Translators, at: usize) -> Result<(), Failure> {
        self.applied = None;
        translators.running.remove(at).take_down()
    }
}

/// Whether the same comes of both.
fn like(one: Option<&Desired>, other: Option<&Desired>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_like(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_wait_longer_and_longer_and_the_same_failure_is_told_once() {
        let mut attempt = Attempt::default();
        let now = Instant::now();
        let failure = Failure::failed("the host refuses");
        assert!(!attempt.waits(None, now));
        let mut delays = Vec::new();
        for round in 0..9 {
            assert_eq!(attempt.has_failed(None, &failure, now), round == 0);
            let retry = attempt.retry.unwrap();
            assert!(attempt.waits(None, now) && !attempt.waits(None, retry));
            delays.push((retry - now).as_secs());
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(attempt.has_failed(None, &Failure::failed("something else"), now));
        attempt.succeeded();
        assert!(attempt.failure().is_none() && !attempt.waits(None, now));
    }
}
