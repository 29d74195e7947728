//! Client networks, and limits for each of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Leading bits of an address that name a client's network. A single host commands all addresses of its subnet, and often
/// several subnets; limits by address would be no limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLen {
    /// Of an IPv6 address, at most 128.
    pub v6: u8,
    /// Of an IPv4 address, at most 32.
    pub v4: u8,
}

impl Default for ClientLen {
    /// What sites have: an IPv6 /56 (RFC 6177), and what is routed by itself: an IPv4 /24.
    fn default() -> Self {
        ClientLen { v6: 56, v4: 24 }
    }
}

/// A client's network: its address with all other bits zero, that of IPv4 as `::ffff:0:0/96` maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(u128);

impl Network {
    /// The network of an address; a mapped address (`::ffff:0:0/96`) is what it maps.
    pub fn of(address: IpAddr, len: ClientLen) -> Self {
        let (bits, len) = match address.to_canonical() {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), 96 + u32::from(len.v4.min(32))),
            IpAddr::V6(v6) => (v6.to_bits(), u32::from(len.v6.min(128))),
        };
        let others = u128::MAX.checked_shr(len).unwrap_or(0);
        Network(bits & !others)
    }

    /// Its first address.
    pub fn address(self) -> Ipv6Addr {
        self.0.into()
    }
}

/// The limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// The limit in all.
    Total,
    /// The limit of one client network.
    Client,
}

/// Independent parts, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Counts places, in all and by client network; a [`Ticket`] holds them.
#[derive(Debug, Default)]
pub struct Tally {
    all: AtomicUsize,
    by_network: [Mutex<HashMap<Network, usize>>; SHARDS],
}

/// Places in a [`Tally`], given back when dropped.
#[derive(Debug)]
pub struct Ticket {
    tally: Arc<Tally>,
    network: Network,
    places: usize,
}

impl Tally {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    /// A place, unless there are `most` already, or `most_of_network` of this network.
    pub fn enter(
        self: &Arc<Self>,
        network: Network,
        most: usize,
        most_of_network: usize,
    ) -> Result<Ticket, Exceeded> {
        self.enter_with(network, 1, most, |_| most_of_network)
    }

    /// Several places at once, if a network then has no more than `most_of_network`, and no more than are left for
    /// others.
    pub fn enter_many(
        self: &Arc<Self>,
        network: Network,
        places: usize,
        most: usize,
        most_of_network: usize,
    ) -> Result<Ticket, Exceeded> {
        self.enter_with(network, places, most, |all| most_of_network.min(most - all))
    }

    /// A place, if a network then has no more than three times what is left for others: one alone gets three quarters
    /// of `most`, and there is room for the next one.
    pub fn enter_shared(
        self: &Arc<Self>,
        network: Network,
        most: usize,
    ) -> Result<Ticket, Exceeded> {
        self.enter_with(network, 1, most, |all| 3 * (most - all + 1))
    }

    /// Places, if a network then has no more than `share` allows for the number of all.
    fn enter_with(
        self: &Arc<Self>,
        network: Network,
        places: usize,
        most: usize,
        share: impl FnOnce(usize) -> usize,
    ) -> Result<Ticket, Exceeded> {
        let all = self.all.fetch_add(places, Ordering::Relaxed) + places;
        let ticket = if all > most {
            Err(Exceeded::Total)
        } else {
            let most_of_network = share(all);
            let mut counts = self.shard(network).lock().unwrap_or_else(PoisonError::into_inner);
            let held = counts.get(&network).copied().unwrap_or(0) + places;
            if held > most_of_network {
                Err(Exceeded::Client)
            } else {
                counts.insert(network, held);
                Ok(Ticket { tally: Arc::clone(self), network, places })
            }
        };
        if ticket.is_err() {
            self.all.fetch_sub(places, Ordering::Relaxed);
        }
        ticket
    }

    fn shard(&self, network: Network) -> &Mutex<HashMap<Network, usize>> {
        // Networks differ in their middle bits most.
        &self.by_network[(network.0 >> 64 ^ network.0 >> 72 ^ network.0 >> 8) as usize % SHARDS]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let shard = self.tally.shard(self.network);
        let mut counts = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= self.places;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
        self.tally.all.fetch_sub(self.places, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> Network {
        Network::of(address.parse().unwrap(), ClientLen::default())
    }

    #[test]
    fn networks() {
        assert_eq!(network("192.0.2.0"), network("192.0.2.255"));
        assert_ne!(network("192.0.2.0"), network("192.0.3.0"));
        assert_eq!(network("2001:db8:0:ff::"), network("2001:db8:0:0:ffff::"));
        assert_ne!(network("2001:db8:0:ff::"), network("2001:db8:0:100::"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.2"));
        assert_ne!(network("::"), network("0.0.0.0"));
        assert_ne!(network("::c000:200"), network("192.0.2.0"));
    }

    #[test]
    fn networks_of_other_lengths() {
        let same = |one: &str, other: &str, v6, v4| {
            let [one, other] = [one, other]
                .map(|address| Network::of(address.parse().unwrap(), ClientLen { v6, v4 }));
            one == other
        };
        assert!(same("2001:db8:0:1::", "2001:db8:0:1:ffff::", 64, 0));
        assert!(!same("2001:db8:0:1::", "2001:db8:0:2::", 64, 0));
        assert!(!same("2001:db8::1", "2001:db8::2", 128, 0));
        assert!(same("2001:db8::1", "2001:db8::1", 128, 32));
        assert!(!same("192.0.2.1", "192.0.2.2", 0, 32));
        assert!(same("192.0.2.1", "198.51.100.2", 64, 0));
        assert!(!same("::", "192.0.2.1", 0, 0), "families stay apart");
    }

    #[test]
    fn places_are_given_back() {
        let tally = Arc::new(Tally::default());
        let (here, there) = (network("192.0.2.1"), network("2001:db8::1"));
        let first = tally.enter(here, 3, 2).unwrap();
        let second = tally.enter(here, 3, 2).unwrap();
        assert!(tally.enter(here, 3, 2).is_err(), "two of one network");
        let third = tally.enter(there, 3, 2).unwrap();
        assert!(tally.enter(there, 3, 2).is_err(), "three in all");
        assert_eq!(tally.count(), 3);
        drop(first);
        assert!(tally.enter(here, 3, 2).is_ok());
        drop((second, third));
        assert_eq!(tally.count(), 0);
        assert!(tally.by_network.iter().all(|shard| shard.lock().unwrap().is_empty()), "no trace");
    }

    #[test]
    fn the_more_is_held_the_less_may_one_hold() {
        let tally = Arc::new(Tally::default());
        let (here, there) = (network("192.0.2.1"), network("2001:db8::1"));
        let first = tally.enter_many(here, 500, 1000, 700).unwrap();
        assert!(tally.enter_many(here, 1, 1000, 700).is_err(), "as much as is left for others");
        let second = tally.enter_many(there, 250, 1000, 700).unwrap();
        assert!(tally.enter_many(there, 1, 1000, 700).is_err());
        assert_eq!(tally.count(), 750);
        drop(first);
        let third = tally.enter_many(there, 100, 1000, 350).unwrap();
        assert!(tally.enter_many(there, 1, 1000, 350).is_err(), "its own bound");
        drop((second, third));
        assert_eq!(tally.count(), 0);
        assert!(tally.by_network.iter().all(|shard| shard.lock().unwrap().is_empty()), "no trace");
    }

    #[test]
    fn none_at_all_leaves_no_trace() {
        let tally = Arc::new(Tally::default());
        assert!(tally.enter(network("192.0.2.1"), 1, 0).is_err());
        assert_eq!(tally.count(), 0);
        assert!(tally.by_network.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn both_limits_hold_and_nothing_is_left_behind() {
        let tally = Arc::new(Tally::default());
        let network = |number: u8| network(&format!("192.0.{number}.1"));
        let enter = |number, most| tally.enter(network(number), most, 3);
        let mut first: Vec<_> = (0..3).map(|_| enter(1, 5).unwrap()).collect();
        assert_eq!(enter(1, 5).unwrap_err(), Exceeded::Client);
        let second = enter(2, 5).unwrap();
        first.push(enter(3, 5).unwrap());
        assert_eq!(enter(4, 5).unwrap_err(), Exceeded::Total);
        assert_eq!(tally.count(), 5);
        drop(second);
        first.push(enter(4, 5).unwrap());
        drop(first);
        assert_eq!(tally.count(), 0);
        assert_eq!(tally.enter(network(9), 5, 0).unwrap_err(), Exceeded::Client);
        assert!(tally.by_network.iter().all(|shard| shard.lock().unwrap().is_empty()), "no trace");
    }
}
