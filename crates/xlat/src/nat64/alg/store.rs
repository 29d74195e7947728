//! The connections that are watched, by the key of their session.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use spin::{Mutex, MutexGuard};

use super::connection::Connection;
use super::counters::AlgCounters;

/// What names a session: (T,t) and (Z,z).
pub(crate) type Key = ((Ipv4Addr, u16), (Ipv4Addr, u16));

/// Connections that are watched, at most.
const MOST: usize = 16_384;

/// Of these, those of one subscriber, or of one IPv6 network of 64 bits where that is more.
const MOST_OF_ONE: usize = MOST / 4;

/// Octets that are held for all of them, at most.
const OCTETS_MOST: usize = 32 * 1024 * 1024;

/// Enough that two threads seldom lock the same one.
const SHARDS: usize = 64;

/// A connection, with its ALG and its host.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) connection: Connection,
    pub(super) label: &'static str,
    pub(super) counters: Arc<AlgCounters>,
    /// The first 64 bits of its IPv6 host.
    pub(super) network: u64,
}

type Shard = BTreeMap<Key, Entry>;

/// All of them.
#[derive(Debug)]
pub(crate) struct Store {
    shards: [Mutex<Shard>; SHARDS],
    number: AtomicUsize,
    /// By network of the IPv6 hosts.
    numbers: Mutex<BTreeMap<u64, usize>>,
    octets: AtomicUsize,
    counters: Mutex<Vec<(&'static str, Arc<AlgCounters>)>>,
}

impl Default for Store {
    fn default() -> Store {
        Store {
            shards: [const { Mutex::new(Shard::new()) }; SHARDS],
            number: AtomicUsize::new(0),
            numbers: Mutex::new(BTreeMap::new()),
            octets: AtomicUsize::new(0),
            counters: Mutex::new(Vec::new()),
        }
    }
}

impl Store {
    /// The counters of an ALG, which outlive its configuration.
    pub(crate) fn counters(&self, label: &'static str) -> Arc<AlgCounters> {
        let mut counters = self.counters.lock();
        if let Some((_, known)) = counters.iter().find(|(name, _)| *name == label) {
            return Arc::clone(known);
        }
        let new = Arc::new(AlgCounters::default());
        counters.push((label, Arc::clone(&new)));
        new
    }

    /// How many connections are watched.
    pub(crate) fn number(&self) -> usize {
        self.number.load(Relaxed)
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let ((_, port), (remote, far)) = *key;
        let mixed = u32::from(port) ^ u32::from(far).rotate_left(5) ^ remote.to_bits();
        self.shards[(mixed.wrapping_mul(0x9e37_79b1) >> 26) as usize % SHARDS].lock()
    }

    /// Calls `work` with a connection, if it is watched, and with whether there is memory to hold more octets.
    pub(super) fn with<T>(&self, key: &Key, work: impl FnOnce(&mut Entry, bool) -> T) -> Option<T> {
        let mut shard = self.shard(key);
        let entry = shard.get_mut(key)?;
        let before = entry.connection.octets();
        let result = work(entry, self.octets.load(Relaxed) < OCTETS_MOST);
        let after = entry.connection.octets();
        self.octets.fetch_add(after, Relaxed);
        self.octets.fetch_sub(before, Relaxed);
        Some(result)
    }

    /// Watches a connection from now on, instead of one that had the same name. `false`: there are too many.
    pub(super) fn put(&self, key: Key, entry: Entry) -> bool {
        self.remove(&key);
        if !self.count(entry.network) {
            return false;
        }
        let other = self.shard(&key).insert(key, entry);
        // Two threads have handled the same SYN.
        other.inspect(|other| self.uncount(other));
        true
    }

    fn count(&self, network: u64) -> bool {
        let mut numbers = self.numbers.lock();
        let of_one = numbers.get(&network).copied().unwrap_or(0);
        if of_one >= MOST_OF_ONE || self.number.load(Relaxed) >= MOST {
            return false;
        }
        numbers.insert(network, of_one + 1);
        self.number.fetch_add(1, Relaxed);
        true
    }

    fn uncount(&self, entry: &Entry) {
        let mut numbers = self.numbers.lock();
        self.number.fetch_sub(1, Relaxed);
        self.octets.fetch_sub(entry.connection.octets(), Relaxed);
        if let Some(of_one) = numbers.get_mut(&entry.network) {
            *of_one -= 1;
            if *of_one == 0 {
                numbers.remove(&entry.network);
            }
        }
    }

    /// Stops to watch a connection whose session is gone.
    pub(crate) fn remove(&self, key: &Key) {
        if self.number() == 0 {
            return;
        }
        let removed = self.shard(key).remove(key);
        removed.inspect(|entry| self.uncount(entry));
    }
}
