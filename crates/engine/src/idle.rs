//! How long a queue's thread looks for the next packet before it sleeps.
//!
//! To wake a sleeping thread costs the sender of a packet more than the translation of it. So while
//! packets come close after one another the thread stays awake: it yields the processor and looks
//! again, a bounded number of times. When they come far apart it goes to sleep at once, so that an
//! idle or slow interface costs nothing. The bound adapts as the host's own poll of a halted virtual
//! processor does: it grows when a sleep turns out short, and shrinks when one turns out long.

use std::time::Duration;

/// Most looks before a sleep. With nothing else to run, a look and a yield take about half a
/// microsecond.
const LOOKS_MAX: u32 = 256;

/// Looks after the first short sleep.
const LOOKS_MIN: u32 = 16;

/// A sleep shorter than this would better have been spent looking.
const SHORT: Duration = Duration::from_micros(100);

/// The adaptive bound of one queue.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    bound: u32,
    looks: u32,
    busy: bool,
}

/// What a queue has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Packets have come close together for a while.
    Busy,
    /// Packets come far apart again.
    Calm,
}

impl Idle {
    /// The queue was empty: whether to look again (the processor has been yielded) or to sleep.
    pub(crate) fn look_again(&mut self) -> bool {
        if self.looks >= self.bound {
            return false;
        }
        self.looks += 1;
        std::thread::yield_now();
        true
    }

    /// A packet was found.
    pub(crate) fn found(&mut self) {
        self.looks = 0;
    }

    /// A sleep has ended after so long. Tells when the queue's pace has changed.
    pub(crate) fn slept(&mut self, time: Duration) -> Option<Pace> {
        self.looks = 0;
        self.bound = if time < SHORT {
            (self.bound * 2).clamp(LOOKS_MIN, LOOKS_MAX)
        } else if self.bound > LOOKS_MIN {
            self.bound / 2
        } else {
            0
        };
        match self.bound {
            LOOKS_MAX if !self.busy => {
                self.busy = true;
                Some(Pace::Busy)
            }
            0 if self.busy => {
                self.busy = false;
                Some(Pace::Calm)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(idle: &mut Idle) -> u32 {
        let mut looks = 0;
        while idle.look_again() {
            looks += 1;
        }
        looks
    }

    #[test]
    fn an_idle_queue_sleeps_at_once() {
        assert_eq!(looks(&mut Idle::default()), 0);
    }

    #[test]
    fn short_sleeps_keep_awake_and_long_ones_do_not() {
        let mut idle = Idle::default();
        let mut seen = Vec::new();
        let mut paces = Vec::new();
        for _ in 0..6 {
            paces.push(idle.slept(Duration::from_micros(10)));
            seen.push(looks(&mut idle));
        }
        assert_eq!(seen, [16, 32, 64, 128, 256, 256]);
        assert_eq!(paces, [None, None, None, None, Some(Pace::Busy), None]);
        seen.clear();
        paces.clear();
        for _ in 0..6 {
            paces.push(idle.slept(Duration::from_millis(1)));
            seen.push(looks(&mut idle));
        }
        assert_eq!(seen, [128, 64, 32, 16, 0, 0]);
        assert_eq!(paces, [None, None, None, None, Some(Pace::Calm), None]);
    }

    #[test]
    fn a_packet_starts_the_count_anew() {
        let mut idle = Idle::default();
        idle.slept(Duration::ZERO);
        assert!(idle.look_again());
        idle.found();
        assert_eq!(looks(&mut idle), 16);
    }
}
