//! Where the tables lie: on the heap, or in maps of the kernel.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::addr::Pool6;
use crate::hash::mix;

use super::{
    Bib, FREE_SHARDS, Free, KINDS, LAYOUT, LAYOUT_PERMISSIONS, Meta, Session, Subscriber, halves,
};

/// How large the tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// BIB entries.
    pub bibs: u32,
    /// Sessions.
    pub sessions: u32,
    /// Subscribers.
    pub subscribers: u32,
}

impl Default for Sizes {
    /// 262,144 sessions: 40 MB, when all are in use.
    fn default() -> Sizes {
        Sizes { bibs: 262_144, sessions: 262_144, subscribers: 32_768 }
    }
}

impl Sizes {
    /// The most entries of a kind: kernel programs take an index for a positive number of 32 bits, and the counts of
    /// entries taken at once for one with room above it.
    pub const MAX: u32 = (1 << 30) - 2;

    /// Entries of each kind, entry 0 (which is never used) included.
    #[must_use]
    pub fn entries(&self) -> [u32; KINDS] {
        [self.bibs, self.sessions, self.subscribers].map(|entries| entries.min(Sizes::MAX) + 1)
    }

    /// Heads of each directory: bib6, bib4, session, subscriber. A power of two; from 5/8 to 5/4 of the entries. So a
    /// session with a BIB entry of its own, and its share of three directories, takes 143 to 158 octets (64 + 64 + 3 heads
    /// of 8), and a chain of full tables has at most 1.6 entries on average.
    #[must_use]
    pub fn heads(&self) -> [u32; 4] {
        let heads =
            |entries: u32| (entries.clamp(1, Sizes::MAX) / 8 * 5).max(1).next_power_of_two();
        [heads(self.bibs), heads(self.bibs), heads(self.sessions), heads(self.subscribers)]
    }

    /// Octets of new tables.
    #[must_use]
    pub fn octets(&self) -> u64 {
        let entries = self.entries().map(u64::from);
        let heads: u64 = self.heads().map(u64::from).iter().sum();
        64 * entries[0] + 64 * entries[1] + 128 * entries[2] + 8 * heads
    }
}

/// The tables' memory.
#[derive(Clone, Copy, Debug)]
pub struct Regions<'a> {
    /// What the tables are.
    pub meta: &'a Meta,
    /// BIB entries; the first is not used.
    pub bibs: &'a [Bib],
    /// Sessions; the first is not used.
    pub sessions: &'a [Session],
    /// Subscribers; the first is not used.
    pub subscribers: &'a [Subscriber],
    /// Heads of chains: bib6, bib4, session, subscriber. Each a power of two in number.
    pub heads: [&'a [AtomicU64]; 4],
    /// Heads of free lists: [`FREE_SHARDS`] for each kind.
    pub free: &'a [Free],
}

impl Regions<'_> {
    /// Octets of the entries and of their directories.
    #[must_use]
    pub fn octets(&self) -> u64 {
        let heads: usize = self.heads.iter().map(|heads| size_of_val(*heads)).sum();
        let entries =
            size_of_val(self.bibs) + size_of_val(self.sessions) + size_of_val(self.subscribers);
        (entries + heads) as u64
    }
}

/// Gives access to the tables' memory, which other processors may be changing.
///
/// All octets zero is a table without entries, but for [`Meta`], which [`prepare`] writes.
pub trait Memory: Send + Sync + fmt::Debug {
    /// The memory: the same slices at every call.
    fn regions(&self) -> Regions<'_>;
}

/// Writes the description of empty tables. `secret`: random.
pub fn prepare(meta: &Meta, sizes: &Sizes, secret: [u64; 2]) {
    for (entry, value) in meta.entries.iter().zip(sizes.entries()) {
        entry.store(value, Relaxed);
    }
    for (mask, heads) in meta.masks.iter().zip(sizes.heads()) {
        mask.store(heads - 1, Relaxed);
    }
    for (word, value) in meta.secret.iter().zip(secret) {
        word.store(value, Relaxed);
    }
    for fresh in &meta.fresh {
        fresh.store(1, Relaxed);
    }
    meta.layout.store(LAYOUT, Relaxed);
}

/// Whether tables are of an earlier version with address-dependent filtering: sessions of one address lie in one chain,
/// and there are no permissions.
#[must_use]
pub fn is_superseded(meta: &Meta) -> bool {
    meta.layout.load(Relaxed) == LAYOUT && meta.by_address.load(Relaxed) != 0
}

/// How many of these entries are sessions that live.
#[must_use]
pub fn live_sessions(sessions: &[Session]) -> u64 {
    sessions.iter().filter(|entry| entry.life().is_live() && !entry.is_permission()).count() as u64
}

/// Whether tables that were found are of a known layout.
#[must_use]
pub fn is_known(meta: &Meta) -> bool {
    matches!(meta.layout.load(Relaxed), LAYOUT | LAYOUT_PERMISSIONS)
}

/// Whether tables that were found are of a known layout and of these sizes. They may have other numbers of heads: an
/// earlier version made more.
#[must_use]
pub fn fits(meta: &Meta, sizes: &Sizes) -> bool {
    is_known(meta)
        && !is_superseded(meta)
        && meta.entries.iter().zip(sizes.entries()).all(|(found, size)| found.load(Relaxed) == size)
        && heads_of(meta).is_some()
}

/// The numbers of heads of tables that were found: bib6, bib4, session, subscriber. `None`: one of them is no power of
/// two.
#[must_use]
pub fn heads_of(meta: &Meta) -> Option<[u32; 4]> {
    let heads = [0, 1, 2, 3].map(|which: usize| meta.masks[which].load(Relaxed).wrapping_add(1));
    heads.iter().all(|heads| heads.is_power_of_two()).then_some(heads)
}

/// Whether tables that were found hold what filtering needs, address-dependent or not. Those in which nothing has been
/// made yet suit both.
#[must_use]
pub fn suits(meta: &Meta, filters_by_address: bool) -> bool {
    let other = if filters_by_address { LAYOUT } else { LAYOUT_PERMISSIONS };
    let is_new = meta.fresh.iter().all(|fresh| fresh.load(Relaxed) <= 1);
    is_new || is_superseded(meta) || meta.layout.load(Relaxed) != other
}

/// Which prefixes stand behind the numbers in sessions, and how many bits of an IPv6 address name a subscriber: the
/// number of prefixes (8 bits) and a hash of all that (24 bits).
fn prefixes_word(pool6: &[Pool6], subscriber_len: u8) -> u32 {
    let seed = mix(u64::from(subscriber_len) + 1);
    let hash = pool6.iter().fold(seed, |hash, pool6| {
        let (hi, lo) = halves(pool6.net().addr());
        mix(mix(mix(hash ^ hi) ^ lo) ^ u64::from(pool6.net().prefix_len()))
    });
    (pool6.len() as u32) << 24 | (hash as u32) >> 8
}

/// Writes the prefixes' word into the tables, for a process that takes them over.
pub fn tell_prefixes(meta: &Meta, pool6: &[Pool6], subscriber_len: u8) {
    meta.prefixes.store(prefixes_word(pool6, subscriber_len), Relaxed);
}

/// Whether what the tables hold means the same with these: prefixes may have been added at the end.
#[must_use]
pub fn keeps_prefixes(meta: &Meta, pool6: &[Pool6], subscriber_len: u8) -> bool {
    let told = meta.prefixes.load(Relaxed);
    let known = pool6.get(..(told >> 24) as usize);
    told == 0 || known.is_some_and(|known| prefixes_word(known, subscriber_len) == told)
}

/// Tables on the heap.
#[derive(Debug)]
pub struct Heap {
    meta: Box<Meta>,
    bibs: Vec<Bib>,
    sessions: Vec<Session>,
    subscribers: Vec<Subscriber>,
    heads: [Vec<AtomicU64>; 4],
    free: Vec<Free>,
}

fn filled<T: Default>(number: u32) -> Vec<T> {
    (0..number).map(|_| T::default()).collect()
}

impl Heap {
    /// Empty tables. `secret`: random, for [`Meta::secret`].
    #[must_use]
    pub fn new(sizes: &Sizes, secret: [u64; 2]) -> Heap {
        let [bibs, sessions, subscribers] = sizes.entries();
        let heap = Heap {
            meta: Box::default(),
            bibs: filled(bibs),
            sessions: filled(sessions),
            subscribers: filled(subscribers),
            heads: sizes.heads().map(filled),
            free: filled((FREE_SHARDS * KINDS) as u32),
        };
        prepare(&heap.meta, sizes, secret);
        heap
    }
}

impl Memory for Heap {
    fn regions(&self) -> Regions<'_> {
        let [bib6, bib4, session, subscriber] = &self.heads;
        Regions {
            meta: &self.meta,
            bibs: &self.bibs,
            sessions: &self.sessions,
            subscribers: &self.subscribers,
            heads: [bib6, bib4, session, subscriber],
            free: &self.free,
        }
    }
}
