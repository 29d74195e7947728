//! The recorded entries of a shard, in the order of their keys.

use alloc::collections::BTreeMap;
use core::ops::{Bound, RangeBounds};

use super::record::RecordKey;

/// A key as three numbers, which have its order and are compared faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Words(u64, u64, u64);

impl Words {
    fn of(key: &RecordKey) -> Words {
        let (words, _) = key.as_chunks();
        let word = |place: usize| words.get(place).map_or(0, |word| u64::from_be_bytes(*word));
        Words(word(0), word(1), word(2))
    }

    fn key(self) -> RecordKey {
        let mut key = [0; 24];
        let (words, _) = key.as_chunks_mut();
        for (room, word) in words.iter_mut().zip([self.0, self.1, self.2]) {
            *room = word.to_be_bytes();
        }
        key
    }
}

/// Entries by the keys of their records.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<Words, u32>);

impl Index {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, key: &RecordKey) -> Option<u32> {
        self.0.get(&Words::of(key)).copied()
    }

    pub(super) fn insert(&mut self, key: &RecordKey, entry: u32) {
        self.0.insert(Words::of(key), entry);
    }

    pub(super) fn remove(&mut self, key: &RecordKey) {
        self.0.remove(&Words::of(key));
    }

    pub(super) fn range(
        &self,
        keys: impl RangeBounds<RecordKey>,
    ) -> impl DoubleEndedIterator<Item = (RecordKey, u32)> {
        let bounds = (words(keys.start_bound()), words(keys.end_bound()));
        self.0.range(bounds).map(|(words, entry)| (words.key(), *entry))
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (RecordKey, u32)> {
        self.range(..)
    }
}

fn words(bound: Bound<&RecordKey>) -> Bound<Words> {
    bound.map(Words::of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_have_the_order_of_their_keys(keys in proptest::collection::btree_map(any::<RecordKey>(), any::<u32>(), 1..20), place in any::<prop::sample::Index>()) {
            let mut index = Index::default();
            keys.iter().rev().for_each(|(key, entry)| index.insert(key, *entry));
            let pair = |(key, entry): (&RecordKey, &u32)| (*key, *entry);
            prop_assert!(index.iter().eq(keys.iter().map(pair)));
            let (key, entry) = keys.iter().nth(place.index(keys.len())).map(pair).unwrap();
            prop_assert_eq!(index.get(&key), Some(entry));
            let after = (Bound::Excluded(key), Bound::Unbounded);
            let expected: Vec<_> = keys.range(after).map(pair).collect();
            prop_assert!(index.range(after).eq(expected));
            index.remove(&key);
            prop_assert_eq!((index.get(&key), index.len()), (None, keys.len() - 1));
        }
    }
}
