//! What somebody wants of the host: a list of changes, made so and kept so.
//!
//! Whoever has such a list, a translator or a service, says what it is when it starts and whenever that changes
//! ([`Upkeep::want`], [`Upkeep::settle`]). Between that, each look at the host ([`Upkeep::follow`]) holds the list against
//! what is there, and puts back what firewalls flush, network managers remove, and the kernel takes away with an interface
//! that goes down. The kernel's messages start such a look; without any it comes from time to time.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use fordway_net::{Applied, Change, Manager, Reconciled, View};
use tracing::{debug, info, warn};

use crate::daemon::handover::ledger;
use crate::daemon::plan::changes::last_of_each;
use crate::failure::Failure;

/// What fails, or is taken away again and again, is tried again after this time, which doubles.
const FIRST: Duration = Duration::from_millis(250);
const MOST: Duration = Duration::from_secs(30);

/// A change that was put back and stayed for so long is in nobody's way.
const PEACE: Duration = Duration::from_secs(60);

/// As often as this it may be a moment's matter: an uplink that comes back has its addresses before its routes.
const PATIENCE: u32 = 3;

/// As many changes are told one by one.
const TOLD: usize = 5;

/// What one owner wants of the host.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// Whose it is, for people.
    name: String,
    manager: Manager,
    wanted: Vec<Change>,
    troubles: HashMap<String, Trouble>,
}

/// A change that did not last.
#[derive(Debug)]
struct Trouble {
    times: u32,
    last: Instant,
    /// Why it could not be made.
    said: Option<String>,
}

impl Trouble {
    /// One more with `change`.
    fn of<'a>(
        troubles: &'a mut HashMap<String, Trouble>,
        change: &Change,
        now: Instant,
    ) -> &'a mut Trouble {
        let none = Trouble { times: 0, last: now, said: None };
        let trouble = troubles.entry(change.to_string()).or_insert(none);
        trouble.times += 1;
        trouble.last = now;
        trouble
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= PEACE
    }

    /// Until when it is left alone. The first time is free: what somebody took away is put back at once.
    fn until(&self) -> Instant {
        let doubled = FIRST.saturating_mul(1 << self.times.saturating_sub(1).min(16));
        self.last + doubled.min(MOST)
    }
}

impl Upkeep {
    /// What is made goes on to be in use when this process has ended.
    pub(crate) fn keep(&mut self) -> Result<(), Failure> {
        Ok(self.manager.keep(Some(ledger::home()))?)
    }

    /// Of the owner `owner` in the ledger, whom the log calls `name`.
    pub(crate) fn open(run_dir: &Path, owner: &str, name: &str) -> Result<Upkeep, Failure> {
        let manager = Manager::open(run_dir, owner)?;
        let (wanted, troubles) = (Vec::new(), HashMap::new());
        Ok(Upkeep { name: name.to_owned(), manager, wanted, troubles })
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
        for (change, applied) in changes.iter().zip(applied) {
            match applied {
                Applied::Present => debug!("{}: {change}: it is so already", self.name),
                applied => debug!("{}: {change}: {applied:?}", self.name),
            }
        }
        self.wanted = last_of_each(changes);
        self.troubles.clear();
        Ok(())
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

    /// Gives some changes up that were wanted.
    pub(crate) fn give_up(&mut self, changes: &[Change]) {
        self.wanted.retain(|it| !changes.iter().any(|gone| gone.same_object(it)));
        if let Err(error) = self.manager.reconcile(&self.wanted) {
            warn!("{}: {error}", self.name);
        }
    }

    /// Looks, and puts back what is missing. What did not last is left alone for a while: when to look at it again.
    pub(crate) fn follow(&mut self, view: &mut View<'_>, now: Instant) -> Option<Instant> {
        self.troubles.retain(|_, trouble| !trouble.is_over(now));
        let mut missing = self.manager.missing(&self.wanted, view).ok()?;
        let mut again = None;
        missing.retain(|change| {
            let until = self.troubles.get(&change.to_string()).map(Trouble::until);
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

    /// What came of putting changes back; when to try again what failed.
    fn note(&mut self, missing: &[Change], done: &Reconciled, now: Instant) -> Option<Instant> {
        let (name, mut again) = (&self.name, None);
        for (change, error) in &done.failed {
            let trouble = Trouble::of(&mut self.troubles, change, now);
            again = earlier(again, Some(trouble.until()));
            let error = error.to_string();
            if trouble.times < PATIENCE || trouble.said.as_ref() == Some(&error) {
                debug!("{name}: cannot {change}: {error}");
            } else {
                warn!(
                    "{name}: somebody took it away, and it can't be put back: {change}: {error}; it is tried again"
                );
                trouble.said = Some(error);
            }
        }
        let failed = |it: &&Change| done.failed.iter().any(|(change, _)| change == *it);
        let back: Vec<&Change> = missing.iter().filter(|it| !failed(it)).collect();
        for change in &back {
            Trouble::of(&mut self.troubles, change, now).said = None;
        }
        for change in back.iter().take(TOLD) {
            info!("{name}: somebody took it away, and it is put back: {change}");
        }
        if back.len() > TOLD {
            info!("{name}: and so are {} more", back.len() - TOLD);
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
