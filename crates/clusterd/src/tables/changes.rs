//! What the member is to be told next.

use std::collections::BTreeMap;

use fordway_cluster::{Record, Shard};
use fordway_xlat::nat64::replica;

use crate::data_path::Change;

/// Records that are given at once.
const BATCH: usize = 256;
/// Records that wait, about: what the member takes at once delays its lease. Tables remember what has changed beyond that.
pub(super) const FULL: usize = 512;

/// Changes of all shards: those of one in their order, together as far as possible.
#[derive(Debug, Default)]
pub(super) struct Changes {
    all: Vec<Change>,
    records: usize,
    /// The last batch of a shard, if nothing else of that shard has followed.
    open: BTreeMap<u16, usize>,
}

impl Changes {
    /// Adds the change of a record.
    pub(super) fn put(&mut self, change: &replica::Change<'_>) {
        let record = Record { key: change.key, value: change.value.map(Into::into) };
        self.records += 1;
        let open = self.open.get(&change.shard).and_then(|place| self.all.get_mut(*place));
        match open {
            Some(Change::Records(_, records)) if records.len() < BATCH => records.push(record),
            _ => {
                self.open.insert(change.shard, self.all.len());
                self.all.push(Change::Records(Shard(change.shard), vec![record]));
            }
        }
    }

    /// Adds that a shard has stopped, after its changes.
    pub(super) fn stopped(&mut self, shard: Shard, ticket: u64) {
        self.open.remove(&shard.0);
        self.all.push(Change::Stopped(shard, ticket));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Nothing more is to be looked for before these are taken.
    pub(super) fn is_full(&self) -> bool {
        self.records >= FULL
    }

    pub(super) fn take(&mut self) -> Vec<Change> {
        self.open.clear();
        self.records = 0;
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_s_changes_are_together_and_its_stop_is_after_them() {
        let mut changes = Changes::default();
        let put = |changes: &mut Changes, shard, number: u8| {
            changes.put(&replica::Change { shard, key: [number; 24], value: None });
        };
        for (shard, number) in [(1, 1), (2, 2), (1, 3), (2, 4)] {
            put(&mut changes, shard, number);
        }
        changes.stopped(Shard(1), 7);
        put(&mut changes, 1, 5);
        put(&mut changes, 2, 6);
        let records = |numbers: &[u8]| -> Vec<Record> {
            numbers.iter().map(|number| Record { key: [*number; 24], value: None }).collect()
        };
        let expected = [
            Change::Records(Shard(1), records(&[1, 3])),
            Change::Records(Shard(2), records(&[2, 4, 6])),
            Change::Stopped(Shard(1), 7),
            Change::Records(Shard(1), records(&[5])),
        ];
        assert_eq!(changes.take(), expected);
        assert!(changes.is_empty() && changes.take().is_empty());
        put(&mut changes, 2, 8);
        assert_eq!(changes.take(), [Change::Records(Shard(2), records(&[8]))]);
    }

    #[test]
    fn a_batch_has_an_end() {
        let mut changes = Changes::default();
        for _ in 0..=BATCH {
            changes.put(&replica::Change { shard: 1, key: [0; 24], value: Some(&[9]) });
        }
        let lens = changes.take().into_iter().map(|change| match change {
            Change::Records(_, records) => records.len(),
            Change::Stopped(..) => 0,
        });
        assert_eq!(lens.collect::<Vec<_>>(), [BATCH, 1]);
    }
}
