//! pool4: IPv4 addresses with ports, and which hosts get them.
//!
//! A subscriber gets a block: ports of one address. Without port blocks that is every port of the address, shared with
//! others; with them, ports of its own, so that one line of the log names the subscriber (RFC 6888 REQ-14). Subscribers
//! may have computed blocks (RFC 7422), so that no log is needed at all.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use ipnet::Ipv6Net;

use crate::nat64::Occupancy;
use crate::nat64::table::PortBlock;

/// Consecutive addresses, with the same ports of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub first: Ipv4Addr,
    /// The last address.
    pub last: Ipv4Addr,
    /// The first port, at least 1.
    pub low: u16,
    /// The last port.
    pub high: u16,
}

impl Range {
    /// How many addresses.
    #[must_use]
    pub fn addresses(&self) -> u32 {
        self.last.to_bits().saturating_sub(self.first.to_bits()).saturating_add(1)
    }

    /// Ports of each address.
    #[must_use]
    pub fn ports(&self) -> u32 {
        u32::from(self.high.saturating_sub(self.low)) + 1
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, addr: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&addr)
    }
}

/// How ports are given to subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// All ports of an address, shared with other subscribers.
    #[default]
    Shared,
    /// Blocks of `size` ports, one at first, up to `most` when they are used up.
    Blocks {
        /// Ports of a block.
        size: u16,
        /// Blocks that a subscriber can have, 1 to [`MAX_BLOCKS`](crate::nat64::layout::MAX_BLOCKS).
        most: u8,
    },
    /// One block of `size` ports for each subscriber of the pool's first client prefix, computed from its place in that
    /// prefix (RFC 7422).
    Deterministic {
        /// Ports of a block.
        size: u16,
    },
}

/// A pool of pool4.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pool {
    /// Addresses and ports.
    pub ranges: Vec<Range>,
    /// Hosts that get them; empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Packets that get them: those with this mark; `None`: all.
    pub mark: Option<u32>,
    /// How ports are given.
    pub allocation: Allocation,
}

impl Pool {
    /// Whether a host's packets take from this pool.
    #[must_use]
    pub fn takes(&self, host: Ipv6Addr, mark: u32) -> bool {
        (self.clients.is_empty() || self.clients.iter().any(|net| net.contains(&host)))
            && self.mark.is_none_or(|wanted| wanted == mark)
    }

    /// Whether the transport address is one of the pool's.
    #[must_use]
    pub fn contains(&self, addr: Ipv4Addr, port: u16) -> bool {
        self.ranges
            .iter()
            .any(|range| range.contains(addr) && (range.low..=range.high).contains(&port))
    }

    /// How many blocks there are; of [`Allocation::Shared`], how many addresses.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.ranges.iter().map(|range| self.blocks_of(range)).sum()
    }

    /// Ports of a block in a range.
    fn block_ports(&self, range: &Range) -> u32 {
        match self.allocation {
            Allocation::Shared => range.ports(),
            Allocation::Blocks { size, .. } | Allocation::Deterministic { size } => {
                u32::from(size.max(1))
            }
        }
    }

    fn per_address(&self, range: &Range) -> u32 {
        range.ports() / self.block_ports(range)
    }

    pub(super) fn blocks_of(&self, range: &Range) -> u64 {
        u64::from(range.addresses()) * u64::from(self.per_address(range))
    }

    /// The block of a number in a range, whose first block has the number `first`.
    pub(super) fn block_in(&self, range: &Range, first: u64, number: u64) -> PortBlock {
        let per_address = u64::from(self.per_address(range)).max(1);
        let (address, place) = ((number - first) / per_address, (number - first) % per_address);
        let ports = self.block_ports(range);
        let low = u32::from(range.low) + place as u32 * ports;
        PortBlock {
            v4: Ipv4Addr::from_bits(range.first.to_bits() + address as u32),
            low: low as u16,
            high: (low + (ports - 1)) as u16,
        }
    }

    /// The numbers of the blocks of an address of a range, whose first block has the number `first`.
    pub(super) fn blocks_in(
        &self,
        range: &Range,
        first: u64,
        v4: Ipv4Addr,
    ) -> core::ops::Range<u64> {
        let per_address = u64::from(self.per_address(range));
        let address = u64::from(v4.to_bits() - range.first.to_bits());
        first + address * per_address..first + (address + 1) * per_address
    }

    /// The number of the block that a transport address of a range lies in. Ports after the last whole block are not
    /// used.
    pub(super) fn number_in(
        &self,
        range: &Range,
        first: u64,
        (v4, port): (Ipv4Addr, u16),
    ) -> Option<u64> {
        let blocks = self.blocks_in(range, first, v4);
        let number =
            blocks.start + u64::from(u32::from(port - range.low) / self.block_ports(range));
        (number < blocks.end).then_some(number)
    }

    /// The number of the block that a transport address lies in.
    fn number_at(&self, v4: Ipv4Addr, port: u16) -> Option<u64> {
        let mut first = 0;
        for range in &self.ranges {
            if range.contains(v4) && (range.low..=range.high).contains(&port) {
                return self.number_in(range, first, (v4, port));
            }
            first += self.blocks_of(range);
        }
        None
    }

    /// RFC 7422: the number of the block of a subscriber, which is its place in the first client prefix.
    #[must_use]
    pub fn deterministic(&self, host: Ipv6Addr, subscriber_len: u8) -> Option<u64> {
        self.place(host, subscriber_len).filter(|number| *number < self.blocks())
    }

    /// The same, whether the pool has so many blocks or not.
    pub(super) fn place(&self, host: Ipv6Addr, subscriber_len: u8) -> Option<u64> {
        let net = self.clients.first().filter(|net| net.contains(&host))?;
        let bits = u32::from(subscriber_len.checked_sub(net.prefix_len())?);
        if bits > 63 {
            return None;
        }
        let place = host.to_bits().checked_shr(128 - u32::from(subscriber_len)).unwrap_or(0);
        Some(place as u64 & ((1 << bits) - 1))
    }

    /// RFC 7422: the subscriber whose block holds this transport address.
    #[must_use]
    pub fn subscriber_of(&self, v4: Ipv4Addr, port: u16, subscriber_len: u8) -> Option<Ipv6Net> {
        let Allocation::Deterministic { .. } = self.allocation else { return None };
        let net = self.clients.first()?;
        let number = self.number_at(v4, port)?;
        let bits = u32::from(subscriber_len.checked_sub(net.prefix_len())?);
        if bits < 64 && number >> bits != 0 {
            return None;
        }
        let place = u128::from(number).checked_shl(128 - u32::from(subscriber_len)).unwrap_or(0);
        let prefix = Ipv6Addr::from_bits(net.network().to_bits() | place);
        Ipv6Net::new(prefix, subscriber_len).ok()
    }
}

/// Which blocks of a pool are assigned; of [`Allocation::Blocks`] only.
#[derive(Debug)]
pub(crate) struct BlockBitmap {
    words: Vec<AtomicU64>,
    blocks: u64,
}

impl BlockBitmap {
    pub(crate) fn of(pool: &Pool) -> BlockBitmap {
        let blocks = match pool.allocation {
            Allocation::Blocks { .. } => pool.blocks(),
            _ => 0,
        };
        let words = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        BlockBitmap { words, blocks }
    }

    /// Takes a block. `false`: it is taken.
    pub(crate) fn take(&self, number: u64) -> bool {
        let Some(word) = self.words.get((number / 64) as usize) else { return false };
        let bit = 1 << (number % 64);
        number < self.blocks && word.fetch_or(bit, AcqRel) & bit == 0
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        let word = self.words.get((number / 64) as usize);
        word.is_some_and(|word| word.load(Relaxed) >> (number % 64) & 1 != 0)
    }

    pub(crate) fn give_back(&self, number: u64) {
        if let Some(word) = self.words.get((number / 64) as usize) {
            word.fetch_and(!(1 << (number % 64)), AcqRel);
        }
    }

    /// The first free block from `from` on, all around, within `range`; not taken yet.
    pub(crate) fn find(&self, range: core::ops::Range<u64>, from: u64) -> Option<u64> {
        let from = from.clamp(range.start, range.end);
        self.find_in(from..range.end).or_else(|| self.find_in(range.start..from))
    }

    fn find_in(&self, range: core::ops::Range<u64>) -> Option<u64> {
        let mut number = range.start;
        while number < range.end {
            let word = self.words.get((number / 64) as usize)?.load(Relaxed);
            let free = !word >> (number % 64);
            if free != 0 {
                let found = number + u64::from(free.trailing_zeros());
                return (found < range.end).then_some(found);
            }
            number = (number / 64 + 1) * 64;
        }
        None
    }

    /// How many are assigned, and how many there are.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let given = self.words.iter().map(|word| u64::from(word.load(Relaxed).count_ones()));
        Occupancy { used: given.sum(), size: self.blocks }
    }
}
