//! Comparison of two mechanisms measured in the same blocks.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::describe::{mean, median, sorted, stddev};
use super::multiple::Tests;

/// Fewest pairs for a verdict.
pub const MIN_PAIRS: usize = 3;
/// The signed-rank distribution is computed exactly up to this many pairs.
const EXACT_PAIRS: usize = 50;

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Shown to be better than the base.
    Better,
    /// Shown to be worse than the base.
    Worse,
    /// Shown to differ by less than the margin.
    Equivalent,
    /// Not shown either way.
    Unresolved,
}

impl Verdict {
    /// Whether a difference was shown.
    pub fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equivalent => "equivalent",
            Self::Unresolved => "unresolved",
        }
    }
}

/// What pairs of (mechanism, base) show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Pairs.
    pub n: usize,
    /// Geometric mean of mechanism / base.
    pub ratio: f64,
    /// Standard deviation of the ratio's logarithm; absent for one pair.
    pub deviation: Option<f64>,
    /// Its 95 % interval: Student's t on logarithms.
    pub ratio_ci: Option<(f64, f64)>,
    /// Two-sided p of the paired t test on logarithms of the ratio.
    pub p_t: Option<f64>,
    /// Two-sided p of the Wilcoxon signed-rank test on differences.
    pub p_wilcoxon: Option<f64>,
    /// Hodges-Lehmann shift: median of the Walsh averages of the differences.
    pub shift: f64,
    /// Cliff's delta, -1 to 1.
    pub delta: f64,
    /// The larger p of the two one-sided tests against the margin.
    pub p_equivalence: Option<f64>,
}

/// Compares pairs; `None` when there is no pair or a value is not positive.
pub fn compare(pairs: &[(f64, f64)], margin: f64) -> Option<Comparison> {
    if pairs.is_empty() || pairs.iter().any(|(a, b)| !(*a > 0.0 && *b > 0.0)) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    let (own, base): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    Some(Comparison {
        n: pairs.len(),
        ratio: mean(&logs).exp(),
        deviation: (logs.len() > 1).then(|| stddev(&logs)),
        ratio_ci: t_interval(&logs, 0.95).map(|(lo, hi)| (lo.exp(), hi.exp())),
        p_t: t_test(&logs),
        p_wilcoxon: wilcoxon(&differences),
        shift: hodges_lehmann(&differences),
        delta: cliffs_delta(&own, &base),
        p_equivalence: equivalence(&logs, margin),
    })
}

impl Comparison {
    /// The tests that a verdict rests on, not adjusted; none below the pairs that a verdict takes.
    pub fn tests(&self) -> Tests {
        if self.n < MIN_PAIRS {
            return Tests::default();
        }
        Tests { difference: self.p_t, equivalence: self.p_equivalence }
    }

    /// The verdict, from the p values that are adjusted for the whole family ([`super::multiple::family`]).
    pub fn verdict(&self, adjusted: Tests, alpha: f64, higher_is_better: bool) -> Verdict {
        verdict(adjusted, alpha, (self.ratio > 1.0) == higher_is_better)
    }
}

/// The verdict of a comparison whose estimate is better, or worse: `Equivalent` if the difference is shown to be less
/// than the margin, even where it is also shown not to be nothing.
pub fn verdict(adjusted: Tests, alpha: f64, better: bool) -> Verdict {
    let shown = |p: Option<f64>| p.is_some_and(|p| p < alpha);
    match (shown(adjusted.equivalence), shown(adjusted.difference)) {
        (true, _) => Verdict::Equivalent,
        (false, true) if better => Verdict::Better,
        (false, true) => Verdict::Worse,
        (false, false) => Verdict::Unresolved,
    }
}

/// Student's interval of a mean; `None` below two values.
pub fn t_interval(values: &[f64], level: f64) -> Option<(f64, f64)> {
    let t = student(values.len())?;
    let half = t.inverse_cdf(0.5 + level / 2.0) * standard_error(values);
    Some((mean(values) - half, mean(values) + half))
}

/// Two-sided p of the one-sample t test that the mean is 0; `None` below two values.
pub fn t_test(values: &[f64]) -> Option<f64> {
    let t = student(values.len())?;
    let (centre, error) = (mean(values), standard_error(values));
    if error == 0.0 {
        return Some(if centre == 0.0 { 1.0 } else { 0.0 });
    }
    Some(2.0 * t.sf((centre / error).abs()))
}

/// Two one-sided t tests that the mean logarithm of a ratio lies within the margin both ways.
fn equivalence(logs: &[f64], margin: f64) -> Option<f64> {
    let t = student(logs.len())?;
    let (centre, error) = (mean(logs), standard_error(logs));
    let (low, high) = ((1.0 - margin).ln(), (1.0 + margin).ln());
    if error == 0.0 {
        return Some(if centre > low && centre < high { 0.0 } else { 1.0 });
    }
    let above_low = t.sf((centre - low) / error);
    let below_high = t.cdf((centre - high) / error);
    Some(above_low.max(below_high))
}

fn student(n: usize) -> Option<StudentsT> {
    if n < 2 {
        return None;
    }
    StudentsT::new(0.0, 1.0, (n - 1) as f64).ok()
}

fn standard_error(values: &[f64]) -> f64 {
    stddev(values) / (values.len() as f64).sqrt()
}

/// Two-sided p of the Wilcoxon signed-rank test: exact with mid-ranks for ties, zeros left out.
pub fn wilcoxon(differences: &[f64]) -> Option<f64> {
    let kept: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if kept.is_empty() {
        return None;
    }
    let ranks = doubled_ranks(&kept);
    let total: usize = ranks.iter().sum();
    let positive: usize =
        ranks.iter().zip(&kept).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    if kept.len() > EXACT_PAIRS {
        let centre = total as f64 / 2.0;
        let variance: f64 = ranks.iter().map(|r| (*r as f64).powi(2)).sum::<f64>() / 4.0;
        // One rank is two here, so half a rank of continuity correction is one.
        let z = ((positive as f64 - centre).abs() - 1.0).max(0.0) / variance.sqrt();
        return Some((2.0 * Normal::standard().sf(z)).min(1.0));
    }
    // ways[s]: share of the 2^n sign patterns whose positive ranks add up to s.
    let mut ways = vec![0.0; total + 1];
    ways[0] = 1.0;
    for rank in &ranks {
        for sum in (0..=total).rev() {
            let with = if sum >= *rank { ways[sum - rank] } else { 0.0 };
            ways[sum] = 0.5 * (ways[sum] + with);
        }
    }
    let lower: f64 = ways[..=positive].iter().sum();
    let upper: f64 = ways[positive..].iter().sum();
    Some((2.0 * lower.min(upper)).min(1.0))
}

/// Twice the mid-rank of each magnitude: whole numbers even with ties.
pub(super) fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let magnitudes = sorted(&values.iter().map(|v| v.abs()).collect::<Vec<f64>>());
    values
        .iter()
        .map(|v| {
            let first = magnitudes.partition_point(|m| *m < v.abs());
            let past = magnitudes.partition_point(|m| *m <= v.abs());
            // Mean of ranks first+1 ..= past, doubled.
            first + 1 + past
        })
        .collect()
}

/// Median of all averages of two differences (each also with itself).
pub fn hodges_lehmann(differences: &[f64]) -> f64 {
    let mut averages = Vec::new();
    for (i, a) in differences.iter().enumerate() {
        averages.extend(differences[i..].iter().map(|b| (a + b) / 2.0));
    }
    median(&averages)
}

/// Share of (own, base) couples in which own is larger, less the share in which it is smaller.
pub fn cliffs_delta(own: &[f64], base: &[f64]) -> f64 {
    let mut sum = 0i64;
    for a in own {
        for b in base {
            sum += i64::from(a > b) - i64::from(a < b);
        }
    }
    sum as f64 / (own.len() * base.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Student's sleep data (Biometrika 1908): additional hours under two drugs.
    const SLEEP: [(f64, f64); 10] = [
        (0.7, 1.9),
        (-1.6, 0.8),
        (-0.2, 1.1),
        (-1.2, 0.1),
        (-0.1, -0.1),
        (3.4, 4.4),
        (3.7, 5.5),
        (0.8, 1.6),
        (0.0, 4.6),
        (2.0, 3.4),
    ];

    /// Hollander and Wolfe 1973, table 3.1: depression scores before and after a tranquilliser.
    #[expect(clippy::approx_constant, reason = "a score of 3.14 is not pi")]
    const DEPRESSION: [(f64, f64); 9] = [
        (1.83, 0.878),
        (0.50, 0.647),
        (1.62, 0.598),
        (2.48, 2.05),
        (1.68, 1.06),
        (1.88, 1.29),
        (1.55, 1.06),
        (3.06, 3.14),
        (1.30, 1.29),
    ];

    fn differences(pairs: &[(f64, f64)]) -> Vec<f64> {
        pairs.iter().map(|(a, b)| a - b).collect()
    }

    #[test]
    fn paired_t_of_students_sleep_data() {
        // t = -4.0621 with 9 degrees of freedom, p = 0.002833, interval (-2.460, -0.700).
        let d = differences(&SLEEP);
        assert!((t_test(&d).unwrap() - 0.002_833).abs() < 1e-6);
        let (lo, hi) = t_interval(&d, 0.95).unwrap();
        assert!((lo + 2.459_886).abs() < 1e-5 && (hi + 0.700_114).abs() < 1e-5);
    }

    #[test]
    fn signed_rank_and_shift_of_the_depression_scores() {
        // Hollander and Wolfe: T+ = 40, one-sided p = 0.0195, so 0.0391 two-sided; shift 0.46.
        let d = differences(&DEPRESSION);
        assert!((wilcoxon(&d).unwrap() - 20.0 / 512.0).abs() < 1e-12);
        assert!((hodges_lehmann(&d) - 0.46).abs() < 1e-9);
    }

    #[test]
    fn delta_of_the_ordinal_example() {
        // Hogarty and Kromrey 1999: delta = -0.25.
        let treatment = [10.0, 10.0, 20.0, 20.0, 20.0, 30.0, 30.0, 30.0, 40.0, 50.0];
        let control = [10.0, 20.0, 30.0, 40.0, 40.0, 50.0];
        assert!((cliffs_delta(&treatment, &control) + 0.25).abs() < 1e-12);
    }

    #[test]
    fn the_least_p_of_the_signed_rank_test_is_two_of_all_sign_patterns() {
        assert!((wilcoxon(&[1.0, 2.0, 3.0]).unwrap() - 0.25).abs() < 1e-12);
        assert!((wilcoxon(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap() - 0.031_25).abs() < 1e-12);
        assert_eq!(wilcoxon(&[0.0, 0.0]), None);
    }

    #[test]
    fn the_normal_approximation_continues_the_exact_test() {
        let d: Vec<f64> =
            (1..=50).map(|i| if i % 3 == 0 { -f64::from(i) } else { f64::from(i) }).collect();
        let exact = wilcoxon(&d).unwrap();
        let mut longer = d.clone();
        longer.push(0.5);
        let approximate = wilcoxon(&longer).unwrap();
        assert!((exact - approximate).abs() < 0.005, "{exact} {approximate}");
    }

    #[test]
    fn verdicts_follow_the_rule() {
        let judge = |pairs: &[(f64, f64)], higher| {
            let c = compare(pairs, 0.03).unwrap();
            c.verdict(c.tests(), 0.05, higher)
        };
        let half = [(5.0, 10.0), (5.1, 10.1), (4.9, 10.0), (5.0, 9.9)];
        assert_eq!(judge(&half, true), Verdict::Worse);
        assert_eq!(judge(&half, false), Verdict::Better);
        let same = [(10.0, 10.01), (10.02, 10.0), (10.0, 10.0), (9.99, 10.0)];
        assert_eq!(judge(&same, true), Verdict::Equivalent);
        let noisy = [(5.0, 10.0), (15.0, 9.0), (10.0, 10.5), (9.0, 7.0)];
        assert_eq!(judge(&noisy, true), Verdict::Unresolved);
        assert_eq!(judge(&half[..2], true), Verdict::Unresolved);
    }

    #[test]
    fn a_value_that_is_not_positive_is_not_compared() {
        assert_eq!(compare(&[(1.0, 0.0)], 0.03), None);
        assert_eq!(compare(&[], 0.03), None);
    }

    proptest! {
        #[test]
        fn p_values_are_probabilities(d in prop::collection::vec(-9.0f64..9.0, 2..60)) {
            for p in [wilcoxon(&d), t_test(&d)].into_iter().flatten() {
                prop_assert!((0.0..=1.0).contains(&p), "{}", p);
            }
        }

        #[test]
        fn swapping_the_sides_turns_the_signs(
            pairs in prop::collection::vec((0.1f64..9.0, 0.1f64..9.0), 3..20)
        ) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let (one, other) = (compare(&pairs, 0.03).unwrap(), compare(&swapped, 0.03).unwrap());
            prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
            prop_assert!((one.delta + other.delta).abs() < 1e-9);
            prop_assert!((one.shift + other.shift).abs() < 1e-9);
            prop_assert!((one.p_wilcoxon.unwrap_or(1.0) - other.p_wilcoxon.unwrap_or(1.0)).abs() < 1e-9);
        }
    }
}
