//! Which of a key's values count.
//!
//! Servers check the revision that a write replaces when the leader proposes it, not when it is applied: two writes that replace the
//! same one may both be taken, by all servers before 2.9.21 as soon as they come at the same time
//! ([nats-server 4320](https://github.com/nats-io/nats-server/issues/4320)), by later ones while their leader changes
//! ([8469](https://github.com/nats-io/nats-server/issues/8469)). What servers do agree on is the order of what they have taken. So
//! each value says which revision it replaces, and **the first that replaces the last one that counts is the next one that
//! counts**. Everybody who sees all values in their order comes to the same result, whatever the servers have checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fordway_cluster::{Encoded, Key, Revision, Value};
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

impl Encoded for Stored {
    const VERSION: u8 = Value::VERSION;
}

/// What the bucket has at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// A value.
    Stored(Stored),
    /// The mark that somebody has removed the key by hand.
    Removed,
    /// Something that this version does not know.
    Unknown,
}

/// What is told can't be what the servers agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// Values are missing between what was told last and this.
    #[error("a watch has missed values")]
    Gap,
    /// It replaces one that counts, and that one should have been told before: a server has another order than others.
    #[error(
        "the store's servers disagree on what they have stored; one of them may have to be stopped, and its files removed"
    )]
    Order,
}

#[derive(Debug, Default)]
struct State {
    /// The last value's revision, whether it counts or not.
    last: Revision,
    /// That of the last one that counts.
    valid: Revision,
    /// How many values were told.
    told: usize,
    /// Something was told that this version does not know.
    is_unknown: bool,
    /// Values of which nobody knows yet whether they count.
    pending: Vec<(Revision, Stored)>,
    /// Another last revision than the one that was told, by the servers' leader; and when it said so first.
    doubt: Option<(Revision, Instant)>,
}

/// The bucket, as far as it was told, in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    keys: BTreeMap<Key, State>,
    /// The last revision of all keys.
    last: Revision,
    is_listed: bool,
    /// The servers' leader has another order than who tells.
    is_contradicted: bool,
    /// Values that don't count, of those that were told since the list was complete.
    pub(super) overruled: u64,
}

impl State {
    /// What counts of those that are pending; `None`: it can't be known yet.
    fn resolve(&mut self) -> Option<(Revision, Value)> {
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
            }
        }
        counts
    }
}

impl Log {
    /// Everything is told anew; until that is done, nothing is written.
    pub(super) fn begin(&mut self) {
        *self = Log { overruled: self.overruled, ..Log::default() };
    }

    /// A key that is none of a gateway's has a value.
    pub(super) fn pass(&mut self, revision: Revision) -> Result<(), Broken> {
        if self.is_listed && self.last != 0 && revision > self.last + 1 {
            return Err(Broken::Gap);
        }
        self.last = self.last.max(revision);
        Ok(())
    }

    /// What the bucket has next. If it counts, it is given back, once the list is complete. From then on every revision has to be
    /// told: a watch that goes on after an interruption may have missed values which are kept no longer. Servers of 2.9 may also
    /// have different values at one revision for good, after their leader was killed.
    pub(super) fn put(
        &mut self,
        key: Key,
        revision: Revision,
        told: Told,
    ) -> Result<Option<(Revision, Value)>, Broken> {
        if revision <= self.last {
            return Ok(None);
        }
        self.pass(revision)?;
        let state = self.keys.entry(key).or_default();
        (state.last, state.told, state.doubt) = (revision, state.told + 1, None);
        let stored = match told {
            Told::Stored(stored) => stored,
            Told::Removed => return Ok(None),
            Told::Unknown => {
                state.is_unknown = true;
                return Ok(None);
            }
        };
        if self.is_listed && state.valid != 0 {
            if stored.replaces != state.valid {
                // Who wrote it had been told that its predecessor counts, which is before it.
                if stored.replaces > state.valid && !state.is_unknown {
                    return Err(Broken::Order);
                }
                self.overruled += 1;
                return Ok(None);
            }
            state.valid = revision;
            return Ok(Some((revision, stored.value)));
        }
        state.pending.push((revision, stored));
        Ok(if self.is_listed { state.resolve() } else { None })
    }

    /// Every value that the bucket had at the start was told: what counts of them.
    pub(super) fn listed(&mut self) -> Vec<(Key, Revision, Value)> {
        self.is_listed = true;
        let all = self.keys.iter_mut().filter_map(|(key, state)| {
            state.resolve().map(|(revision, value)| (*key, revision, value))
        });
        all.collect()
    }

    /// Takes what the servers' leader says the last revision of a key is; 0: there is none. Once it has said another one for `late` than
    /// a watch that has come further, who tells the watch has another order.
    pub(super) fn compare(&mut self, key: Key, revision: Revision, now: Instant, late: Duration) {
        // A watch that has not come so far is late, no more.
        if !self.is_listed || revision > self.last {
            return;
        }
        let state = self.keys.entry(key).or_default();
        let doubt = state.doubt.filter(|(said, _)| *said == revision);
        let (_, since) = doubt.unwrap_or((revision, now));
        state.doubt = (revision != state.last).then_some((revision, since));
        self.is_contradicted |= state.doubt.is_some() && now.duration_since(since) > late;
    }

    /// Whether who tells the watch has another order than the servers' leader.
    pub(super) fn check(&self) -> Result<(), Broken> {
        if self.is_contradicted { Err(Broken::Order) } else { Ok(()) }
    }

    /// For a write that replaces what counts: the last revision of the key. `None`: something else counts, or nobody knows what.
    pub(super) fn expected(&self, key: Key, replaces: Revision) -> Option<Revision> {
        let Some(state) = self.keys.get(&key) else {
            return (self.is_listed && replaces == 0).then_some(0);
        };
        let is_open = state.valid == 0 && (state.is_unknown || !state.pending.is_empty());
        (self.is_listed && !is_open && state.valid == replaces).then_some(state.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key::Config;

    fn stored(replaces: Revision, value: u64) -> Told {
        Told::Stored(Stored { replaces, value: Value::Config(value) })
    }

    fn counts(revision: Revision, value: u64) -> Result<Option<(Revision, Value)>, Broken> {
        Ok(Some((revision, Value::Config(value))))
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
        assert_eq!(log.put(KEY, 1, stored(0, 10)), counts(1, 10));
        assert_eq!(log.put(KEY, 2, stored(1, 20)), counts(2, 20));
        assert_eq!(log.put(KEY, 3, stored(1, 30)), Ok(None));
        // The next write replaces what counts, and the server has to be told its last one.
        assert_eq!((log.expected(KEY, 2), log.expected(KEY, 3)), (Some(3), None));
        assert_eq!(log.put(KEY, 4, Told::Removed), Ok(None));
        assert_eq!(log.expected(KEY, 2), Some(4));
        assert_eq!(log.put(KEY, 5, stored(2, 40)), counts(5, 40));
        assert_eq!(log.overruled, 1);
    }

    #[test]
    fn who_comes_later_knows_the_same() {
        let mut log = Log::default();
        for (revision, replaces) in [(1, 0), (2, 1), (3, 1), (4, 0)] {
            assert_eq!(log.put(KEY, revision, stored(replaces, revision)), Ok(None));
            assert_eq!(log.expected(KEY, 0), None, "nobody writes before the list is complete");
        }
        assert_eq!(log.listed(), [(KEY, 2, Value::Config(2))]);
    }

    #[test]
    fn what_can_not_be_known_does_not_count() {
        // More than are kept, and none of them replaces another.
        let mut log = Log::default();
        for revision in 0..HISTORY as u64 {
            assert_eq!(log.put(KEY, 100 + revision, stored(99, revision)), Ok(None));
        }
        assert!(log.listed().is_empty());
        assert_eq!((log.expected(KEY, 99), log.expected(KEY, 0)), (None, None));
        // Somebody who knows has written.
        let last = 100 + HISTORY as u64;
        assert_eq!(log.put(KEY, last, stored(100, 7)), counts(last, 7));
    }

    #[test]
    fn who_has_missed_something_begins_anew() {
        let mut log = live();
        assert_eq!(log.put(KEY, 1, stored(0, 10)), counts(1, 10));
        // Another key is heard of; the watch was interrupted, and 2 to 70 are kept no longer.
        assert_eq!(
            log.put(Key::Lease(fordway_cluster::Member(1)), 2, stored(0, 10)),
            counts(2, 10)
        );
        assert_eq!(log.put(KEY, 71, stored(70, 20)), Err(Broken::Gap));
        log.begin();
        assert_eq!(log.expected(KEY, 1), None, "nothing is written with what was known before");
        for (revision, replaces) in [(70, 69), (71, 70), (72, 1)] {
            assert_eq!(log.put(KEY, revision, stored(replaces, revision)), Ok(None));
        }
        assert_eq!(log.listed(), [(KEY, 71, Value::Config(71))]);
        assert_eq!(log.put(KEY, 72, stored(71, 9)), Ok(None), "told twice");
    }

    /// A leader that was killed has stored 2 and 3, and nobody else has; it then stores the others' 2 to 4 as 4 to 6.
    #[test]
    fn who_is_told_by_a_server_of_another_opinion_begins_anew() {
        let mut log = Log::default();
        for (revision, replaces) in [(1, 0), (2, 1), (3, 2)] {
            assert_eq!(log.put(KEY, revision, stored(replaces, revision)), Ok(None));
        }
        assert_eq!(log.listed(), [(KEY, 3, Value::Config(3))]);
        // It might have been overruled, and so might what replaces it.
        assert_eq!(log.put(KEY, 4, stored(1, 20)), Ok(None));
        assert_eq!(log.put(KEY, 5, stored(2, 30)), Ok(None));
        // Its predecessor was told before it, and does not count.
        assert_eq!(log.put(KEY, 6, stored(4, 40)), Err(Broken::Order));
        log.begin();
        for (revision, replaces) in [(1, 0), (2, 1), (3, 2), (4, 3)] {
            assert_eq!(log.put(KEY, revision, stored(replaces, revision)), Ok(None));
        }
        assert_eq!(log.listed(), [(KEY, 4, Value::Config(4))]);
    }

    #[test]
    fn who_is_told_something_else_than_the_leader_says_begins_anew() {
        let begin = Instant::now();
        let late = Duration::from_secs(1);
        let mut log = live();
        let compare = |log: &mut Log, revision, ms| {
            log.compare(KEY, revision, begin + Duration::from_millis(ms), late);
            log.check()
        };
        assert_eq!(log.put(KEY, 1, stored(0, 10)), counts(1, 10));
        assert_eq!([0, 2000].map(|ms| compare(&mut log, 1, ms)), [Ok(()); 2]);
        // Answers that come late, and a watch that does.
        assert_eq!([3000, 3900].map(|ms| compare(&mut log, 0, ms)), [Ok(()); 2]);
        assert_eq!([5000, 8000].map(|ms| compare(&mut log, 2, ms)), [Ok(()); 2]);
        assert_eq!(log.put(KEY, 2, stored(1, 20)), counts(2, 20));
        assert_eq!(compare(&mut log, 2, 9000), Ok(()));
        // It has another last revision for good.
        assert_eq!([9100, 10_000].map(|ms| compare(&mut log, 1, ms)), [Ok(()); 2]);
        assert_eq!(compare(&mut log, 1, 10_200), Err(Broken::Order));
        log.begin();
        assert_eq!(compare(&mut log, 1, 20_000), Ok(()), "nothing is known");
    }

    #[test]
    fn what_another_version_has_written_is_not_replaced() {
        let mut log = Log::default();
        log.put(KEY, 1, Told::Unknown).unwrap();
        log.listed();
        assert_eq!(log.expected(KEY, 0), None);
        // A key that somebody has removed is absent.
        let mut log = Log::default();
        log.put(KEY, 1, Told::Removed).unwrap();
        log.listed();
        assert_eq!(log.expected(KEY, 0), Some(1));
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
                    if let Some((revision, _)) = log.put(KEY, *revision, Told::Stored(value.clone())).unwrap() {
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
                    if let Some((revision, _)) = log.put(KEY, *revision, Told::Stored(value.clone())).unwrap() {
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
                prop_assert_eq!(late.put(KEY, *revision, Told::Stored(value.clone())), Ok(None));
            }
            let found = late.listed().pop().map(|(_, revision, _)| revision);
            let wanted = chain.iter().rev().find(|one| listed.iter().any(|(revision, _)| revision == *one));
            prop_assert_eq!(found.as_ref(), wanted);
            for (revision, value) in later {
                let counts = late.put(KEY, *revision, Told::Stored(value.clone())).unwrap().is_some();
                prop_assert_eq!(counts, chain.contains(revision));
            }
        }
    }
}
