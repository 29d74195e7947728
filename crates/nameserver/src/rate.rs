//! Rate limit of answers by UDP, whose source addresses can be forged, by client network.
//!
//! The generic cell rate algorithm: of each network a single time is kept, the one at which its bucket will be full
//! again. The times lie in a table of fixed size, at two places for each network that a keyed hash chooses; the earlier
//! of the two counts. So an attacker can neither make the table grow nor evict others, and a network is limited without
//! cause only where both of its places are shared with networks that are limited.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::settings::Rate;
use fordway_serve::Network;

/// Entries in each of the two rows.
const ROW: usize = 1 << 14;

/// Answers per time, by network.
#[derive(Debug)]
pub(super) struct Limiter {
    rate: Rate,
    /// Time by which an answer puts off the moment when the bucket is full, in ns.
    interval: u64,
    /// How far off that moment may be.
    depth: u64,
    hasher: RandomState,
    rows: Box<[[AtomicU64; ROW]; 2]>,
}

impl Limiter {
    /// With all buckets full.
    pub(super) fn new(rate: Rate) -> Self {
        let interval = (1_000_000_000 / u64::from(rate.per_second.get())).max(1);
        let row = || (0..ROW).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let rows: Vec<[AtomicU64; ROW]> =
            [row(), row()].into_iter().filter_map(|row| row.try_into().ok()).collect();
        Limiter {
            rate,
            interval,
            depth: interval.saturating_mul(u64::from(rate.burst.get())),
            hasher: RandomState::new(),
            rows: rows.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("two rows")),
        }
    }

    /// The rate that it holds networks to.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether a network may have an answer at `now` (ns from any moment on), which then counts.
    pub(super) fn allow(&self, network: Network, now: u64) -> bool {
        let hash = self.hasher.hash_one(network);
        let places =
            [&self.rows[0][hash as usize % ROW], &self.rows[1][(hash >> 32) as usize % ROW]];
        let full_at = places.map(|place| place.load(Ordering::Relaxed));
        let full_at = full_at[0].min(full_at[1]).max(now);
        let next = full_at + self.interval;
        if next - now > self.depth {
            return false;
        }
        for place in places {
            // Two threads at once may count as one: the limit need not be exact.
            place.fetch_max(next, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};
    use std::num::NonZeroU32;

    use super::*;
    use fordway_serve::ClientLen;

    const SECOND: u64 = 1_000_000_000;

    fn limiter(per_second: u32, burst: u32) -> Limiter {
        let value = |value| NonZeroU32::new(value).unwrap();
        Limiter::new(Rate { per_second: value(per_second), burst: value(burst) })
    }

    fn network(number: u64) -> Network {
        let address = IpAddr::V6(Ipv6Addr::from(u128::from(number) << 72));
        Network::of(address, ClientLen::default())
    }

    fn allowed(limiter: &Limiter, network: Network, now: u64, tries: usize) -> usize {
        (0..tries).filter(|_| limiter.allow(network, now)).count()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let limiter = limiter(100, 20);
        let start = 7 * SECOND;
        assert_eq!(allowed(&limiter, network(1), start, 1000), 20);
        assert_eq!(allowed(&limiter, network(1), start + SECOND / 10, 1000), 10);
        assert_eq!(
            allowed(&limiter, network(1), start + 100 * SECOND, 1000),
            20,
            "no more than full"
        );
    }

    #[test]
    fn in_the_long_run_it_is_the_rate() {
        let limiter = limiter(1000, 10);
        let steps = 10_000;
        let total: usize =
            (0..steps).map(|step| allowed(&limiter, network(1), step * SECOND / 1000, 3)).sum();
        assert!((steps as usize..=steps as usize + 10).contains(&total), "{total}");
    }

    #[test]
    fn others_are_not_touched() {
        let limiter = limiter(1, 1);
        for number in 0..100 {
            allowed(&limiter, network(number), SECOND, 1000);
        }
        let free = (1000..2000).filter(|number| limiter.allow(network(*number), SECOND)).count();
        assert!(free >= 990, "{free} of 1000");
    }

    #[test]
    fn the_highest_rate_and_the_lowest() {
        let highest = limiter(u32::MAX, u32::MAX);
        assert_eq!(allowed(&highest, network(1), SECOND, 10_000), 10_000);
        let lowest = limiter(1, u32::MAX);
        assert_eq!(allowed(&lowest, network(1), SECOND, 10_000), 10_000);
    }
}
