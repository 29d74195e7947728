//! Which of a key's values count.
//!
//! Servers check the revision that a write replaces when the leader proposes it, not when it is applied: two writes that replace the
//! same one may both be taken, by all servers before 2.9.21 as soon as they come at the same time
//! ([nats-server 4320](https://github.com/nats-io/nats-server/issues/4320)), by later ones while their leader changes
//! ([8469](https://github.com/nats-io/nats-server/issues/8469)). What servers do agree on is the order of what they have taken. So
//! each value says which revision it replaces, and **the first that replaces the last one that counts is the next one that
//! counts**. Everybody who sees all values in their order comes to the same result, whatever the servers have checked.

use std::collections::{BTreeMap, BTreeSet};

use fordway_cluster::{Key, Revision, Value};
use serde::{Deserialize, Serialize};

/// Values that are kept of each key. Who comes later needs the last one that counts, and the one that it replaces.
pub(super) const HISTORY: usize = 64;

/// A value in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The revision that counted when it was written; 0: the key was absent.
    pub(super) replaces: Revision,
    pub(super) value: Value,
}

#[derive(Debug, Default)]
struct State {
    /// The last value's revision, whether it counts or not.
    last: Revision,
    /// That of the last one that counts.
    valid: Revision,
    /// How many values were told.
    told: usize,
    /// Values of which nobody knows yet whether they count.
    pending: Vec<(Revision, Stored)>,
}

/// The bucket, as far as it was told, in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    keys: BTreeMap<Key, State>,
    is_listed: bool,
    /// Values that don't count.
    pub(super) overruled: u64,
}

impl State {
    /// What counts of those that are pending; `None`: it can't be known yet.
    fn resolve(&mut self, overruled: &mut u64) -> Option<(Revision, Value)> {
        // Whoever writes replaces what counts, as far as he knows, and he knows that for sure.
        let replaced: BTreeSet<Revision> =
            self.pending.iter().map(|(_, stored)| stored.replaces).collect();
        let is_whole = self.told < HISTORY;
        let known = self.pending.iter().rposition(|(revision, _)| replaced.contains(revision));
        let first = || self.pending.iter().position(|(_, stored)| stored.replaces == 0);
        let base = known.or_else(|| first().filter(|_| is_whole))?;
        let mut counts = None;
        for (revision, stored) in std::mem::take(&mut self.pending).into_iter().skip(base) {
            if counts.is_none() || stored.replaces == self.valid {
                self.valid = revision;
                counts = Some((revision, stored.value));
            } else {
                *overruled += 1;
            }
        }
        counts
    }
}

impl Log {
    /// Everything is told anew.
    pub(super) fn begin(&mut self) {
        (self.keys, self.is_listed) = (BTreeMap::new(), false);
    }

    /// The next value of the bucket; `None`: it is none of a gateway's. If it counts, it is given back, once the list is complete.
    pub(super) fn put(
        &mut self,
        key: Key,
        revision: Revision,
        stored: Option<Stored>,
    ) -> Option<(Revision, Value)> {
        let state = self.keys.entry(key).or_default();
        (state.last, state.told) = (revision, state.told + 1);
        let stored = stored?;
        if self.is_listed && state.valid != 0 {
            if stored.replaces != state.valid {
                self.overruled += 1;
                return None;
            }
            state.valid = revision;
            return Some((revision, stored.value));
        }
        state.pending.push((revision, stored));
        if self.is_listed { state.resolve(&mut self.overruled) } else { None }
    }

    /// Every value that the bucket had at the start was told: what counts of them.
    pub(super) fn listed(&mut self) -> Vec<(Key, Revision, Value)> {
        self.is_listed = true;
        let overruled = &mut self.overruled;
        let all = self.keys.iter_mut().filter_map(|(key, state)| {
            state.resolve(overruled).map(|(revision, value)| (*key, revision, value))
        });
        all.collect()
    }

    /// For a write that replaces what counts: the last revision of the key. `None`: something else counts.
    pub(super) fn expected(&self, key: Key, replaces: Revision) -> Option<Revision> {
        let (last, valid) = self.keys.get(&key).map_or((0, 0), |state| (state.last, state.valid));
        (self.is_listed && valid == replaces).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key::Config;

    fn stored(replaces: Revision, value: u64) -> Option<Stored> {
        Some(Stored { replaces, value: Value::Config(value) })
    }

    fn live() -> Log {
        let mut log = Log::default();
        assert!(log.listed().is_empty());
        log
    }

    #[test]
    fn the_first_of_two_that_replace_the_same_counts() {
        let mut log = live();
        assert_eq!(log.expected(KEY, 0), Some(0));
        assert_eq!(log.put(KEY, 1, stored(0, 10)), Some((1, Value::Config(10))));
        assert_eq!(log.put(KEY, 2, stored(1, 20)), Some((2, Value::Config(20))));
        assert_eq!(log.put(KEY, 3, stored(1, 30)), None);
        // The next write replaces what counts, and the server has to be told its last one.
        assert_eq!((log.expected(KEY, 2), log.expected(KEY, 3)), (Some(3), None));
        assert_eq!(log.put(KEY, 4, None), None);
        assert_eq!(log.expected(KEY, 2), Some(4));
        assert_eq!(log.put(KEY, 5, stored(2, 40)), Some((5, Value::Config(40))));
        assert_eq!(log.overruled, 1);
    }

    #[test]
    fn who_comes_later_knows_the_same() {
        let mut log = Log::default();
        for (revision, replaces) in [(1, 0), (2, 1), (3, 1), (4, 0)] {
            assert_eq!(log.put(KEY, revision, stored(replaces, revision)), None);
            assert_eq!(log.expected(KEY, 0), None, "nobody writes before the list is complete");
        }
        assert_eq!(log.listed(), [(KEY, 2, Value::Config(2))]);
    }

    #[test]
    fn what_can_not_be_known_does_not_count() {
        // More than are kept, and none of them replaces another.
        let mut log = Log::default();
        for revision in 0..HISTORY as u64 {
            log.put(KEY, 100 + revision, stored(99, revision));
        }
        assert!(log.listed().is_empty());
        assert_eq!(log.expected(KEY, 99), None);
        // Somebody who knows has written.
        let last = 100 + HISTORY as u64;
        assert_eq!(log.put(KEY, last, stored(100, 7)), Some((last, Value::Config(7))));
    }

    proptest! {
        /// Servers that check nothing at all; writers and readers that lag, and some that come later.
        #[test]
        fn all_agree(steps in proptest::collection::vec((0_usize..4, any::<bool>(), 0_u64..4), 1..300), joins in 0_usize..300) {
            let mut written: Vec<(Revision, Stored)> = Vec::new();
            let mut logs: Vec<(Log, usize, Revision)> = (0..4).map(|_| (live(), 0, 0)).collect();
            for (who, writes, reads) in steps {
                let (log, at, valid) = &mut logs[who];
                // At most a few lag behind, as writers are few.
                for (revision, value) in written.iter().skip(*at).take(reads as usize + 8) {
                    *at += 1;
                    if let Some((revision, _)) = log.put(KEY, *revision, Some(value.clone())) {
                        *valid = revision;
                    }
                }
                if writes && log.expected(KEY, *valid).is_some() {
                    let revision = written.len() as u64 + 1;
                    written.push((revision, Stored { replaces: *valid, value: Value::Config(revision) }));
                }
            }
            // The rule, from the beginning.
            let mut chain = vec![0];
            for (revision, value) in &written {
                if chain.last() == Some(&value.replaces) {
                    chain.push(*revision);
                }
            }
            for (log, at, valid) in &mut logs {
                for (revision, value) in written.iter().skip(*at) {
                    if let Some((revision, _)) = log.put(KEY, *revision, Some(value.clone())) {
                        prop_assert!(chain.contains(&revision));
                        *valid = revision;
                    }
                }
                prop_assert_eq!(Some(&*valid), chain.last());
            }
            // Who comes later is told the last ones, and then what follows.
            let (listed, later) = written.split_at(joins.min(written.len()));
            let mut late = Log::default();
            for (revision, value) in listed.iter().skip(listed.len().saturating_sub(HISTORY)) {
                prop_assert_eq!(late.put(KEY, *revision, Some(value.clone())), None);
            }
            let found = late.listed().pop().map(|(_, revision, _)| revision);
            let wanted = chain.iter().rev().find(|one| listed.iter().any(|(revision, _)| revision == *one));
            prop_assert_eq!(found.as_ref(), wanted);
            for (revision, value) in later {
                let counts = late.put(KEY, *revision, Some(value.clone())).is_some();
                prop_assert_eq!(counts, chain.contains(revision));
            }
        }
    }
}
