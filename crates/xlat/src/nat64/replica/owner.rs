//! Changes of ownership.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use crate::nat64::table::{SessionLife, View};
use crate::nat64::{Nat64, Sweeper};

use super::index::Index;
use super::place::begun;
use super::record::{Named, Octets, RecordKey, SessionValue};
use super::scan::value_of;
use super::{Change, Leftover, Replica, Tell, Unplaced};

impl Replica {
    /// This gateway owns a shard from now on, with the records that it was told: it assigns ports of it, its sessions age
    /// from what was left of their lifetimes, and changes of it are told. What could not be applied is told as removed.
    /// If it has not owned the shard since it began, entries that its earlier process has left go on as they are.
    ///
    /// It takes time for each record of the shard, while packets are translated already; and before that for all tables
    /// if the shard was lost and no scan was complete since.
    pub fn take_over(
        &mut self,
        nat: &Nat64,
        sweeper: &mut Sweeper,
        now: Duration,
        shard: u16,
        tell: &mut Tell<'_>,
    ) {
        if shard >= self.shards.number() || self.shards.owns(shard) {
            return;
        }
        // Another gateway may have assigned their ports anew.
        let is_kept = self.leftovers[usize::from(shard)] == Leftover::Kept;
        if !is_kept {
            self.prune_now(nat, sweeper, shard);
        }
        self.shards.set_owned(shard, true);
        let first = (shard, [0; 24]);
        let unplaced = self.unplaced.range(first..=(shard, [u8::MAX; 24]));
        let gone: Vec<_> = unplaced.map(|(key, _)| *key).collect();
        // Sessions before BIB entries, these before subscribers.
        for (shard, key) in gone.into_iter().rev() {
            self.unplaced.remove(&(shard, key));
            tell(Change { shard, key, value: None });
        }
        if !is_kept {
            self.age(nat, now, shard);
        }
        self.leftovers[usize::from(shard)] = Leftover::Nothing;
        if let Some(prunes) = self.pass.prunes.get_mut(usize::from(shard)) {
            *prunes = false;
        }
        self.shards.set_ageing(shard, true);
    }

    /// Entries of a shard age from now on.
    fn age(&self, nat: &Nat64, now: Duration, shard: u16) {
        let view = nat.view(now, 0);
        for (key, entry) in self.told.index(shard).into_iter().flat_map(Index::iter) {
            match Named::read(&key) {
                Ok(Named::Session(_)) => {
                    let session = &view.regions.sessions[entry as usize];
                    let life = session.life();
                    let tick = begun(&view, &self.told.session_value(entry));
                    if life.is_live() && self.told.sessions[entry as usize].is(session) {
                        // Fails if a packet has refreshed it already.
                        let _ = session.change(life, SessionLife { tick, ..life });
                    }
                }
                Ok(Named::Bib { .. }) => {}
                Ok(Named::Subscriber { .. }) => {
                    let subscriber = &view.regions.subscribers[entry as usize];
                    if self.told.subscribers[entry as usize].is(subscriber) {
                        subscriber.last_used.store(view.now, Relaxed);
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Another gateway may own a shard from now on, of which nothing is translated here any more. The tables are set back to
    /// what was told last, since that is what the next owner has, and its changes build on it. Entries without a
    /// record end with the next scan.
    ///
    /// It looks at each record of the shard, which takes little time where the tables are as they were told.
    pub fn lose(&mut self, nat: &Nat64, sweeper: &mut Sweeper, now: Duration, shard: u16) {
        if shard >= self.shards.number() || !self.shards.owns(shard) {
            return;
        }
        self.shards.set_owned(shard, false);
        self.shards.set_ageing(shard, false);
        self.leftovers[usize::from(shard)] = Leftover::Lost;
        let parts = self.shards.clone();
        let of_shard = |v4, port| parts.partition().of_v4(v4, port) == Some(shard);
        // The shard's records still have them, so its next owner has them, too.
        let (ended, others) = self.ended.drain(..).partition::<Vec<_>, _>(|(of, _)| *of == shard);
        self.ended = others;
        self.unplaced.extend(ended.into_iter().map(|key| (key, Unplaced::Refused)));
        self.told.owners.retain(|(v4, low), _| !of_shard(*v4, *low));
        let view = nat.view(now, 0);
        // In the order of keys: what others build on comes before them.
        let mut others_follow = false;
        let records: Vec<(RecordKey, Octets)> = self
            .told
            .index(shard)
            .into_iter()
            .flat_map(Index::iter)
            .filter_map(|(key, entry)| {
                let named = Named::read(&key).ok()?;
                if !others_follow && self.is_as_told(&view, &named, entry) {
                    return None;
                }
                others_follow |= match named {
                    Named::Subscriber { .. } => self.told.subscribers[entry as usize].bibs != 0,
                    Named::Bib { .. } => true,
                    Named::Session(_) => false,
                };
                Some((key, self.told.value(&named, entry)))
            })
            .collect();
        for (key, value) in records {
            let value = Some(value.as_slice());
            // What is refused is counted.
            let _ = self.apply(nat, sweeper, now, Change { shard, key, value });
        }
    }

    /// Whether the tables have the entry of a record as it was told.
    fn is_as_told(&self, view: &View<'_>, named: &Named, entry: u32) -> bool {
        let told = &self.told;
        match named {
            Named::Subscriber { .. } => {
                let blocks = told.subscribers[entry as usize].blocks().iter().copied();
                told.has_subscriber(view, entry).is_some_and(|found| found.blocks().eq(blocks))
            }
            Named::Bib { .. } => told.has_bib(view, entry).is_some(),
            // What was left of its lifetime is told again at the take-over, from what was told.
            Named::Session(_) => told.has_session(view, entry).is_some_and(|found| {
                let value = told.session_value(entry);
                value == SessionValue { left: value.left, ..value_of(view, found, found.life()) }
            }),
        }
    }
}
