//! Subscribers, and the blocks that no other one has.

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::sync::atomic::Ordering::Relaxed;

use crate::nat64::policy::{Purpose, prefix as prefix_of};
use crate::nat64::table::{Found, PortBlock, Subscriber, state};
use crate::verdict::DropReason;

use super::super::apply::ApplyError;
use super::super::record::Named;
use super::super::told::ToldSubscriber;
use super::Place;

impl<'a> Place<'a> {
    /// A subscriber's record.
    pub(in super::super) fn put_subscriber(
        &mut self,
        shard: u16,
        (prefix, mark): (Ipv6Addr, u32),
        blocks: &[PortBlock],
    ) -> Result<(), ApplyError> {
        let nat = self.view.nat;
        let pool = nat.home_of((prefix, mark), blocks).ok_or(ApplyError::Foreign)?;
        let (entry, subscriber) = self.subscriber(shard, prefix, mark)?;
        self.set_blocks(entry, subscriber, blocks);
        subscriber.pool.store(pool as u16, Relaxed);
        self.told.set_recorded(entry, true);
        Ok(())
    }

    /// The entry of a subscriber; a new one has no blocks yet, and no record.
    pub(super) fn subscriber(
        &mut self,
        shard: u16,
        prefix: Ipv6Addr,
        mark: u32,
    ) -> Result<Found<'a, Subscriber>, ApplyError> {
        let nat = self.view.nat;
        let is_prefix = prefix_of(prefix, nat.settings.subscriber_len) == prefix;
        if !is_prefix || mark != 0 && !nat.by_mark {
            return Err(ApplyError::Foreign);
        }
        if let Some(entry) = self.told.find(shard, &Named::Subscriber { prefix, mark })
            && self.has_subscriber(entry).is_none()
        {
            self.untell_subscriber(entry);
        }
        let found = self.view.subscriber(prefix, mark, Purpose::Counts);
        let (entry, subscriber) = found.map_err(|reason| match reason {
            DropReason::Busy => ApplyError::Conflict,
            _ => ApplyError::SubscribersFull,
        })?;
        self.grow();
        if self.has_subscriber(entry).is_none() {
            if self.told.subscribers[entry as usize].is_told() {
                self.untell_subscriber(entry);
            }
            self.told.subscribers[entry as usize] = ToldSubscriber::of(prefix, mark, shard);
        }
        Ok((entry, subscriber))
    }

    /// Changes the blocks of a subscriber, and which are assigned.
    pub(super) fn set_blocks(&mut self, entry: u32, subscriber: &Subscriber, blocks: &[PortBlock]) {
        let nat = self.view.nat;
        let before: Vec<PortBlock> = subscriber.blocks().collect();
        for block in before.iter().filter(|block| !blocks.contains(block)) {
            let place = (block.v4, block.low);
            let is_own = self.told.owners.get(&place).is_none_or(|owner| *owner == entry);
            if is_own {
                self.told.owners.remove(&place);
                nat.take_back(*block);
            }
        }
        for block in blocks {
            // Other blocks are shared, or computed.
            let Some(is_assigned) = nat.is_assigned(*block) else { continue };
            let other = self.told.owners.insert((block.v4, block.low), entry);
            if is_assigned && !before.contains(block) {
                match other.filter(|other| *other != entry) {
                    Some(other) => self.lose_block(other, *block),
                    None => self.find_holder(entry, *block),
                }
            }
            nat.mark(*block);
        }
        subscriber.replace_blocks(blocks);
        self.told.set_blocks(entry, blocks);
    }

    /// A block is another subscriber's now.
    fn lose_block(&mut self, entry: u32, block: PortBlock) {
        let Some(holder) = self.view.regions.subscribers.get(entry as usize) else { return };
        let kept: Vec<_> = holder.blocks().filter(|kept| *kept != block).collect();
        holder.replace_blocks(&kept);
        if self.has_subscriber(entry).is_some() {
            self.told.set_blocks(entry, &kept);
        }
    }

    /// A block is a subscriber's now, but was assigned to one without a record, which may be about to end.
    fn find_holder(&mut self, entry: u32, block: PortBlock) {
        let holds = |holder: &Subscriber| {
            matches!(holder.state(), state::LIVE | state::CLAIMED | state::DEAD)
                && holder.blocks().any(|held| held == block)
        };
        let holders = self.view.regions.subscribers.iter().enumerate();
        let mut others =
            holders.filter(|(index, holder)| *index != entry as usize && holds(holder));
        if let Some((other, _)) = others.next() {
            self.lose_block(other as u32, block);
        }
    }
}
