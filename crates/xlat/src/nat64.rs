//! Stateful NAT64 (RFC 6146): the tables, and what packets do to them.
//!
//! The steps of RFC 6146 section 3.3, one file per step:
//!
//! 1. Determining the incoming tuple: [`tuple`](crate::tuple).
//! 2. Filtering and updating binding and session information: `filter`, with `tcp` (the state machine),
//!    `subscriber` (who is given what, and how much) and `allocate` (which port).
//! 3. Computing the outgoing tuple: `mapper`.
//! 4. Translating the packet: the same code as for stateless translation.
//! 5. Handling hairpinning: `mapper`.
//!
//! Underneath lie the tables: `layout` (entries), `memory` (where they lie), `chain` (how they are linked
//! without locks), `view` (how they are found). Any number of threads and of programs in the kernel work
//! on them at the same time; one [`Sweeper`] lets entries expire.

mod allocate;
mod chain;
mod dynamic;
mod dynamic_mapper;
mod filter;
mod hash;
pub mod layout;
mod mapper;
pub mod memory;
mod pool;
mod probe;
mod reconcile;
mod settings;
mod subscriber;
mod sweep;
mod syn;
mod table;
mod tcp;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use dynamic_mapper::Dynamic;
pub use filter::{Outgoing6, Refusal, Tuple};
pub(crate) use mapper::Stateful;
pub use memory::{Heap, Memory, Regions, Sizes};
pub use pool::{Allocation, Pool, PortBlock, Range};
pub use settings::{Dynamic4, Filtering, Lifetimes, Protocol, Quotas, Settings, StaticBib};
pub use sweep::{Event, Sweeper, Swept};
pub(crate) use syn::Ends;
pub use syn::{StoredSyn, Syns};
pub use table::{BibEntry, BibError, Binding, SessionEntry, SubscriberEntry};
pub use tcp::{Segment, Side, TcpState, Timeout, Transition, transition};

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::time::Duration;

use crate::verdict::DropReason;

use self::chain::{FreeList, state};
use self::hash::Secret;
use self::layout::{Bib, Kind, Subscriber, TICK_SHIFT, bib_flags};
use self::pool::Given;
use self::tcp::TIMEOUTS;
use self::view::View;

/// The tick of a time.
fn tick(now: Duration) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32
}

/// Lifetimes in ticks, rounded up: nothing expires early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    sessions: [u32; TIMEOUTS],
    pub(crate) port_rest: u32,
    pub(crate) subscriber: u32,
    pub(crate) dynamic4: u32,
}

fn ticks(lifetime: Duration) -> u32 {
    let ticks = lifetime.as_nanos().div_ceil(1 << TICK_SHIFT);
    // Half of what the counter holds, so that ages can be told; nine years.
    u32::try_from(ticks).unwrap_or(u32::MAX).min(u32::MAX / 2 - 1)
}

impl Ticks {
    fn of(lifetimes: &Lifetimes) -> Ticks {
        let Lifetimes { udp, icmp, tcp_est, tcp_trans, tcp_incoming_syn, .. } = *lifetimes;
        Ticks {
            sessions: [udp, icmp, tcp_est, tcp_trans, tcp_incoming_syn].map(ticks),
            port_rest: ticks(lifetimes.port_rest),
            subscriber: ticks(lifetimes.subscriber),
            dynamic4: ticks(lifetimes.dynamic4),
        }
    }

    pub(crate) fn of_class(&self, timeout: u8) -> u32 {
        self.sessions.get(usize::from(timeout)).copied().unwrap_or(0)
    }
}

impl Settings {
    /// Lifetimes of sessions in ticks, by timeout class: what the programs in the kernel don't need, but
    /// their loader's tests do.
    #[must_use]
    pub fn session_ticks(&self) -> [u32; 5] {
        Ticks::of(&self.lifetimes).sessions
    }
}

/// What was made, counted since the process began, by protocol: TCP, UDP, ICMP. What was refused is counted
/// as drops.
#[derive(Debug, Default)]
pub struct Created {
    /// BIB entries.
    pub bibs_created: [AtomicU64; 3],
    /// Sessions.
    pub sessions_created: [AtomicU64; 3],
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
    memory: Arc<dyn Memory>,
    secret: Secret,
    ticks: Ticks,
    by_address: bool,
    by_mark: bool,
    /// Blocks that are given away, by pool.
    given: Vec<Arc<Given>>,
    counters: Arc<Created>,
    /// Who found no free port, and when: index of the subscriber and protocol, tick.
    exhausted: [AtomicU64; 64],
}

/// Why there is no stateful translation with these settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat64Error {
    /// The tables' layout or sizes are not those of the settings.
    Memory,
    /// Filtering can't change while there are sessions: they are hashed by it.
    Filtering,
}

impl core::fmt::Display for Nat64Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Nat64Error::Memory => "the tables that exist have another layout or other sizes",
            Nat64Error::Filtering => "filtering can't change while the tables have entries",
        })
    }
}

impl core::error::Error for Nat64Error {}

impl Nat64 {
    /// Stateful translation on tables that are empty, or that an earlier process has left.
    pub fn new(settings: Settings, memory: Arc<dyn Memory>) -> Result<Nat64, Nat64Error> {
        let given = settings.pools.iter().map(|pool| Arc::new(Given::of(pool))).collect();
        Nat64::with(settings, memory, Arc::default(), given)
    }

    /// The same tables with other settings. What does not fit them goes at the sweep after
    /// [`Sweeper::review`].
    pub fn reconfigured(&self, settings: Settings) -> Result<Nat64, Nat64Error> {
        // Threads that still work with these settings, and those that work with the new ones, must not give
        // one block to two.
        let given = settings.pools.iter().map(|pool| {
            let same = self
                .settings
                .pools
                .iter()
                .position(|old| old.ranges == pool.ranges && old.allocation == pool.allocation);
            let shared = same.and_then(|number| self.given.get(number)).map(Arc::clone);
            shared.unwrap_or_else(|| Arc::new(Given::of(pool)))
        });
        let given = given.collect();
        Nat64::with(settings, Arc::clone(&self.memory), Arc::clone(&self.counters), given)
    }

    fn with(
        settings: Settings,
        memory: Arc<dyn Memory>,
        counters: Arc<Created>,
        given: Vec<Arc<Given>>,
    ) -> Result<Nat64, Nat64Error> {
        let meta = memory.regions().meta;
        if !memory::fits(meta, &settings.sizes) {
            return Err(Nat64Error::Memory);
        }
        let by_address = settings.filtering == Filtering::AddressDependent;
        let was_by_address = meta.by_address.load(Relaxed) != 0;
        let is_new = meta.fresh.iter().all(|fresh| fresh.load(Relaxed) <= 1);
        if by_address != was_by_address && !is_new {
            return Err(Nat64Error::Filtering);
        }
        meta.by_address.store(u32::from(by_address), Relaxed);
        let secret = Secret([meta.secret[0].load(Relaxed), meta.secret[1].load(Relaxed)]);
        let nat = Nat64 {
            secret,
            ticks: Ticks::of(&settings.lifetimes),
            by_address,
            by_mark: settings.pools.iter().any(|pool| pool.mark.is_some()),
            given,
            settings,
            memory,
            counters,
            exhausted: [const { AtomicU64::new(0) }; 64],
        };
        nat.mark_given();
        Ok(nat)
    }

    /// Blocks that subscribers have already.
    fn mark_given(&self) {
        for subscriber in self.memory.regions().subscribers {
            if subscriber.state() == state::LIVE {
                self.mark_blocks(subscriber);
            }
        }
    }

    fn mark_blocks(&self, subscriber: &Subscriber) {
        let number = usize::from(subscriber.pool.load(Relaxed));
        for block in subscriber.blocks() {
            if let (Some(pool), Some(given)) =
                (self.settings.pools.get(number), self.given.get(number))
                && let Some(place) = pool.number(block)
            {
                given.take(place);
            }
        }
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

    /// What was made so far.
    #[must_use]
    pub fn created(&self) -> &Created {
        &self.counters
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

    /// How many blocks of each pool are given away; nothing for pools without blocks.
    #[must_use]
    pub fn blocks(&self) -> Vec<Occupancy> {
        self.given
            .iter()
            .map(|given| {
                let (used, size) = given.occupancy();
                Occupancy { used, size }
            })
            .collect()
    }

    /// From now on no new sessions are made, or they are again.
    pub fn drain(&self, drains: bool) {
        self.memory.regions().meta.draining.store(u32::from(drains), SeqCst);
    }

    /// Whether no new sessions are made.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.memory.regions().meta.draining.load(Relaxed) != 0
    }

    /// Whether an IPv4 transport address is the translator's: of a pool, or of a BIB entry that the
    /// operator made.
    #[must_use]
    pub fn owns(&self, protocol: Protocol, addr: Ipv4Addr, port: u16) -> bool {
        self.settings.pools.iter().any(|pool| pool.contains(addr, port))
            || self
                .settings
                .bib
                .iter()
                .any(|bib| bib.protocol == protocol && bib.v4 == (addr, port))
    }

    /// A packet from an IPv6 host (RFC 6146 section 3.5): updates the tables, and gives (T,t). `shard`: a
    /// number of the thread's own.
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
        self.view(now, shard).filter_v4(tuple)
    }

    /// Whether an IPv4 address is the translator's: with some port.
    #[must_use]
    pub fn owns_address(&self, addr: Ipv4Addr) -> bool {
        let pools = &self.settings.pools;
        pools.iter().any(|pool| pool.ranges.iter().any(|range| range.contains(addr)))
            || self.settings.bib.iter().any(|bib| bib.v4.0 == addr)
    }

    /// Whether a SYN that was kept is answered: the host has opened the connection, or the SYN came again and
    /// was let in.
    pub(crate) fn is_answered(&self, syn: &StoredSyn, now: Duration) -> bool {
        let (local, remote) = syn.ends;
        let key = view::SessionKey { local, remote, protocol: Protocol::Tcp.number() };
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
        }
    }

    /// Whether a BIB entry fits the settings.
    fn keeps(&self, bib: &Bib) -> bool {
        let (addr, port) = bib.v4();
        let fixed = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
        match Protocol::of(bib.protocol.load(Relaxed)) {
            None => self.settings.dynamic4.as_ref().is_some_and(|pool| pool.contains(addr)),
            Some(_) if bib.flags.load(Relaxed) & bib_flags::ADDED != 0 => true,
            Some(protocol) if fixed => {
                let own = StaticBib { protocol, v6: bib.v6(), v4: bib.v4() };
                self.settings.bib.contains(&own)
            }
            Some(protocol) => self.owns(protocol, addr, port),
        }
    }

    fn keeps_subscriber(&self, subscriber: &Subscriber) -> bool {
        let number = usize::from(subscriber.pool.load(Relaxed));
        let Some(pool) = self.settings.pools.get(number) else { return false };
        pool.takes(subscriber.prefix(), subscriber.mark.load(Relaxed))
            && subscriber.blocks().all(|block| pool.number(block).is_some())
    }

    /// The slot of a search in vain, and what it holds beside the tick: the subscriber, the protocol, and
    /// how many blocks were searched.
    fn exhausted_slot(&self, search: (u32, Protocol, usize)) -> (&AtomicU64, u64) {
        let (subscriber, protocol, blocks) = search;
        let who =
            subscriber.wrapping_mul(32).wrapping_add((protocol.index() * 8 + blocks % 8) as u32);
        (&self.exhausted[(who / 8) as usize % 64], u64::from(who) << 32)
    }

    /// Whether all ports were searched in vain a moment ago: then it is not done again for every packet.
    fn known_exhausted(&self, search: (u32, Protocol, usize), now: u32) -> bool {
        let (slot, who) = self.exhausted_slot(search);
        slot.load(Relaxed) == who | u64::from(now)
    }

    fn note_exhausted(&self, search: (u32, Protocol, usize), now: u32) {
        let (slot, who) = self.exhausted_slot(search);
        slot.store(who | u64::from(now), Relaxed);
    }
}
