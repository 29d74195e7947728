//! The desired state of the host: a list of changes that is applied and kept in force.
//!
//! A translator or a service sets its list when it starts and when its configuration changes ([`Upkeep::want`],
//! [`Upkeep::settle`]). In between, [`Upkeep::follow`] compares the list with the host and puts back what firewalls have
//! flushed, what network managers have removed, and what the kernel has removed with an interface that went down. The kernel's messages start such a look; without any it comes from time to time.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use fordway_net::{Applied, Change, Manager, Reconciled, View};
use tracing::{debug, info, warn};

use crate::failure::Failure;
use crate::handover::ledger;
use crate::plan::changes::last_of_each;

/// Delay before a change that fails, or is removed repeatedly, is retried: at first, doubled each time, and at most.
const FIRST: Duration = Duration::from_millis(250);
const MOST: Duration = Duration::from_secs(30);

/// A change that has stayed in place for this time is no longer delayed.
const STABLE: Duration = Duration::from_secs(60);

/// Attempts before a failure is logged as a warning: an uplink that comes back has its addresses before its routes.
const PATIENCE: u32 = 3;

/// Changes that are logged one by one; of more only the number.
const LISTED: usize = 5;

/// What one owner wants of the host.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// Whose it is, for people.
    name: String,
    manager: Manager,
    wanted: Vec<Change>,
    retries: HashMap<String, Retry>,
}

/// A change that failed or was removed.
#[derive(Debug)]
struct Retry {
    times: u32,
    last: Instant,
    /// Why it could not be made.
    said: Option<String>,
}

impl Retry {
    /// One more with `change`.
    fn of<'a>(
        retries: &'a mut HashMap<String, Retry>,
        change: &Change,
        now: Instant,
    ) -> &'a mut Retry {
        let none = Retry { times: 0, last: now, said: None };
        let retry = retries.entry(change.to_string()).or_insert(none);
        retry.times += 1;
        retry.last = now;
        retry
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= STABLE
    }

    /// When it may be retried. The first time there is no delay.
    fn until(&self) -> Instant {
        let doubled = FIRST.saturating_mul(1 << self.times.saturating_sub(1).min(16));
        self.last + doubled.min(MOST)
    }
}

impl Upkeep {
    /// Marks the changes as still in use after this process has ended.
    pub(crate) fn keep(&mut self) -> Result<(), Failure> {
        Ok(self.manager.keep(Some(ledger::home()))?)
    }

    /// Opens the part of the ledger that belongs to `owner`; `name` is for the log.
    pub(crate) fn open(run_dir: &Path, owner: &str, name: &str) -> Result<Upkeep, Failure> {
        let manager = Manager::open(run_dir, owner)?;
        let (wanted, retries) = (Vec::new(), HashMap::new());
        Ok(Upkeep { name: name.to_owned(), manager, wanted, retries })
    }

    /// Gives its part of the ledger to another owner, itself under another name.
    pub(super) fn rename(&mut self, owner: &str) -> Result<(), Failure> {
        self.manager.rename(owner)?;
        owner.clone_into(&mut self.name);
        Ok(())
    }

    /// Its part of the ledger.
    pub(crate) fn manager(&mut self) -> &mut Manager {
        &mut self.manager
    }

    /// What is wanted now.
    pub(crate) fn wanted(&self) -> &[Change] {
        &self.wanted
    }

    /// Makes `changes` in their order; if all of them can be made, they are what is wanted from now on, of several of one
    /// thing the last. What was wanted before and is not any more stays until [`Upkeep::settle`].
    pub(crate) fn want(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        let applied = self.manager.apply_all(&changes)?;
        self.take(changes, applied);
        Ok(())
    }

    /// Wants again what was wanted before. What can't be made now is wanted nevertheless, and the first reason is returned.
    pub(crate) fn want_again(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        self.wanted = last_of_each(changes);
        self.retries.clear();
        let Reconciled { failed, .. } = self.manager.make(&self.wanted)?;
        failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error.into()))
    }

    /// As [`Upkeep::want`], where [`Upkeep::settle`] follows shortly: what one change has undone of another is not looked for
    /// before that.
    pub(crate) fn want_unsettled(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        let applied = self.manager.apply_once(&changes)?;
        self.take(changes, applied);
        Ok(())
    }

    /// As [`Upkeep::want_unsettled`], where a packet waits: what was wanted before is supposed to be in force, and a route
    /// that is there leads the same way with another source address, which [`Upkeep::settle`] gives it.
    pub(crate) fn want_leased(&mut self, changes: Vec<Change>) -> Result<(), Failure> {
        let waits = |change: &Change| match change {
            Change::Route(_) => self.wanted.iter().any(|it| it.same_object(change)),
            change => self.wanted.contains(change),
        };
        let urgent: Vec<Change> = changes.iter().filter(|it| !waits(it)).cloned().collect();
        let applied = self.manager.apply_once(&urgent)?;
        self.take(urgent, applied);
        self.wanted = last_of_each(changes);
        Ok(())
    }

    fn take(&mut self, changes: Vec<Change>, applied: Vec<Applied>) {
        for (change, applied) in changes.iter().zip(applied) {
            match applied {
                Applied::Present => debug!("{}: {change}: it is so already", self.name),
                applied => debug!("{}: {change}: {applied:?}", self.name),
            }
        }
        self.wanted = last_of_each(changes);
        self.retries.clear();
    }

    /// Takes back what is wanted no more, or was left by an earlier run, and makes the rest sure. `what`: for the log, why
    /// there may be something. Whether there was.
    pub(crate) fn settle(&mut self, what: &str) -> bool {
        let settled = self.manager.reconcile(&self.wanted);
        match settled {
            Ok(Reconciled { failed, taken_back, .. }) => {
                let is_empty = taken_back.is_empty();
                if !is_empty {
                    ledger::log_report(&self.name, what, &taken_back);
                }
                for (change, error) in failed {
                    warn!("{}: cannot {change}: {error}", self.name);
                }
                !is_empty
            }
            Err(error) => {
                warn!("{}: cannot take back what is needed no more: {error}", self.name);
                false
            }
        }
    }

    /// Removes some changes from those that are wanted.
    pub(crate) fn give_up(&mut self, changes: &[Change]) {
        self.wanted.retain(|it| !changes.iter().any(|gone| gone.same_object(it)));
        if let Err(error) = self.manager.reconcile(&self.wanted) {
            warn!("{}: {error}", self.name);
        }
    }

    /// Puts back what is missing. Returns when to check again what has to wait for a retry.
    pub(crate) fn follow(&mut self, view: &mut View<'_>, now: Instant) -> Option<Instant> {
        self.retries.retain(|_, retry| !retry.is_over(now));
        let mut missing = self.manager.missing(&self.wanted, view).ok()?;
        let mut again = None;
        missing.retain(|change| {
            let until = self.retries.get(&change.to_string()).map(Retry::until);
            let waits = until.filter(|until| *until > now);
            again = earlier(again, waits);
            waits.is_none()
        });
        if missing.is_empty() {
            return again;
        }
        match self.manager.make(&missing) {
            Ok(done) => earlier(again, self.note(&missing, &done, now)),
            Err(error) => {
                debug!("{}: {error}", self.name);
                again
            }
        }
    }

    /// Logs which changes were put back. Returns when to retry those that failed.
    fn note(&mut self, missing: &[Change], done: &Reconciled, now: Instant) -> Option<Instant> {
        let (name, mut again) = (&self.name, None);
        for (change, error) in &done.failed {
            let retry = Retry::of(&mut self.retries, change, now);
            again = earlier(again, Some(retry.until()));
            let error = error.to_string();
            if retry.times < PATIENCE || retry.said.as_ref() == Some(&error) {
                debug!("{name}: cannot {change}: {error}");
            } else {
                warn!(
                    "{name}: removed by another program, and can't be put back: {change}: {error}; will retry"
                );
                retry.said = Some(error);
            }
        }
        let failed = |it: &&Change| done.failed.iter().any(|(change, _)| change == *it);
        let back: Vec<&Change> = missing.iter().filter(|it| !failed(it)).collect();
        for change in &back {
            Retry::of(&mut self.retries, change, now).said = None;
        }
        for change in back.iter().take(LISTED) {
            info!("{name}: removed by another program; put back: {change}");
        }
        if back.len() > LISTED {
            info!("{name}: and {} more are put back", back.len() - LISTED);
        }
        again
    }

    /// Takes everything back.
    pub(crate) fn take_back(mut self) {
        ledger::take_back(&self.name, &mut self.manager);
    }
}

/// The earlier of two moments, where there are some.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
