//! The NAT64 tables of an engine as a data path: their records are told and applied, and packets of a shard are translated
//! while this gateway owns it.
//!
//! One thread looks at the sessions that have changed, and scans the tables for everything else ([`Replica`]). Each call of the
//! member waits for it for at most some milliseconds, and for the sweeper for at most one of its chunks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fordway_cluster::{Member, Nanos, Record, RecordKey, Shard};
use fordway_counters::cluster::{SharedTablesStats, TablesStats};
use fordway_serve::boottime;
use fordway_xlat::nat64::replica::{self, ApplyError, Replica, Replicated};
use fordway_xlat::nat64::{Nat64, Shards, Sweeper};
use tokio::sync::Notify;

use crate::data_path::{Change, DataPath};
use crate::owners::Owners;

use changes::Changes;
use stops::Stops;

mod changes;
mod stops;

/// Between two looks at changed sessions.
const INTERVAL: Duration = Duration::from_millis(5);
/// The thread looks, and scans, for so long without a pause.
const STRETCH: Duration = Duration::from_millis(1);
/// Looking at changed sessions takes one part in so many of a processor's time, if there are more than it can tell in
/// [`STRETCH`].
const LOOK_SHARE: u32 = 4;
/// Entries between two looks at the clock.
const CHUNK: u32 = 512;
/// Scanning takes one part in so many of a processor's time, and from the beginning of a scan to that of the next so long
/// passes at least.
const PACE: (u32, Duration) = (32, Duration::from_millis(50));
/// The same while there are [leftovers](Replica::has_leftovers).
const HASTE: (u32, Duration) = (8, INTERVAL);
/// Between two looks whether bursts of packets are over.
const SOON: Duration = Duration::from_micros(100);
/// For so long unknown packets are not answered after a take-over.
const QUIET: Duration = Duration::from_secs(1);

/// Why an engine's tables are none of a cluster's.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The engine translates without state, or its settings have no shards.
    #[error("the translator's tables have no shards")]
    NoShards,
    /// There is no thread.
    #[error("no thread that looks for changes of the tables: {0}")]
    Thread(#[from] io::Error),
}

struct State {
    replica: Replica,
    changes: Changes,
    stops: Stops,
    /// Applied records that the replica could not remember.
    forgotten: BTreeSet<(u16, RecordKey)>,
    /// A round of looking at changed sessions is under way.
    is_looking: bool,
    is_scanning: bool,
    /// When the scan that is under way has begun.
    begun: Instant,
    /// When it goes on, or the next one begins.
    scans_at: Instant,
    stats: TablesStats,
    /// Shards that are another gateway's since a moment ago: when programs may hand over to it.
    ways: Vec<(Instant, Shard, Member)>,
    is_over: bool,
}

struct Shared {
    engine: fordway_engine::Tables,
    shards: Arc<Shards>,
    settings: TablesSettings,
    state: Mutex<State>,
    /// Something is to be stopped, or the thread itself.
    called: Condvar,
}

/// An engine's tables, which a member changes.
pub struct Tables {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What an engine's tables are told with, and what they tell others.
#[derive(Clone, Debug)]
pub struct TablesSettings {
    /// Which sessions are replicated.
    pub replicated: Replicated,
    /// Notified of changes.
    pub wake: Arc<Notify>,
    /// Told the owners of shards.
    pub owners: Arc<Owners>,
    /// Told what each scan has found.
    pub stats: Arc<SharedTablesStats>,
    /// Interfaces from which packets that programs hand over to other gateways arrive, by their indices.
    pub ways: BTreeMap<Member, u32>,
    /// Waits until programs in the kernel, which change the tables as well, have ended that run now. `None`: there are none.
    pub programs: Option<fn()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the tables. An engine of a cluster always has some.
    fn with<T>(&self, f: impl FnOnce(&Nat64, &mut Sweeper, Duration) -> T) -> Option<T> {
        self.engine.with(f)
    }

    /// The thread.
    fn run(&self) {
        let mut state = self.lock();
        while !state.is_over {
            let pause = self.stretch(&mut state);
            let pause = pause.min(self.open_ways(&mut state));
            if !state.changes.is_empty() {
                self.settings.wake.notify_one();
            }
            let waited = self.called.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.stops.look_at_bursts();
            if state.stops.waits_for_programs() {
                drop(state);
                self.wait_for_programs();
                state = self.lock();
                let is_looking = state.is_looking;
                state.stops.end_programs(is_looking);
            }
        }
    }

    /// Opens the ways that are due. Gives when to come again, at the latest.
    fn open_ways(&self, state: &mut State) -> Duration {
        let now = Instant::now();
        for (_, shard, owner) in state.ways.extract_if(.., |(due, ..)| *due <= now) {
            if self.settings.owners.of(shard.0) == Some(owner) {
                self.open_way(shard, owner);
            }
        }
        let next = state.ways.iter().map(|(due, ..)| due.saturating_duration_since(now));
        next.min().unwrap_or(Duration::MAX)
    }

    fn open_way(&self, shard: Shard, owner: Member) {
        self.shards.set_way(shard.0, self.settings.ways.get(&owner).copied().unwrap_or(0));
    }

    fn wait_for_programs(&self) {
        if let Some(wait) = self.settings.programs {
            wait();
        }
    }

    /// Looks at changed sessions, and scans if it is time, as far as the member takes what is found. Gives how long to pause.
    fn stretch(&self, state: &mut State) -> Duration {
        let begun = Instant::now();
        while !state.changes.is_full() && self.look_at_changed(state) && begun.elapsed() < STRETCH {
        }
        let looked = begun.elapsed();
        if begun >= state.scans_at && !state.changes.is_full() {
            self.scan_on(state);
        }
        self.finish(state);
        if state.changes.is_full() {
            INTERVAL
        } else if !state.stops.is_empty() {
            SOON
        } else if state.is_looking {
            looked * (LOOK_SHARE - 1)
        } else {
            state.scans_at.saturating_duration_since(Instant::now()).min(INTERVAL)
        }
    }

    /// Gives what the member is to be told; the thread goes on if it has waited for that.
    fn take_changes(&self, state: &mut State) -> Vec<Change> {
        if state.changes.is_full() {
            self.called.notify_one();
        }
        state.changes.take()
    }

    /// Looks at some changed sessions. Gives whether there may be more.
    fn look_at_changed(&self, state: &mut State) -> bool {
        let State { replica, changes, .. } = state;
        let mut tell = |change: replica::Change<'_>| changes.put(&change);
        let looked = self.with(|nat, _, now| replica.look_at_changed(nat, now, CHUNK, &mut tell));
        let Some(looked) = looked else { return false };
        state.is_looking = !looked.is_complete;
        if looked.is_complete {
            state.stops.end_round(looked.waits);
        }
        state.is_looking
    }

    /// Scans for a stretch.
    fn scan_on(&self, state: &mut State) {
        let begun = Instant::now();
        if !state.is_scanning {
            state.begun = begun;
        }
        let mut is_complete = false;
        while !is_complete && !state.changes.is_full() && begun.elapsed() < STRETCH {
            is_complete = self.scan(state);
        }
        let (share, interval) = if state.replica.has_leftovers() { HASTE } else { PACE };
        state.scans_at = begun + begun.elapsed() * share;
        if is_complete {
            state.scans_at = state.scans_at.max(state.begun + interval);
            state.end_scan();
            self.settings.stats.set(state.stats);
        }
    }

    /// Looks at a chunk of entries. Gives whether the scan is complete.
    fn scan(&self, state: &mut State) -> bool {
        let State { replica, changes, .. } = state;
        let mut tell = |change: replica::Change<'_>| changes.put(&change);
        let scanned =
            self.with(|nat, sweeper, now| replica.scan(nat, sweeper, now, CHUNK, &mut tell));
        state.is_scanning = scanned.is_some_and(|scanned| !scanned.is_complete);
        !state.is_scanning
    }

    /// Of stopped shards whose changes were all told, one: it takes time for each record.
    fn finish(&self, state: &mut State) {
        if let Some((shard, ticket)) = state.stops.take_done() {
            self.let_go(state, shard, Some(ticket));
            state.scans_at = Instant::now();
        }
    }

    /// A shard of which nothing is in translation any more is not this gateway's.
    fn let_go(&self, state: &mut State, shard: Shard, ticket: Option<u64>) {
        self.with(|nat, sweeper, now| state.replica.lose(nat, sweeper, now, shard.0));
        if let Some(ticket) = ticket {
            state.changes.stopped(shard, ticket);
        }
    }

    /// Another gateway's records are to come: a stop of the shard is done now.
    fn settle(&self, state: &mut State, shard: Shard) {
        if !self.shards.owns(shard.0) {
            return;
        }
        self.shards.disable(shard.0);
        let stop = state.stops.take(shard);
        let have_left = stop.is_some_and(|(_, have_left)| have_left);
        let mut grace = (!have_left).then(|| self.engine.grace());
        // Bursts take well below a millisecond.
        while grace.as_mut().is_some_and(|it| !it.is_over()) {
            thread::sleep(SOON);
        }
        if grace.is_some() {
            self.wait_for_programs();
        }
        self.let_go(state, shard, stop.map(|(ticket, _)| ticket));
    }
}

impl State {
    /// A scan is complete.
    fn end_scan(&mut self) {
        let refused = self.replica.refused().map(|(_, number)| number).sum();
        self.stats = TablesStats {
            scans: self.stats.scans + 1,
            last_scan_us: self.begun.elapsed().as_micros() as u64,
            unplaced: (self.replica.unplaced() + self.forgotten.len()) as u64,
            refused,
        };
        self.stops.end_scan();
    }

    /// Forgets which records of a shard are in no table, and gives them.
    fn take_forgotten(&mut self, shard: Shard) -> Vec<RecordKey> {
        let of_shard = (shard.0, [0; 24])..=(shard.0, [u8::MAX; 24]);
        self.forgotten.extract_if(of_shard, |_| true).map(|(_, key)| key).collect()
    }
}

impl Tables {
    /// Tables of which nothing is translated until the member says so. The engine's translator must have shards, also after
    /// each reconfiguration the same ones.
    pub fn start(
        engine: fordway_engine::Tables,
        settings: TablesSettings,
    ) -> Result<Tables, TablesError> {
        let replicated = settings.replicated;
        let opened = engine.with(|nat, _, _| {
            Some((Arc::clone(nat.settings().shards.as_ref()?), Replica::new(nat, replicated)?))
        });
        let (shards, replica) = opened.flatten().ok_or(TablesError::NoShards)?;
        shards.lease(Duration::ZERO);
        let state = Mutex::new(State {
            replica,
            changes: Changes::default(),
            stops: Stops::default(),
            forgotten: BTreeSet::new(),
            is_looking: false,
            is_scanning: false,
            begun: Instant::now(),
            scans_at: Instant::now(),
            stats: TablesStats::default(),
            ways: Vec::new(),
            is_over: false,
        });
        let shared = Arc::new(Shared { engine, shards, settings, state, called: Condvar::new() });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fordway-records".into());
        let thread = Some(thread.spawn(move || own.run())?);
        Ok(Tables { shared, thread })
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.called.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of its own was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl DataPath for Tables {
    /// Tables that programs in the kernel change outlive a process.
    fn loaded(&mut self) -> Vec<(Shard, u64, Vec<Record>)> {
        let (shared, mut loaded) = (&self.shared, BTreeMap::<u16, Vec<Record>>::new());
        // Those of the earlier process have no lease any more.
        shared.wait_for_programs();
        let mut tell = |change: replica::Change<'_>| {
            let record = Record { key: change.key, value: change.value.map(Into::into) };
            loaded.entry(change.shard).or_default().push(record);
        };
        let mut state = shared.lock();
        shared.with(|nat, sweeper, now| state.replica.load(nat, sweeper, now, &mut tell));
        for shard in 0..shared.shards.number() {
            if shared.shards.epoch(shard) != 0 {
                loaded.entry(shard).or_default();
            }
        }
        let with_epoch = |(shard, records)| (Shard(shard), shared.shards.epoch(shard), records);
        loaded.into_iter().map(with_epoch).collect()
    }

    fn lease(&mut self, until: Nanos) {
        self.shared.shards.lease(Duration::from_nanos(until));
    }

    fn translate(&mut self, shard: Shard, epoch: u64, is_quiet: bool) {
        let shared = &self.shared;
        let mut state = shared.lock();
        // A move that was given up.
        state.stops.take(shard);
        if !shared.shards.owns(shard.0) {
            for key in state.take_forgotten(shard) {
                state.changes.put(&replica::Change { shard: shard.0, key, value: None });
            }
            let State { replica, changes, .. } = &mut *state;
            let mut tell = |change: replica::Change<'_>| changes.put(&change);
            shared.with(|nat, sweeper, now| {
                replica.take_over(nat, sweeper, now, shard.0, &mut tell);
            });
        }
        shared.shards.set_epoch(shard.0, epoch);
        shared.shards.enable(shard.0, is_quiet.then(|| boottime::now() + QUIET));
        if !state.changes.is_empty() {
            shared.settings.wake.notify_one();
        }
    }

    fn owner(&mut self, shard: Shard, owner: Member) {
        if self.shared.settings.owners.set(shard, owner) {
            let due = Instant::now() + self.shared.settings.owners.told;
            self.shared.lock().ways.push((due, shard, owner));
        } else {
            self.shared.open_way(shard, owner);
        }
    }

    fn known(&mut self, shard: Shard, owner: Member) {
        if self.shared.settings.owners.of(shard.0) == Some(owner) {
            self.shared.settings.owners.know(shard);
            self.shared.lock().ways.retain(|(_, other, _)| *other != shard);
            self.shared.open_way(shard, owner);
        }
    }

    fn changes(&mut self) -> Vec<Change> {
        // Nothing would be told any more, so this gateway must not own shards: its lease ends with the member's thread.
        let has_ended = |thread: &JoinHandle<()>| thread.is_finished();
        assert!(!self.thread.as_ref().is_some_and(has_ended), "the scan of the tables has ended");
        self.shared.take_changes(&mut self.shared.lock())
    }

    fn stop(&mut self, shard: Shard, ticket: u64) {
        self.shared.shards.disable(shard.0);
        let grace = self.shared.engine.grace();
        self.shared.lock().stops.begin(shard, ticket, grace);
        self.shared.called.notify_one();
    }

    fn clear(&mut self, shard: Shard) {
        let mut state = self.shared.lock();
        self.shared.settle(&mut state, shard);
        self.shared.shards.set_epoch(shard.0, 0);
        state.take_forgotten(shard);
        self.shared.with(|nat, sweeper, _| state.replica.clear(nat, sweeper, shard.0));
    }

    fn apply(&mut self, shard: Shard, records: &[Record]) {
        let mut state = self.shared.lock();
        self.shared.settle(&mut state, shard);
        self.shared.shards.set_epoch(shard.0, 0);
        let State { replica, forgotten, .. } = &mut *state;
        self.shared.with(|nat, sweeper, now| {
            for Record { key, value } in records {
                let value = value.as_deref();
                let change = replica::Change { shard: shard.0, key: *key, value };
                forgotten.remove(&(shard.0, *key));
                // Others are counted, and told as removed at the take-over.
                if let Err(ApplyError::Unplaced) = replica.apply(nat, sweeper, now, change) {
                    forgotten.insert((shard.0, *key));
                }
            }
        });
    }

    fn read(
        &mut self,
        shard: Shard,
        after: Option<RecordKey>,
        most: usize,
    ) -> (Vec<Change>, Vec<Record>, bool) {
        let mut state = self.shared.lock();
        let mut records = Vec::new();
        let mut tell = |change: replica::Change<'_>| {
            records.push(Record { key: change.key, value: change.value.map(Into::into) });
        };
        let is_last = state.replica.chunk(shard.0, after.as_ref(), most, &mut tell);
        (self.shared.take_changes(&mut state), records, is_last)
    }
}

#[cfg(test)]
mod tests;
