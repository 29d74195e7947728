//! On which processor a queue's thread runs.
//!
//! While a queue is busy its thread stays on one processor: the kernel hands on what a thread sends through
//! a queue of the processor it runs on, so that a thread which moves overtakes itself, and TCP takes
//! that for losses. Measured with one TCP flow on two processors, staying brought 0.71 of native IPv6
//! to 0.86. While packets come far apart the kernel places the thread, and does better at it: it wakes
//! it where the sender runs, and no sleeping processor has to be woken.

use fordway_tun::{allowed_processors, set_processors};

/// Where the thread of one queue runs.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// All processors that the process may use.
    allowed: Vec<usize>,
    /// The one for this thread.
    own: usize,
}

impl Placement {
    /// The placement number `index` of the process; `None` where the system does not tell which
    /// processors there are.
    pub(crate) fn new(index: usize) -> Option<Placement> {
        let allowed = allowed_processors().ok()?;
        let own = processor(&allowed, index)?;
        Some(Placement { allowed, own })
    }

    /// The thread's own processor.
    pub(crate) fn processor(&self) -> usize {
        self.own
    }

    /// The calling thread stays on its own processor. Where the system forbids it, it goes on roaming:
    /// slower, not wrong.
    pub(crate) fn stay(&self) {
        let _ = set_processors(&[self.own]);
    }

    /// The calling thread runs where the kernel likes.
    pub(crate) fn roam(&self) {
        let _ = set_processors(&self.allowed);
    }
}

/// The processor of the place `index`: from the last to the first, since the first is where most hosts
/// serve their interrupts; every second one first, since routing works beside the threads.
fn processor(allowed: &[usize], index: usize) -> Option<usize> {
    let count = allowed.len();
    let odd = count.div_ceil(2);
    let index = index % count.max(1);
    let from_end = if index < odd { index * 2 } else { (index - odd) * 2 + 1 };
    allowed.iter().rev().nth(from_end).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(allowed: &[usize], count: usize) -> Vec<usize> {
        (0..count).filter_map(|index| processor(allowed, index)).collect()
    }

    #[test]
    fn places_are_spread_and_come_round() {
        assert_eq!(places(&[0, 1], 4), [1, 0, 1, 0]);
        assert_eq!(places(&[0, 1, 2, 3], 5), [3, 1, 2, 0, 3]);
        assert_eq!(places(&[2, 5, 7], 3), [7, 2, 5]);
        assert!(places(&[], 2).is_empty());
    }

    #[test]
    fn a_thread_stays_and_roams_again() {
        let placement = Placement::new(0).unwrap();
        let before = allowed_processors().unwrap();
        placement.stay();
        assert_eq!(allowed_processors().unwrap(), [placement.processor()]);
        placement.roam();
        assert_eq!(allowed_processors().unwrap(), before);
    }
}
