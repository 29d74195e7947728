//! When the things of a thread are looked at without an event: each at its own time, so that those whose time has not come
//! cost nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Times that are not worth a search.
const FEW: usize = 1024;

/// Times, the earliest first. Each thing has one that counts, which it keeps itself (`armed`); others of it are of the
/// past.
#[derive(Debug)]
pub(super) struct Timers<K>(BinaryHeap<Reverse<(Instant, K)>>);

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers(BinaryHeap::new())
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Has a thing looked at by `at`: no later, but perhaps earlier.
    pub(super) fn arm(&mut self, key: K, armed: &mut Option<Instant>, at: Instant) {
        if armed.is_none_or(|armed| at < armed) {
            *armed = Some(at);
            self.0.push(Reverse((at, key)));
        }
    }

    /// The next thing whose time has come. It is to be looked at if that time is the one that counts for it, and then has
    /// none any more.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, K)> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > now {
            return None;
        }
        self.0.pop().map(|Reverse(due)| due)
    }

    /// Forgets times that do not count any more, once there are more of them than of things: who begins and ends
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

    use super::super::worker::Key;
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
