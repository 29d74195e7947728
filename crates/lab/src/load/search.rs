//! The highest rate at which a trial passes, by halving. Short trials lead the way; what counts is a trial of
//! full length (RFC 8219 section 9.2), so that a rate which passed a short one by luck is not believed.

use crate::error::Result;

/// The first step away from the guess, up or down.
const STEP: f64 = 1.25;
/// Below this share of the guess nothing is looked for.
const FLOOR: f64 = 1.0 / 64.0;

/// Length of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// One that leads the way.
    Short,
    /// One that counts.
    Full,
}

/// Searches up to `most`; `passes` runs a trial at a rate. The bounds end within `precision` of each other. `None`:
/// nothing passes at a rate worth naming.
pub(crate) fn search(
    guess: f64,
    most: f64,
    precision: f64,
    mut passes: impl FnMut(f64, Length) -> Result<bool>,
) -> Result<Option<f64>> {
    let guess = guess.min(most);
    let floor = guess * FLOOR;
    let (mut low, mut high) = (None, None);
    let mut rate = guess;
    while low.is_none() || high.is_none() {
        if passes(rate, Length::Short)? {
            low = Some(rate);
            if rate >= most {
                // Nobody asks what is above.
                high = Some(rate);
            }
            rate = (rate * STEP).min(most);
        } else {
            high = Some(rate);
            rate /= STEP;
            if rate < floor {
                return Ok(None);
            }
        }
    }
    let (mut low, mut high) = (low.unwrap_or(floor), high.unwrap_or(guess));
    while high > low * (1.0 + precision) {
        let middle = (low * high).sqrt();
        if passes(middle, Length::Short)? { low = middle } else { high = middle }
    }
    // What passed for a short time may not pass for long: down in growing steps, and up again between them.
    let mut step = precision;
    while !passes(low, Length::Full)? {
        high = low;
        low *= 1.0 - step;
        step = (2.0 * step).min(0.5);
        if low < floor {
            return Ok(None);
        }
    }
    while high > low * (1.0 + 2.0 * precision) {
        let middle = (low * high).sqrt();
        if passes(middle, Length::Full)? { low = middle } else { high = middle }
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A server that answers up to `short` for a short time, and up to `full` for long.
    fn found(
        guess: f64,
        precision: f64,
        short: f64,
        full: f64,
    ) -> (Option<f64>, Vec<(f64, Length)>) {
        let mut trials = Vec::new();
        let rate = search(guess, f64::INFINITY, precision, |rate, length| {
            trials.push((rate, length));
            Ok(rate <= if length == Length::Short { short } else { full })
        });
        (rate.unwrap(), trials)
    }

    proptest! {
        #[test]
        fn the_rate_is_found_from_any_guess_and_backed_by_a_full_trial(
            guess in 1e3..1e6f64, ratio in 0.05..20.0f64, stamina in 0.6..1.0f64,
        ) {
            let short = guess * ratio;
            let full = short * stamina;
            let (rate, trials) = found(guess, 0.01, short, full);
            let rate = rate.expect("a rate");
            prop_assert!(rate <= full && rate >= full * 0.97, "{rate} of {full}");
            prop_assert!(trials.contains(&(rate, Length::Full)));
        }
    }

    #[test]
    fn a_good_guess_takes_few_trials() {
        let (rate, trials) = found(1000.0, 0.02, 950.0, 950.0);
        assert!(rate.is_some() && trials.len() <= 9, "{trials:?}");
        assert_eq!(trials.iter().filter(|t| t.1 == Length::Full).count(), 1);
    }

    #[test]
    fn nothing_that_passes_is_no_rate_and_errors_end_it() {
        assert_eq!(found(1000.0, 0.01, 0.0, 0.0).0, None);
        // Short trials pass, long ones never do.
        assert_eq!(found(1000.0, 0.01, 900.0, 0.0).0, None);
        let broken = || Err(crate::error::LabError::Interrupted);
        assert!(search(1000.0, f64::INFINITY, 0.01, |_, _| broken()).is_err());
    }

    #[test]
    fn nothing_is_tried_above_the_highest_rate_that_is_asked_about() {
        for (guess, capacity, found) in
            [(900.0, 1e6, Some(200.0)), (50.0, 1e6, Some(200.0)), (900.0, 100.0, None)]
        {
            let mut trials = Vec::new();
            let rate = search(guess, 200.0, 0.02, |rate, length| {
                trials.push((rate, length));
                Ok(rate <= capacity)
            });
            let rate = rate.unwrap().unwrap();
            assert!(trials.iter().all(|(rate, _)| *rate <= 200.0), "{trials:?}");
            assert!(trials.contains(&(rate, Length::Full)));
            match found {
                Some(found) => assert_eq!(rate, found),
                None => assert!((96.0..=100.0).contains(&rate), "{rate}"),
            }
        }
    }
}
