//! Shards: the parts of the tables that gateways of a cluster own one by one (docs/cluster.md).
//!
//! A single gateway has none of this: [`Settings::shards`](super::Settings::shards) is `None`, and every question below
//! is answered by that.

use alloc::boxed::Box;
use alloc::sync::Arc;
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

    /// How programs in the kernel find shards. `None`: they can't.
    fn division(&self) -> Option<Division> {
        None
    }
}

/// How to find shards by arithmetic.
///
/// The shard of an IPv6 host: the first bits of its address, as many as name a subscriber, are `hi` and `lo`, others 0, and
/// h = [`mix`](crate::nat64::mix)(mix(mix(key\[0\] ^ hi) ^ lo) ^ key\[1\]) >> 32. The shard is (h * shards) >> 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The key.
    pub key: [u64; 2],
    /// The ranges of all pools.
    pub parts: Vec<Part>,
}

/// A range of a pool, and how shards share it. In the host's byte order.
///
/// The pool's addresses are cut into slots, numbered over all of the pool's ranges: whole addresses, or aligned ranges
/// of 2^`shift` ports of each. Slot `n` of `slots` belongs to shard `n * shards / slots`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first address.
    pub first: u32,
    /// The last address.
    pub last: u32,
    /// Slots of the pool.
    pub slots: u32,
    /// The number of this range's first slot.
    pub base: u32,
    /// The first port.
    pub low: u16,
    /// The last port.
    pub high: u16,
    /// A slot has 2^`shift` ports; 16: all.
    pub shift: u8,
}

impl Part {
    /// Slots of each address.
    #[must_use]
    pub fn per_address(&self) -> u32 {
        (u32::from(self.high) >> self.shift) - (u32::from(self.low) >> self.shift) + 1
    }

    /// Whether a transport address is in the range.
    #[must_use]
    pub fn contains(&self, v4: Ipv4Addr, port: u16) -> bool {
        (self.first..=self.last).contains(&v4.to_bits()) && (self.low..=self.high).contains(&port)
    }

    /// The slot of a transport address that is in the range.
    #[must_use]
    pub fn slot(&self, v4: Ipv4Addr, port: u16) -> u32 {
        let place = (u32::from(port) >> self.shift) - (u32::from(self.low) >> self.shift);
        self.base + (v4.to_bits() - self.first) * self.per_address() + place
    }
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

/// What the threads of all engines share of the shards: in this process's memory, or where programs in the kernel use it as well.
pub trait Gates: Send + Sync + fmt::Debug {
    /// Which packets may be translated; there may be more words than are needed.
    ///
    /// The first is the lease's end; then come three for each shard, in the order of their numbers: from when on its packets
    /// are known ([`NEVER`]: it is not enabled), its [epoch](Shards::epoch), and its [way](Shards::set_way). Times are
    /// nanoseconds of CLOCK_BOOTTIME. All are 0 at first.
    fn words(&self) -> &[AtomicU64];

    /// Which sessions are new or have another state than before. The bit of the session in entry `n` is bit `n % 64` of word
    /// `n / 64`, modulo the number of words. All are 0 at first.
    fn changed(&self) -> &[AtomicU64];
}

/// In this process's memory.
#[derive(Debug)]
pub struct OwnGates {
    words: Box<[AtomicU64]>,
    changed: Box<[AtomicU64]>,
}

impl OwnGates {
    /// For so many shards.
    #[must_use]
    pub fn new(shards: u16) -> OwnGates {
        let of_shards = OF_SHARD * usize::from(shards);
        OwnGates { words: words(1 + of_shards), changed: words(CHANGED_WORDS) }
    }
}

impl Gates for OwnGates {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn changed(&self) -> &[AtomicU64] {
        &self.changed
    }
}

impl<T: Gates> Gates for Arc<T> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }

    fn changed(&self) -> &[AtomicU64] {
        (**self).changed()
    }
}

/// Words for the bits of changed sessions, 128 KiB: a million sessions have a bit each, and of ten million ten share one.
pub const CHANGED_WORDS: usize = 1 << 14;

/// Words of a shard, and which is which.
const OF_SHARD: usize = 3;
const FROM: usize = 0;
const EPOCH: usize = 1;
const WAY: usize = 2;

/// The word of a shard that is not enabled.
pub const NEVER: u64 = u64::MAX;

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
/// [`Shards::lease`], [`Shards::enable`] and [`Shards::disable`], which take effect at once for every packet whose
/// translation begins afterwards. A lease that ends, or is taken back, also stops those that have begun and are not sent
/// yet. Times are of CLOCK_BOOTTIME.
#[derive(Debug)]
pub struct Shards {
    partition: Box<dyn Partition>,
    owned: Bits,
    ageing: Bits,
    gates: Box<dyn Gates>,
    /// For each, the number of its enabling; 0: it is not enabled.
    enabled: Box<[AtomicU64]>,
    enablings: AtomicU64,
    /// How often a lease was taken back.
    leases: AtomicU64,
}

fn words(number: usize) -> Box<[AtomicU64]> {
    (0..number).map(|_| AtomicU64::new(0)).collect()
}

/// Nanoseconds; what does not fit is the end of time.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Shards {
    /// The shards of `partition`, none of which this gateway owns.
    #[must_use]
    pub fn new(partition: impl Partition + 'static) -> Shards {
        let gates = OwnGates::new(partition.shards());
        Shards::with(partition, gates)
    }

    /// The same, with words elsewhere, of which epochs are kept.
    ///
    /// # Panics
    ///
    /// If there are too few of them.
    #[must_use]
    pub fn with(partition: impl Partition + 'static, gates: impl Gates + 'static) -> Shards {
        let number = partition.shards();
        let words = gates.words();
        assert!(words.len() > OF_SHARD * usize::from(number), "words for each shard");
        words[0].store(0, Release);
        for of_shard in words[1..].chunks_exact(OF_SHARD) {
            of_shard[FROM].store(NEVER, Release);
            of_shard[WAY].store(0, Release);
        }
        Shards {
            partition: Box::new(partition),
            owned: Bits::none_of(number),
            ageing: Bits::none_of(number),
            gates: Box::new(gates),
            enabled: self::words(usize::from(number)),
            enablings: AtomicU64::new(0),
            leases: AtomicU64::new(0),
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

    /// Packets of enabled shards are translated before this time of CLOCK_BOOTTIME. Zero takes the lease back: none are
    /// from now on, and none of those that have begun is sent, even if there is a lease again by then: meanwhile other
    /// gateways may have owned the shards.
    pub fn lease(&self, until: Duration) {
        self.gates.words()[0].store(nanos(until), Release);
        if until.is_zero() {
            self.leases.fetch_add(1, Release);
        }
    }

    /// Packets of a shard are translated from now on, while the lease lasts. Before `quiet_until`, a time of
    /// CLOCK_BOOTTIME, those that the tables do not know are dropped without an answer, since sessions may be missing.
    /// Of a shard that is enabled already, only `quiet_until` changes.
    ///
    /// To be called after the tables have been made ready: what the caller has written, packets see. One thread at a time
    /// may enable shards.
    pub fn enable(&self, shard: u16, quiet_until: Option<Duration>) {
        let Some(enabled) = self.enabled.get(usize::from(shard)) else { return };
        self.from(shard).store(quiet_until.map_or(0, nanos), Release);
        if enabled.load(Relaxed) == 0 {
            // Who sees that it counts, sees it enabled.
            let number = self.enablings.load(Relaxed) + 1;
            enabled.store(number, Release);
            self.enablings.store(number, Release);
        }
    }

    /// No packet of a shard is translated from now on: they are [`Verdict::Elsewhere`](crate::Verdict::Elsewhere). Those
    /// that have begun still leave while the lease lasts; `fordway_engine::Threads` says when the last one has.
    pub fn disable(&self, shard: u16) {
        if let Some(enabled) = self.enabled.get(usize::from(shard)) {
            self.from(shard).store(NEVER, Release);
            enabled.store(0, Release);
        }
    }

    /// How often shards were enabled that were not. A thread that lets only so many of them count ([`State::enablings`])
    /// sees none enabled in between.
    #[must_use]
    pub fn enablings(&self) -> u64 {
        self.enablings.load(Acquire)
    }

    fn from(&self, shard: u16) -> &AtomicU64 {
        self.word(shard, FROM)
    }

    /// A word of a shard's.
    fn word(&self, shard: u16, which: usize) -> &AtomicU64 {
        &self.gates.words()[1 + OF_SHARD * usize::from(shard) + which]
    }

    /// The epoch in which this gateway owned a shard, if its entries in the tables are still those; else 0. Remembered where
    /// programs read the words, for the next process; nothing here looks at it.
    #[must_use]
    pub fn epoch(&self, shard: u16) -> u64 {
        if shard < self.number() { self.word(shard, EPOCH).load(Acquire) } else { 0 }
    }

    /// Remembers it.
    pub fn set_epoch(&self, shard: u16, epoch: u64) {
        if shard < self.number() {
            self.word(shard, EPOCH).store(epoch, Release);
        }
    }

    /// Where programs hand packets over to a shard's owner: the index of an interface from which they are to arrive. 0: there
    /// is no other owner, or none is known.
    pub fn set_way(&self, shard: u16, interface: u32) {
        if shard < self.number() {
            self.word(shard, WAY).store(u64::from(interface), Release);
        }
    }

    /// Whether a shard is enabled, whatever the lease, as far as so many [enablings](Shards::enablings) count.
    #[must_use]
    pub fn is_enabled(&self, shard: u16, enablings: u64) -> bool {
        let enabled = self.enabled.get(usize::from(shard));
        enabled.is_some_and(|it| (1..=enablings).contains(&it.load(Acquire)))
    }

    /// Whether a packet of a shard may be translated at this time of CLOCK_BOOTTIME, as far as so many
    /// [enablings](Shards::enablings) count.
    pub fn enter(&self, shard: u16, boottime: Duration, enablings: u64) -> Result<Passage, Closed> {
        let lease = self.leases.load(Acquire);
        if !self.is_enabled(shard, enablings) {
            return Err(Closed::Elsewhere);
        }
        self.check_lease(boottime)?;
        let is_quiet = nanos(boottime) < self.from(shard).load(Relaxed);
        Ok(Passage { shard, lease, is_quiet })
    }

    /// Whether what the last packet has become may be sent at this time of CLOCK_BOOTTIME: the lease has not ended since
    /// its translation began. Whether its shard was disabled does not matter: another gateway gets it when this packet has
    /// left. `state`: by which it was translated. Also for ICMP errors that answer a packet; those that concern no shard may
    /// always leave. An error is why it is dropped.
    pub fn let_leave(&self, state: &State, boottime: Duration) -> Result<(), DropReason> {
        let mut entered = state.entered.iter().flatten();
        Ok(entered.try_for_each(|passage| self.still(passage, boottime))?)
    }

    fn still(&self, passage: &Passage, boottime: Duration) -> Result<(), Closed> {
        // First the lease: if it is a later one, the earlier one is seen as taken back.
        self.check_lease(boottime)?;
        let is_same = self.leases.load(Acquire) == passage.lease;
        if is_same { Ok(()) } else { Err(Closed::LeaseEnded) }
    }

    fn check_lease(&self, boottime: Duration) -> Result<(), Closed> {
        let lease = self.gates.words()[0].load(Acquire);
        if nanos(boottime) < lease { Ok(()) } else { Err(Closed::LeaseEnded) }
    }

    /// The session in this entry is new or has another state: the replica looks at it before its scan comes to it. To be
    /// called after the change.
    pub(crate) fn note(&self, session: u32) {
        let changed = self.gates.changed();
        if let Some(word) = changed.get(session as usize / 64 % changed.len().max(1)) {
            word.fetch_or(1 << (session % 64), Release);
        }
    }

    /// The words of [`Shards::note`].
    pub(crate) fn changed(&self) -> &[AtomicU64] {
        self.gates.changed()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_part_follow_each_other_from_address_to_address() {
        // Slots of 256 ports, of which the first has 24 here: 1000 to 1023.
        let [first, last] = [0, 1].map(|last| Ipv4Addr::new(192, 0, 2, last).to_bits());
        let part = Part { first, last, slots: 100, base: 7, low: 1000, high: 2047, shift: 8 };
        assert_eq!(part.per_address(), 5);
        for (last, port, slot) in [
            (0, 999, None),
            (0, 1000, Some(7)),
            (0, 1023, Some(7)),
            (0, 1024, Some(8)),
            (0, 2047, Some(11)),
            (0, 2048, None),
            (1, 1000, Some(12)),
            (1, 2047, Some(16)),
            (2, 1000, None),
        ] {
            let v4 = Ipv4Addr::new(192, 0, 2, last);
            let found = part.contains(v4, port).then(|| part.slot(v4, port));
            assert_eq!(found, slot, "{v4} {port}");
        }
    }
}
