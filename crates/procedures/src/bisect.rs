//! Binary search over whole numbers: the one of ETSI GS NFV-TST 009 section 12.3.2 that RFC 9004 section 6.2 demands, and of
//! RFC 9693 section 4.5.

use serde::{Deserialize, Serialize};

/// A binary search from 0 to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bisection {
    /// Nothing is tried above; the first value that is tried.
    pub most: u64,
    /// By how much the bounds may differ at the end; at least 1.
    pub error: u64,
    /// They may differ by no more than an eighth of the upper one either, unless they differ by no more than this: so small
    /// values are found as exactly as great ones, in proportion. As large as `error`, it changes nothing.
    pub finest: u64,
    /// The search ends when a value up to this one fails, as nobody asks for less.
    pub floor: u64,
}

/// What a binary search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bisected {
    /// Greatest value that passed; 0 if none did.
    pub value: u64,
    /// Least value above it that failed; `None` if the greatest of the search passed.
    pub above: Option<u64>,
}

impl Bisection {
    /// Searches; `passes` tries a value.
    pub fn run<E>(&self, mut passes: impl FnMut(u64) -> Result<bool, E>) -> Result<Bisected, E> {
        let (mut low, mut high) = (0, self.most);
        if high == 0 || passes(high)? {
            return Ok(Bisected { value: high, above: None });
        }
        while high - low > self.error_below(high) && high > self.floor {
            let middle = low + (high - low) / 2;
            *(if passes(middle)? { &mut low } else { &mut high }) = middle;
        }
        Ok(Bisected { value: low, above: Some(high) })
    }

    fn error_below(&self, high: u64) -> u64 {
        self.error.min(self.finest.max(high / 8)).max(1)
    }

    /// The most values that are tried.
    pub fn bound(&self) -> u32 {
        let widths = self.most.div_ceil(self.error_below(0)).max(1);
        2 + widths.ilog2() + u32::from(!widths.is_power_of_two())
    }
}
