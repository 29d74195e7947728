//! Four tuples: restricted ranges and their pseudorandom enumeration (RFC 9693 sections 4.1 and 4.4).

use serde::{Deserialize, Serialize};

use crate::traffic::{DESTINATION_PORTS, SOURCE_PORTS};

/// Sizes of the ranges of addresses and ports. Each combination is one connection; addresses and ports are numbered from the
/// beginning of their ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuples {
    /// Source addresses.
    pub source_addresses: u32,
    /// Source ports, from 1024 on.
    pub source_ports: u32,
    /// Destination addresses.
    pub destination_addresses: u32,
    /// Destination ports, from 1 on.
    pub destination_ports: u32,
}

/// One four tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Number of the source address, from 0.
    pub source_address: u32,
    /// Source port.
    pub source_port: u16,
    /// Number of the destination address, from 0.
    pub destination_address: u32,
    /// Destination port.
    pub destination_port: u16,
}

impl Tuples {
    /// Source ports: some ten thousand (section 4.1), and the same range for every number of connections (section 5.1).
    pub const SOURCE_PORTS: u32 = 20_000;

    /// At least this many connections between one pair of addresses: all of [`Tuples::SOURCE_PORTS`], and as many destination
    /// ports as it takes, ten times as many for ten times as many connections (RFC 9693 sections 4.1 and 5.1). Exactly this many
    /// if it is a multiple of the source ports. Fewer connections than these have a source port each. `None` if ports do not
    /// suffice.
    pub fn at_least(connections: u64) -> Option<Self> {
        let source_ports = u64::from(Self::SOURCE_PORTS).min(connections.max(1));
        let destination_ports = connections.div_ceil(source_ports).max(1);
        let tuples = Self {
            source_addresses: 1,
            source_ports: u32::try_from(source_ports).ok()?,
            destination_addresses: 1,
            destination_ports: u32::try_from(destination_ports).ok()?,
        };
        tuples.is_valid().then_some(tuples)
    }

    /// Whether all ranges are there and lie within those of RFC 4814 section 4.5.
    pub fn is_valid(&self) -> bool {
        self.source_addresses > 0
            && self.destination_addresses > 0
            && (1..=ports(SOURCE_PORTS)).contains(&self.source_ports)
            && (1..=ports(DESTINATION_PORTS)).contains(&self.destination_ports)
    }

    /// Number of connections: all combinations.
    pub fn count(&self) -> u64 {
        [self.source_ports, self.destination_addresses, self.destination_ports]
            .iter()
            .fold(u64::from(self.source_addresses), |n, range| n.saturating_mul(u64::from(*range)))
    }

    /// The four tuple with a number below [`Tuples::count`].
    pub fn tuple(&self, number: u64) -> Tuple {
        let mut rest = number;
        let mut take = |range: u32| {
            let digit = rest % u64::from(range);
            rest /= u64::from(range);
            digit
        };
        Tuple {
            source_port: SOURCE_PORTS.0 + take(self.source_ports) as u16,
            destination_port: DESTINATION_PORTS.0 + take(self.destination_ports) as u16,
            source_address: take(self.source_addresses) as u32,
            destination_address: take(self.destination_addresses) as u32,
        }
    }

    /// A pseudorandom order of all combinations, each of them once.
    pub fn permutation(&self, seed: u64) -> Permutation {
        Permutation::new(self.count(), seed)
    }
}

fn ports((first, last): (u16, u16)) -> u32 {
    u32::from(last - first) + 1
}

/// A pseudorandom permutation of 0 to n - 1 that needs no memory: a Feistel network of four rounds over the smallest even
/// number of bits that holds n, applied again where it leaves the range.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    n: u64,
    half: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// The permutation of `n` numbers that a seed selects.
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let key = |round: u64| mix(seed ^ mix(round));
        Self { n, half: bits.div_ceil(2).max(1), keys: [key(1), key(2), key(3), key(4)] }
    }

    /// Where a number below n goes.
    pub fn at(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let mut value = number;
        loop {
            let (mut left, mut right) = (value >> self.half, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ mix(right ^ key) & mask);
            }
            value = left << self.half | right;
            if value < self.n {
                return value;
            }
        }
    }

    /// All numbers in this order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let all = *self;
        (0..self.n).map(move |number| all.at(number))
    }
}

/// A well-mixed number (the finaliser of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_combination_comes_once_in_a_pseudorandom_order() {
        let tuples = Tuples {
            source_addresses: 2,
            source_ports: 37,
            destination_addresses: 3,
            destination_ports: 5,
        };
        assert_eq!(tuples.count(), 1110);
        let order: Vec<u64> = tuples.permutation(7).iter().collect();
        let all: BTreeSet<Tuple> = order.iter().map(|number| tuples.tuple(*number)).collect();
        assert_eq!(all.len(), 1110);
        assert!(all.iter().all(|t| (1024..1061).contains(&t.source_port)
            && (1..6).contains(&t.destination_port)
            && t.source_address < 2
            && t.destination_address < 3));
        // A seed gives one order again, another seed another one, and neither is sorted.
        assert_eq!(order, tuples.permutation(7).iter().collect::<Vec<u64>>());
        assert_ne!(order, tuples.permutation(8).iter().collect::<Vec<u64>>());
        let ascents = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((450..660).contains(&ascents), "{ascents} of 1109 pairs ascend");
    }

    #[test]
    fn permutations_of_few_numbers_are_permutations() {
        for n in 0..70 {
            let all: BTreeSet<u64> = Permutation::new(n, 1).iter().collect();
            assert_eq!(all, (0..n).collect(), "{n}");
        }
    }

    proptest! {
        #[test]
        fn a_permutation_meets_every_number_once(seed: u64, bound in 1u64..5000) {
            let permutation = Permutation::new(bound, seed);
            let all: BTreeSet<u64> = (0..bound).map(|number| permutation.at(number)).collect();
            prop_assert_eq!(all, (0..bound).collect::<BTreeSet<u64>>());
        }
    }

    #[test]
    fn a_permutation_leaves_few_numbers_beside_their_neighbours() {
        let permutation = Permutation::new(10_000, 1);
        let close = |n: &u64| permutation.at(*n).abs_diff(permutation.at(n + 1)) < 10;
        // 0.2 % are expected.
        assert!((0..9_999).filter(close).count() < 60);
    }

    #[test]
    fn source_ports_are_many_and_destination_ports_few() {
        let tuples = Tuples::at_least(4_000_000).unwrap();
        assert_eq!((tuples.source_ports, tuples.destination_ports), (20_000, 200));
        for exact in [1, 500, 20_000, 40_000, 100_000] {
            assert_eq!(Tuples::at_least(exact).unwrap().count(), exact);
        }
        assert_eq!(Tuples::at_least(20_001).unwrap().count(), 40_000);
        assert_eq!(Tuples::at_least(0).unwrap().count(), 1);
        assert_eq!(Tuples::at_least(20_000 * 49_152), None);
        assert!(!Tuples { source_ports: 64_513, ..tuples }.is_valid());
        let last = tuples.tuple(3_999_999);
        assert_eq!((last.source_port, last.destination_port), (21_023, 200));
    }

    #[test]
    fn destination_ports_grow_tenfold_and_source_ports_stay() {
        let series = [100_000, 1_000_000, 10_000_000].map(|n| Tuples::at_least(n).unwrap());
        let ports = series.map(|it| (it.source_ports, it.destination_ports));
        assert_eq!(ports, [(20_000, 5), (20_000, 50), (20_000, 500)]);
        assert_eq!(series.map(|it| it.count()), [100_000, 1_000_000, 10_000_000]);
    }
}
