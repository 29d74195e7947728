//! Clients by network, and what each of them may take.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A client's network: an IPv4 /24 or an IPv6 /56. A single host commands all addresses of its subnet, and often
/// several subnets; limits by address would be no limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Network(u64);

impl Network {
    /// The network of an address; a mapped address (`::ffff:0:0/96`) is what it maps.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Network(1 << 56 | u64::from(v4.to_bits() >> 8)),
            IpAddr::V6(v6) => Network((v6.to_bits() >> 72) as u64),
        }
    }
}

/// Independent parts, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// How many of something are there, in all and by client network; each holds a [`Ticket`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    all: AtomicUsize,
    by_network: [Mutex<HashMap<Network, usize>>; SHARDS],
}

/// A place in a [`Tally`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    tally: Arc<Tally>,
    network: Network,
}

impl Tally {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    /// A place, unless there are `most` already, or `most_of_network` of this network.
    pub(crate) fn enter(
        self: &Arc<Self>,
        network: Network,
        most: usize,
        most_of_network: usize,
    ) -> Option<Ticket> {
        if self.all.fetch_add(1, Ordering::Relaxed) >= most {
            self.all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut counts = self.shard(network).lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_default();
        if *count >= most_of_network {
            if *count == 0 {
                counts.remove(&network);
            }
            self.all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        *count += 1;
        Some(Ticket { tally: Arc::clone(self), network })
    }

    fn shard(&self, network: Network) -> &Mutex<HashMap<Network, usize>> {
        &self.by_network[(network.0 % SHARDS as u64) as usize]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let shard = self.tally.shard(self.network);
        let mut counts = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
        self.tally.all.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> Network {
        Network::of(address.parse().unwrap())
    }

    #[test]
    fn networks() {
        assert_eq!(network("192.0.2.0"), network("192.0.2.255"));
        assert_ne!(network("192.0.2.0"), network("192.0.3.0"));
        assert_eq!(network("2001:db8:0:ff::"), network("2001:db8:0:0:ffff::"));
        assert_ne!(network("2001:db8:0:ff::"), network("2001:db8:0:100::"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.2"));
        // ::c0:2/... as the upper bits of an IPv6 address is not 192.0.2.0/24.
        assert_ne!(network("0:c0:0002::"), network("192.0.2.0"));
    }

    #[test]
    fn places_are_given_back() {
        let tally = Arc::new(Tally::default());
        let (here, there) = (network("192.0.2.1"), network("2001:db8::1"));
        let first = tally.enter(here, 3, 2).unwrap();
        let second = tally.enter(here, 3, 2).unwrap();
        assert!(tally.enter(here, 3, 2).is_none(), "two of one network");
        let third = tally.enter(there, 3, 2).unwrap();
        assert!(tally.enter(there, 3, 2).is_none(), "three in all");
        assert_eq!(tally.count(), 3);
        drop(first);
        assert!(tally.enter(here, 3, 2).is_some());
        drop((second, third));
        assert_eq!(tally.count(), 0);
        assert!(tally.by_network.iter().all(|shard| shard.lock().unwrap().is_empty()), "no trace");
    }

    #[test]
    fn none_at_all_leaves_no_trace() {
        let tally = Arc::new(Tally::default());
        assert!(tally.enter(network("192.0.2.1"), 1, 0).is_none());
        assert_eq!(tally.count(), 0);
        assert!(tally.by_network.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
