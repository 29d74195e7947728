//! Shards: the parts of the tables that gateways of a cluster own one by one (docs/cluster.md).
//!
//! A single gateway has none of this: [`Settings::shards`](super::Settings::shards) is `None`, and every question below
//! is answered by that.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};

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

/// The shards of a cluster, and which of them this gateway owns. It owns none at first.
#[derive(Debug)]
pub struct Shards {
    partition: Box<dyn Partition>,
    owned: Bits,
    ageing: Bits,
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
