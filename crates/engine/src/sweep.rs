//! The thread that sweeps the tables of a stateful translator.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fordway_xlat::nat64::{Event, Nat64, Sweeper, Swept};

use crate::clock::monotonic;
use crate::current::Follower;
use crate::quiescence::{Bursts, Grace};
use crate::stop::Stop;

/// Between two sweeps. Lifetimes are exact to this.
const INTERVAL: Duration = Duration::from_millis(500);

/// Probes that wait for a queue's thread at most; connections beyond end without a probe.
const PROBES: usize = 1024;

/// Hooks of the sweeper.
#[derive(Default)]
pub struct Sweeping {
    /// Gets the events of the tables, in the sweeper's thread.
    pub tell: Option<Box<dyn FnMut(Event) + Send>>,
    /// Returns when every program in the kernel that was running has ended (an RCU grace period); `None` where there
    /// are no such programs.
    pub kernel_grace: Option<Box<dyn Fn() + Send>>,
}

impl std::fmt::Debug for Sweeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeping").finish_non_exhaustive()
    }
}

/// Probes to be sent by a queue's thread.
#[derive(Debug, Default)]
pub(crate) struct Probes(Mutex<VecDeque<Event>>);

impl Probes {
    fn put(&self, probe: Event) {
        let mut probes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if probes.len() < PROBES {
            probes.push_back(probe);
        }
    }

    /// The next probe.
    pub(crate) fn take(&self) -> Option<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The result of the last sweep, shared with its readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found(Arc<Mutex<Swept>>);

impl Found {
    pub(crate) fn get(&self) -> Swept {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, swept: Swept) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = swept;
    }
}

/// How many processors there are: one more than the highest number of those that work.
fn processors() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let highest = online.trim().rsplit([',', '-']).next().and_then(|number| number.parse().ok());
    highest.map_or(usize::MAX, |highest: usize| highest.saturating_add(1))
}

/// The thread's own.
pub(crate) struct Task {
    pub(crate) core: Follower,
    pub(crate) threads: Vec<Bursts>,
    pub(crate) probes: Arc<Probes>,
    pub(crate) found: Found,
    pub(crate) stop: Stop,
    pub(crate) sweeping: Sweeping,
}

impl Task {
    /// Sweeps until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut sweeper = Sweeper::over(processors());
        // The tables may be those of an earlier process with other settings.
        sweeper.review();
        let mut last: Option<Arc<Nat64>> = None;
        loop {
            self.core.follow();
            if let Some(nat64) = self.core.get().tables().cloned() {
                if last.as_ref().is_some_and(|last| !Arc::ptr_eq(last, &nat64)) {
                    // Threads may still make entries by the earlier settings: these are reviewed, too.
                    if !self.pass_grace() {
                        return;
                    }
                    sweeper.review();
                }
                if !self.sweep(&mut sweeper, &nat64) {
                    return;
                }
                last = Some(nat64);
            }
            if self.stop.wait(INTERVAL) {
                return;
            }
        }
    }

    /// Sweeps once. `false`: told to stop meanwhile.
    fn sweep(&mut self, sweeper: &mut Sweeper, nat64: &Nat64) -> bool {
        let (tell, probes) = (&mut self.sweeping.tell, &self.probes);
        let swept = sweeper.sweep(nat64, monotonic(), &mut |event| {
            if matches!(event, Event::Probe { .. }) {
                probes.put(event);
            }
            if let Some(tell) = tell {
                tell(event);
            }
        });
        let waiting = swept.waiting;
        self.found.set(swept);
        if waiting > 0 {
            // If it is told to stop, the entries stay unlinked; the next process finds them by their state.
            if !self.pass_grace() {
                return false;
            }
            sweeper.release(nat64);
        }
        true
    }

    /// Waits until every burst of packets has ended, and every program in the kernel, that were under way when the wait
    /// began. `false`: told to stop meanwhile.
    fn pass_grace(&self) -> bool {
        let mut grace = Grace::begin(&self.threads);
        while !grace.is_over() {
            // A burst takes well below a millisecond.
            if self.stop.wait(Duration::from_millis(1)) {
                return false;
            }
        }
        if let Some(wait) = &self.sweeping.kernel_grace {
            wait();
        }
        true
    }
}

#[cfg(test)]
mod tests;
