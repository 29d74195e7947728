//! Ready answers by what was asked, for all threads.
//!
//! A hit takes no lock, and writes to no cache line that another thread's hit reads or writes, with one exception: the
//! flag of an answer that has not been used since it was last considered for eviction. (A reader announces itself to
//! the reclamation of memory in a cache line of its thread.) An insertion locks one of the shards.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use super::query::{MAX_NAME, Query};
use super::ready::Ready;

/// Policy, type, bits.
const FIXED: usize = 4 + 2 + 1;
/// Most shards, a power of two.
const SHARDS: usize = 64;
/// Octets of a shard at least. The longest answer fits.
const LEAST_SHARD: usize = 256 << 10;
/// Octets of a cache at least: some thousand names, below which hardly any is asked for again in time.
const LEAST: usize = 1 << 20;
/// Answers that one insertion spares at most because they have been used.
const SPARED: usize = 32;
/// The part of a shard, one of so many, that eviction keeps free, so that an insertion that has spared so many need not
/// evict one that is used.
const SLACK: usize = 16;
/// Octets of an answer beside the key and the answer itself: its place with the counts of references, the entry of the
/// table, the pointers to both.
const REST: usize = 112;

/// The key of an answer: the client's policy, the name without regard to case, the type, and those bits of a query that
/// change its answer.
#[derive(Clone, Copy)]
pub(super) struct Key {
    octets: [u8; FIXED + MAX_NAME],
    len: usize,
}

impl Key {
    /// The key of a query under a policy.
    pub(super) fn new(policy: usize, query: &Query<'_>) -> Self {
        let mut octets = [0; FIXED + MAX_NAME];
        let bits = u8::from(query.recursion_desired())
            | u8::from(query.authentic_data()) << 1
            | u8::from(query.checking_disabled()) << 2
            | u8::from(query.dnssec_ok()) << 3
            | u8::from(query.edns.is_some()) << 4;
        octets[..4].copy_from_slice(&(policy as u32).to_be_bytes());
        octets[4..6].copy_from_slice(&query.record_type.to_be_bytes());
        octets[6] = bits;
        let name = query.name();
        let len = FIXED + name.len();
        let lower = &mut octets[FIXED..len];
        lower.copy_from_slice(name);
        // Lengths of labels are below 64, so no letter: the name may be taken as text.
        lower.make_ascii_lowercase();
        Key { octets, len }
    }

    /// The name asked for, in lower case.
    pub(super) fn name(&self) -> &[u8] {
        &self.octets[FIXED..self.len]
    }

    fn as_slice(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// Ready answers of one generation of settings, within a bound of memory.
///
/// Eviction is second chance: answers of a shard stand in a queue; the first is evicted unless it has been used since it
/// came there; then it goes to the end.
pub(super) struct ReadyCache {
    /// Keyed by the octets of [`Key`]. A key is in here if and only if its place is in the queue of its shard; both
    /// change under that shard's lock.
    entries: papaya::HashMap<Held, Ready, RandomState>,
    hasher: RandomState,
    shards: Box<[Shard]>,
    /// Octets of each shard.
    share: usize,
}

/// Apart from its neighbours' cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    places: VecDeque<Arc<Place>>,
    octets: usize,
}

/// What outlives an answer that is replaced by a newer one to the same question.
struct Place {
    /// Since the place came to the end of the queue.
    used: AtomicBool,
    key: Box<[u8]>,
}

/// A place as the key of the table.
struct Held(Arc<Place>);

impl Borrow<[u8]> for Held {
    fn borrow(&self) -> &[u8] {
        &self.0.key
    }
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Held {}

impl fmt::Debug for ReadyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyCache").field("answers", &self.entries.len()).finish_non_exhaustive()
    }
}

impl ReadyCache {
    /// An empty cache for so many octets, but at least 1 MiB.
    pub(super) fn new(octets: usize) -> Self {
        let octets = octets.max(LEAST);
        // The power of two below.
        let shards = (1 << (octets / LEAST_SHARD).ilog2()).min(SHARDS);
        let hasher = RandomState::default();
        ReadyCache {
            entries: papaya::HashMap::with_hasher(hasher.clone()),
            hasher,
            shards: (0..shards).map(|_| Shard::default()).collect(),
            share: octets / shards,
        }
    }

    /// Gives `read` the answer that is kept for a query, if there is one and it is fresh at `now`.
    pub(super) fn read<R>(&self, key: &Key, now: u64, read: impl FnOnce(&Ready) -> R) -> Option<R> {
        let guard = self.entries.guard();
        let (held, ready) = self.entries.get_key_value(key.as_slice(), &guard)?;
        if !ready.is_fresh(now) {
            return None;
        }
        if !held.0.used.load(Ordering::Relaxed) {
            held.0.used.store(true, Ordering::Relaxed);
        }
        Some(read(ready))
    }

    /// Keeps an answer that was made at `now`.
    pub(super) fn insert(&self, key: &Key, ready: Ready, now: u64) {
        let octets = weight(key.as_slice(), &ready);
        if octets > self.share {
            return;
        }
        let guard = self.entries.guard();
        let mut queue = self.shard(key.as_slice());
        queue.octets += octets;
        let place = match self.entries.get_key_value(key.as_slice(), &guard) {
            Some((Held(place), before)) => {
                queue.octets -= weight(&place.key, before);
                Arc::clone(place)
            }
            None => {
                let used = AtomicBool::new(false);
                let place = Arc::new(Place { used, key: key.as_slice().into() });
                queue.places.push_back(Arc::clone(&place));
                place
            }
        };
        self.entries.insert(Held(place), ready, &guard);
        self.evict(&mut queue, now, &guard);
    }

    /// Makes room in a shard.
    fn evict(&self, queue: &mut Queue, now: u64, guard: &papaya::LocalGuard<'_>) {
        let mut spare = SPARED;
        while queue.octets > self.share
            || spare > 0 && queue.octets > self.share - self.share / SLACK
        {
            let Some(place) = queue.places.pop_front() else { return };
            let Some(ready) = self.entries.get(&*place.key, guard) else { continue };
            let is_used = place.used.swap(false, Ordering::Relaxed);
            if spare > 0 && is_used && ready.is_fresh(now) {
                spare -= 1;
                queue.places.push_back(place);
            } else {
                queue.octets -= weight(&place.key, ready);
                self.entries.remove(&*place.key, guard);
            }
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Queue> {
        let shard = self.hasher.hash_one(key) as usize % self.shards.len();
        self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Octets of memory that an answer and its key take.
fn weight(key: &[u8], ready: &Ready) -> usize {
    key.len() + ready.memory() + REST
}

#[cfg(test)]
mod tests;
