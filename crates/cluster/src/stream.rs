//! Replication of a shard's records from its owner to its standby.
//!
//! Messages are numbered, and applied in order only: what the standby has is always what the owner had at a number.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::record::{Digest, Record, RecordKey};

pub(crate) use receiver::Receiver;
pub(crate) use sender::{Sender, SenderAction, StreamSettings};

/// Which records a table has: key and hash of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shadow {
    key: [u64; 2],
    /// Hash, and the stream that confirmed the record.
    records: BTreeMap<RecordKey, (u64, u32)>,
    digest: Digest,
    /// The stream that confirms records now.
    generation: u32,
}

impl Shadow {
    pub(crate) fn new(key: [u64; 2]) -> Shadow {
        Shadow { key, ..Shadow::default() }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    fn hash(&self, key: &RecordKey, value: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write(key);
        hasher.write(value);
        hasher.finish()
    }

    /// Follows a change of the table. `false`: nothing is different.
    pub(crate) fn apply(&mut self, record: &Record) -> bool {
        let new = record.value.as_ref().map(|value| self.hash(&record.key, value));
        let old = match new {
            Some(hash) => self.records.insert(record.key, (hash, self.generation)),
            None => self.records.remove(&record.key),
        };
        let old = old.map(|(hash, _)| hash);
        let of = |hash: Option<u64>| (u64::from(hash.is_some()), hash.unwrap_or(0));
        let ((more, plus), (less, minus)) = (of(new), of(old));
        self.digest.count = self.digest.count.wrapping_add(more).wrapping_sub(less);
        self.digest.sum = self.digest.sum.wrapping_add(plus).wrapping_sub(minus);
        new != old
    }

    /// Whether the table has exactly this record.
    pub(crate) fn has(&self, record: &Record) -> bool {
        let hash = record.value.as_ref().map(|value| self.hash(&record.key, value));
        self.records.get(&record.key).map(|(hash, _)| *hash) == hash
    }

    /// From now on, records are confirmed anew.
    pub(crate) fn begin(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Removes what was not confirmed since [`Shadow::begin`].
    pub(crate) fn remove_others(&mut self) -> Vec<Record> {
        let others = self.records.iter().filter(|(_, (_, last))| *last != self.generation);
        let gone: Vec<_> = others.map(|(key, _)| Record { key: *key, value: None }).collect();
        for record in &gone {
            self.apply(record);
        }
        gone
    }
}
