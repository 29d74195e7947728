//! Chains and free lists without locks; the rules stand in `crates/bpf/c/include/fordway_nat64.h`.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{Bib, FREE_SHARDS, Found, Free, Kind, Regions, Session, Subscriber};

pub(crate) use super::layout::entry_state as state;

/// Links that one search follows at most. A chain has one entry on average; this bounds a search through memory that
/// something else has damaged.
const LINKS_MAX: u32 = 4096;

/// Which directory: index of [`Regions::heads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Directory {
    Bib6 = 0,
    Bib4 = 1,
    Session = 2,
    Subscriber = 3,
}

/// An entry that is in the chains of a directory.
pub(crate) trait Chained {
    fn next(&self, directory: Directory) -> &AtomicU32;
}

impl Chained for Bib {
    fn next(&self, directory: Directory) -> &AtomicU32 {
        if directory == Directory::Bib4 { &self.next4 } else { &self.next6 }
    }
}

impl Chained for Session {
    fn next(&self, _directory: Directory) -> &AtomicU32 {
        &self.next
    }
}

impl Chained for Subscriber {
    fn next(&self, _directory: Directory) -> &AtomicU32 {
        &self.next
    }
}

/// The chain of a hash.
#[derive(Debug)]
pub(crate) struct Chain<'a, T> {
    head: &'a AtomicU64,
    entries: &'a [T],
    directory: Directory,
}

/// What a search has seen: the head from which it began, and whether it came to the chain's end or to what it looked
/// for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    head: u64,
    is_whole: bool,
}

impl Seen {
    /// `false`: the chain is longer than a search follows. What was not found may be in it, so nothing is inserted.
    pub(crate) fn is_whole(self) -> bool {
        self.is_whole
    }
}

/// The result of unlinking an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlinked {
    /// It was in the chain, and was removed.
    Done,
    /// It is not in the chain.
    Absent,
    /// The chain has no end, so memory is damaged. The entry may be in it, and must not be freed.
    GaveUp,
}

impl Unlinked {
    /// Of an entry that has two chains.
    pub(crate) fn and(self, other: Unlinked) -> Unlinked {
        use Unlinked::{Absent, Done, GaveUp};
        match (self, other) {
            (GaveUp, _) | (_, GaveUp) => GaveUp,
            (Done, Done) => Done,
            _ => Absent,
        }
    }
}

/// Index and version of a head.
fn parts(head: u64) -> (u32, u32) {
    (head as u32, (head >> 32) as u32)
}

fn head(index: u32, version: u32) -> u64 {
    u64::from(version) << 32 | u64::from(index)
}

impl<'a, T: Chained> Chain<'a, T> {
    /// The chain of `hash`; `None` only if the memory holds no heads.
    pub(crate) fn of(
        regions: &Regions<'a>,
        entries: &'a [T],
        directory: Directory,
        hash: u64,
    ) -> Option<Chain<'a, T>> {
        let heads = regions.heads[directory as usize];
        let mask = heads.len().checked_sub(1)?;
        let head = heads.get(hash as usize & mask)?;
        Some(Chain { head, entries, directory })
    }

    /// The first entry that `matches`, and the head from which it was searched.
    #[inline]
    pub(crate) fn find(&self, matches: impl Fn(&T) -> bool) -> (Option<Found<'a, T>>, Seen) {
        let head = self.head.load(Acquire);
        let (mut index, _) = parts(head);
        for _ in 0..LINKS_MAX {
            let Some(entry) = self.entries.get(index as usize).filter(|_| index != 0) else {
                return (None, Seen { head, is_whole: true });
            };
            if matches(entry) {
                return (Some((index, entry)), Seen { head, is_whole: true });
            }
            index = entry.next(self.directory).load(Acquire);
        }
        (None, Seen { head, is_whole: index == 0 })
    }

    /// Inserts an entry at the head, if the head has not changed since `seen`. That search must have been
    /// [whole](Seen::is_whole).
    pub(crate) fn insert(&self, index: u32, Seen { head: seen, is_whole }: Seen) -> bool {
        debug_assert!(is_whole, "what was not found may be there");
        let Some(entry) = self.entries.get(index as usize) else { return false };
        let (first, version) = parts(seen);
        entry.next(self.directory).store(first, Relaxed);
        let new = head(index, version.wrapping_add(1));
        self.head.compare_exchange(seen, new, AcqRel, Acquire).is_ok()
    }

    /// Links an entry, unless `search`, a search of this chain, finds a conflicting one. `Err`: that one; `Err(None)`:
    /// the chain is longer than a search follows.
    #[inline]
    pub(crate) fn link<F>(
        &self,
        index: u32,
        search: impl Fn() -> (Option<F>, Seen),
    ) -> Result<(), Option<F>> {
        loop {
            match search() {
                (Some(found), _) => return Err(Some(found)),
                (None, seen) if !seen.is_whole() => return Err(None),
                (None, seen) if self.insert(index, seen) => return Ok(()),
                (None, _) => {}
            }
        }
    }

    /// Unlinks an entry. Only the sweeper does.
    pub(crate) fn unlink(&self, index: u32) -> Unlinked {
        loop {
            let seen = self.head.load(Acquire);
            let (first, version) = parts(seen);
            let Some(victim) = self.entries.get(index as usize) else { return Unlinked::Absent };
            let next = victim.next(self.directory).load(Acquire);
            if first == index {
                let new = head(next, version.wrapping_add(1));
                if self.head.compare_exchange(seen, new, AcqRel, Acquire).is_ok() {
                    return Unlinked::Done;
                }
                // Another thread has inserted an entry in front of it.
                continue;
            }
            let mut before = first;
            // A chain has no more links than there are entries.
            for _ in self.entries {
                let Some(entry) = self.entries.get(before as usize).filter(|_| before != 0) else {
                    return Unlinked::Absent;
                };
                let link = entry.next(self.directory);
                let after = link.load(Acquire);
                if after == index {
                    // Links behind the head are changed by the sweeper alone.
                    link.store(next, Release);
                    return Unlinked::Done;
                }
                before = after;
            }
            return Unlinked::GaveUp;
        }
    }
}

/// How many entries some free lists had when it was looked, and how many each was given since.
#[derive(Debug)]
pub(crate) struct Emptiest(Vec<i64>);

impl Emptiest {
    /// The list with the fewest entries, which is given one.
    pub(crate) fn next(&mut self) -> usize {
        let fewest = self.0.iter_mut().enumerate().min_by_key(|(_, count)| **count);
        fewest.map_or(0, |(shard, count)| {
            *count += 1;
            shard
        })
    }
}

/// The free entries of a kind.
#[derive(Debug)]
pub(crate) struct FreeList<'a> {
    shards: &'a [Free],
    fresh: &'a AtomicU32,
    entries: u32,
}

impl<'a> FreeList<'a> {
    pub(crate) fn of(regions: &Regions<'a>, kind: Kind) -> FreeList<'a> {
        let first = kind as usize * FREE_SHARDS;
        FreeList {
            shards: regions.free.get(first..first + FREE_SHARDS).unwrap_or_default(),
            fresh: &regions.meta.fresh[kind as usize],
            entries: regions.meta.entries[kind as usize].load(Relaxed),
        }
    }

    /// Takes an entry: one that was used before, else the next that never was. `shard`: where to look first, different
    /// for each thread. `None`: all are in use.
    pub(crate) fn take<T: Chained>(&self, entries: &[T], shard: usize) -> Option<u32> {
        let own = self.shards.len().checked_sub(1)? & shard;
        self.pop(entries, own).or_else(|| self.never_used()).or_else(|| {
            // Nearest first: as many lists are filled as there are processors.
            (1..self.shards.len()).find_map(|step| self.pop(entries, own ^ step))
        })
    }

    fn never_used(&self) -> Option<u32> {
        // Looked at first, so that the count of a full table does not run away.
        if self.fresh.load(Relaxed) >= self.entries {
            return None;
        }
        let index = self.fresh.fetch_add(1, Relaxed);
        (index < self.entries).then_some(index)
    }

    fn pop<T: Chained>(&self, entries: &[T], shard: usize) -> Option<u32> {
        let free = self.shards.get(shard)?;
        let mut seen = free.head.load(Acquire);
        loop {
            let (index, version) = parts(seen);
            let entry = entries.get(index as usize).filter(|_| index != 0)?;
            let next = entry.next(Directory::Bib6).load(Relaxed);
            let new = head(next, version.wrapping_add(1));
            match free.head.compare_exchange(seen, new, AcqRel, Acquire) {
                Ok(_) => {
                    free.count.fetch_sub(1, Relaxed);
                    return Some(index);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Frees an entry that no thread can reach.
    pub(crate) fn give<T: Chained>(&self, entries: &[T], shard: usize, index: u32) {
        let Some(free) = self.shards.get(shard % self.shards.len().max(1)) else { return };
        let Some(entry) = entries.get(index as usize) else { return };
        let mut seen = free.head.load(Acquire);
        loop {
            let (first, version) = parts(seen);
            entry.next(Directory::Bib6).store(first, Relaxed);
            let new = head(index, version.wrapping_add(1));
            match free.head.compare_exchange(seen, new, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        free.count.fetch_add(1, Relaxed);
    }

    /// The end of the entries that were ever used.
    pub(crate) fn ever_used(&self) -> usize {
        self.fresh.load(Acquire).min(self.entries) as usize
    }

    /// Counts the entries of each list, while no thread changes them. `is_new` gets the index of each; a list ends
    /// where it is `false`.
    pub(crate) fn recount<T: Chained>(&self, entries: &[T], mut is_new: impl FnMut(usize) -> bool) {
        for free in self.shards {
            let (mut index, _) = parts(free.head.load(Acquire));
            let mut count = 0;
            while let Some(entry) = entries.get(index as usize).filter(|_| index != 0)
                && is_new(index as usize)
            {
                count += 1;
                index = entry.next(Directory::Bib6).load(Relaxed);
            }
            free.count.store(count, Relaxed);
        }
    }

    /// Whether more than an eighth of the entries is free: the rest is kept for what hosts on the IPv6 side open
    /// themselves.
    pub(crate) fn has_reserve(&self) -> bool {
        let most = u64::from(self.entries) * 7 / 8;
        u64::from(self.fresh.load(Relaxed)) < most || self.used() < most
    }

    /// The first `shards` lists, to be filled up.
    pub(crate) fn emptiest(&self, shards: usize) -> Emptiest {
        // A count follows its head: it may be below 0 for a moment, and wraps.
        let count = |free: &Free| free.count.load(Relaxed) as i64;
        Emptiest(self.shards.iter().take(shards).map(count).collect())
    }

    /// Entries in use, as far as can be counted while others work.
    pub(crate) fn used(&self) -> u64 {
        let ever = self.ever_used() as i64 - 1;
        // A list's count follows its head: it may be below 0 for a moment, and wraps.
        let add = |sum: u64, free: &Free| sum.wrapping_add(free.count.load(Relaxed));
        let free = self.shards.iter().fold(0, add) as i64;
        (ever - free).clamp(0, ever.max(0)) as u64
    }
}
