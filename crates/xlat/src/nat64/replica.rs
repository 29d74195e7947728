//! Replication of the tables: records that a shard's owner tells its standby, and their application there
//! (docs/cluster.md, "Records").
//!
//! A [`Replica`] remembers, beside the tables, what was told of each entry, and has an index by key. On shards that the
//! gateway owns, [`Replica::scan`] looks at the tables like the [`Sweeper`], in slices, and tells what differs: so
//! entries that kernel programs made are found, and a session that ends before it was seen costs nothing. Who changes a
//! session's state notes it in a bit, so that [`Replica::look_at_changed`] need not wait for a scan of large tables. On other
//! shards what was told is the truth: [`Replica::apply`] changes the tables.
//!
//! **What is replicated.** Subscribers with their port blocks, all of them. Sessions of TCP from establishment on; of UDP
//! and ICMP if [`Replicated`] says so. BIB entries that have such a session. Not replicated: static BIB entries and 1:1
//! mappings, which a cluster refuses; connections that are being opened and expectations of ALGs, which are tried again;
//! ports in hold-down; counters of packets and octets.
//!
//! **What is a change.** A new or ended record; blocks; a session's TCP state, class of lifetime, prefix of `pool6`, what
//! an ALG adds to its sequence numbers; and what is left of its lifetime, in units of [`LEFT_UNIT`], rounded up. A
//! standby's sessions do not age: at the take-over they have what was left when it was told. So packets that refresh
//! a session at least once in half an hour cause no change, and an idle connection causes one in half an hour.
//!
//! **Order.** A subscriber is told before its BIB entries, and these before their sessions; removals are told the other
//! way round. A stream may send a change before the part of a snapshot that it builds on: a BIB entry then gets a
//! subscriber without blocks, and a session waits for its BIB entry.
//!
//! **Costs**, as times of a processor relative to the sweeper's, by one measurement of 404,000 records in the profile of
//! tests: to look at an entry that has not changed, 1.3 times what the sweeper needs for it (36 ns and 27 ns there); to
//! tell a new record, 90 times; to apply one, 150 times; to take one over, 17 times. A change is told after one scan at
//! the latest.
//!
//! **Threads.** The thread that drives the [`Sweeper`] drives the replica, between slices: only one thread removes
//! entries. Other threads and kernel programs use the tables meanwhile.
//!
//! `record` (layouts), `told` (what was told) with its `index`, `scan` and
//! `changed` (the owner's side), `apply` and `place` (the standby's side),
//! `owner` (changes of ownership).

mod apply;
mod changed;
mod index;
mod owner;
mod place;
mod record;
mod scan;
mod told;

pub use apply::{Applied, ApplyError};
pub use changed::Looked;
pub use record::{LEFT_UNIT, RecordKey};
pub use scan::Scanned;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

use super::policy::Shards;
use super::{Nat64, Sweeper};

use self::changed::Round;
use self::index::Index;
use self::record::Named;
use self::scan::Pass;
use self::told::Told;

/// Which sessions are replicated, beside TCP connections that are established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicated {
    /// Those of UDP.
    pub udp: bool,
    /// Those of ICMP queries.
    pub icmp: bool,
}

/// A record that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The shard.
    pub shard: u16,
    /// The record's key.
    pub key: RecordKey,
    /// Its value, up to 64 octets; `None`: it was removed.
    pub value: Option<&'a [u8]>,
}

/// What receives changes.
pub type Tell<'a> = dyn FnMut(Change<'_>) + 'a;

/// Records of a standby that are in no table.
#[derive(Clone, Debug)]
enum Unplaced {
    /// A session whose BIB entry is missing: its value.
    Waits(Box<[u8]>),
    /// It was refused.
    Refused,
}

/// Which entries without a record the tables may have in a shard that this gateway does not own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    /// None.
    Nothing,
    /// Those of an earlier process, which may own the shard again.
    Kept,
    /// Those of a time in which this gateway owned it. A scan ends them.
    Lost,
}

/// What was told of the tables' entries, on both sides of replication.
#[derive(Debug)]
pub struct Replica {
    shards: Arc<Shards>,
    replicated: Replicated,
    told: Told,
    pass: Pass,
    round: Round,
    unplaced: BTreeMap<(u16, RecordKey), Unplaced>,
    /// Records of own shards that have ended, children first, which the next scan tells.
    ended: Vec<(u16, RecordKey)>,
    /// By shard.
    leftovers: Vec<Leftover>,
    /// Entries of every shard are told.
    loads: bool,
    refused: [u64; ApplyError::ALL.len()],
}

impl Replica {
    /// For tables that may be in use, of which nothing was told yet. `None`: the settings of `nat` have no shards.
    #[must_use]
    pub fn new(nat: &Nat64, replicated: Replicated) -> Option<Replica> {
        let shards = Arc::clone(nat.settings.shards.as_ref()?);
        let told = Told::new(&nat.memory.regions(), shards.number());
        Some(Replica {
            replicated,
            told,
            pass: Pass::default(),
            round: Round::default(),
            unplaced: BTreeMap::new(),
            ended: Vec::new(),
            leftovers: vec![Leftover::Kept; usize::from(shards.number())],
            loads: false,
            refused: [0; ApplyError::ALL.len()],
            shards,
        })
    }

    /// Records of a shard, as they were told last, in the order of their keys: those after `after`, `most` at most. Gives
    /// whether they are the last ones. It takes time for these records only, not for the shard.
    pub fn chunk(
        &self,
        shard: u16,
        after: Option<&RecordKey>,
        most: usize,
        tell: &mut Tell<'_>,
    ) -> bool {
        let Some(index) = self.told.index(shard) else { return true };
        let after = after.map_or(Bound::Unbounded, |key| Bound::Excluded(*key));
        let mut found = index.range((after, Bound::Unbounded));
        for (key, entry) in found.by_ref().take(most) {
            if let Ok(named) = Named::read(&key) {
                let value = self.told.value(&named, entry);
                tell(Change { shard, key, value: Some(value.as_slice()) });
            }
        }
        found.next().is_none()
    }

    /// Whether a scan is to end entries of lost shards. A take-over of such a shard before has to look for them in all tables.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.leftovers.contains(&Leftover::Lost)
    }

    /// How many records a shard has.
    #[must_use]
    pub fn records(&self, shard: u16) -> usize {
        self.told.index(shard).map_or(0, Index::len)
    }

    /// How many records were received that are in no table: sessions that wait for their BIB entry, and refused ones.
    #[must_use]
    pub fn unplaced(&self) -> usize {
        self.unplaced.len()
    }

    /// How many records were refused, by reason.
    pub fn refused(&self) -> impl Iterator<Item = (ApplyError, u64)> {
        ApplyError::ALL.into_iter().zip(self.refused)
    }

    /// Removes every entry of a shard that this gateway does not own; nothing is told. Entries without a record
    /// are searched in all tables, if there may be any: after the start, and after a loss of the shard.
    ///
    /// `false`: this gateway owns the shard, and nothing was done.
    pub fn clear(&mut self, nat: &Nat64, sweeper: &mut Sweeper, shard: u16) -> bool {
        if self.shards.owns(shard) {
            return false;
        }
        let mut place = self.place(nat, sweeper, core::time::Duration::ZERO);
        // Sessions, then BIB entries, then subscribers.
        while let Some((named, entry)) = place.last_of(shard) {
            place.remove(&named, entry);
        }
        let first = (shard, [0; 24]);
        let others = self.unplaced.split_off(&first);
        self.unplaced.extend(others.into_iter().filter(|((other, _), _)| *other != shard));
        self.prune_now(nat, sweeper, shard);
        true
    }
}
