//! The sweeper: the one thread that expires entries and removes them from the tables.
//!
//! It periodically scans every entry that was ever used. Because only the sweeper removes entries, it has seen every
//! entry at least once before that is removed. So its events are complete, although other threads and kernel programs
//! make the entries.
//!
//! A dead entry may not be linked yet, because the thread that makes it may still do so. Such an entry stays until a
//! grace period has passed, and the sweeper unlinks it once more.

mod bibs;
mod sessions;
mod subscribers;

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::nat64::Nat64;
use crate::nat64::table::{
    Binding, FREE_SHARDS, FreeList, Kind, PortBlock, Unlinked, View, life, state,
};

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

/// An entry.
type Entry = (Kind, u32);

/// The state of sweeping. One for each set of tables.
#[derive(Debug)]
pub struct Sweeper {
    /// Unlinked entries that wait for a grace period.
    limbo: Vec<Entry>,
    /// Dead entries that were not in all of their chains.
    unlinked: Vec<Entry>,
    /// Those of them after a grace period: no thread will link them any more. In order.
    left: Vec<Entry>,
    started: bool,
    shards: usize,
    review: bool,
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
            unlinked: Vec::new(),
            left: Vec::new(),
            started: false,
            shards: shards.clamp(1, FREE_SHARDS),
            review: false,
        }
    }

    /// After a change of settings: the next sweep ends entries that do not fit them.
    pub fn review(&mut self) {
        self.review = true;
    }

    /// Looks at every entry once.
    ///
    /// Threads that found an entry before it was taken out may still read it: [`Sweeper::release`] has to follow after
    /// a grace period.
    pub fn sweep(&mut self, nat: &Nat64, now: Duration, tell: &mut dyn FnMut(Event)) -> Swept {
        nat.arrive();
        nat.tell_layout();
        self.unlinked.clear();
        let mut pass = Pass {
            view: nat.view(now, 0),
            now,
            limbo: &mut self.limbo,
            unlinked: &mut self.unlinked,
            left: &core::mem::take(&mut self.left),
            found_limbo: !self.started,
            review: core::mem::take(&mut self.review),
            tell,
            swept: Swept {
                pools: alloc::vec![PoolUse::default(); nat.settings.pools.len()],
                ..Swept::default()
            },
        };
        debug_assert_eq!(pass.view.regions.meta.layout.load(Relaxed), nat.layout());
        if pass.review {
            pass.review_subscribers();
        }
        pass.sessions();
        pass.bibs();
        pass.subscribers();
        let mut swept = pass.swept;
        self.started = true;
        swept.waiting = self.limbo.len() + self.unlinked.len();
        swept
    }

    /// Frees entries that earlier sweeps have unlinked.
    ///
    /// To be called only after a grace period that began after the last sweep: every thread of the user engine has
    /// finished the packets it had, and so has every program in the kernel (RCU). While a change by the operator is
    /// under way, nothing is freed.
    pub fn release(&mut self, nat: &Nat64) {
        if !nat.shared.is_unchanging() {
            return;
        }
        self.left.append(&mut self.unlinked);
        self.left.sort_unstable_by_key(order);
        let regions = nat.memory.regions();
        for (kind, index) in self.limbo.drain(..) {
            let list = FreeList::of(&regions, kind);
            // The shard with the fewest entries.
            let shard = list.emptiest(self.shards);
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
    }
}

fn order(&(kind, index): &Entry) -> (usize, u32) {
    (kind as usize, index)
}

/// One sweep.
struct Pass<'a, 'b> {
    view: View<'a>,
    now: Duration,
    limbo: &'b mut Vec<Entry>,
    unlinked: &'b mut Vec<Entry>,
    left: &'b [Entry],
    /// Entries that an earlier process has unlinked are found by their state.
    found_limbo: bool,
    review: bool,
    tell: &'b mut dyn FnMut(Event),
    swept: Swept,
}

impl Pass<'_, '_> {
    /// Entries of a kind that were ever used.
    fn used(&self, kind: Kind) -> core::ops::Range<u32> {
        let meta = self.view.regions.meta;
        let entries = meta.entries[kind as usize].load(Relaxed);
        1..meta.fresh[kind as usize].load(Acquire).min(entries)
    }

    fn expired(&self, tick: u32, lifetime: u32) -> bool {
        self.view.age(tick) > lifetime
    }

    /// Whether a dead entry can be removed, after it was unlinked from its chains. If it was not in all of them, the
    /// thread that makes it may still link it; an entry that may still be in a chain is never freed.
    fn may_go(&mut self, entry: Entry, unlinked: Unlinked) -> bool {
        let key = order(&entry);
        match unlinked {
            Unlinked::Done => true,
            Unlinked::GaveUp => false,
            Unlinked::Absent if self.left.binary_search_by_key(&key, order).is_ok() => true,
            Unlinked::Absent => {
                self.unlinked.push(entry);
                false
            }
        }
    }
}
