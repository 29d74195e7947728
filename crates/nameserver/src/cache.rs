//! Ready answers by what was asked, for all threads.
//!
//! A hit takes no lock, and writes to no cache line that another thread's hit reads or writes, with one exception: the
//! flag of an answer that has not been used since it was last considered for eviction. (A reader announces itself to
//! the reclamation of memory in a cache line of its thread.) An insertion locks one of the shards.

use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use papaya::ResizeMode;

use super::query::{MAX_NAME, Query};
use super::ready::Ready;
use fordway_resolver::Selection;

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
/// Octets of an answer beside the octets of the key and the answer itself: the key's counts of references, the pointers in
/// entry and queue, the place in the table.
const REST: usize = 80;
/// Entries that an insertion moves while the table is replaced by another, some 20 µs. Hits look through both tables until
/// all are moved, so that should be soon.
const MOVED: usize = 1024;

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

    /// Whether it is of an answer under this policy.
    pub(super) fn is_under(&self, policy: usize) -> bool {
        self.octets[..4] == (policy as u32).to_be_bytes()
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
    /// By the octets of [`Key`]. A key is in here if and only if it is in the queue of its shard; both change under that
    /// shard's lock.
    entries: papaya::HashMap<Arc<[u8]>, Kept, RandomState>,
    hasher: RandomState,
    shards: Box<[Shard]>,
    /// Octets of each shard.
    share: usize,
    /// How often something was flushed.
    flushes: AtomicU64,
}

/// An answer.
struct Kept {
    ready: Ready,
    /// Since its key came to the end of the queue, or the answer was replaced by a newer one.
    used: AtomicBool,
    /// Somebody was told to make it anew.
    renewed: AtomicBool,
}

/// Apart from its neighbours' cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    keys: VecDeque<Arc<[u8]>>,
    octets: usize,
}

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
        let entries = papaya::HashMap::builder()
            .hasher(hasher.clone())
            .resize_mode(ResizeMode::Incremental(MOVED))
            .build();
        ReadyCache {
            entries,
            hasher,
            shards: (0..shards).map(|_| Shard::default()).collect(),
            share: octets / shards,
            flushes: AtomicU64::new(0),
        }
    }

    /// Gives `read` the answer that is kept for a query, if there is one and it is fresh at `now`. With the time when it
    /// expires, if the caller is to make it anew: it is in the last tenth of its life, was asked for before, and nobody else
    /// was told so.
    pub(super) fn read(
        &self,
        key: &Key,
        now: u64,
        read: impl FnOnce(&Ready),
    ) -> Option<Option<u64>> {
        let guard = self.entries.guard();
        let Kept { ready, used, renewed } = self.entries.get(key.as_slice(), &guard)?;
        if !ready.is_fresh(now) {
            return None;
        }
        let mut due = None;
        if !used.load(Ordering::Relaxed) {
            used.store(true, Ordering::Relaxed);
        } else if ready.is_due(now)
            && !renewed.load(Ordering::Relaxed)
            && !renewed.swap(true, Ordering::Relaxed)
        {
            due = Some(ready.expires());
        }
        read(ready);
        Some(due)
    }

    /// How often something was flushed: an answer that was begun before must not be kept.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    /// Removes the answers about some names. How many that were.
    pub(super) fn flush(&self, of: &Selection) -> u64 {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        let guard = self.entries.guard();
        let mut removed = 0;
        for shard in &self.shards {
            let mut queue = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Queue { keys, octets } = &mut *queue;
            keys.retain(|key| {
                if !of.has(&key[FIXED..]) {
                    return true;
                }
                if let Some(Kept { ready, .. }) = self.entries.remove(&**key, &guard) {
                    *octets -= weight(key, ready);
                    removed += 1;
                }
                false
            });
        }
        removed
    }

    /// Keeps an answer that was made at `now`, unless something was flushed since `flushes`.
    pub(super) fn insert(&self, key: &Key, ready: Ready, now: u64, flushes: u64) {
        let octets = weight(key.as_slice(), &ready);
        if octets > self.share {
            return;
        }
        let guard = self.entries.guard();
        let mut queue = self.shard(key.as_slice());
        // A flush takes this lock after it was counted: either it is seen here, or it sees this answer.
        if self.flushes() != flushes {
            return;
        }
        queue.octets += octets;
        let key = match self.entries.get_key_value(key.as_slice(), &guard) {
            Some((key, before)) => {
                queue.octets -= weight(key, &before.ready);
                Arc::clone(key)
            }
            None => {
                let key: Arc<[u8]> = key.as_slice().into();
                queue.keys.push_back(Arc::clone(&key));
                key
            }
        };
        let (used, renewed) = (AtomicBool::new(false), AtomicBool::new(false));
        self.entries.insert(key, Kept { ready, used, renewed }, &guard);
        self.evict(&mut queue, now, &guard);
    }

    /// Makes room in a shard.
    fn evict(&self, queue: &mut Queue, now: u64, guard: &papaya::LocalGuard<'_>) {
        let mut spare = SPARED;
        while queue.octets > self.share
            || spare > 0 && queue.octets > self.share - self.share / SLACK
        {
            let Some(key) = queue.keys.pop_front() else { return };
            let Some(Kept { ready, used, .. }) = self.entries.get(&*key, guard) else { continue };
            if spare > 0 && used.swap(false, Ordering::Relaxed) && ready.is_fresh(now) {
                spare -= 1;
                queue.keys.push_back(key);
            } else {
                queue.octets -= weight(&key, ready);
                self.entries.remove(&*key, guard);
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
