//! The thread that sweeps the tables of a stateful translator.
//!
//! It works in stretches of [`STRETCH`], and pauses between them so long that looking at entries takes one part in
//! [`SHARE`] of a processor. So a sweep of small tables ends within its first stretch, and begins again after
//! [`INTERVAL`]; a sweep of 10 million sessions takes some seconds. What ends entries is not slowed down by that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fordway_xlat::nat64::{Event, Nat64, Slice, Sweeper, Swept};

use crate::clock::monotonic;
use crate::current::Follower;
use crate::priority;
use crate::quiescence::Threads;
use crate::stop::Stop;

/// From the beginning of a sweep to that of the next, at least. In tables that a sweep passes in this time, lifetimes are
/// exact to it.
const INTERVAL: Duration = Duration::from_millis(500);

/// The thread works for so long without a pause, and then finishes its chunk.
const STRETCH: Duration = Duration::from_millis(2);

/// Entries between two looks at the clock.
const CHUNK: u32 = 512;

/// Looking at entries takes one part in so many of a processor's time.
const SHARE: u64 = 25;

/// To remove an entry costs about as much as to look at so many: it and its neighbours in chains lie anywhere in memory.
const REMOVAL: u64 = 64;

/// If less than an eighth of a table is free, and more than one part in so many had to be removed, the sweeper takes
/// half a processor.
const HURRY: u64 = 32;

/// Removed entries that wait for a grace period at most while a sweep is under way.
const WAITING: usize = 65_536;

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
    pub(crate) threads: Threads,
    pub(crate) probes: Arc<Probes>,
    pub(crate) found: Found,
    pub(crate) stop: Stop,
    pub(crate) sweeper: Shared,
    pub(crate) sweeping: Sweeping,
}

/// The one sweeper of an engine's tables, which alone removes entries. Held for a chunk of entries at a time.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<Sweeper>>);

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared(Arc::new(Mutex::new(Sweeper::over(processors()))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Sweeper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries that were looked at, and removed.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    looked: u64,
    ended: u64,
}

impl Work {
    fn add(&mut self, slice: &Slice) {
        self.looked += u64::from(slice.looked);
        self.ended += u64::from(slice.ended);
    }

    /// How long to pause after this work, which has taken `spent`.
    fn pause(self, spent: Duration) -> Duration {
        let looking = self.looked as f64 / (self.looked + REMOVAL * self.ended).max(1) as f64;
        spent.mul_f64((SHARE - 1) as f64 * looking)
    }
}

/// The sweeper, and how its work is spread over time.
struct Pace {
    sweeper: Shared,
    /// When the sweep that is under way has begun, and what it has done.
    begun: Duration,
    work: Work,
    /// What the sweep before has done.
    before: Work,
    /// When the last grace period was over.
    graced: Duration,
}

impl Pace {
    fn new(sweeper: Shared) -> Pace {
        let (work, before) = (Work::default(), Work::default());
        Pace { sweeper, begun: monotonic(), work, before, graced: monotonic() }
    }

    /// Looks at entries for a stretch. Gives how long it took, what it has done, and at the end of a sweep what that has
    /// counted.
    fn look(
        &mut self,
        nat64: &Nat64,
        tell: &mut dyn FnMut(Event),
    ) -> (Duration, Work, Option<Swept>) {
        let begun = monotonic();
        let (mut now, mut work) = (begun, Work::default());
        loop {
            let slice = self.sweeper.lock().slice(nat64, now, CHUNK, tell);
            work.add(&slice);
            self.work.add(&slice);
            now = monotonic();
            let spent = now.saturating_sub(begun);
            if slice.swept.is_some() || spent >= STRETCH {
                return (spent, work, slice.swept);
            }
        }
    }

    /// Whether expired entries take room that new ones need.
    fn hurries(&self, nat64: &Nat64) -> bool {
        self.before.ended * HURRY > self.before.looked && nat64.is_short()
    }

    /// Whether it is time to wait for a grace period.
    fn wants_grace(&self, is_over: bool) -> bool {
        let waiting = self.sweeper.lock().waiting();
        let is_long = || monotonic().saturating_sub(self.graced) >= INTERVAL;
        waiting > 0 && (is_over || waiting >= WAITING || is_long())
    }

    /// The sweep is over. Gives how long to wait for the next one.
    fn rest(&mut self, pause: Duration) -> Duration {
        let due = self.begun + INTERVAL;
        let rest = due.saturating_sub(monotonic()).max(pause);
        self.before = std::mem::take(&mut self.work);
        self.begun = monotonic() + rest;
        rest
    }
}

impl Task {
    /// Sweeps until it is told to stop.
    pub(crate) fn run(mut self) {
        priority::level();
        let mut pace = Pace::new(self.sweeper.clone());
        // The tables may be those of an earlier process with other settings.
        pace.sweeper.lock().review();
        let mut last: Option<(Arc<Nat64>, u32)> = None;
        loop {
            self.core.follow();
            let mut pause = INTERVAL;
            let tables = self.core.get().tables().map(|nat64| (Arc::clone(nat64), nat64.settled()));
            // Settings that may still be refused end nothing, and it is not the time to sweep by those before them.
            if let Some((nat64, settled)) = tables.filter(|(_, settled)| *settled > 0) {
                let is_known = |(last, times): &(Arc<Nat64>, u32)| {
                    Arc::ptr_eq(last, &nat64) && *times == settled
                };
                if last.as_ref().is_some_and(|last| !is_known(last)) {
                    // Threads may still make entries by the earlier settings: these are reviewed, too.
                    if !self.pass_grace() {
                        return;
                    }
                    pace.sweeper.lock().review();
                }
                let Some(next) = self.stretch(&mut pace, &nat64) else { return };
                pause = next;
                last = Some((nat64, settled));
            }
            if self.stop.wait(pause) {
                return;
            }
        }
    }

    /// Works for a stretch, and gives how long to pause then. `None`: told to stop meanwhile.
    fn stretch(&mut self, pace: &mut Pace, nat64: &Nat64) -> Option<Duration> {
        let (tell, probes) = (&mut self.sweeping.tell, &self.probes);
        let (spent, work, swept) = pace.look(nat64, &mut |event| {
            if matches!(event, Event::Probe { .. }) {
                probes.put(event);
            }
            if let Some(tell) = tell {
                tell(event);
            }
        });
        let is_over = swept.is_some();
        if let Some(swept) = swept {
            self.found.set(swept);
        }
        if pace.wants_grace(is_over) {
            pace.sweeper.lock().grace_begins();
            // If it is told to stop, the entries stay unlinked; the next process finds them by their state.
            if !self.pass_grace() || !self.free(nat64) {
                return None;
            }
            pace.graced = monotonic();
        }
        let pause = if pace.hurries(nat64) { spent } else { work.pause(spent) };
        Some(if is_over { pace.rest(pause) } else { pause })
    }

    /// Frees what was unlinked before a grace period that is over. `false`: told to stop meanwhile.
    fn free(&self, nat64: &Nat64) -> bool {
        self.sweeper.lock().grace_over(nat64);
        let mut begun = monotonic();
        while self.sweeper.lock().free(nat64, CHUNK as usize) {
            if monotonic().saturating_sub(begun) >= STRETCH {
                if self.stop.wait(STRETCH) {
                    return false;
                }
                begun = monotonic();
            }
        }
        true
    }

    /// Waits until every burst of packets has ended, and every program in the kernel, that were under way when the wait
    /// began. `false`: told to stop meanwhile.
    fn pass_grace(&self) -> bool {
        let mut grace = self.threads.grace();
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
