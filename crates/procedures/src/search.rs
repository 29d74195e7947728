//! The highest rate at which a trial passes, by binary search (RFC 2544 section 26.1). Short trials lead the way; what counts
//! is a trial of full length (section 24).

use serde::{Deserialize, Serialize};

/// First step away from the guess, as a ratio; each further step is twice as wide.
const STEP: f64 = 1.25;

/// Length of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// One that leads the way.
    Short,
    /// One that counts.
    Full,
}

/// A search over rates. Bounds are halved as ratios, so that `precision` holds at every rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// Rate of the first trial.
    pub guess: f64,
    /// Nothing is tried below; positive.
    pub least: f64,
    /// Nothing is tried above; infinity leaves the number of trials unbounded.
    pub most: f64,
    /// The rate found and the rate not passed differ by this ratio at most: 0.01 is one per cent.
    pub precision: f64,
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Highest rate that passed a trial of full length.
    pub rate: f64,
    /// Lowest rate above it that did not pass; `None` where the highest rate of the search passed.
    pub above: Option<f64>,
}

/// The most trials that a search runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Short ones.
    pub short: u32,
    /// Of full length.
    pub full: u32,
}

impl Search {
    /// Searches; `passes` runs a trial at a rate. `None`: nothing passes at a rate that is tried.
    pub fn run<E>(
        &self,
        mut passes: impl FnMut(f64, Length) -> Result<bool, E>,
    ) -> Result<Option<Found>, E> {
        let Some((mut low, mut high)) = self.bracket(&mut passes)? else { return Ok(None) };
        if let Some(high) = &mut high {
            self.halve(&mut low, high, |rate| passes(rate, Length::Short))?;
        }
        if passes(low, Length::Full)? {
            return Ok(Some(Found { rate: low, above: high }));
        }
        // What passed for a short time did not pass for long: down in growing steps, then up again between them.
        let mut step = 1.0 + self.precision;
        let mut high = low;
        loop {
            low = (high / step).max(self.least);
            if low >= high {
                return Ok(None);
            }
            if passes(low, Length::Full)? {
                break;
            }
            (high, step) = (low, step * step);
        }
        self.halve(&mut low, &mut high, |rate| passes(rate, Length::Full))?;
        Ok(Some(Found { rate: low, above: Some(high) }))
    }

    /// The most trials that [`Search::run`] runs; `None` if `most` is not finite.
    pub fn bound(&self) -> Option<Bound> {
        let width = (self.most / self.least).ln().max(0.0);
        let finest = self.precision.ln_1p();
        if !width.is_finite() || finest <= 0.0 {
            return None;
        }
        // Steps that double cover the width, or halves of it reach the precision.
        let doublings = |step: f64| (width / step + 1.0).log2().ceil() as u32;
        let halvings = (width / finest).max(1.0).log2().ceil() as u32;
        let short = 2 + doublings(STEP.ln()) + halvings;
        Some(Bound { short, full: 2 + doublings(finest) + halvings })
    }

    /// A rate that passes a short trial, and the next one tried that does not.
    fn bracket<E>(
        &self,
        passes: &mut impl FnMut(f64, Length) -> Result<bool, E>,
    ) -> Result<Option<(f64, Option<f64>)>, E> {
        let mut rate = self.guess.min(self.most).max(self.least);
        let (mut low, mut high) = (None, None);
        let mut step = STEP;
        loop {
            if passes(rate, Length::Short)? {
                low = Some(rate);
            } else {
                high = Some(rate);
            }
            match (low, high) {
                (Some(low), Some(high)) => return Ok(Some((low, Some(high)))),
                (Some(low), None) if low >= self.most => return Ok(Some((low, None))),
                (None, Some(high)) if high <= self.least => return Ok(None),
                (Some(_), _) => rate = (rate * step).min(self.most),
                _ => rate = (rate / step).max(self.least),
            }
            step *= step;
        }
    }

    /// Brings both bounds within the precision of each other.
    fn halve<E>(
        &self,
        low: &mut f64,
        high: &mut f64,
        mut passes: impl FnMut(f64) -> Result<bool, E>,
    ) -> Result<(), E> {
        while *high > *low * (1.0 + self.precision) {
            let middle = (*low * *high).sqrt();
            *(if passes(middle)? { &mut *low } else { &mut *high }) = middle;
        }
        Ok(())
    }
}
