//! The store: linearizable compare-and-set.

use std::collections::BTreeMap;

use crate::record::{Key, Revision, ShardRecord, Value};
use crate::shard::Shard;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) is_down: bool,
    pub(super) keys: BTreeMap<Key, (Revision, Value)>,
    last: Revision,
    /// Who has translated a shard in an epoch.
    pub(super) owners: BTreeMap<(Shard, u64), usize>,
}

impl Store {
    pub(super) fn get(&self, key: Key) -> (Revision, Option<Value>) {
        self.keys.get(&key).map_or((0, None), |(revision, value)| (*revision, Some(value.clone())))
    }

    /// The new revision, and whether the epoch of a shard rises as it must; `None`: refused.
    pub(super) fn write(
        &mut self,
        key: Key,
        expected: Revision,
        value: &Value,
    ) -> Option<(Revision, bool)> {
        let (revision, before) = self.get(key);
        if revision != expected {
            return None;
        }
        self.last += 1;
        self.keys.insert(key, (self.last, value.clone()));
        let of = |value: Option<&Value>| match value {
            Some(Value::Shard(record)) => Some(*record),
            _ => None,
        };
        let rises = of(Some(value)).is_none_or(|new: ShardRecord| match of(before.as_ref()) {
            None => new.epoch == 1,
            Some(old) if (old.owner, old.incarnation) == (new.owner, new.incarnation) => {
                // The operator's wish, or an owner that keeps it.
                new.epoch == old.epoch || new.epoch == old.epoch + 1
            }
            Some(old) => new.epoch == old.epoch + 1,
        });
        Some((self.last, rises))
    }
}
