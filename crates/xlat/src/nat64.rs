//! Stateful NAT64 (RFC 6146): the tables, and what packets do to them.
//!
//! The steps of RFC 6146 section 3.3:
//!
//! 1. Determining the incoming tuple: [`tuple`](crate::tuple).
//! 2. Filtering and updating binding and session information: `packet`.
//! 3. Computing the outgoing tuple: `packet`.
//! 4. Translating the packet: the same code as for stateless translation.
//! 5. Handling hairpinning: `packet`.
//!
//! A module imports only those behind it: `packet` (what a packet does), `policy` (allocation and quotas), `table` (the
//! tables). `sweep` comes before all: one [`Sweeper`] expires entries, while any number of threads and kernel programs
//! use them. [`replica`] comes before that: it tells other gateways of entries, and makes theirs. `alg` reads and changes
//! the payload of connections. `nat_pt` (RFC 2766) hooks into `packet` and `sweep`; the settings name its types.

pub mod alg;
mod error;
#[cfg(feature = "nat-pt")]
pub mod nat_pt;
#[cfg(not(feature = "nat-pt"))]
#[path = "nat64/nat_pt/without.rs"]
pub mod nat_pt;
mod packet;
mod policy;
pub mod replica;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

pub use error::Nat64Error;
pub use nat_pt::Addresses;
#[cfg(feature = "nat-pt")]
pub use nat_pt::Bound;
pub(crate) use packet::{Fence, Stateful};
pub use packet::{Outgoing6, Refusal, Segment, Transition, Tuple, transition};
pub use policy::{
    Allocation, CHANGED_WORDS, Closed, Division, Dynamic4, Filtering, Gates, Lifetimes, NEVER,
    OwnGates, Part, Partition, Pool, Quotas, Range, Settings, Shards, StaticBib,
};
pub use sweep::{Event, PoolUse, Slice, Sweeper, Swept};
pub(crate) use table::View;
pub use table::{
    Adopted, BibEntry, BibError, Binding, Heap, Memory, PortBlock, Protocol, Regions, SessionEntry,
    Side, Sizes, SubscriberEntry, TcpState, Timeout, layout, memory,
};

pub use crate::hash::mix;
pub use crate::passage::Passage;
pub use crate::syns::{StoredSyn, Syns};

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use core::time::Duration;

use crate::verdict::DropReason;

use self::alg::{Alg, AlgCounters};
use self::policy::{BlockBitmap, NO_POOL, Numbered, Owned, Ticks};
use self::table::{
    Bib, FreeList, Kind, LAYOUT, LAYOUT_PERMISSIONS, Secret, SessionKey, Subscriber, bib_flags,
    state, tick,
};

/// Entries made since the process began, by protocol: TCP, UDP, ICMP. Refused ones are counted as drops.
#[derive(Debug, Default)]
pub struct Created {
    /// BIB entries.
    pub bibs_created: [AtomicU64; 3],
    /// Sessions.
    pub sessions_created: [AtomicU64; 3],
}

/// Sessions that have ended, by cause and protocol, counted since the process began. Those of both engines: the sweeper
/// ends them.
#[derive(Debug, Default)]
pub struct Ended {
    /// Their lifetime was over.
    pub expired: [AtomicU64; 3],
    /// Their BIB entry was removed: by the operator, or because it does not fit the settings.
    pub withdrawn: [AtomicU64; 3],
}

/// State that a [`Nat64`] shares with those that [`Nat64::reconfigured`] makes of it.
#[derive(Debug, Default)]
struct Shared {
    created: Created,
    ended: Ended,
    /// Changes by the operator, and of settings, that are under way.
    changes: AtomicU64,
    /// Connections that ALGs watch.
    watched: alg::Store,
}

/// A change by the operator, or of settings, while it lasts. Entries that it may refer to are not freed, and
/// subscribers keep their blocks.
#[derive(Debug)]
struct Change<'a>(&'a Shared);

impl Shared {
    fn begin_change(&self) -> Change<'_> {
        self.changes.fetch_add(1, SeqCst);
        fence(SeqCst);
        Change(self)
    }

    /// Whether no change is under way that began before the caller's last operation.
    fn is_unchanging(&self) -> bool {
        fence(SeqCst);
        self.changes.load(SeqCst) == 0
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.changes.fetch_sub(1, SeqCst);
    }
}

/// How full something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// In use.
    pub used: u64,
    /// In all.
    pub size: u64,
}

/// Stateful translation: settings, and tables that outlive them.
#[derive(Debug)]
pub struct Nat64 {
    settings: Settings,
    owned: Owned,
    memory: Arc<dyn Memory>,
    secret: Secret,
    ticks: Ticks,
    by_mark: bool,
    /// What is assigned to subscribers: see [`Settings::parts`].
    parts: Vec<Numbered>,
    /// Blocks that are assigned, by part.
    given: Vec<Arc<BlockBitmap>>,
    /// The counters of each ALG of the settings.
    alg_counters: Vec<Arc<AlgCounters>>,
    shared: Arc<Shared>,
    /// It replaces another [`Nat64`], and the sweeper has not used it yet: a change is under way.
    is_coming: AtomicBool,
    /// See [`Nat64::settled`].
    settled: AtomicU32,
    /// Failed searches for a port: see [`Nat64::search_key`]; tick.
    exhausted: [AtomicU64; 64],
}

impl Nat64 {
    /// Stateful translation with empty tables, or with those of an earlier process.
    pub fn new(settings: Settings, memory: Arc<dyn Memory>) -> Result<Nat64, Nat64Error> {
        let given = settings.parts().iter().map(|part| Arc::new(BlockBitmap::of(part))).collect();
        let nat = Nat64::with(settings, memory, Arc::default(), given)?;
        nat.settle();
        nat.tell_layout();
        Ok(nat)
    }

    /// The tables with other settings, which are not final before [`Nat64::settle`]. Entries that do not fit those end at
    /// the sweep after [`Sweeper::review`]; until then, or until the new value is dropped, subscribers keep their blocks.
    pub fn reconfigured(&self, mut settings: Settings) -> Result<Nat64, Nat64Error> {
        if self.watched() != 0 {
            // Their sequence numbers differ on both sides, even if no ALG watches them any more.
            settings.more_left_ports.extend(self.settings.left_ports());
        }
        let change = self.shared.begin_change();
        // Threads with the old settings and threads with the new ones must not assign one block twice.
        let given = settings.parts().into_iter().map(|part| {
            let is_same =
                |old: &Numbered| old.ranges == part.ranges && old.allocation == part.allocation;
            let same = self.parts.iter().position(is_same);
            let shared = same.and_then(|number| self.given.get(number)).map(Arc::clone);
            shared.unwrap_or_else(|| Arc::new(BlockBitmap::of(&part)))
        });
        let given = given.collect();
        let nat = Nat64::with(settings, Arc::clone(&self.memory), Arc::clone(&self.shared), given)?;
        nat.is_coming.store(true, Relaxed);
        // It ends with `arrive`.
        core::mem::forget(change);
        Ok(nat)
    }

    /// Ends the change that [`Nat64::reconfigured`] has begun: the sweeper uses the new value, or it is dropped.
    fn arrive(&self) {
        if self.is_coming.swap(false, Relaxed) {
            drop(Change(&self.shared));
        }
    }

    /// The settings are final: entries that do not fit them may end. To be called also of settings that come back in the
    /// place of refused ones, by which entries may have been made.
    pub fn settle(&self) {
        self.settled.fetch_add(1, Release);
    }

    /// How often the settings have become final; 0: they may still be refused. Only the sweeper reads it.
    #[must_use]
    pub fn settled(&self) -> u32 {
        self.settled.load(Acquire)
    }

    /// Whether sessions need permissions.
    fn filters_by_address(&self) -> bool {
        self.settings.filtering == Filtering::AddressDependent
    }

    /// The layout of the tables that its filtering needs.
    fn layout(&self) -> u32 {
        if self.filters_by_address() { LAYOUT_PERMISSIONS } else { LAYOUT }
    }

    /// Writes the layout into the tables, for a process that adopts them.
    fn tell_layout(&self) {
        self.memory.regions().meta.layout.store(self.layout(), Relaxed);
    }

    fn with(
        settings: Settings,
        memory: Arc<dyn Memory>,
        shared: Arc<Shared>,
        given: Vec<Arc<BlockBitmap>>,
    ) -> Result<Nat64, Nat64Error> {
        let meta = memory.regions().meta;
        if !memory::suits(meta, settings.filtering == Filtering::AddressDependent) {
            return Err(Nat64Error::Filtering);
        }
        if !memory::fits(meta, &settings.sizes) {
            return Err(Nat64Error::Memory);
        }
        let counters = |alg: &Arc<dyn Alg>| shared.watched.counters(alg.label());
        let alg_counters = settings.algs.iter().map(counters).collect();
        let secret = Secret([meta.secret[0].load(Relaxed), meta.secret[1].load(Relaxed)]);
        let nat = Nat64 {
            secret,
            ticks: Ticks::of(&settings),
            by_mark: settings.pools.iter().any(|pool| pool.mark.is_some()),
            parts: settings.parts().into_iter().map(Numbered::new).collect(),
            given,
            alg_counters,
            owned: Owned::new(&settings),
            settings,
            memory,
            shared,
            is_coming: AtomicBool::new(false),
            settled: AtomicU32::new(0),
            exhausted: [const { AtomicU64::new(0) }; 64],
        };
        nat.mark_given();
        Ok(nat)
    }

    /// Marks the blocks that subscribers have; also those of dead subscribers, until their last session has ended.
    fn mark_given(&self) {
        for subscriber in self.memory.regions().subscribers {
            if matches!(subscriber.state(), state::LIVE | state::CLAIMED | state::DEAD) {
                self.mark_blocks(subscriber);
            }
        }
    }

    fn mark_blocks(&self, subscriber: &Subscriber) {
        subscriber.blocks().for_each(|block| self.mark(block));
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The tables' memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Entries made so far.
    #[must_use]
    pub fn created(&self) -> &Created {
        &self.shared.created
    }

    /// Sessions that have ended so far.
    #[must_use]
    pub fn ended(&self) -> &Ended {
        &self.shared.ended
    }

    /// How full the tables are: BIB entries, sessions, subscribers.
    #[must_use]
    pub fn occupancy(&self) -> [Occupancy; 3] {
        let regions = self.memory.regions();
        [Kind::Bib, Kind::Session, Kind::Subscriber].map(|kind| Occupancy {
            used: FreeList::of(&regions, kind).used(),
            size: u64::from(regions.meta.entries[kind as usize].load(Relaxed)) - 1,
        })
    }

    /// Whether less than an eighth of the BIB entries, or of the sessions, is free.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let regions = self.memory.regions();
        [Kind::Bib, Kind::Session]
            .into_iter()
            .any(|kind| !FreeList::of(&regions, kind).has_reserve())
    }

    /// How many blocks of each pool are assigned; nothing for pools without blocks.
    #[must_use]
    pub fn blocks(&self) -> Vec<Occupancy> {
        let pools = self.given.chunks(self.settings.parts_of_pool());
        let add = |sum: Occupancy, given: &Arc<BlockBitmap>| {
            let Occupancy { used, size } = given.occupancy();
            Occupancy { used: sum.used + used, size: sum.size + size }
        };
        pools.map(|parts| parts.iter().fold(Occupancy::default(), add)).collect()
    }

    /// Refuses new sessions from now on, or accepts them again.
    pub fn drain(&self, drains: bool) {
        self.memory.regions().meta.draining.store(u32::from(drains), SeqCst);
    }

    /// Whether no new sessions are made.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.memory.regions().meta.draining.load(Relaxed) != 0
    }

    /// Whether an IPv4 transport address is the translator's: of a pool, or of a BIB entry that the operator made.
    #[must_use]
    pub fn owns(&self, protocol: Protocol, addr: Ipv4Addr, port: u16) -> bool {
        self.owned.has(protocol, addr, port)
    }

    /// A packet from an IPv6 host (RFC 6146 section 3.5): updates the tables, and gives (T,t). `shard`: a number of the
    /// thread's own.
    pub fn from_v6(
        &self,
        tuple: &Tuple<Ipv6Addr>,
        now: Duration,
        shard: usize,
    ) -> Result<(Ipv4Addr, u16), DropReason> {
        self.view(now, shard).filter_v6(tuple)
    }

    /// A packet from IPv4: updates the tables, and gives (X',x).
    pub fn from_v4(
        &self,
        tuple: &Tuple<Ipv4Addr>,
        now: Duration,
        shard: usize,
    ) -> Result<Outgoing6, Refusal> {
        self.view(now, shard).filter_v4(tuple, || Ok(()))
    }

    /// The ALGs, with their counters.
    pub fn algs(&self) -> impl Iterator<Item = (&Arc<dyn Alg>, &Arc<AlgCounters>)> {
        self.settings.algs.iter().zip(&self.alg_counters)
    }

    /// How many connections they watch.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.shared.watched.number()
    }

    /// Keeps what an ALG has added to the sequence numbers of the IPv4 and of the IPv6 host.
    pub(crate) fn keep_shift(&self, (local, remote): alg::Key, shift: [u32; 2]) {
        let key = SessionKey::tcp(local, remote);
        self.view(Duration::ZERO, 0).keep_shift(&key, shift);
    }

    /// What an ALG of an earlier process has added to a connection's sequence numbers.
    pub(crate) fn kept_shift(&self, (local, remote): alg::Key) -> Option<[u32; 2]> {
        let key = SessionKey::tcp(local, remote);
        self.view(Duration::ZERO, 0).kept_shift(&key)
    }

    pub(crate) fn alg_store(&self) -> &alg::Store {
        &self.shared.watched
    }

    /// The ALG that watches connections between these ports, and from which side they are opened.
    pub(crate) fn alg_of(&self, host: u16, remote: u16) -> Option<(usize, Side)> {
        let by = |port| self.settings.algs.iter().position(|alg| alg.ports().contains(&port));
        by(remote).map(|alg| (alg, Side::V6)).or_else(|| by(host).map(|alg| (alg, Side::V4)))
    }

    /// Whether earlier settings may have watched connections of one of these ports: their sequence numbers differ on
    /// both sides until they end.
    pub(crate) fn was_watched(&self, ports: [u16; 2]) -> bool {
        let left = &self.settings.more_left_ports;
        !left.is_empty() && ports.iter().any(|port| left.contains(port)) && self.watched() != 0
    }

    /// Whether an IPv4 address is the translator's: with some port.
    #[must_use]
    pub fn owns_address(&self, addr: Ipv4Addr) -> bool {
        self.owned.has_address(addr)
    }

    /// Whether a stored SYN is answered: the host has opened the connection, or the SYN was retransmitted and accepted.
    pub(crate) fn is_answered(&self, syn: &StoredSyn, now: Duration) -> bool {
        let (local, remote) = syn.ends;
        let key = SessionKey::tcp(local, remote);
        let found = self.view(now, 0).session(&key);
        found.is_some_and(|(_, session)| session.life().timeout != Timeout::TcpIncomingSyn as u8)
    }

    pub(crate) fn view(&self, now: Duration, shard: usize) -> View<'_> {
        View {
            nat: self,
            regions: self.memory.regions(),
            now: tick(now),
            shard,
            made: Cell::new(false),
            is_quiet: false,
        }
    }

    /// Whether a BIB entry fits the settings.
    fn keeps(&self, bib: &Bib) -> bool {
        let (addr, port) = bib.v4();
        let fixed = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
        let bound = self.settings.addresses.as_ref().filter(|it| it.contains(addr));
        match Protocol::of(bib.protocol.load(Relaxed)) {
            None => match bound {
                Some(addresses) => addresses.fits(addr, bib.v6().0),
                None => self.settings.dynamic4.as_ref().is_some_and(|pool| pool.contains(addr)),
            },
            Some(_) if bib.flags.load(Relaxed) & bib_flags::ADDED != 0 => true,
            Some(protocol) if fixed => {
                let own = StaticBib { protocol, v6: bib.v6(), v4: bib.v4() };
                self.settings.bib.contains(&own)
            }
            Some(protocol) => match bound {
                Some(addresses) => addresses.fits(addr, bib.v6().0),
                None => self.owns(protocol, addr, port),
            },
        }
    }

    /// The number of the pool of a subscriber; `None`: there is none any more that takes it and has its blocks.
    fn home(&self, subscriber: &Subscriber) -> Option<usize> {
        let (prefix, mark) = (subscriber.prefix(), subscriber.mark.load(Relaxed));
        self.home_of((prefix, mark), &subscriber.blocks().collect::<Vec<_>>())
    }

    /// The number of the pool of a subscriber with these blocks.
    fn home_of(&self, (prefix, mark): (Ipv6Addr, u32), blocks: &[PortBlock]) -> Option<usize> {
        if blocks.is_empty() {
            return Some(NO_POOL);
        }
        (0..self.settings.pools.len()).find(|number| {
            self.parts.get(self.part(*number, prefix)).is_some_and(|part| {
                part.takes(prefix, mark) && blocks.iter().all(|block| part.number(*block).is_some())
            })
        })
    }
}

impl Drop for Nat64 {
    fn drop(&mut self) {
        self.arrive();
    }
}
