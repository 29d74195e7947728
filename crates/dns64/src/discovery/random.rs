//! Jitter, so that many hosts do not act at the same time. The numbers are no secret.

use std::time::Duration;

/// A sequence of numbers that its seed determines (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time from zero to `most`, both included.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(match most.checked_add(1) {
            Some(values) => self.next() % values,
            None => self.next(),
        })
    }

    /// `time` less or more a tenth of it.
    pub(super) fn about(&mut self, time: Duration) -> Duration {
        let tenth = time / 10;
        time - tenth + self.up_to(tenth * 2)
    }
}
