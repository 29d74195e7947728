//! Pairs of blocks in which a mechanism may have failed, or is known only as a lower bound.
//!
//! A failure is worse than every value. Where a pair has one, no ratio says how much worse: the test is then the
//! signed-rank test, in which such a pair has the highest rank. A value that the generator limited is a lower bound, and
//! so is a ratio with it above the line; below the line it makes the ratio an upper bound. Two bounds have no ratio.

use serde::{Deserialize, Serialize};

use super::multiple::Tests;
use super::paired::{Comparison, MIN_PAIRS, Verdict, compare, doubled_ranks, verdict, wilcoxon};

/// What a block gave of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// A value.
    Value(f64),
    /// A value that may have been larger: the generator was the limit.
    AtLeast(f64),
    /// The mechanism did not do what is measured.
    Failed,
}

impl Outcome {
    /// The number, whether it is a bound or not.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) | Self::AtLeast(value) => Some(value),
            Self::Failed => None,
        }
    }
}

/// Which side of a ratio is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The ratio is this or more.
    AtLeast,
    /// The ratio is this or less.
    AtMost,
}

impl Bound {
    /// The sign before a ratio.
    pub fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥ ",
            Self::AtMost => "≤ ",
        }
    }
}

/// What pairs of outcomes (mechanism, base) show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// The pairs in which both have a value.
    pub comparison: Comparison,
    /// All pairs.
    pub of: usize,
    /// Pairs in which the mechanism, and in which the base, failed.
    pub failed: [usize; 2],
    /// Whether a value of the mechanism, and one of the base, is a lower bound.
    pub bounds: [bool; 2],
    higher_is_better: bool,
    /// Sum of the signed ranks; positive where the mechanism has the larger values, or the worse ones of two orders.
    ranks: i64,
    p_ranks: Option<f64>,
}

impl Paired {
    /// Compares; `None` where no pair has two positive values.
    pub fn of(pairs: &[(Outcome, Outcome)], margin: f64, higher_is_better: bool) -> Option<Self> {
        let values: Vec<(f64, f64)> =
            pairs.iter().filter_map(|(own, base)| own.value().zip(base.value())).collect();
        let mut comparison = compare(&values, margin)?;
        let count = |of: fn(&(Outcome, Outcome)) -> bool| pairs.iter().filter(|p| of(p)).count();
        let failed = [count(|p| p.0 == Outcome::Failed), count(|p| p.1 == Outcome::Failed)];
        let is_bound = |outcome: &Outcome| matches!(outcome, Outcome::AtLeast(_));
        let bounds = [pairs.iter().any(|p| is_bound(&p.0)), pairs.iter().any(|p| is_bound(&p.1))];
        if failed != [0, 0] {
            // What fails, and what does not, are not the same.
            comparison.p_equivalence = None;
        }
        let worst = if higher_is_better { f64::NEG_INFINITY } else { f64::INFINITY };
        let log = |(own, base): &(Outcome, Outcome)| match (own.value(), base.value()) {
            (Some(own), Some(base)) => (own / base).ln(),
            (None, Some(_)) => worst,
            (Some(_), None) => -worst,
            (None, None) => 0.0,
        };
        let logs: Vec<f64> = pairs.iter().map(log).filter(|log| *log != 0.0).collect();
        let signed = doubled_ranks(&logs).into_iter().zip(&logs);
        Some(Self {
            comparison,
            of: pairs.len(),
            failed,
            bounds,
            higher_is_better,
            ranks: signed
                .map(|(rank, log)| if *log > 0.0 { rank as i64 } else { -(rank as i64) })
                .sum(),
            p_ranks: wilcoxon(&logs),
        })
    }

    /// The p values to adjust: those of [`Comparison::tests`], or with failures that of the signed-rank test alone.
    pub fn tests(&self) -> Tests {
        if self.failed == [0, 0] {
            return self.comparison.tests();
        }
        Tests { difference: self.p_ranks.filter(|_| self.of >= MIN_PAIRS), equivalence: None }
    }

    /// What the ratio is; `None`: a value like any other, or for two bounds none at all.
    pub fn bound(&self) -> Option<Bound> {
        match self.bounds {
            [true, false] => Some(Bound::AtLeast),
            [false, true] => Some(Bound::AtMost),
            _ => None,
        }
    }

    /// The verdict, from the p values of [`Self::tests`] that are adjusted for the whole family.
    pub fn verdict(&self, adjusted: Tests, alpha: f64) -> Verdict {
        let above = match self.failed {
            [0, 0] => self.comparison.ratio > 1.0,
            _ => self.ranks > 0,
        };
        beyond(self.bounds, verdict(adjusted, alpha, above == self.higher_is_better))
    }
}

/// What of a verdict holds where a value of the mechanism, or of the base, is a lower bound: that the one is above, or
/// below, the other side. Only rates have bounds, and more is better there.
pub fn beyond(bounds: [bool; 2], found: Verdict) -> Verdict {
    match (bounds, found) {
        ([false, false], found) => found,
        ([true, false], Verdict::Better) | ([false, true], Verdict::Worse) => found,
        _ => Verdict::Unresolved,
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    const RUNS: usize = 2000;
    const MARGIN: f64 = 0.03;
    const ALPHA: f64 = 0.05;

    /// Three standard errors of a share `p` of [`RUNS`].
    fn tolerance(p: f64) -> f64 {
        3.0 * (p * (1.0 - p) / RUNS as f64).sqrt()
    }

    fn noisy(rng: &mut ChaCha8Rng, typical: f64) -> f64 {
        let z: f64 = StandardNormal.sample(rng);
        typical * (0.01 * z).exp()
    }

    /// Shares of the verdicts over all runs of so many blocks: by what is left of the pairs (the old rule), and by all.
    fn shares(
        blocks: usize,
        mut pair: impl FnMut(&mut ChaCha8Rng) -> (Outcome, Outcome),
        wanted: Verdict,
    ) -> [f64; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(21);
        let mut count = [0.0; 2];
        for _ in 0..RUNS {
            let pairs: Vec<_> = (0..blocks).map(|_| pair(&mut rng)).collect();
            let left: Vec<(f64, f64)> =
                pairs.iter().filter_map(|(a, b)| a.value().zip(b.value())).collect();
            let old = compare(&left, MARGIN)
                .map_or(Verdict::Unresolved, |c| c.verdict(c.tests(), ALPHA, true));
            let new = Paired::of(&pairs, MARGIN, true)
                .map_or(Verdict::Unresolved, |found| found.verdict(found.tests(), ALPHA));
            count[0] += f64::from(u8::from(old == wanted));
            count[1] += f64::from(u8::from(new == wanted));
        }
        count.map(|n| n / RUNS as f64)
    }

    /// A mechanism and its base that carry as much, and fail with these probabilities.
    fn failing(own: f64, base: f64) -> impl FnMut(&mut ChaCha8Rng) -> (Outcome, Outcome) {
        move |rng| {
            let mut of = |p: f64| {
                let value = noisy(rng, 10.0);
                if rng.random_bool(p) { Outcome::Failed } else { Outcome::Value(value) }
            };
            (of(own), of(base))
        }
    }

    #[test]
    fn a_mechanism_that_often_fails_is_not_equivalent_to_one_that_never_does() {
        let [old, new] = shares(10, failing(0.4, 0.0), Verdict::Equivalent);
        assert!(old > 0.8, "survivors look equal: {old}");
        let none_failed = 0.6f64.powi(10);
        assert!(new <= none_failed + tolerance(none_failed), "{new}");
        let [old, new] = shares(10, failing(0.7, 0.0), Verdict::Worse);
        assert!(old < 0.1 && new > 0.75, "{old} {new}");
    }

    #[test]
    fn mechanisms_that_fail_as_often_as_each_other_differ_no_more_than_alpha_says() {
        let [_, worse] = shares(10, failing(0.3, 0.3), Verdict::Worse);
        let [_, better] = shares(10, failing(0.3, 0.3), Verdict::Better);
        assert!(worse + better <= ALPHA + tolerance(ALPHA), "{worse} {better}");
    }

    /// Rates in front of which stands a generator of `ceiling`; within a factor of 2 of it a value is a bound.
    fn limited(
        own: f64,
        base: f64,
        ceiling: f64,
    ) -> impl FnMut(&mut ChaCha8Rng) -> (Outcome, Outcome) {
        move |rng| {
            let mut of = |rate: f64| {
                let value = noisy(rng, rate.min(ceiling));
                if 2.0 * value >= ceiling { Outcome::AtLeast(value) } else { Outcome::Value(value) }
            };
            (of(own), of(base))
        }
    }

    #[test]
    fn two_rates_above_the_generators_are_not_equivalent() {
        // Twice as fast in truth, and the generator can't tell.
        let [old, new] = shares(7, limited(20.0, 10.0, 8.0), Verdict::Equivalent);
        assert!(old > 0.99, "{old}");
        assert_eq!(new, 0.0);
        let [_, unresolved] = shares(7, limited(20.0, 10.0, 8.0), Verdict::Unresolved);
        assert_eq!(unresolved, 1.0);
    }

    #[test]
    fn a_ratio_with_one_bound_shows_what_lies_beyond_it_alone() {
        // Far below a base that the generator limits: worse, whatever the base can do.
        let [_, worse] = shares(7, limited(2.0, 10.0, 8.0), Verdict::Worse);
        assert!(worse > 0.99, "{worse}");
        let [_, better] = shares(7, limited(10.0, 2.0, 8.0), Verdict::Better);
        assert!(better > 0.99, "{better}");
        let of = |own: Outcome, base: Outcome| {
            let found = Paired::of(&[(own, base); 5], MARGIN, true).unwrap();
            (found.bound(), found.verdict(found.tests(), ALPHA))
        };
        let (value, bound) = (Outcome::Value(5.0), Outcome::AtLeast(5.0));
        assert_eq!(of(value, value), (None, Verdict::Equivalent));
        assert_eq!(of(bound, value), (Some(Bound::AtLeast), Verdict::Unresolved));
        assert_eq!(of(value, bound), (Some(Bound::AtMost), Verdict::Unresolved));
        assert_eq!(of(bound, bound), (None, Verdict::Unresolved));
        // Below the base by a bound from below: nothing is shown.
        assert_eq!(of(Outcome::AtLeast(1.0), value).1, Verdict::Unresolved);
    }

    #[test]
    fn times_that_never_came_are_the_longest() {
        let pairs = [(Outcome::Failed, Outcome::Value(1.0)); 6];
        let both = (Outcome::Value(1.0), Outcome::Value(1.01));
        let found = Paired::of(&[&pairs[..], &[both]].concat(), MARGIN, false).unwrap();
        assert_eq!((found.comparison.n, found.of, found.failed), (1, 7, [6, 0]));
        assert_eq!(found.verdict(found.tests(), ALPHA), Verdict::Worse);
        assert!(Paired::of(&pairs, MARGIN, false).is_none(), "nothing to name a ratio by");
    }
}
