//! Shards: the parts of the tables that gateways of a cluster own one by one (docs/cluster.md).
//!
//! A single gateway has none of this: [`Settings::shards`](super::Settings::shards) is `None`, and every question below
//! is answered by that.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

use crate::passage::Passage;
use crate::state::State;
use crate::verdict::DropReason;

use super::{Pool, Range, Settings};

/// Which shard an address belongs to. All gateways of a cluster divide alike.
pub trait Partition: Send + Sync + fmt::Debug {
    /// How many shards there are.
    fn shards(&self) -> u16;

    /// The shard of an IPv6 host, by its subscriber's prefix.
    fn of_host(&self, host: Ipv6Addr) -> u16;

    /// The shard of an IPv4 transport address; of ICMP, `port` is the identifier. `None`: it is none of a pool's.
    fn of_v4(&self, v4: Ipv4Addr, port: u16) -> Option<u16>;

    /// What a shard has of the pool of this number in [`Settings::pools`](super::Settings::pools).
    fn ranges(&self, pool: usize, shard: u16) -> Vec<Range>;
}

/// A bit for each shard.
#[derive(Debug)]
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn none_of(shards: u16) -> Bits {
        Bits((0..shards.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, shard: u16) -> bool {
        let word = self.0.get(usize::from(shard / 64));
        word.is_some_and(|word| word.load(Acquire) >> (shard % 64) & 1 != 0)
    }

    fn set(&self, shard: u16, value: bool) {
        let Some(word) = self.0.get(usize::from(shard / 64)) else { return };
        let bit = 1 << (shard % 64);
        if value {
            word.fetch_or(bit, Release);
        } else {
            word.fetch_and(!bit, Release);
        }
    }
}

/// Whether packets of a shard are translated here.
#[derive(Debug, Default)]
struct Gate {
    /// How often it was enabled and disabled: odd while it is enabled.
    changes: AtomicU64,
    /// Nanoseconds of CLOCK_BOOTTIME; 0: not quiet.
    quiet_until: AtomicU64,
}

impl Gate {
    /// Makes the number of changes odd or even.
    fn set(&self, enabled: bool) {
        let step = |changes| ((changes % 2 == 1) != enabled).then_some(changes + 1);
        // An error says that it is so already.
        let _ = self.changes.fetch_update(Release, Relaxed, step);
    }
}

/// Why a packet of a shard is not translated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The shard is not enabled here: the packet is for another gateway.
    Elsewhere,
    /// The shard is enabled, but the lease has ended, or was never given.
    LeaseEnded,
}

impl From<Closed> for DropReason {
    fn from(closed: Closed) -> DropReason {
        match closed {
            Closed::Elsewhere => DropReason::OtherShard,
            Closed::LeaseEnded => DropReason::LeaseEnded,
        }
    }
}

/// The shards of a cluster, and which of them this gateway owns and translates: none at first.
///
/// Two kinds of state are independent of each other. Ownership in the tables (who assigns ports, whose entries age) is
/// changed by a [`Replica`](crate::nat64::replica::Replica). Whether packets are translated is said by
/// [`Shards::lease`], [`Shards::enable`] and [`Shards::disable`], which take effect at once: for every packet whose
/// translation begins afterwards, and for those that have begun and are not sent yet. Times are of CLOCK_BOOTTIME.
#[derive(Debug)]
pub struct Shards {
    partition: Box<dyn Partition>,
    owned: Bits,
    ageing: Bits,
    /// Nanoseconds; 0: no lease.
    lease: AtomicU64,
    gates: Box<[Gate]>,
}

/// Nanoseconds; what does not fit is the end of time.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Shards {
    /// The shards of `partition`, none of which this gateway owns.
    #[must_use]
    pub fn new(partition: impl Partition + 'static) -> Shards {
        let number = partition.shards();
        Shards {
            partition: Box::new(partition),
            owned: Bits::none_of(number),
            ageing: Bits::none_of(number),
            lease: AtomicU64::new(0),
            gates: (0..number).map(|_| Gate::default()).collect(),
        }
    }

    /// How many shards there are.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.partition.shards()
    }

    /// How addresses are divided.
    #[must_use]
    pub fn partition(&self) -> &dyn Partition {
        &*self.partition
    }

    /// Whether this gateway owns a shard: it assigns ports of it and opens sessions in it.
    #[must_use]
    pub fn owns(&self, shard: u16) -> bool {
        self.owned.has(shard)
    }

    /// Whether entries of a shard expire: it is owned, and the lifetimes of its entries go on from what the previous
    /// owner had left.
    pub(crate) fn ages(&self, shard: u16) -> bool {
        self.ageing.has(shard)
    }

    /// Packets of enabled shards are translated before this time of CLOCK_BOOTTIME. Zero: none from now on.
    pub fn lease(&self, until: Duration) {
        self.lease.store(nanos(until), Release);
    }

    /// Packets of a shard are translated from now on, while the lease lasts. Before `quiet_until`, a time of
    /// CLOCK_BOOTTIME, those that the tables do not know are dropped without an answer, since sessions may be missing.
    /// Of a shard that is enabled already, only `quiet_until` changes.
    ///
    /// To be called after the tables have been made ready: what the caller has written, packets see.
    pub fn enable(&self, shard: u16, quiet_until: Option<Duration>) {
        let Some(gate) = self.gates.get(usize::from(shard)) else { return };
        gate.quiet_until.store(quiet_until.map_or(0, nanos), Relaxed);
        gate.set(true);
    }

    /// No packet of a shard is translated from now on: they are [`Verdict::Elsewhere`](crate::Verdict::Elsewhere). Of those
    /// that have begun, none is sent that has not passed its last check; `fordway_engine::Threads` says when the last
    /// of these has left.
    pub fn disable(&self, shard: u16) {
        if let Some(gate) = self.gates.get(usize::from(shard)) {
            gate.set(false);
        }
    }

    /// Whether a shard is enabled, whatever the lease.
    #[must_use]
    pub fn is_enabled(&self, shard: u16) -> bool {
        let gate = self.gates.get(usize::from(shard));
        gate.is_some_and(|gate| !gate.changes.load(Acquire).is_multiple_of(2))
    }

    /// Whether a packet of a shard may be translated at this time of CLOCK_BOOTTIME.
    pub fn enter(&self, shard: u16, boottime: Duration) -> Result<Passage, Closed> {
        let gate = self.gates.get(usize::from(shard)).ok_or(Closed::Elsewhere)?;
        let changes = gate.changes.load(Acquire);
        if changes.is_multiple_of(2) {
            return Err(Closed::Elsewhere);
        }
        self.check_lease(boottime)?;
        let is_quiet = nanos(boottime) < gate.quiet_until.load(Relaxed);
        Ok(Passage { shard, changes, is_quiet })
    }

    /// Whether what the last packet has become may be sent at this time of CLOCK_BOOTTIME: the lease has not ended since
    /// its translation began, and its shard was not disabled. `state`: by which it was translated. Also for ICMP errors that
    /// answer a packet; those that concern no shard may always leave. An error is why it is dropped.
    pub fn let_leave(&self, state: &State, boottime: Duration) -> Result<(), DropReason> {
        let mut entered = state.entered.iter().flatten();
        Ok(entered.try_for_each(|passage| self.still(passage, boottime))?)
    }

    /// Whether what was translated may be sent at this time of CLOCK_BOOTTIME. A shard that was disabled meanwhile, and
    /// enabled again, may have had another owner in between.
    pub fn still(&self, passage: &Passage, boottime: Duration) -> Result<(), Closed> {
        let gate = self.gates.get(usize::from(passage.shard)).ok_or(Closed::Elsewhere)?;
        if gate.changes.load(Acquire) != passage.changes {
            return Err(Closed::Elsewhere);
        }
        self.check_lease(boottime)
    }

    fn check_lease(&self, boottime: Duration) -> Result<(), Closed> {
        if nanos(boottime) < self.lease.load(Acquire) { Ok(()) } else { Err(Closed::LeaseEnded) }
    }

    pub(crate) fn set_owned(&self, shard: u16, owned: bool) {
        self.owned.set(shard, owned);
    }

    pub(crate) fn set_ageing(&self, shard: u16, ages: bool) {
        self.ageing.set(shard, ages);
    }
}

impl Settings {
    /// What is assigned to subscribers: the pools; in a cluster, what each shard has of each pool, shards of one pool one
    /// after the other.
    pub(crate) fn parts(&self) -> Vec<Pool> {
        let Some(shards) = &self.shards else { return self.pools.clone() };
        let of = |(number, pool): (usize, &Pool)| {
            let pool = pool.clone();
            (0..shards.number()).map(move |shard| {
                let ranges = shards.partition.ranges(number, shard);
                Pool { ranges, ..pool.clone() }
            })
        };
        self.pools.iter().enumerate().flat_map(of).collect()
    }

    /// How many parts a pool has.
    pub(crate) fn parts_of_pool(&self) -> usize {
        self.shards.as_ref().map_or(1, |shards| usize::from(shards.number()))
    }

    /// Whether this gateway assigns ports to an IPv6 host, and opens sessions for it.
    #[inline]
    pub(crate) fn owns_host(&self, host: Ipv6Addr) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.owns(shards.partition.of_host(host)))
    }

    /// Whether entries of an IPv6 host expire here.
    #[inline]
    pub(crate) fn ages_host(&self, host: Ipv6Addr) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.ages(shards.partition.of_host(host)))
    }
}
