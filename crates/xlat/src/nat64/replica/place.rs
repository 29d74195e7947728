//! The standby's side: records become entries of the tables, and are removed.
//!
//! A later record wins: what contradicts it is left over from an earlier stream, or from the time when this gateway
//! owned the shard, and its own removal comes later.

mod bib;
mod session;
mod subscriber;

use alloc::vec::Vec;

use crate::nat64::Sweeper;
use crate::nat64::policy::Shards;
use crate::nat64::table::{Bib, Kind, Session, Subscriber, View};

use super::index::Index;
use super::record::{Named, RecordKey};
use super::scan::end_of;
use super::told::{Presence, Told};

pub(super) use session::begun;

/// Changes tables and what was told of them.
pub(super) struct Place<'a> {
    pub(super) told: &'a mut Told,
    pub(super) shards: &'a Shards,
    pub(super) view: View<'a>,
    pub(super) sweeper: &'a mut Sweeper,
    /// Removals of records of this gateway's own shards, whose entries have ended and are used anew.
    pub(super) ended: &'a mut Vec<(u16, RecordKey)>,
}

impl<'a> Place<'a> {
    /// The last record of a shard, in the order of keys.
    pub(super) fn last_of(&self, shard: u16) -> Option<(Named, u32)> {
        let (key, entry) = self.told.index(shard)?.iter().next_back()?;
        Some((Named::read(&key).ok()?, entry))
    }

    fn has_session(&self, entry: u32) -> Option<&'a Session> {
        self.told.has_session(&self.view, entry)
    }

    fn has_bib(&self, entry: u32) -> Option<&'a Bib> {
        self.told.has_bib(&self.view, entry)
    }

    fn has_subscriber(&self, entry: u32) -> Option<&'a Subscriber> {
        self.told.has_subscriber(&self.view, entry)
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

    pub(super) fn remove_session(&mut self, entry: u32) {
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
    pub(super) fn drop_unneeded(&mut self, entry: u32) {
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
        let index = self.told.index(told.shard).into_iter().flat_map(Index::iter);
        let is_of = |(key, bib): (RecordKey, u32)| {
            let is_bib = matches!(Named::read(&key), Ok(Named::Bib { .. }));
            (is_bib && self.told.bibs[bib as usize].subscriber == entry).then_some(bib)
        };
        let bibs: Vec<u32> = index.filter_map(is_of).collect();
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

    pub(super) fn untell_session(&mut self, entry: u32) {
        let ended = self.told.remove_session(entry);
        self.has_ended(ended);
    }

    pub(super) fn untell_bib(&mut self, entry: u32) {
        while let Some(session) = self.told.last_session_of(&self.told.bibs[entry as usize]) {
            self.untell_session(session);
        }
        if let Some(ended) = self.told.remove_bib(entry) {
            self.has_ended(ended);
        }
    }

    pub(super) fn untell_subscriber(&mut self, entry: u32) {
        self.remove_bibs_of(entry);
        if let Some(ended) = self.told.remove_subscriber(entry) {
            self.has_ended(ended);
        }
    }

    /// Room for entries up to these that were just made.
    pub(super) fn grow(&mut self) {
        let [subscribers, bibs, sessions] = [Kind::Subscriber, Kind::Bib, Kind::Session]
            .map(|kind| end_of(&self.view, kind) as usize);
        self.told.grow(subscribers, bibs, sessions);
    }
}
