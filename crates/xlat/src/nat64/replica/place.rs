//! The standby's side: records become entries of the tables, and are removed.
//!
//! A later record wins: what contradicts it is left over from an earlier stream, or from the time when this gateway
//! owned the shard, and its own removal comes later.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::nat64::Sweeper;
use crate::nat64::policy::{Purpose, Shards, prefix as prefix_of, ticks};
use crate::nat64::table::{
    Bib, Found, FreeList, Kind, PermissionKey, PortBlock, Protocol, Session, SessionKey,
    SessionLife, Subscriber, View, bib_flags, one_less, session_seen, state,
};
use crate::verdict::DropReason;

use super::apply::ApplyError;
use super::record::{BibValue, LEFT_UNIT, Named, RecordKey, SessionValue};
use super::scan::end_of;
use super::told::{Presence, Told, ToldBib, ToldSession, ToldSubscriber};

/// Changes tables and what was told of them.
pub(super) struct Place<'a> {
    pub(super) told: &'a mut Told,
    pub(super) shards: &'a Shards,
    pub(super) view: View<'a>,
    pub(super) sweeper: &'a mut Sweeper,
    /// Removals of records of this gateway's own shards, whose entries have ended and are used anew.
    pub(super) ended: &'a mut alloc::vec::Vec<(u16, RecordKey)>,
}

impl<'a> Place<'a> {
    /// The last record of a shard, in the order of keys.
    pub(super) fn last_of(&self, shard: u16) -> Option<(Named, u32)> {
        let (key, entry) = self.told.index(shard)?.last_key_value()?;
        Some((Named::read(key).ok()?, *entry))
    }

    /// Whether the table has a session as it was told.
    pub(super) fn has_session(&self, entry: u32) -> Option<&'a Session> {
        let session = View::entry(self.view.regions.sessions, entry)?;
        let told = self.told.sessions.get(entry as usize)?;
        (told.is_told() && told.is(session) && session.life().is_live()).then_some(session)
    }

    /// Whether the table has a BIB entry as it was told.
    pub(super) fn has_bib(&self, entry: u32) -> Option<&'a Bib> {
        let bib = View::entry(self.view.regions.bibs, entry)?;
        let told = self.told.bibs.get(entry as usize)?;
        (told.is_told() && told.is(bib) && bib.state() == state::LIVE).then_some(bib)
    }

    /// Whether the table has a subscriber as it was told.
    pub(super) fn has_subscriber(&self, entry: u32) -> Option<&'a Subscriber> {
        let subscriber = View::entry(self.view.regions.subscribers, entry)?;
        let told = self.told.subscribers.get(entry as usize)?;
        let is_known = told.presence != Presence::Absent && told.is(subscriber);
        (is_known && subscriber.state() == state::LIVE).then_some(subscriber)
    }

    /// Removes a record and its entry.
    pub(super) fn remove(&mut self, named: &Named, entry: u32) {
        match named {
            Named::Subscriber { .. } if self.told.subscribers[entry as usize].bibs != 0 => {
                // It goes with its last BIB entry.
                self.told.set_recorded(entry, false);
            }
            Named::Subscriber { .. } => self.remove_subscriber(entry),
            Named::Bib { .. } => self.remove_bib(entry),
            Named::Session(_) => self.remove_session(entry),
        }
    }

    fn remove_session(&mut self, entry: u32) {
        if self.has_session(entry).is_some() {
            self.sweeper.remove_session(&self.view, entry);
        }
        self.told.remove_session(entry);
    }

    /// Removes a BIB entry and its sessions, and a subscriber that only it needed.
    pub(super) fn remove_bib(&mut self, entry: u32) {
        while let Some(session) = self.told.last_session_of(&self.told.bibs[entry as usize]) {
            self.remove_session(session);
        }
        if self.has_bib(entry).is_some() {
            self.sweeper.remove_bib(&self.view, entry);
        }
        let owner = self.told.bibs[entry as usize].subscriber;
        self.told.remove_bib(entry);
        self.drop_unneeded(owner);
    }

    /// Removes a subscriber that has neither a record nor BIB entries.
    fn drop_unneeded(&mut self, entry: u32) {
        let told = &self.told.subscribers[entry as usize];
        if told.presence == Presence::Unrecorded && told.bibs == 0 {
            self.remove_subscriber(entry);
        }
    }

    fn remove_subscriber(&mut self, entry: u32) {
        if let Some(subscriber) = self.has_subscriber(entry) {
            self.set_blocks(entry, subscriber, &[]);
            // One that still has sessions or ports without a record ends after those.
            if !self.sweeper.remove_subscriber(&self.view, entry) {
                subscriber.end();
            }
        }
        self.told.remove_subscriber(entry);
    }

    /// Before a subscriber's entry is used for another one: its BIB entries are no longer told.
    pub(super) fn remove_bibs_of(&mut self, entry: u32) {
        let told = &self.told.subscribers[entry as usize];
        if told.bibs == 0 {
            return;
        }
        let index = self.told.index(told.shard).into_iter().flatten();
        let is_of = |(key, bib): (&RecordKey, &u32)| {
            let is_bib = matches!(Named::read(key), Ok(Named::Bib { .. }));
            (is_bib && self.told.bibs[*bib as usize].subscriber == entry).then_some(*bib)
        };
        let bibs: alloc::vec::Vec<u32> = index.filter_map(is_of).collect();
        for bib in bibs {
            self.untell_bib(bib);
        }
    }

    /// Remembers that the record of an own shard has ended; the next scan tells it.
    fn has_ended(&mut self, (shard, key): (u16, RecordKey)) {
        if self.shards.owns(shard) {
            self.ended.push((shard, key));
        }
    }

    fn untell_session(&mut self, entry: u32) {
        let ended = self.told.remove_session(entry);
        self.has_ended(ended);
    }

    fn untell_bib(&mut self, entry: u32) {
        while let Some(session) = self.told.last_session_of(&self.told.bibs[entry as usize]) {
            self.untell_session(session);
        }
        if let Some(ended) = self.told.remove_bib(entry) {
            self.has_ended(ended);
        }
    }

    fn untell_subscriber(&mut self, entry: u32) {
        self.remove_bibs_of(entry);
        if let Some(ended) = self.told.remove_subscriber(entry) {
            self.has_ended(ended);
        }
    }

    /// Room for entries up to these that were just made.
    fn grow(&mut self) {
        let [subscribers, bibs, sessions] = [Kind::Subscriber, Kind::Bib, Kind::Session]
            .map(|kind| end_of(&self.view, kind) as usize);
        self.told.grow(subscribers, bibs, sessions);
    }

    /// A subscriber's record.
    pub(super) fn put_subscriber(
        &mut self,
        shard: u16,
        (prefix, mark): (Ipv6Addr, u32),
        blocks: &[PortBlock],
    ) -> Result<(), ApplyError> {
        let nat = self.view.nat;
        let parts = self.shards.partition();
        let of_shard = |port: fn(&PortBlock) -> u16| {
            blocks.iter().all(|block| parts.of_v4(block.v4, port(block)) == Some(shard))
        };
        let fits = nat.home_of((prefix, mark), blocks);
        let pool = fits.filter(|_| of_shard(|block| block.low) && of_shard(|block| block.high));
        let pool = pool.ok_or(ApplyError::Foreign)?;
        let (entry, subscriber) = self.subscriber(shard, prefix, mark)?;
        self.set_blocks(entry, subscriber, blocks);
        subscriber.pool.store(pool as u16, Relaxed);
        self.told.set_recorded(entry, true);
        Ok(())
    }

    /// The entry of a subscriber; a new one has no blocks yet, and no record.
    fn subscriber(
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
            if self.told.subscribers[entry as usize].presence != Presence::Absent {
                self.untell_subscriber(entry);
            }
            let told = ToldSubscriber::of(prefix, mark, shard, Presence::Unrecorded);
            self.told.put_subscriber(entry, told);
        }
        Ok((entry, subscriber))
    }

    /// Changes the blocks of a subscriber, and which are assigned.
    fn set_blocks(&mut self, entry: u32, subscriber: &Subscriber, blocks: &[PortBlock]) {
        let nat = self.view.nat;
        let before: alloc::vec::Vec<PortBlock> = subscriber.blocks().collect();
        for block in before.iter().filter(|block| !blocks.contains(block)) {
            let place = (block.v4, block.low);
            let is_own = self.told.owners.get(&place).is_none_or(|owner| *owner == entry);
            if is_own && nat.is_assigned(*block).is_some() {
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
        let kept: alloc::vec::Vec<_> = holder.blocks().filter(|kept| *kept != block).collect();
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

    /// A BIB entry's record.
    pub(super) fn put_bib(
        &mut self,
        shard: u16,
        (protocol, v4): (Protocol, (Ipv4Addr, u16)),
        value: &BibValue,
    ) -> Result<(), ApplyError> {
        let (nat, number) = (self.view.nat, protocol.number());
        let of_v4 = self.shards.partition().of_v4(v4.0, v4.1);
        if !nat.owns(protocol, v4.0, v4.1) || of_v4.is_some_and(|other| other != shard) {
            return Err(ApplyError::Foreign);
        }
        if let Some(entry) = self.told.find(shard, &Named::Bib { protocol, v4 }) {
            if self.has_bib(entry).is_some() && self.told.bib_value(entry) == *value {
                return Ok(());
            }
            self.remove_bib(entry);
        }
        if let Some(chain) = self.view.bib4_chain(v4, number)
            && let Some(holder) = self.view.holder4(&chain, v4, number).0
        {
            self.displace(shard, holder)?;
        }
        if let Some(chain) = self.view.bib6_chain(value.v6, number)
            && let Some(holder) = self.view.find6(&chain, value.v6, number).0
        {
            self.displace(shard, holder)?;
        }
        let prefix = prefix_of(value.v6.0, nat.settings.subscriber_len);
        let (owner, subscriber) = self.subscriber(shard, prefix, value.mark)?;
        let made = self.make_bib(protocol, v4, value, owner, subscriber);
        let (entry, bib) = match made {
            Ok(made) => made,
            Err(error) => {
                self.drop_unneeded(owner);
                return Err(error);
            }
        };
        self.told.put_bib(entry, ToldBib::of(bib, shard));
        Ok(())
    }

    fn make_bib(
        &mut self,
        protocol: Protocol,
        v4: (Ipv4Addr, u16),
        value: &BibValue,
        owner: u32,
        subscriber: &Subscriber,
    ) -> Result<Found<'a, Bib>, ApplyError> {
        let counter = &subscriber.ports[protocol.index()];
        counter.fetch_add(1, SeqCst);
        let Some(new) = self.view.new_bib(value.v6, protocol.number(), owner) else {
            one_less(counter);
            return Err(ApplyError::BibFull);
        };
        self.grow();
        if self.told.bibs[new.0 as usize].is_told() {
            self.untell_bib(new.0);
        }
        // The gateway on which it was made has reported it.
        let expected = if value.is_expected { bib_flags::EXPECTED } else { 0 };
        new.1.flags.store(bib_flags::SEEN | expected, Relaxed);
        self.view.put(new, v4, |_| false).map_err(|_| ApplyError::Conflict)?;
        Ok(new)
    }

    /// Removes a BIB entry that contradicts a record of a shard. `Err`: it may not be.
    fn displace(&mut self, shard: u16, (entry, bib): Found<'a, Bib>) -> Result<(), ApplyError> {
        let its_shard = self.shards.partition().of_host(bib.v6().0);
        let is_static = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
        if its_shard != shard || is_static {
            return Err(ApplyError::Conflict);
        }
        if self.has_bib(entry).is_some() {
            self.remove_bib(entry);
        } else if !bib.change(state::HOLD_DOWN, state::DEAD)
            && !self.sweeper.remove_bib(&self.view, entry)
        {
            return Err(ApplyError::Conflict);
        }
        Ok(())
    }

    /// A session's record. `false`: its BIB entry is missing.
    pub(super) fn put_session(
        &mut self,
        shard: u16,
        key: &SessionKey,
        value: &SessionValue,
    ) -> Result<bool, ApplyError> {
        let protocol = Protocol::of(key.protocol).ok_or(ApplyError::Malformed)?;
        let named = Named::Bib { protocol, v4: key.local };
        let owner = self.told.find(shard, &named);
        let Some((owner, bib)) = owner.and_then(|owner| Some((owner, self.has_bib(owner)?))) else {
            return Ok(false);
        };
        if let Some(entry) = self.told.find(shard, &Named::Session(*key)) {
            if let Some(session) = self.has_session(entry) {
                self.update(session, key, value)?;
                self.told.set_session(entry, value);
                return Ok(true);
            }
            self.remove_session(entry);
        }
        let mut found = self.view.session(key);
        if let Some((other, session)) = found
            && session.bib.load(Relaxed) != owner
        {
            self.displace_session(other, session)?;
            found = None;
        }
        let found = match found {
            Some(found) => found,
            None => self.make_session((owner, bib), key, value)?,
        };
        let (entry, session) = found;
        self.grow();
        if self.told.sessions[entry as usize].is_told() {
            self.untell_session(entry);
        }
        self.told.put_session(entry, ToldSession::of(session, shard), value);
        self.update(session, key, value).inspect_err(|_| {
            self.told.remove_session(entry);
        })?;
        Ok(true)
    }

    /// Removes a session of a BIB entry that has ended.
    fn displace_session(&mut self, entry: u32, session: &Session) -> Result<(), ApplyError> {
        let bib = View::entry(self.view.regions.bibs, session.bib.load(Relaxed));
        if bib.is_some_and(|bib| bib.state() == state::LIVE)
            || !self.sweeper.remove_session(&self.view, entry)
        {
            return Err(ApplyError::Conflict);
        }
        Ok(())
    }

    fn life(&self, value: &SessionValue, permits: bool) -> SessionLife {
        let tick = begun(&self.view, value);
        SessionLife { tick, state: value.state, timeout: value.class, permits }
    }

    /// Makes a live session what a record says.
    fn update(
        &mut self,
        session: &Session,
        key: &SessionKey,
        value: &SessionValue,
    ) -> Result<(), ApplyError> {
        loop {
            let before = session.life();
            if !before.is_live() {
                return Err(ApplyError::Conflict);
            }
            let permits = self.view.nat.filters_by_address();
            let permission = PermissionKey::of(session.bib.load(Relaxed), key);
            let is_first = permits && !before.permits;
            if is_first {
                self.view.permit(&permission).map_err(|_| ApplyError::SessionsFull)?;
            }
            if session.change(before, self.life(value, permits)) {
                break;
            }
            if is_first {
                self.view.unpermit(&permission);
            }
        }
        session.pool6.store(value.pool6, Relaxed);
        match value.shift {
            Some(shift) => self.view.keep_shift(key, shift),
            None => {
                session.seen.fetch_and(!session_seen::SHIFTED, Relaxed);
            }
        }
        Ok(())
    }

    fn make_session(
        &mut self,
        (owner, bib): Found<'a, Bib>,
        key: &SessionKey,
        value: &SessionValue,
    ) -> Result<Found<'a, Session>, ApplyError> {
        let view = &self.view;
        let chain = view.session_chain(key).ok_or(ApplyError::SessionsFull)?;
        let permits = view.nat.filters_by_address();
        let permission = PermissionKey::of(owner, key);
        if permits {
            view.permit(&permission).map_err(|_| ApplyError::SessionsFull)?;
        }
        let give_up = || {
            if permits {
                view.unpermit(&permission);
            }
        };
        if !bib.add_session() {
            give_up();
            return Err(ApplyError::Conflict);
        }
        let list = FreeList::of(&view.regions, Kind::Session);
        let Some(entry) = list.take(view.regions.sessions, view.shard) else {
            bib.remove_session();
            give_up();
            return Err(ApplyError::SessionsFull);
        };
        let subscriber = view.subscriber_of(bib);
        subscriber.inspect(|subscriber| {
            subscriber.sessions.fetch_add(1, SeqCst);
        });
        let session = &view.regions.sessions[entry as usize];
        session.fill(owner, key, value.pool6);
        // The gateway on which it was made has reported it.
        session.seen.store(session_seen::TOLD, Relaxed);
        let life = self.life(value, permits);
        session.life.store(life.word(), Release);
        if chain.link(entry, || view.find_session(&chain, key)).is_err() {
            // The sweeper removes it, and corrects the counts. Fails if it has ended it already.
            let _ = session.end(life);
            return Err(ApplyError::Conflict);
        }
        Ok((entry, session))
    }
}

/// The tick of the last use that leaves as much of the lifetime as a record says.
pub(super) fn begun(view: &View<'_>, value: &SessionValue) -> u32 {
    let lifetime = view.nat.ticks.of_class(value.class);
    let left = ticks(LEFT_UNIT).saturating_mul(u32::from(value.left)).min(lifetime);
    view.now.wrapping_sub(lifetime - left)
}
