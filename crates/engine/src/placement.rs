//! On which processor each queue's thread runs.
//!
//! A pinned thread keeps its packets in order: the kernel hands on what a thread sends through a queue of
//! the processor it runs on, so that a thread which moves overtakes itself. Measured with one TCP flow
//! on two processors, pinning brought 0.68 of native IPv6 to 0.83 and took most retransmissions away.

use fordway_tun::{allowed_processors, set_processors};

/// Hands out processors.
#[derive(Debug)]
pub(crate) struct Placement {
    /// The processors that the process may use; empty: nothing is pinned.
    allowed: Vec<usize>,
    next: usize,
}

impl Placement {
    /// `pin`: how many places to leave out first; `None`: nothing is pinned.
    pub(crate) fn new(pin: Option<usize>) -> Placement {
        let allowed = match pin {
            Some(_) => allowed_processors().unwrap_or_default(),
            None => Vec::new(),
        };
        Placement { allowed, next: pin.unwrap_or(0) }
    }

    /// Runs `spawn`, which makes a thread, so that the thread stays on the next processor; tells which.
    ///
    /// A thread inherits its maker's processors, so the maker moves there and back. Where the system
    /// forbids that, the thread goes unpinned.
    pub(crate) fn place<T>(&mut self, spawn: impl FnOnce() -> T) -> (T, Option<usize>) {
        let Some(processor) = processor(&self.allowed, self.next) else { return (spawn(), None) };
        self.next += 1;
        let pinned = set_processors(&[processor]).is_ok();
        let made = spawn();
        if pinned {
            // What was allowed before is allowed again.
            let _ = set_processors(&self.allowed);
        }
        (made, pinned.then_some(processor))
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
        assert_eq!(places(&[], 2), []);
    }

    #[test]
    fn the_maker_may_go_where_it_could_before() {
        let before = allowed_processors().unwrap();
        let mut placement = Placement::new(Some(0));
        let (thread, processor) =
            placement.place(|| std::thread::spawn(|| allowed_processors().unwrap()));
        assert_eq!(thread.join().unwrap(), [processor.unwrap()]);
        assert_eq!(allowed_processors().unwrap(), before);
    }

    #[test]
    fn nothing_is_pinned_unless_asked_for() {
        let (_, processor) = Placement::new(None).place(|| ());
        assert_eq!(processor, None);
    }
}
