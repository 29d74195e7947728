//! Which frame has which ports.

use fordway_procedures::traffic::{DESTINATION_PORTS, SOURCE_PORTS};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Spreads the bits of a number: 0 stays 0, and two numbers never give the same one (the finaliser of splitmix64).
pub(crate) fn mixed(number: u64) -> u64 {
    let once = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let twice = (once ^ once >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    twice ^ twice >> 31
}

/// Pseudorandom source and destination port of a frame, by the trial's seed and the frame's number.
pub(crate) fn ports(seed: u64, number: u64) -> [u16; 2] {
    let drawn = mixed(seed ^ mixed(number.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    let scaled = |bits: u64, (first, last): (u16, u16)| {
        first + ((bits * (u64::from(last - first) + 1)) >> 32) as u16
    };
    [scaled(drawn >> 32, SOURCE_PORTS), scaled(drawn & 0xffff_ffff, DESTINATION_PORTS)]
}

/// So many unique tuples, in a pseudorandom order (RFC 9693): every combination of a source port, a destination
/// port and a pair of networks is used at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enumeration {
    /// Number of tuples.
    pub flows: u32,
    /// The first source port, and how many follow it.
    pub source_ports: (u16, u16),
    /// The first destination port, and how many follow it.
    pub target_ports: (u16, u16),
}

impl Enumeration {
    /// Checks that so many pairs of networks have enough tuples.
    pub(crate) fn check(&self, networks: u16) -> Result<()> {
        let (sources, targets) = (self.source_ports, self.target_ports);
        let fits = |(first, count): (u16, u16)| {
            first > 0 && count > 0 && u32::from(first) + u32::from(count) <= 1 << 16
        };
        let all = u64::from(sources.1) * u64::from(targets.1) * u64::from(networks);
        if self.flows == 0 || !fits(sources) || !fits(targets) || all < u64::from(self.flows) {
            return Err(Error::Unfit(format!(
                "{} flows from {} source ports to {} destination ports in {networks} networks: there are {all} tuples, of \
                 ports from 1 to 65535",
                self.flows, sources.1, targets.1
            )));
        }
        Ok(())
    }

    /// Pair of networks and ports of the tuple with a number below [`Enumeration::flows`].
    pub(crate) fn tuple(&self, number: u32) -> (u16, [u16; 2]) {
        let (sources, targets) = (u32::from(self.source_ports.1), u32::from(self.target_ports.1));
        let source = self.source_ports.0 + (number % sources) as u16;
        let target = self.target_ports.0 + (number / sources % targets) as u16;
        ((number / sources / targets) as u16, [source, target])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn random_ports_fill_their_ranges_and_follow_from_the_seed() {
        let drawn: Vec<[u16; 2]> = (0..200_000).map(|number| ports(7, number)).collect();
        assert!(drawn.iter().all(|[source, _]| *source >= 1024));
        assert!(drawn.iter().all(|[_, target]| (1..=49_151).contains(target)));
        let distinct = |side: usize| drawn.iter().map(|it| it[side]).collect::<BTreeSet<_>>().len();
        // Of n ports drawn k times, n (1 - exp(-k/n)) are expected: 61,609 and 48,312.
        assert!((61_000..62_200).contains(&distinct(0)), "{}", distinct(0));
        assert!((47_900..48_700).contains(&distinct(1)), "{}", distinct(1));
        assert_eq!(drawn[..100], (0..100).map(|number| ports(7, number)).collect::<Vec<_>>());
        assert_ne!(drawn[..100], (0..100).map(|number| ports(8, number)).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn no_two_tuples_of_an_enumeration_are_alike(
            sources in 1u16..40, targets in 1u16..40, networks in 1u16..4, share in 1u32..=100,
        ) {
            let all = u32::from(sources) * u32::from(targets) * u32::from(networks);
            let flows = (all * share / 100).max(1);
            let enumeration =
                Enumeration { flows, source_ports: (1024, sources), target_ports: (1, targets) };
            enumeration.check(networks).unwrap();
            let tuples: BTreeSet<_> = (0..flows).map(|number| enumeration.tuple(number)).collect();
            prop_assert_eq!(tuples.len(), flows as usize);
            for (network, [source, target]) in tuples {
                prop_assert!(network < networks);
                prop_assert!((1024..1024 + sources).contains(&source));
                prop_assert!((1..1 + targets).contains(&target));
            }
        }
    }

    #[test]
    fn too_many_flows_are_refused() {
        let some = Enumeration { flows: 101, source_ports: (1024, 10), target_ports: (1, 10) };
        assert!(some.check(1).is_err());
        assert!(some.check(2).is_ok());
        assert!(Enumeration { source_ports: (65_000, 1000), ..some }.check(2).is_err());
        assert!(Enumeration { flows: 0, ..some }.check(2).is_err());
    }
}
