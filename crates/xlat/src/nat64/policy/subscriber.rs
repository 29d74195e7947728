//! Subscribers: which address and ports each gets, and its quotas (RFC 6888).

use core::net::Ipv6Addr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::nat64::Nat64;
use crate::nat64::table::{
    Found, FreeList, Kind, MAX_BLOCKS, PortBlock, Protocol, Side, Subscriber, Trouble, View,
    halves, life, one_less, state,
};
use crate::verdict::DropReason;

use super::{Allocation, BlockBitmap, Numbered, Range};

/// The pool of a subscriber that has no ports.
pub(crate) const NO_POOL: usize = u16::MAX as usize;

/// Why a packet needs its subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For ports of a pool.
    Ports,
    /// For its counts alone: the ports are those of an address that its host has.
    Counts,
}

/// The part of a quota that hosts of a side may use: IPv4 hosts, which are not the subscriber's, half of it.
fn part(quota: u32, side: Side) -> u32 {
    match side {
        Side::V6 => quota,
        Side::V4 => quota.div_ceil(2),
    }
}

/// The first `len` bits of an address.
pub(crate) fn prefix(addr: Ipv6Addr, len: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    Ipv6Addr::from_bits(addr.to_bits() & mask)
}

impl<'a> View<'a> {
    /// The subscriber that a host belongs to; a new one that is to have ports is given its first block.
    /// [`DropReason::Busy`]: the sweeper is ending the subscriber, so retry.
    pub(crate) fn subscriber(
        &self,
        host: Ipv6Addr,
        mark: u32,
        purpose: Purpose,
    ) -> Result<Found<'a, Subscriber>, DropReason> {
        let settings = &self.nat.settings;
        let mark = if self.nat.by_mark { mark } else { 0 };
        let prefix = prefix(host, settings.subscriber_len);
        let chain = self.subscriber_chain(prefix, mark).ok_or(DropReason::SubscribersFull)?;
        if let (Some(found), _) = self.find_subscriber(&chain, prefix, mark) {
            let is_live = found.1.state() == state::LIVE;
            return is_live.then_some(found).ok_or(DropReason::Busy);
        }
        let given = match purpose {
            Purpose::Ports => Some(self.first_block(host, prefix, mark)?),
            Purpose::Counts => None,
        };
        let list = FreeList::of(&self.regions, Kind::Subscriber);
        let Some(index) = list.take(self.regions.subscribers, self.shard) else {
            if let Some((_, block)) = given {
                self.nat.take_back(block);
            }
            return Err(DropReason::SubscribersFull);
        };
        let entry = &self.regions.subscribers[index as usize];
        self.fill(entry, prefix, mark, given);
        match chain.link(index, || self.find_subscriber(&chain, prefix, mark)) {
            Ok(()) => Ok((index, entry)),
            Err(found) => {
                // The sweeper takes its block back, and logs the release if it has logged the assignment.
                entry.end();
                found.ok_or(DropReason::SubscribersFull)
            }
        }
    }

    /// [`View::subscriber`] for a step that can be retried.
    pub(crate) fn subscriber_now(
        &self,
        host: Ipv6Addr,
        mark: u32,
        purpose: Purpose,
    ) -> Result<Found<'a, Subscriber>, Trouble> {
        self.subscriber(host, mark, purpose).map_err(|reason| match reason {
            DropReason::Busy => Trouble::Again,
            reason => reason.into(),
        })
    }

    /// The first block of a subscriber, and the number of its pool.
    fn first_block(
        &self,
        host: Ipv6Addr,
        prefix: Ipv6Addr,
        mark: u32,
    ) -> Result<(usize, PortBlock), DropReason> {
        let number = self.nat.settings.pools.iter().position(|pool| pool.takes(host, mark));
        let number = number.ok_or(DropReason::PoolExhausted)?;
        let hash = self.nat.secret.subscriber(prefix, mark);
        let block = self.nat.grant(number, host, hash, None).ok_or(DropReason::PoolExhausted)?;
        Ok((number, block))
    }

    fn fill(
        &self,
        entry: &Subscriber,
        prefix: Ipv6Addr,
        mark: u32,
        given: Option<(usize, PortBlock)>,
    ) {
        let (hi, lo) = halves(prefix);
        entry.hi.store(hi, Relaxed);
        entry.lo.store(lo, Relaxed);
        entry.mark.store(mark, Relaxed);
        entry.sessions.store(0, Relaxed);
        for ports in &entry.ports {
            ports.store(0, Relaxed);
        }
        entry.rate.store(0, Relaxed);
        entry.last_used.store(self.now, Relaxed);
        entry.created.store(self.now, Relaxed);
        entry.seen.store(0, Relaxed);
        let (pool, block) = given.unzip();
        entry.pool.store(pool.unwrap_or(NO_POOL) as u16, Relaxed);
        if let Some(block) = block {
            entry.blocks[0].v4.store(block.v4.to_bits(), Relaxed);
            entry.blocks[0].low.store(block.low, Relaxed);
            entry.blocks[0].high.store(block.high, Relaxed);
        }
        entry.life.store(life(state::LIVE, u32::from(block.is_some())), Release);
    }

    /// Gives a subscriber that was only counted until now its first block. `false`: there is none.
    fn begin_with_ports(&self, subscriber: &Subscriber) -> bool {
        let (prefix, mark) = (subscriber.prefix(), subscriber.mark.load(Relaxed));
        let Ok((number, block)) = self.first_block(prefix, prefix, mark) else { return false };
        if subscriber.add(block) {
            subscriber.pool.store(number as u16, Relaxed);
        } else {
            self.nat.take_back(block);
        }
        // If another thread has added a block, that will do.
        true
    }

    /// Gives a subscriber whose ports are used up another block of the same address (RFC 4787 REQ-2). `false`: there is
    /// none, or it may not have more.
    pub(crate) fn extend(&self, subscriber: &Subscriber) -> bool {
        let Some(first) = subscriber.blocks().next() else {
            return self.begin_with_ports(subscriber);
        };
        let Some(number) = self.nat.pool_of(first) else { return false };
        let most = match self.nat.settings.pools[number].allocation {
            Allocation::Shared => return self.extend_shared(subscriber),
            Allocation::Blocks { most, .. } => usize::from(most).min(MAX_BLOCKS),
            Allocation::Deterministic { .. } => return false,
        };
        if subscriber.blocks().count() >= most {
            return false;
        }
        let hash =
            self.nat.secret.subscriber(subscriber.prefix(), subscriber.blocks().count() as u32);
        let Some(block) = self.nat.grant(number, subscriber.prefix(), hash, Some(first)) else {
            return false;
        };
        let added = subscriber.add(block);
        if !added {
            self.nat.take_back(block);
        }
        // If another thread has added a block, that will do.
        true
    }

    /// Where ports are shared, gives a subscriber another range of its address. `false`: there is none.
    pub(crate) fn extend_shared(&self, subscriber: &Subscriber) -> bool {
        let Some(first) = subscriber.blocks().next() else { return false };
        let pool = self.nat.part_of(first).and_then(|part| self.nat.parts.get(part));
        let shared = pool.filter(|pool| pool.allocation == Allocation::Shared);
        let has = |range: &Range| {
            subscriber.blocks().any(|block| block.v4 == first.v4 && block.low == range.low)
        };
        let more = shared.and_then(|pool| pool.ranges_at(first.v4).find(|(_, range)| !has(range)));
        let Some((_, range)) = more.filter(|_| subscriber.blocks().count() < MAX_BLOCKS) else {
            return false;
        };
        // Fails if another thread adds one, which is as good.
        subscriber.add(PortBlock { v4: first.v4, low: range.low, high: range.high });
        true
    }

    /// Counts one port more of a subscriber, if its quota allows it. IPv4 hosts may use up half of it.
    pub(crate) fn count_port(
        &self,
        subscriber: &Subscriber,
        protocol: Protocol,
        side: Side,
    ) -> Result<(), DropReason> {
        let most = part(self.nat.settings.quotas.ports[protocol.index()], side);
        let counter = &subscriber.ports[protocol.index()];
        if counter.fetch_add(1, SeqCst) >= most && most != 0 {
            one_less(counter);
            return Err(DropReason::PortQuota);
        }
        if subscriber.state() != state::LIVE {
            one_less(counter);
            return Err(DropReason::Busy);
        }
        Ok(())
    }

    /// Whether the quotas leave room for one session more: without it a BIB entry would be made for nothing.
    pub(crate) fn has_room(&self, subscriber: &Subscriber, side: Side) -> Result<(), DropReason> {
        let quotas = &self.nat.settings.quotas;
        let (sessions, rate) = (part(quotas.sessions, side), part(quotas.new_per_second, side));
        let word = subscriber.rate.load(Acquire);
        let is_now = word >> 32 == u64::from(self.now >> 3);
        if rate != 0 && is_now && word as u32 >= rate {
            return Err(DropReason::RateQuota);
        }
        if sessions != 0 && subscriber.sessions.load(SeqCst) >= sessions {
            return Err(DropReason::SessionQuota);
        }
        Ok(())
    }

    /// Counts one session more, if the quotas allow it. IPv4 hosts may use half of them, so that they can't deny
    /// service to the subscriber.
    pub(crate) fn count_session(
        &self,
        subscriber: &Subscriber,
        side: Side,
    ) -> Result<(), DropReason> {
        let quotas = &self.nat.settings.quotas;
        let most = part(quotas.sessions, side);
        if quotas.new_per_second != 0
            && !self.within_rate(subscriber, part(quotas.new_per_second, side))
        {
            return Err(DropReason::RateQuota);
        }
        let before = subscriber.sessions.fetch_add(1, SeqCst);
        if most != 0 && before >= most {
            one_less(&subscriber.sessions);
            return Err(DropReason::SessionQuota);
        }
        subscriber.last_used.store(self.now, Relaxed);
        Ok(())
    }

    /// New sessions are counted by eights of ticks, 1.07 s.
    fn within_rate(&self, subscriber: &Subscriber, most: u32) -> bool {
        let second = u64::from(self.now >> 3);
        let count = |word: u64| {
            let number = if word >> 32 == second { word as u32 } else { 0 };
            (number < most).then(|| second << 32 | u64::from(number + 1))
        };
        subscriber.rate.fetch_update(AcqRel, Acquire, count).is_ok()
    }
}

impl Nat64 {
    /// A block of a pool for a subscriber: the first, or one more at the address of `beside`.
    fn grant(
        &self,
        pool_number: usize,
        host: Ipv6Addr,
        hash: u64,
        beside: Option<PortBlock>,
    ) -> Option<PortBlock> {
        if !self.settings.owns_host(host) {
            return None;
        }
        let part = self.part(pool_number, host);
        let pool = self.parts.get(part)?;
        let blocks = pool.blocks();
        if blocks == 0 {
            return None;
        }
        match pool.allocation {
            Allocation::Shared => pool.block(hash % blocks),
            // A cluster refuses them: another shard may have the block.
            Allocation::Deterministic { .. } if self.settings.shards.is_some() => None,
            Allocation::Deterministic { .. } => {
                pool.block(pool.place(host, self.settings.subscriber_len)?)
            }
            Allocation::Blocks { .. } => self.grant_block(part, pool, hash, beside),
        }
    }

    fn grant_block(
        &self,
        part: usize,
        pool: &Numbered,
        hash: u64,
        beside: Option<PortBlock>,
    ) -> Option<PortBlock> {
        let given = self.given.get(part)?;
        let take_in = |all: core::ops::Range<u64>| {
            let from = all.start + hash % (all.end - all.start).max(1);
            loop {
                let number = given.find(all.clone(), from)?;
                if given.take(number) {
                    return pool.block(number);
                }
            }
        };
        match beside {
            Some(beside) => pool.blocks_at(beside.v4).find_map(take_in),
            None => take_in(0..pool.blocks()),
        }
    }

    /// The number of the pool that a block is of.
    pub(crate) fn pool_of(&self, block: PortBlock) -> Option<usize> {
        self.part_of(block).map(|part| part / self.settings.parts_of_pool())
    }

    /// The number of a host's part of a pool.
    pub(crate) fn part(&self, pool: usize, host: Ipv6Addr) -> usize {
        let Some(shards) = &self.settings.shards else { return pool };
        let shard = usize::from(shards.partition().of_host(host));
        pool * self.settings.parts_of_pool() + shard
    }

    /// The number of the part that a block is of.
    fn part_of(&self, block: PortBlock) -> Option<usize> {
        let is_of =
            |part: &usize| self.parts.get(*part).is_some_and(|it| it.number(block).is_some());
        let Some(shards) = &self.settings.shards else { return (0..self.parts.len()).find(is_of) };
        let shard = usize::from(shards.partition().of_v4(block.v4, block.low)?);
        (shard..self.parts.len()).step_by(self.settings.parts_of_pool()).find(is_of)
    }

    /// The bit that says whether a block is assigned, and its pool's bitmap. By the block, not by the subscriber's
    /// pool, which may have another number since: the operator has put them into another order.
    fn given(&self, block: PortBlock) -> Option<(&BlockBitmap, u64)> {
        let part = self.part_of(block)?;
        let pool = self.parts.get(part)?;
        let gives = matches!(pool.allocation, Allocation::Blocks { .. });
        Some((self.given.get(part).filter(|_| gives)?, pool.number(block)?))
    }

    /// Whether a block that no other subscriber gets is assigned; `None`: it is shared, computed, or none of a pool's.
    pub(crate) fn is_assigned(&self, block: PortBlock) -> Option<bool> {
        self.given(block).map(|(given, place)| given.has(place))
    }

    /// Marks a block as assigned.
    pub(crate) fn mark(&self, block: PortBlock) {
        if let Some((given, place)) = self.given(block) {
            given.take(place);
        }
    }

    /// Takes back a block that is no longer used.
    pub(crate) fn take_back(&self, block: PortBlock) {
        if let Some((given, place)) = self.given(block) {
            given.give_back(place);
        }
    }
}
