//! The pool of addresses, or of port sets of addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::net::Ipv4Addr;

use foldhash::fast::FixedState;
use ipnet::Ipv4Net;

use crate::lease::{Identity, Slot};
use fordway_softwire::PortSet;

/// Why there is no pool of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongPool {
    /// More than [`Pool::MOST`] leases.
    #[error("a pool has at most {} addresses, or addresses times port sets", Pool::MOST)]
    TooLarge,
    /// Two networks overlap.
    #[error("{0} overlaps another network of the pool")]
    Overlap(Ipv4Net),
    /// The ports of a client are no power of two from 64 to 32768.
    #[error("the ports of a client are a power of two from 64 to 32768")]
    Ports,
}

/// The first port of port sets: ports below are system ports (RFC 6335 section 6).
const FIRST_PORT: u16 = 1024;

/// Slots by number: free, leased, or in hold-down after a lease.
#[derive(Debug)]
pub struct Pool {
    nets: Vec<Ipv4Net>,
    /// Bits of a PSID, where ports are lent.
    psid_len: Option<u8>,
    /// PSIDs of each address in the pool.
    psids: u32,
    first_psid: u32,
    free: BTreeSet<u32>,
    /// In hold-down: the last client, and when the hold-down ends (ms).
    held_down: BTreeMap<u32, (Identity, u64)>,
    numbers: HashMap<Ipv4Addr, u32>,
}

impl Pool {
    /// Most slots of a pool.
    pub const MOST: u32 = 1 << 20;

    /// A pool of all addresses of `nets`; `ports`: of each client, or `None` for all.
    pub fn new(nets: &[Ipv4Net], ports: Option<u32>) -> Result<Pool, WrongPool> {
        let psid_len = ports.map(psid_len).transpose()?;
        let (first_psid, psids) = match (psid_len, ports) {
            (Some(len), Some(ports)) => {
                let first = u32::from(FIRST_PORT).div_ceil(ports);
                (first, (1 << len) - first)
            }
            _ => (0, 1),
        };
        let mut nets: Vec<Ipv4Net> = nets.iter().map(Ipv4Net::trunc).collect();
        nets.sort();
        if let Some(pair) = nets.windows(2).find(|pair| pair[0].contains(&pair[1])) {
            return Err(WrongPool::Overlap(pair[1]));
        }
        let addresses: u64 = nets.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
        let slots = addresses.saturating_mul(u64::from(psids));
        let slots = u32::try_from(slots).ok().filter(|slots| *slots <= Pool::MOST);
        let slots = slots.ok_or(WrongPool::TooLarge)?;
        let mut numbers = HashMap::new();
        let mut next = 0;
        for net in &nets {
            numbers.insert(net.network(), next);
            next += (1u32 << (32 - net.prefix_len())) * psids;
        }
        Ok(Pool {
            nets,
            psid_len,
            psids,
            first_psid,
            free: (0..slots).collect(),
            held_down: BTreeMap::new(),
            numbers,
        })
    }

    /// Whether addresses are shared.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.psid_len.is_some()
    }

    /// How many slots are free or in hold-down.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len() + self.held_down.len()
    }

    /// Whether `slot` is one of the pool's.
    #[must_use]
    pub fn has(&self, slot: &Slot) -> bool {
        self.number(slot).is_some()
    }

    /// Removes a slot from the free ones. `false`: it is not of this pool, or leased.
    pub(crate) fn take(&mut self, slot: &Slot) -> bool {
        let number = self.number(slot);
        number.is_some_and(|number| {
            self.free.remove(&number) || self.held_down.remove(&number).is_some()
        })
    }

    /// Leases a slot to `identity` at `now`. In this order: its own slot in hold-down, the address it wishes, the slot
    /// of its hash or the next free one. If no other is free, the slot whose hold-down ends first.
    pub(crate) fn lend(
        &mut self,
        identity: &Identity,
        wish: Option<Ipv4Addr>,
        now: u64,
    ) -> Option<Slot> {
        self.end_hold_down(now);
        let number = self
            .held_down
            .iter()
            .find(|(_, (who, _))| who == identity)
            .map(|(number, _)| *number)
            .or_else(|| self.wished(wish))
            .or_else(|| self.preferred(identity))
            .or_else(|| {
                let oldest = self.held_down.iter().min_by_key(|(_, (_, until))| *until);
                oldest.map(|(number, _)| *number)
            })?;
        self.free.remove(&number);
        self.held_down.remove(&number);
        self.slot(number)
    }

    /// Takes a slot back; it is in hold-down until `until`.
    pub(crate) fn give_back(&mut self, slot: &Slot, identity: &Identity, until: u64) {
        if let Some(number) = self.number(slot) {
            self.held_down.insert(number, (identity.clone(), until));
        }
    }

    /// Frees slots whose hold-down has ended.
    fn end_hold_down(&mut self, now: u64) {
        let over: Vec<u32> = self
            .held_down
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(it, _)| *it)
            .collect();
        for number in over {
            self.held_down.remove(&number);
            self.free.insert(number);
        }
    }

    fn wished(&self, wish: Option<Ipv4Addr>) -> Option<u32> {
        let first = self.first_number(wish?)?;
        self.free.range(first..first + self.psids).next().copied()
    }

    /// The free slot of the client's hash, or the next one, so that a client that returns mostly gets the same slot.
    fn preferred(&self, identity: &Identity) -> Option<u32> {
        let slots = self.slots().max(1);
        // The hash is the same in each life of the server: a client that returns gets the same slot. Below 2^20.
        let start = (FixedState::with_seed(4).hash_one(identity) % u64::from(slots)) as u32;
        self.free.range(start..).next().or_else(|| self.free.first()).copied()
    }

    fn slots(&self) -> u32 {
        let addresses: u32 = self.nets.iter().map(|net| 1u32 << (32 - net.prefix_len())).sum();
        addresses * self.psids
    }

    /// The number of an address's first slot.
    fn first_number(&self, v4: Ipv4Addr) -> Option<u32> {
        let net = self.nets.iter().find(|net| net.contains(&v4))?;
        let offset = u32::from(v4) - u32::from(net.network());
        Some(self.numbers.get(&net.network())? + offset * self.psids)
    }

    fn number(&self, slot: &Slot) -> Option<u32> {
        let first = self.first_number(slot.v4)?;
        match (self.psid_len, slot.ports) {
            (None, None) => Some(first),
            (Some(len), Some(ports)) => {
                let fits = ports.offset_bits() == 0 && ports.psid_len() == len;
                let psid = u32::from(ports.psid()).checked_sub(self.first_psid)?;
                fits.then_some(first + psid)
            }
            _ => None,
        }
    }

    fn slot(&self, number: u32) -> Option<Slot> {
        let (address, psid) = (number / self.psids, number % self.psids);
        let mut rest = address;
        for net in &self.nets {
            let size = 1u32 << (32 - net.prefix_len());
            if rest < size {
                let v4 = Ipv4Addr::from(u32::from(net.network()) + rest);
                let Some(len) = self.psid_len else { return Some(Slot { v4, ports: None }) };
                let psid = u16::try_from(psid + self.first_psid).ok()?;
                return Some(Slot { v4, ports: Some(PortSet::new(0, len, psid).ok()?) });
            }
            rest -= size;
        }
        None
    }
}

/// Bits of a PSID where each client has so many ports.
pub(crate) fn psid_len(ports: u32) -> Result<u8, WrongPool> {
    if !ports.is_power_of_two() || !(64..=32_768).contains(&ports) {
        return Err(WrongPool::Ports);
    }
    // 1 to 10.
    Ok((16 - ports.trailing_zeros()) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ClientId;

    fn who(name: &str) -> Identity {
        Identity::Named(ClientId::new(name).unwrap())
    }

    fn pool(nets: &[&str], ports: Option<u32>) -> Pool {
        let nets: Vec<Ipv4Net> = nets.iter().map(|net| net.parse().unwrap()).collect();
        Pool::new(&nets, ports).unwrap()
    }

    #[test]
    fn each_slot_is_lent_once_and_then_there_is_none() {
        for (ports, count) in [(None, 6), (Some(4096), 6 * 15), (Some(64), 6 * 1008)] {
            let mut pool = pool(&["192.0.2.0/30", "198.51.100.4/31"], ports);
            let mut slots = BTreeSet::new();
            while let Some(slot) = pool.lend(&who(&format!("c{}", slots.len())), None, 0) {
                assert!(slots.insert(slot), "{slot} twice");
                assert!(pool.has(&slot) && slot.ports.is_some() == ports.is_some());
                let first = slot.range().map(|range| *range.start());
                assert!(first.is_none_or(|first| first >= FIRST_PORT), "{slot}");
            }
            assert_eq!((slots.len(), pool.free()), (count, 0));
        }
    }

    #[test]
    fn who_comes_back_gets_the_same() {
        let mut pool = pool(&["192.0.2.0/24"], None);
        let slot = pool.lend(&who("a"), None, 0).unwrap();
        pool.give_back(&slot, &who("a"), 100);
        let other = pool.lend(&who("b"), Some(slot.v4), 50).unwrap();
        assert_ne!(slot, other, "it rests");
        assert_eq!(pool.lend(&who("a"), None, 50), Some(slot));
        pool.give_back(&slot, &who("a"), 100);
        assert_eq!(pool.lend(&who("c"), Some(slot.v4), 100), Some(slot), "it has rested");
    }

    #[test]
    fn what_rests_is_lent_when_nothing_else_is_left() {
        let mut pool = pool(&["192.0.2.0/31"], None);
        let a = pool.lend(&who("a"), None, 0).unwrap();
        let b = pool.lend(&who("b"), None, 0).unwrap();
        pool.give_back(&b, &who("b"), 100);
        pool.give_back(&a, &who("a"), 200);
        assert_eq!(pool.lend(&who("c"), None, 1), Some(b), "the longest at rest");
        assert_eq!(pool.lend(&who("d"), None, 1), Some(a));
        assert_eq!(pool.lend(&who("e"), None, 1), None);
    }

    #[test]
    fn a_certain_slot() {
        let mut pool = pool(&["192.0.2.0/30"], None);
        let slot = Slot { v4: [192, 0, 2, 1].into(), ports: None };
        assert!(pool.take(&slot) && !pool.take(&slot));
        let foreign = Slot { v4: [203, 0, 113, 1].into(), ports: None };
        assert!(!pool.take(&foreign) && !pool.has(&foreign));
        assert!(!pool.has(&Slot { ports: PortSet::new(0, 4, 1).ok(), ..slot }));
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn pools_that_can_not_be() {
        let net = |net: &str| net.parse::<Ipv4Net>().unwrap();
        let error = |nets: &[Ipv4Net], ports| Pool::new(nets, ports).unwrap_err();
        let overlap = error(&[net("192.0.2.0/24"), net("192.0.2.128/25")], None);
        assert_eq!(overlap, WrongPool::Overlap(net("192.0.2.128/25")));
        assert_eq!(error(&[net("0.0.0.0/0")], Some(64)), WrongPool::TooLarge);
        for ports in [0, 1, 32, 100, 65_536] {
            assert_eq!(error(&[net("192.0.2.0/24")], Some(ports)), WrongPool::Ports);
        }
    }
}
