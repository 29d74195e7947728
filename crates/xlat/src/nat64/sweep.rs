//! The sweeper: the one thread that expires entries and removes them from the tables.
//!
//! A sweep looks at every entry that was ever used, in slices of as many entries as its caller wants. Because only the
//! sweeper removes entries, it has seen every entry at least once before that is removed. So its events are complete,
//! although other threads and kernel programs make the entries.
//!
//! To look at an entry that stays is to read it, and no other one: its cache line is all that a sweep costs. So a
//! session's BIB entry is looked up only when the session is new, when it ends, or when a BIB entry has died with sessions.
//!
//! A dead entry may not be linked yet, because the thread that makes it may still do so. Such an entry stays until a
//! grace period has passed, and the sweeper unlinks it once more.

mod bibs;
mod remove;
mod sessions;
mod subscribers;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::nat64::Nat64;
use crate::nat64::table::{
    Binding, FREE_SHARDS, FreeList, KINDS, Kind, PortBlock, Unlinked, View, life, state,
};

use self::subscribers::is_unused;

/// What the sweeper reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A BIB entry was made, at that time.
    BibCreated(Binding, Duration),
    /// A BIB entry is gone.
    BibRemoved(Binding),
    /// A session was made: its BIB entry, and (Z,z).
    SessionCreated(Binding, (Ipv4Addr, u16)),
    /// A session is gone, with its packets and octets from IPv4 and from IPv6.
    SessionRemoved(Binding, (Ipv4Addr, u16), [(u64, u64); 2]),
    /// A subscriber (a prefix of the configured length) was given ports.
    BlockAssigned(Ipv6Addr, PortBlock),
    /// A subscriber's ports were released.
    BlockReleased(Ipv6Addr, PortBlock),
    /// A TCP session had no packet for TCP_EST: a probe is due (RFC 6146 section 3.5.2.2), to the host.
    Probe {
        /// The IPv6 host.
        host: (Ipv6Addr, u16),
        /// (Z,z).
        remote: (Ipv4Addr, u16),
        /// Which of `pool6`.
        pool6: u8,
    },
}

/// The use of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Its subscribers.
    pub subscribers: u64,
    /// Ports that they have bound, by protocol.
    pub ports: [u64; 3],
}

/// What a sweep did, and how full the tables are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// BIB entries of TCP, UDP, ICMP, and of dynamic 1:1 mappings.
    pub bibs: [u64; 4],
    /// Sessions of TCP, UDP, ICMP.
    pub sessions: [u64; 3],
    /// TCP sessions by state, in the order of [`TcpState::ALL`].
    pub tcp_states: [u64; 7],
    /// Addresses that DNS queries have bound, and no packet has used yet (NAT-PT).
    pub held: u64,
    /// Ports in hold-down.
    pub hold_down: u64,
    /// Subscribers.
    pub subscribers: u64,
    /// The pools of the settings, in their order.
    pub pools: Vec<PoolUse>,
    /// Entries that wait for [`Sweeper::release`].
    pub waiting: usize,
}

/// What a slice of a sweep did.
#[derive(Debug, Default)]
pub struct Slice {
    /// Entries that it has looked at.
    pub looked: u32,
    /// Entries that it has removed.
    pub ended: u32,
    /// If the sweep is complete, what it has counted.
    pub swept: Option<Swept>,
}

/// An entry.
type Entry = (Kind, u32);

/// The steps of a sweep, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// After a change of settings: subscribers whose blocks those no longer have.
    Review,
    /// Addresses that BIB entries use stay bound (NAT-PT).
    Bound,
    /// BIB entries. They come before sessions: those of dead ones end in the same sweep.
    Bibs,
    /// Sessions, and BIB entries whose last session ends.
    Sessions,
    /// Subscribers, which the steps before may have left without sessions and ports.
    Subscribers,
}

impl Phase {
    fn kind(self) -> Kind {
        match self {
            Phase::Bound | Phase::Bibs => Kind::Bib,
            Phase::Sessions => Kind::Session,
            Phase::Review | Phase::Subscribers => Kind::Subscriber,
        }
    }

    fn next(self) -> Option<Phase> {
        match self {
            Phase::Review => Some(Phase::Bound),
            Phase::Bound => Some(Phase::Bibs),
            Phase::Bibs => Some(Phase::Sessions),
            Phase::Sessions => Some(Phase::Subscribers),
            Phase::Subscribers => None,
        }
    }
}

/// A sweep that is under way.
#[derive(Debug)]
struct Sweep {
    phase: Phase,
    /// The next entry of the phase.
    next: u32,
    review: bool,
    /// A BIB entry has died with sessions: each session's BIB entry is looked up.
    has_orphans: bool,
    swept: Swept,
}

/// The state of sweeping. One for each set of tables.
#[derive(Debug)]
pub struct Sweeper {
    /// Unlinked entries that wait for a grace period.
    limbo: Vec<Entry>,
    /// Those of them, and of `unlinked`, that wait for the end of one that has begun.
    passing: (Vec<Entry>, BTreeSet<Entry>),
    /// Unlinked entries after a grace period.
    free: Vec<Entry>,
    /// Dead entries that were not in all of their chains.
    unlinked: BTreeSet<Entry>,
    /// Those of them after a grace period: no thread will link them any more.
    left: BTreeSet<Entry>,
    /// Of each kind, the first entry that this sweeper has not looked at: from there on, an earlier process may have
    /// left unlinked entries.
    known: [u32; KINDS],
    /// A BIB entry may have died with sessions.
    has_orphans: bool,
    shards: usize,
    review: bool,
    under_way: Option<Sweep>,
}

impl Default for Sweeper {
    fn default() -> Sweeper {
        Sweeper::over(FREE_SHARDS)
    }
}

impl Sweeper {
    /// A sweeper for tables that may have been in use before, and whose entries any shard may want.
    #[must_use]
    pub fn new() -> Sweeper {
        Sweeper::default()
    }

    /// A sweeper for tables of which `shards` take entries: one for each processor, since kernel programs take entries
    /// of their own shard first.
    #[must_use]
    pub fn over(shards: usize) -> Sweeper {
        Sweeper {
            limbo: Vec::new(),
            passing: (Vec::new(), BTreeSet::new()),
            free: Vec::new(),
            unlinked: BTreeSet::new(),
            left: BTreeSet::new(),
            known: [1; KINDS],
            has_orphans: true,
            shards: shards.clamp(1, FREE_SHARDS),
            review: false,
            under_way: None,
        }
    }

    /// After a change of settings: a new sweep begins, which ends entries that do not fit them.
    pub fn review(&mut self) {
        self.review = true;
    }

    /// Looks at every entry once: the rest of a sweep that is under way, or a whole one.
    ///
    /// Threads that found an entry before it was taken out may still read it: [`Sweeper::release`] has to follow after
    /// a grace period.
    pub fn sweep(&mut self, nat: &Nat64, now: Duration, tell: &mut dyn FnMut(Event)) -> Swept {
        loop {
            if let Some(swept) = self.slice(nat, now, u32::MAX, tell).swept {
                return swept;
            }
        }
    }

    /// Looks at up to `most` entries: the next ones of the sweep that is under way, else the first ones of a new sweep.
    pub fn slice(
        &mut self,
        nat: &Nat64,
        now: Duration,
        most: u32,
        tell: &mut dyn FnMut(Event),
    ) -> Slice {
        nat.arrive();
        nat.tell_layout();
        let begun = self.under_way.take().filter(|_| !self.review);
        let sweep = begun.unwrap_or_else(|| self.begin(nat));
        let waited = self.limbo.len();
        let mut pass = Pass {
            view: nat.view(now, 0),
            now,
            limbo: &mut self.limbo,
            unlinked: &mut self.unlinked,
            left: &mut self.left,
            known: &mut self.known,
            orphans: &mut self.has_orphans,
            sweep,
            tell,
        };
        debug_assert_eq!(pass.view.regions.meta.layout.load(Relaxed), nat.layout());
        let (looked, is_over) = pass.entries(most);
        let mut sweep = pass.sweep;
        let ended = (self.limbo.len() - waited) as u32;
        if !is_over {
            self.under_way = Some(sweep);
            return Slice { looked, ended, swept: None };
        }
        sweep.swept.waiting = self.waiting();
        Slice { looked, ended, swept: Some(sweep.swept) }
    }

    fn begin(&mut self, nat: &Nat64) -> Sweep {
        let review = core::mem::take(&mut self.review);
        let pools = alloc::vec![PoolUse::default(); nat.settings.pools.len()];
        Sweep {
            phase: if review { Phase::Review } else { Phase::Bound },
            next: 1,
            review,
            has_orphans: false,
            swept: Swept { pools, ..Swept::default() },
        }
    }

    /// Entries that wait for [`Sweeper::release`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        let (limbo, unlinked) = &self.passing;
        self.limbo.len() + self.unlinked.len() + limbo.len() + unlinked.len()
    }

    /// Frees entries that earlier sweeps have unlinked.
    ///
    /// To be called only after a grace period that began after the last slice: every thread of the user engine has
    /// finished the packets it had, and so has every program in the kernel (RCU). While a change by the operator is
    /// under way, nothing is freed.
    pub fn release(&mut self, nat: &Nat64) {
        self.grace_begins();
        self.grace_over(nat);
        while self.free(nat, usize::MAX) {}
    }

    /// The first step of [`Sweeper::release`]: a grace period begins. Entries that are removed before it is over, which no
    /// slice may do, wait for the next one.
    pub fn grace_begins(&mut self) {
        let (limbo, unlinked) = &mut self.passing;
        limbo.append(&mut self.limbo);
        unlinked.append(&mut self.unlinked);
    }

    /// The second step of [`Sweeper::release`]: the grace period is over.
    pub fn grace_over(&mut self, nat: &Nat64) {
        if nat.shared.is_unchanging() {
            let (limbo, unlinked) = &mut self.passing;
            self.left.append(unlinked);
            self.free.append(limbo);
        }
    }

    /// The third step of [`Sweeper::release`]: frees up to `most` entries. Gives whether there are more.
    pub fn free(&mut self, nat: &Nat64, most: usize) -> bool {
        let regions = nat.memory.regions();
        let mut lists = [Kind::Bib, Kind::Session, Kind::Subscriber]
            .map(|kind| FreeList::of(&regions, kind).emptiest(self.shards));
        let kept = self.free.len().saturating_sub(most);
        for (kind, index) in self.free.drain(kept..) {
            let list = FreeList::of(&regions, kind);
            let shard = lists[kind as usize].next();
            let at = index as usize;
            match kind {
                Kind::Bib => {
                    regions.bibs[at].life.store(life(state::FREE, 0), Release);
                    list.give(regions.bibs, shard, index);
                }
                Kind::Session => {
                    regions.sessions[at].life.store(0, Release);
                    list.give(regions.sessions, shard, index);
                }
                Kind::Subscriber => {
                    regions.subscribers[at].life.store(life(state::FREE, 0), Release);
                    list.give(regions.subscribers, shard, index);
                }
            }
        }
        kept != 0
    }
}

/// A slice of a sweep.
struct Pass<'a, 'b> {
    view: View<'a>,
    now: Duration,
    limbo: &'b mut Vec<Entry>,
    unlinked: &'b mut BTreeSet<Entry>,
    left: &'b mut BTreeSet<Entry>,
    known: &'b mut [u32; KINDS],
    /// For the sessions of this sweep, or of the next.
    orphans: &'b mut bool,
    sweep: Sweep,
    tell: &'b mut dyn FnMut(Event),
}

impl Pass<'_, '_> {
    /// Looks at up to `most` entries. Gives how many it were, and whether the sweep is complete.
    fn entries(&mut self, most: u32) -> (u32, bool) {
        let mut looked = 0;
        loop {
            let (phase, first) = (self.sweep.phase, self.sweep.next);
            let end = if self.has_work() { self.end_of(phase.kind()) } else { first };
            let last = end.min(first.saturating_add(most - looked)).max(first);
            self.look_at(phase, first..last);
            looked += last - first;
            self.sweep.next = last;
            if last < end {
                return (looked, false);
            }
            let Some(next) = phase.next() else { return (looked, true) };
            (self.sweep.phase, self.sweep.next) = (next, 1);
            if next == Phase::Sessions {
                self.sweep.has_orphans = core::mem::take(self.orphans);
            }
        }
    }

    /// Whether the phase concerns any entry.
    fn has_work(&self) -> bool {
        self.sweep.phase != Phase::Bound || self.view.binds_addresses()
    }

    fn look_at(&mut self, phase: Phase, entries: core::ops::Range<u32>) {
        let end = entries.end;
        match phase {
            Phase::Review => return entries.for_each(|index| self.review_subscriber(index)),
            Phase::Bound => return self.view.keep_bound(entries),
            Phase::Bibs => entries.for_each(|index| self.bib(index)),
            Phase::Sessions => entries.for_each(|index| self.session(index)),
            Phase::Subscribers => entries.for_each(|index| self.subscriber(index)),
        }
        self.knows(phase.kind(), end);
    }

    /// The end of the entries of a kind that were ever used.
    fn end_of(&self, kind: Kind) -> u32 {
        let meta = self.view.regions.meta;
        let entries = meta.entries[kind as usize].load(Relaxed);
        meta.fresh[kind as usize].load(Acquire).min(entries)
    }

    /// The entries of a kind before `end` were looked at.
    fn knows(&mut self, kind: Kind, end: u32) {
        let known = &mut self.known[kind as usize];
        *known = end.max(*known);
    }

    /// An entry is in no chain any more.
    fn put_in_limbo(&mut self, (kind, index): Entry) {
        self.limbo.push((kind, index));
        self.knows(kind, index + 1);
    }

    /// An entry is in limbo: that of an earlier process is taken over.
    fn found_in_limbo(&mut self, (kind, index): Entry) {
        if index >= self.known[kind as usize] {
            self.put_in_limbo((kind, index));
        }
    }

    fn expired(&self, tick: u32, lifetime: u32) -> bool {
        self.view.age(tick) > lifetime
    }

    /// Whether a dead entry can be removed, after it was unlinked from its chains. If it was not in all of them, the
    /// thread that makes it may still link it; an entry that may still be in a chain is never freed.
    fn may_go(&mut self, entry: Entry, unlinked: Unlinked) -> bool {
        let was_left = self.left.remove(&entry);
        match unlinked {
            Unlinked::Done => true,
            Unlinked::GaveUp => false,
            Unlinked::Absent if was_left => true,
            Unlinked::Absent => {
                self.unlinked.insert(entry);
                false
            }
        }
    }
}
