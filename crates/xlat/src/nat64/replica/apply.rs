//! Records from a shard's owner.
//!
//! Their octets are untrusted as far as that none of them panics or damages the tables. What does not fit is refused and
//! counted; the take-over of the shard tells that such records are gone.

use alloc::vec::Vec;
use core::time::Duration;

use crate::nat64::table::{Kind, state};
use crate::nat64::{Nat64, Sweeper};

use super::place::Place;
use super::record::{BibValue, Named, RecordKey, SessionValue, read_blocks, sessions_of};
use super::scan::end_of;
use super::told::ToldSubscriber;
use super::{Change, Leftover, Replica, Unplaced};

/// Records that are in no table and yet remembered, at most.
const UNPLACED_MOST: usize = 131_072;

/// Why a record is in no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ApplyError {
    /// Its octets are no record of this version.
    #[error("malformed record")]
    Malformed,
    /// This gateway owns the shard.
    #[error("the shard is owned by this gateway")]
    Owned,
    /// Its addresses are of another shard, or do not fit the settings.
    #[error("addresses of another shard, or of none of the pools")]
    Foreign,
    /// Its transport address is bound by a static entry, or by one of another shard.
    #[error("the transport address is bound by another entry")]
    Conflict,
    /// The table of BIB entries is full.
    #[error("the table of BIB entries is full")]
    BibFull,
    /// The table of sessions is full.
    #[error("the table of sessions is full")]
    SessionsFull,
    /// The table of subscribers is full.
    #[error("the table of subscribers is full")]
    SubscribersFull,
    /// Too many records are in no table: this one is forgotten, so the shard is to be cleared.
    #[error("too many records are in no table")]
    Unplaced,
}

impl ApplyError {
    /// All of them.
    pub const ALL: [ApplyError; 8] = [
        ApplyError::Malformed,
        ApplyError::Owned,
        ApplyError::Foreign,
        ApplyError::Conflict,
        ApplyError::BibFull,
        ApplyError::SessionsFull,
        ApplyError::SubscribersFull,
        ApplyError::Unplaced,
    ];
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The tables are as it says.
    Done,
    /// A session whose BIB entry is missing: it is made with that.
    Waits,
}

impl Replica {
    /// Applies a record, or its removal, of a shard of which another gateway is the owner: in the order in which they were
    /// sent. One that is applied already changes nothing.
    ///
    /// # Errors
    ///
    /// If it does not fit, what the tables had under its key is removed; other records stay.
    pub fn apply(
        &mut self,
        nat: &Nat64,
        sweeper: &mut Sweeper,
        now: Duration,
        record: Change<'_>,
    ) -> Result<Applied, ApplyError> {
        let applied = self.try_apply(nat, sweeper, now, record);
        let Err(error) = applied else { return applied };
        self.refused[error as usize] += 1;
        let is_known = record.shard < self.shards.number();
        if matches!(error, ApplyError::Owned | ApplyError::Unplaced) || !is_known {
            return applied;
        }
        if let Ok(named) = Named::read(&record.key) {
            self.remove(nat, sweeper, now, record.shard, &named);
        }
        self.keep_unplaced((record.shard, record.key), Unplaced::Refused)?;
        applied
    }

    fn try_apply(
        &mut self,
        nat: &Nat64,
        sweeper: &mut Sweeper,
        now: Duration,
        Change { shard, key, value }: Change<'_>,
    ) -> Result<Applied, ApplyError> {
        if self.shards.owns(shard) {
            return Err(ApplyError::Owned);
        }
        if shard >= self.shards.number() {
            return Err(ApplyError::Foreign);
        }
        if let Some(leftover @ Leftover::Kept) = self.leftovers.get_mut(usize::from(shard)) {
            *leftover = Leftover::Lost;
        }
        self.unplaced.remove(&(shard, key));
        let named = Named::read(&key);
        let Some(value) = value else {
            if let Ok(named) = named {
                self.remove(nat, sweeper, now, shard, &named);
            }
            return Ok(Applied::Done);
        };
        let parts = self.shards.clone();
        let is_of = |host| parts.partition().of_host(host) == shard;
        match named.map_err(|_| ApplyError::Malformed)? {
            Named::Subscriber { prefix, mark } => {
                let (blocks, number) = read_blocks(value).map_err(|_| ApplyError::Malformed)?;
                if !is_of(prefix) {
                    return Err(ApplyError::Foreign);
                }
                let mut place = self.place(nat, sweeper, now);
                place.put_subscriber(shard, (prefix, mark), &blocks[..number])?;
            }
            Named::Bib { protocol, v4 } => {
                let value = BibValue::read(value).map_err(|_| ApplyError::Malformed)?;
                if !is_of(value.v6.0) {
                    return Err(ApplyError::Foreign);
                }
                self.place(nat, sweeper, now).put_bib(shard, (protocol, v4), &value)?;
                self.place_waiting(nat, sweeper, now, shard, sessions_of(protocol, v4));
            }
            Named::Session(session) => {
                let read = SessionValue::read(value, session.protocol);
                let read = read.map_err(|_| ApplyError::Malformed)?;
                if !self.place(nat, sweeper, now).put_session(shard, &session, &read)? {
                    self.keep_unplaced((shard, key), Unplaced::Waits(value.into()))?;
                    return Ok(Applied::Waits);
                }
            }
        }
        Ok(Applied::Done)
    }

    /// Makes sessions whose BIB entry has come.
    fn place_waiting(
        &mut self,
        nat: &Nat64,
        sweeper: &mut Sweeper,
        now: Duration,
        shard: u16,
        keys: core::ops::RangeInclusive<RecordKey>,
    ) {
        if self.unplaced.is_empty() {
            return;
        }
        let keys = (shard, *keys.start())..=(shard, *keys.end());
        let waits = |(key, it): (&(u16, RecordKey), &Unplaced)| match it {
            Unplaced::Waits(value) => Some((key.1, value.clone())),
            Unplaced::Refused => None,
        };
        let waiting: Vec<_> = self.unplaced.range(keys).filter_map(waits).collect();
        for (key, value) in waiting {
            // What is refused now is counted.
            let _ = self.apply(nat, sweeper, now, Change { shard, key, value: Some(&value) });
        }
    }

    fn keep_unplaced(&mut self, key: (u16, RecordKey), it: Unplaced) -> Result<(), ApplyError> {
        if self.unplaced.len() >= UNPLACED_MOST {
            return Err(ApplyError::Unplaced);
        }
        self.unplaced.insert(key, it);
        Ok(())
    }

    fn remove(
        &mut self,
        nat: &Nat64,
        sweeper: &mut Sweeper,
        now: Duration,
        shard: u16,
        named: &Named,
    ) {
        if let Some(entry) = self.told.find(shard, named) {
            self.place(nat, sweeper, now).remove(named, entry);
        }
    }

    pub(super) fn place<'a>(
        &'a mut self,
        nat: &'a Nat64,
        sweeper: &'a mut Sweeper,
        now: Duration,
    ) -> Place<'a> {
        let view = nat.view(now, 0);
        self.grow(&view);
        Place { told: &mut self.told, shards: &self.shards, view, sweeper, ended: &mut self.ended }
    }

    /// Ends every entry of a shard that has no record, if there may be any.
    pub(super) fn prune_now(&mut self, nat: &Nat64, sweeper: &mut Sweeper, shard: u16) {
        let Some(leftover) = self.leftovers.get_mut(usize::from(shard)) else { return };
        if core::mem::replace(leftover, Leftover::Nothing) == Leftover::Nothing {
            return;
        }
        let view = nat.view(Duration::ZERO, 0);
        self.grow(&view);
        for entry in 1..end_of(&view, Kind::Bib).min(self.told.end(Kind::Bib)) {
            if !self.told.bibs[entry as usize].is_told() {
                self.prune_bib(&view, sweeper, entry, Some(shard));
            }
        }
        for entry in 1..end_of(&view, Kind::Session).min(self.told.end(Kind::Session)) {
            if !self.told.sessions[entry as usize].is_told() {
                let session = &view.regions.sessions[entry as usize];
                self.prune_session(&view, session, session.life(), Some(shard));
            }
        }
        for (entry, subscriber) in view.regions.subscribers.iter().enumerate().skip(1) {
            let is_told = self.told.subscribers.get(entry).is_none_or(ToldSubscriber::is_told);
            let parts = self.shards.partition();
            if !is_told
                && subscriber.state() == state::LIVE
                && parts.of_host(subscriber.prefix()) == shard
            {
                subscriber.end();
            }
        }
    }
}
