//! Timers of connections and sessions: those that are not due cost nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Times up to which nothing is removed.
const FEW: usize = 1024;

/// Times, the earliest first. Each thing keeps its armed time itself (`armed`); other times of it in the heap are
/// stale.
#[derive(Debug)]
pub(super) struct Timers<K>(BinaryHeap<Reverse<(Instant, K)>>);

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers(BinaryHeap::new())
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Arms a thing's timer for `at`, unless it is armed for an earlier time.
    pub(super) fn arm(&mut self, key: K, armed: &mut Option<Instant>, at: Instant) {
        if armed.is_none_or(|armed| at < armed) {
            *armed = Some(at);
            self.0.push(Reverse((at, key)));
        }
    }

    /// Takes the next time that is due. The timer fires if that is the thing's armed time, which then ends; otherwise
    /// it is stale.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, K)> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > now {
            return None;
        }
        self.0.pop().map(|Reverse(due)| due)
    }

    /// Removes times that are no longer armed once they outnumber the things: a client that opens and closes
    /// connections all the time would fill the memory with them.
    pub(super) fn tidy(&mut self, things: usize, counts: impl Fn(K, Instant) -> bool) {
        if self.0.len() > 2 * things + FEW {
            self.0.retain(|Reverse((at, key))| counts(*key, *at));
        }
    }

    /// When [`Timers::due`] has something.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slotmap::SlotMap;

    use super::super::core::Key;
    use super::*;

    #[test]
    fn each_at_its_time_and_once() {
        let mut things = SlotMap::<Key, _>::default();
        let mut timers = Timers::default();
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let keys: Vec<Key> = (0..3).map(|_| things.insert(None)).collect();
        for (key, millis) in keys.iter().zip([300, 100, 200]) {
            timers.arm(*key, things.get_mut(*key).unwrap(), at(millis));
        }
        // Later than it has is no change; earlier is one.
        timers.arm(keys[2], things.get_mut(keys[2]).unwrap(), at(250));
        timers.arm(keys[0], things.get_mut(keys[0]).unwrap(), at(50));
        assert_eq!(timers.next(), Some(at(50)));
        assert_eq!(timers.due(at(49)), None);
        assert_eq!(timers.due(at(150)), Some((at(50), keys[0])));
        assert_eq!(timers.due(at(150)), Some((at(100), keys[1])));
        assert_eq!(timers.due(at(150)), None);
        assert_eq!(timers.due(at(400)), Some((at(200), keys[2])));
        // The one that does not count any more.
        assert_eq!(timers.due(at(400)), Some((at(300), keys[0])));
        assert_eq!(*things.get_mut(keys[0]).unwrap(), Some(at(50)));
        assert_eq!((timers.due(at(400)), timers.next()), (None, None));
    }

    #[test]
    fn times_of_what_is_gone_are_forgotten() {
        let mut timers = Timers::default();
        let now = Instant::now();
        for thing in 0..3 * FEW {
            timers.arm(thing, &mut None, now);
            timers.tidy(1, |kept, _| kept == thing);
        }
        assert!(timers.0.len() <= FEW + 2, "{}", timers.0.len());
    }
}
