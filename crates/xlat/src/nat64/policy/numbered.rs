//! A pool's blocks by their numbers, and their numbers by address: a new subscriber costs the same whether pool4 has one prefix
//! or a hundred thousand. The exception are ranges within the addresses of a wider one: at each of these addresses all of them are
//! looked through.

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Deref;

use crate::nat64::table::PortBlock;

use super::{Pool, Range};

/// A pool with its numbers.
#[derive(Debug)]
pub(crate) struct Numbered {
    pool: Pool,
    /// The number of each range's first block, and of the one that would come behind the last range.
    firsts: Vec<u64>,
    /// The ranges by their first addresses.
    order: Vec<usize>,
    /// The greatest last address of the ranges up to each place of `order`.
    reach: Vec<Ipv4Addr>,
}

impl Numbered {
    pub(crate) fn new(pool: Pool) -> Numbered {
        let mut firsts = Vec::with_capacity(pool.ranges.len() + 1);
        firsts.push(0);
        let mut next = 0;
        firsts.extend(pool.ranges.iter().map(|range| {
            next += pool.blocks_of(range);
            next
        }));
        let mut order: Vec<usize> = (0..pool.ranges.len()).collect();
        order.sort_by_key(|at| pool.ranges[*at].first);
        let reach = order.iter().scan(Ipv4Addr::UNSPECIFIED, |last, at| {
            *last = (*last).max(pool.ranges[*at].last);
            Some(*last)
        });
        let reach = reach.collect();
        Numbered { pool, firsts, order, reach }
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> u64 {
        self.firsts[self.pool.ranges.len()]
    }

    /// The block of a number.
    pub(crate) fn block(&self, number: u64) -> Option<PortBlock> {
        // Behind the last range that begins with this block or before it.
        let behind = self.firsts.partition_point(|first| *first <= number);
        let range = self.pool.ranges.get(behind - 1)?;
        Some(self.pool.block_in(range, self.firsts[behind - 1], number))
    }

    /// Where the ranges that an address is in stand.
    fn places(&self, v4: Ipv4Addr) -> impl Iterator<Item = usize> {
        let end = self.order.partition_point(|at| self.pool.ranges[*at].first <= v4);
        let places = (0..end).rev().take_while(move |place| self.reach[*place] >= v4);
        places.map(|place| self.order[place]).filter(move |at| self.pool.ranges[*at].contains(v4))
    }

    /// The ranges that an address is in, in the pool's order.
    pub(crate) fn ranges_at(&self, v4: Ipv4Addr) -> impl Iterator<Item = (u64, &Range)> {
        let after = move |least: usize| self.places(v4).filter(|at| *at >= least).min();
        let all = core::iter::successors(after(0), move |at| after(at + 1));
        all.map(|at| (self.firsts[at], &self.pool.ranges[at]))
    }

    /// The numbers of an address's blocks: one run for each of its ranges.
    pub(crate) fn blocks_at(&self, v4: Ipv4Addr) -> impl Iterator<Item = core::ops::Range<u64>> {
        self.ranges_at(v4).map(move |(first, range)| self.pool.blocks_in(range, first, v4))
    }

    /// The number of a block that was given. `None`: it is none of this pool's, but perhaps of one with other blocks in
    /// an earlier configuration.
    pub(crate) fn number(&self, block: PortBlock) -> Option<u64> {
        let has = |range: &Range| (range.low..=range.high).contains(&block.low);
        let (first, range) = self.ranges_at(block.v4).find(|(_, range)| has(range))?;
        let number = self.pool.number_in(range, first, (block.v4, block.low))?;
        (self.block(number)? == block).then_some(number)
    }
}

impl Deref for Numbered {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}
