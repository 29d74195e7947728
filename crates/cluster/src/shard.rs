//! Shards: which part of `pool4` and which subscribers belong together.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::nat64::{Division, Part, Partition, Range};
use fordway_xlat::steps::mix;
use ipnet::{Ipv4Net, Ipv4Subnets};
use serde::{Deserialize, Serialize};

/// Shards that a cluster can have.
pub const MAX_SHARDS: u16 = 1024;

/// A shard's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shard(pub u16);

/// Why addresses can't be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongShards {
    /// None, or more than [`MAX_SHARDS`].
    #[error("{0} shards: 1 to {MAX_SHARDS} are possible")]
    Number(u16),
    /// A pool has fewer ports than there are shards.
    #[error("pool {0} has fewer ports than there are shards")]
    Small(usize),
    /// A subscriber's prefix is 1 to 128 bits long.
    #[error("subscriber_len is {0}: 1 to 128 are possible")]
    Prefix(u8),
}

/// Whose shard a packet is.
#[derive(Clone, Debug)]
pub struct ShardMap {
    shards: u16,
    key: [u64; 2],
    subscriber_len: u8,
    pools: Vec<Vec<Part>>,
}

impl ShardMap {
    /// Divides each pool, as its ranges in order, among `shards`. `key` is the cluster's; `subscriber_len` in bits.
    pub fn new(
        shards: u16,
        key: [u64; 2],
        subscriber_len: u8,
        pools: &[Vec<Range>],
    ) -> Result<ShardMap, WrongShards> {
        if !(1..=MAX_SHARDS).contains(&shards) {
            return Err(WrongShards::Number(shards));
        }
        if !(1..=128).contains(&subscriber_len) {
            return Err(WrongShards::Prefix(subscriber_len));
        }
        let divided = pools
            .iter()
            .enumerate()
            .map(|(place, ranges)| divide(shards, ranges).ok_or(WrongShards::Small(place)));
        let pools = divided.collect::<Result<_, _>>()?;
        Ok(ShardMap { shards, key, subscriber_len, pools })
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The shard of an IPv6 host: of its subscriber's prefix.
    #[must_use]
    pub fn of_host(&self, host: Ipv6Addr) -> Shard {
        let mask = u128::MAX << (128 - u32::from(self.subscriber_len));
        let prefix = host.to_bits() & mask;
        let word = mix(mix(self.key[0] ^ (prefix >> 64) as u64) ^ prefix as u64);
        let hash = mix(word ^ self.key[1]) >> 32;
        Shard(((hash * u64::from(self.shards)) >> 32) as u16)
    }

    /// The shard of an IPv4 transport address; of ICMP, `port` is the identifier. `None`: it is none of a pool's.
    #[must_use]
    pub fn of_v4(&self, v4: Ipv4Addr, port: u16) -> Option<Shard> {
        let part = self.parts().find(|part| part.contains(v4, port))?;
        Some(self.of_slot(part, part.slot(v4, port)))
    }

    fn of_slot(&self, part: &Part, slot: u32) -> Shard {
        Shard((u64::from(slot) * u64::from(self.shards) / u64::from(part.slots)) as u16)
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.pools.iter().flatten()
    }

    /// What a shard has of a pool.
    #[must_use]
    pub fn ranges(&self, pool: usize, shard: Shard) -> Vec<Range> {
        let mut all: Vec<Range> = Vec::new();
        for part in self.pools.get(pool).into_iter().flatten() {
            // Slots n with n * shards / slots == shard.
            let first_of =
                |shard: u64| (shard * u64::from(part.slots)).div_ceil(self.shards.into());
            let own = first_of(shard.0.into())..first_of(u64::from(shard.0) + 1);
            let per_address = part.per_address();
            let end = u64::from(part.base)
                + u64::from(part.last - part.first + 1) * u64::from(per_address);
            for slot in own.start.max(part.base.into())..own.end.min(end) {
                let (addr, place) = (
                    (slot as u32 - part.base) / per_address,
                    (slot as u32 - part.base) % per_address,
                );
                let start = (place + (u32::from(part.low) >> part.shift)) << part.shift;
                let low = start.max(part.low.into()) as u16;
                let high = (start + (1 << part.shift) - 1).min(part.high.into()) as u16;
                let v4 = Ipv4Addr::from_bits(part.first + addr);
                let whole = (low, high) == (part.low, part.high);
                match all.last_mut() {
                    Some(last) if last.last == v4 && last.high.checked_add(1) == Some(low) => {
                        last.high = high;
                    }
                    Some(last)
                        if whole
                            && (last.low, last.high) == (low, high)
                            && last.last.to_bits().checked_add(1) == Some(v4.to_bits()) =>
                    {
                        last.last = v4;
                    }
                    _ => all.push(Range { first: v4, last: v4, low, high }),
                }
            }
        }
        all
    }

    /// The prefixes of a shard's addresses, in all pools: as few as cover them and no other address. The second value tells which
    /// are addresses of other shards as well, with other ports.
    #[must_use]
    pub fn prefixes(&self, shard: Shard) -> Vec<(Ipv4Net, bool)> {
        let mut own: BTreeMap<Ipv4Net, bool> = BTreeMap::new();
        for pool in 0..self.pools.len() {
            let whole = |range: &Range| self.has_all(pool, range);
            for range in self.ranges(pool, shard) {
                for prefix in Ipv4Subnets::new(range.first, range.last, 0) {
                    // Two pools, or two ranges of ports, may have an address in common.
                    *own.entry(prefix).or_default() |= !whole(&range);
                }
            }
        }
        own.into_iter().collect()
    }

    /// The prefixes of all pools' addresses: as few as cover them and no other address.
    #[must_use]
    pub fn all_prefixes(&self) -> Vec<Ipv4Net> {
        let of = |part: &Part| {
            Ipv4Subnets::new(Ipv4Addr::from_bits(part.first), Ipv4Addr::from_bits(part.last), 0)
        };
        Ipv4Net::aggregate(&self.parts().flat_map(of).collect())
    }

    /// Whether no other shard has ports of a range's addresses, of this pool or another.
    fn has_all(&self, pool: usize, range: &Range) -> bool {
        let (first, last) = (range.first.to_bits(), range.last.to_bits());
        let shares = |part: &&Part| part.first <= last && first <= part.last;
        let here = self.pools[pool].iter().filter(shares);
        let alone = here.clone().count() == 1 && self.parts().filter(shares).count() == 1;
        alone
            && here
                .into_iter()
                .next()
                .is_some_and(|part| (part.low, part.high) == (range.low, range.high))
    }
}

/// How the tables of `fordway-xlat` are divided.
impl Partition for ShardMap {
    fn shards(&self) -> u16 {
        self.shards
    }

    fn of_host(&self, host: Ipv6Addr) -> u16 {
        ShardMap::of_host(self, host).0
    }

    fn of_v4(&self, v4: Ipv4Addr, port: u16) -> Option<u16> {
        ShardMap::of_v4(self, v4, port).map(|shard| shard.0)
    }

    fn ranges(&self, pool: usize, shard: u16) -> Vec<Range> {
        ShardMap::ranges(self, pool, Shard(shard))
    }

    fn division(&self) -> Option<Division> {
        Some(Division { key: self.key, parts: self.parts().copied().collect() })
    }
}

/// The largest slots of which every shard gets one. `None`: there are fewer ports than shards.
fn divide(shards: u16, ranges: &[Range]) -> Option<Vec<Part>> {
    (0..=16_u8).rev().find_map(|shift| {
        let mut base = 0_u64;
        let parts: Vec<_> = ranges
            .iter()
            .map(|range| {
                let part = Part {
                    first: range.first.to_bits(),
                    last: range.last.to_bits(),
                    slots: 0,
                    base: base as u32,
                    low: range.low,
                    high: range.high,
                    shift,
                };
                base += u64::from(range.addresses()) * u64::from(part.per_address());
                part
            })
            .collect();
        let slots = u32::try_from(base).ok().filter(|slots| *slots >= shards.into())?;
        Some(parts.into_iter().map(|part| Part { slots, ..part }).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: [u8; 4], last: [u8; 4], low: u16, high: u16) -> Range {
        Range { first: first.into(), last: last.into(), low, high }
    }

    fn map(shards: u16, pools: &[Vec<Range>]) -> ShardMap {
        ShardMap::new(shards, [1, 2], 56, pools).expect("shards")
    }

    #[test]
    fn whole_addresses_are_consecutive() {
        let map = map(4, &[vec![range([192, 0, 2, 0], [192, 0, 2, 15], 1024, 65535)]]);
        let own = map.ranges(0, Shard(2));
        assert_eq!(own, [range([192, 0, 2, 8], [192, 0, 2, 11], 1024, 65535)]);
        assert_eq!(map.of_v4([192, 0, 2, 11].into(), 2000), Some(Shard(2)));
        assert_eq!(map.of_v4([192, 0, 2, 11].into(), 80), None);
        assert_eq!(map.of_v4([192, 0, 2, 16].into(), 2000), None);
    }

    #[test]
    fn one_address_is_divided_by_aligned_ports() {
        let map = map(4, &[vec![range([192, 0, 2, 1], [192, 0, 2, 1], 1024, 65535)]]);
        assert_eq!(
            (0..4)
                .flat_map(|n| map.ranges(0, Shard(n)))
                .map(|r| (r.low, r.high))
                .collect::<Vec<_>>(),
            [(1024, 16383), (16384, 32767), (32768, 49151), (49152, 65535)]
        );
    }

    #[test]
    fn prefixes_say_which_addresses_are_shared() {
        let pool = vec![range([192, 0, 2, 0], [192, 0, 2, 15], 1024, 65535)];
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        assert_eq!(
            map(4, std::slice::from_ref(&pool)).prefixes(Shard(2)),
            [(net("192.0.2.8/30"), false)]
        );
        let three = map(3, std::slice::from_ref(&pool)).prefixes(Shard(1));
        assert_eq!(
            three,
            [
                (net("192.0.2.6/31"), false),
                (net("192.0.2.8/31"), false),
                (net("192.0.2.10/32"), false)
            ]
        );
        // 32 shards have half an address each, and other ports of an address may be another pool's.
        assert_eq!(
            map(32, std::slice::from_ref(&pool)).prefixes(Shard(3)),
            [(net("192.0.2.1/32"), true)]
        );
        let low = vec![range([192, 0, 2, 8], [192, 0, 2, 11], 1, 1023)];
        assert_eq!(
            map(4, &[pool, low]).prefixes(Shard(2)),
            [(net("192.0.2.8/30"), true), (net("192.0.2.10/32"), true)]
        );
    }

    #[test]
    fn all_prefixes_cover_the_pools_and_no_other_address() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let pools = [
            vec![
                range([192, 0, 2, 0], [192, 0, 2, 6], 1024, 65535),
                range([192, 0, 2, 7], [192, 0, 2, 7], 2048, 65535),
            ],
            vec![
                range([192, 0, 2, 0], [192, 0, 2, 1], 1, 1023),
                range([198, 51, 100, 9], [198, 51, 100, 9], 1, 65535),
            ],
        ];
        let expected = [net("192.0.2.0/29"), net("198.51.100.9/32")];
        assert_eq!(map(16, &pools).all_prefixes(), expected);
        assert_eq!(map(16, &[]).all_prefixes(), []);
    }

    #[test]
    fn hosts_of_one_subscriber_have_one_shard() {
        let map = map(64, &[]);
        let host = |n: u128| Ipv6Addr::from_bits(0x2001_0db8_0001_0200_u128 << 64 | n);
        assert!((0..99).all(|n| map.of_host(host(n << 40)) == map.of_host(host(0))));
    }

    #[test]
    fn subscribers_are_spread_evenly() {
        let map = map(64, &[]);
        let mut count = [0_u32; 64];
        for n in 0..64_000_u128 {
            let host = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | n << 72);
            count[usize::from(map.of_host(host).0)] += 1;
        }
        assert!(count.iter().all(|n| (850..1150).contains(n)), "{count:?}");
    }

    #[test]
    fn too_small_a_pool_is_refused() {
        let small = vec![range([192, 0, 2, 1], [192, 0, 2, 1], 1024, 1030)];
        assert_eq!(ShardMap::new(8, [0; 2], 56, &[small]).err(), Some(WrongShards::Small(0)));
        assert_eq!(ShardMap::new(0, [0; 2], 56, &[]).err(), Some(WrongShards::Number(0)));
    }

    proptest! {
        /// What a shard is said to have, and whose a transport address is said to be, agree; nothing is left over.
        #[test]
        fn each_transport_address_has_one_shard(
            shards in 1_u16..70,
            sizes in proptest::collection::vec((1_u8..40, 1_u16..5000, 200_u16..60000), 1..4),
        ) {
            let ranges: Vec<_> = (0_u8..).zip(&sizes).map(|(n, (addresses, low, more))| {
                range([198, 51, 100 + n, 0], [198, 51, 100 + n, addresses - 1], *low, low.saturating_add(*more))
            }).collect();
            let map = map(shards, std::slice::from_ref(&ranges));
            let mut total = 0_u64;
            for shard in (0..shards).map(Shard) {
                let own = map.ranges(0, shard);
                prop_assert!(!own.is_empty());
                for range in own {
                    total += u64::from(range.addresses()) * u64::from(range.ports());
                    for (v4, port) in [(range.first, range.low), (range.last, range.high), (range.first, range.high)] {
                        prop_assert_eq!(map.of_v4(v4, port), Some(shard));
                    }
                }
            }
            let all = ranges.iter().map(|r| u64::from(r.addresses()) * u64::from(r.ports()));
            prop_assert_eq!(total, all.sum::<u64>());
        }
    }
}
