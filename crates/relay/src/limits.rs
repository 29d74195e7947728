//! How much there is, and how much of each client network.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use foldhash::fast::RandomState;

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// That of all.
    Total,
    /// That of one client network.
    Client,
}

/// Parts of the count by network, so that threads seldom meet.
const PARTS: usize = 16;

/// How many there are of something.
#[derive(Debug, Default)]
pub(super) struct Tally {
    total: AtomicUsize,
    networks: [Mutex<HashMap<u128, usize, RandomState>>; PARTS],
}

impl Tally {
    /// Counts one more of `network`, unless there are so many.
    pub(super) fn take(&self, network: u128, total: usize, each: usize) -> Result<(), Over> {
        if self.total.fetch_add(1, Ordering::Relaxed) >= total {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Over::Total);
        }
        let mut networks = self.part(network);
        let count = networks.entry(network).or_insert(0);
        if *count >= each {
            if *count == 0 {
                networks.remove(&network);
            }
            self.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Over::Client);
        }
        *count += 1;
        Ok(())
    }

    /// Counts one less.
    pub(super) fn give(&self, network: u128) {
        if let Entry::Occupied(mut entry) = self.part(network).entry(network) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
            self.total.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many there are.
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    fn part(&self, network: u128) -> std::sync::MutexGuard<'_, HashMap<u128, usize, RandomState>> {
        // Networks differ in their middle bits most.
        let part = (network >> 64 ^ network >> 80) as usize % PARTS;
        self.networks[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_hold_and_nothing_is_left_behind() {
        let tally = Tally::default();
        for _ in 0..3 {
            tally.take(1 << 64, 5, 3).unwrap();
        }
        assert_eq!(tally.take(1 << 64, 5, 3), Err(Over::Client));
        tally.take(2 << 64, 5, 3).unwrap();
        tally.take(3 << 64, 5, 3).unwrap();
        assert_eq!(tally.take(4 << 64, 5, 3), Err(Over::Total));
        assert_eq!(tally.total(), 5);
        tally.give(2 << 64);
        tally.take(4 << 64, 5, 3).unwrap();
        for network in [1, 1, 1, 3, 4, 9] {
            tally.give(network << 64);
        }
        assert_eq!(tally.total(), 0);
        assert_eq!(tally.take(9 << 64, 5, 0), Err(Over::Client));
        assert!(tally.networks.iter().all(|part| part.lock().unwrap().is_empty()));
    }
}
