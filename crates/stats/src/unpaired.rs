//! Comparison of two samples that have nothing to do with each other: two recordings, two hosts, and the studies'
//! own two-sample t tests.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::describe::{mean, median, sorted, stddev};
use super::serial::effective;

/// The distribution of U is computed exactly up to this many values in all.
const EXACT_VALUES: usize = 50;

/// What a two-sample t test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TTest {
    /// Student's t; infinite for two samples without spread that differ.
    pub t: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Two-sided p.
    pub p: f64,
    /// Mean of the first less mean of the second.
    pub difference: f64,
    /// Its 95 % interval.
    pub ci95: [f64; 2],
}

/// Size, mean and standard deviation: all that a t test asks of a sample.
#[derive(Debug, Clone, Copy)]
struct Moments {
    n: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Self> {
        (values.len() > 1).then(|| Self {
            n: values.len() as f64,
            mean: mean(values),
            variance: stddev(values).powi(2),
        })
    }
}

/// Welch's test, which asks nothing of the variances (Welch 1947); `None` below two values on a side.
pub fn welch(own: &[f64], base: &[f64]) -> Option<TTest> {
    unequal(Moments::of(own)?, Moments::of(base)?)
}

fn unequal(own: Moments, base: Moments) -> Option<TTest> {
    let (a, b) = (own.variance / own.n, base.variance / base.n);
    let freedom = match a + b {
        0.0 => own.n + base.n - 2.0,
        sum => sum.powi(2) / (a.powi(2) / (own.n - 1.0) + b.powi(2) / (base.n - 1.0)),
    };
    t_test(own.mean - base.mean, (a + b).sqrt(), freedom)
}

/// Student's test with the pooled variance, which takes both variances to be the same (the test of
/// spreadsheets and of older studies); `None` below two values on a side.
pub fn student(own: &[f64], base: &[f64]) -> Option<TTest> {
    pooled(Moments::of(own)?, Moments::of(base)?)
}

fn pooled(own: Moments, base: Moments) -> Option<TTest> {
    let freedom = own.n + base.n - 2.0;
    let variance = ((own.n - 1.0) * own.variance + (base.n - 1.0) * base.variance) / freedom;
    t_test(own.mean - base.mean, (variance * (1.0 / own.n + 1.0 / base.n)).sqrt(), freedom)
}

fn t_test(difference: f64, error: f64, freedom: f64) -> Option<TTest> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    if error == 0.0 {
        let (value, p) =
            if difference == 0.0 { (0.0, 1.0) } else { (f64::INFINITY.copysign(difference), 0.0) };
        return Some(TTest { t: value, freedom, p, difference, ci95: [difference; 2] });
    }
    let half = t.inverse_cdf(0.975) * error;
    let value = difference / error;
    let ci95 = [difference - half, difference + half];
    Some(TTest { t: value, freedom, p: 2.0 * t.sf(value.abs()), difference, ci95 })
}

/// Welch's test of two series whose neighbours depend on each other: each series counts as many values as it is worth
/// for its mean ([`effective`]). `None` if one is worth no more than one value.
pub fn welch_of_series(own: &[f64], base: &[f64]) -> Option<TTest> {
    let worth = |values: &[f64]| {
        let own = Moments::of(values)?;
        let n = effective(values);
        // The deviations are from the series' own mean, which follows it: n - 1 of n, of as many as it is worth.
        let variance = own.variance * (own.n - 1.0) / own.n * n / (n - 1.0);
        (n > 1.0).then_some(Moments { n, variance, ..own })
    };
    unequal(worth(own)?, worth(base)?)
}

/// [`welch_of_series`] on the ranks of all values: a test of whether one series tends to be larger, with which no few
/// outliers decide.
pub fn ranks_of_series(own: &[f64], base: &[f64]) -> Option<TTest> {
    let all = sorted(&[own, base].concat());
    let rank = |v: &f64| doubled_rank(&all, v) as f64 / 2.0;
    let ranks = |values: &[f64]| values.iter().map(rank).collect::<Vec<f64>>();
    welch_of_series(&ranks(own), &ranks(base))
}

/// The larger p of two one-sided tests that a difference lies between two bounds (Schuirmann 1987).
pub fn equivalence(found: &TTest, low: f64, high: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, found.freedom).ok()?;
    let error = (found.ci95[1] - found.difference) / t.inverse_cdf(0.975);
    if error == 0.0 {
        return Some(if found.difference > low && found.difference < high { 0.0 } else { 1.0 });
    }
    let above = t.sf((found.difference - low) / error);
    let below = t.cdf((found.difference - high) / error);
    Some(above.max(below))
}

/// What the Mann-Whitney test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// Couples in which the first sample's value is the larger one; equal ones count half.
    pub u: f64,
    /// Two-sided p.
    pub p: f64,
    /// Cliff's delta, -1 to 1: positive when the first sample's values are larger.
    pub delta: f64,
}

/// The Mann-Whitney U test: exact, given the ties, up to 50 values in all; beyond, by the normal distribution with
/// corrections for ties and for continuity. `None` when a sample is empty.
pub fn mann_whitney(own: &[f64], base: &[f64]) -> Option<MannWhitney> {
    if own.is_empty() || base.is_empty() {
        return None;
    }
    let all = sorted(&[own, base].concat());
    let rank = |v: &f64| doubled_rank(&all, v);
    let sum: usize = own.iter().map(rank).sum();
    let couples = (own.len() * base.len()) as f64;
    let least = (own.len() * (own.len() + 1)) as f64;
    let u = (sum as f64 - least) / 2.0;
    let p = if all.len() <= EXACT_VALUES {
        exactly(&all.iter().map(rank).collect::<Vec<_>>(), own.len(), sum)
    } else {
        by_normal(&all, u, own.len() as f64, base.len() as f64)
    };
    Some(MannWhitney { u, p, delta: 2.0 * u / couples - 1.0 })
}

/// Twice the mid-rank of a value among sorted ones: a whole number even with ties.
fn doubled_rank(all: &[f64], v: &f64) -> usize {
    all.partition_point(|other| other < v) + 1 + all.partition_point(|other| other <= v)
}

/// Two-sided p of a sum of doubled ranks, over all ways to draw so many of them.
fn exactly(ranks: &[usize], drawn: usize, sum: usize) -> f64 {
    let total: usize = ranks.iter().sum();
    // ways[k][s]: ways to draw k ranks that add up to s.
    let mut ways = vec![vec![0.0f64; total + 1]; drawn + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for k in (1..=drawn).rev() {
            for s in (*rank..=total).rev() {
                ways[k][s] += ways[k - 1][s - rank];
            }
        }
    }
    let all: f64 = ways[drawn].iter().sum();
    let lower: f64 = ways[drawn][..=sum].iter().sum();
    let upper: f64 = ways[drawn][sum..].iter().sum();
    (2.0 * lower.min(upper) / all).min(1.0)
}

fn by_normal(all: &[f64], u: f64, own: f64, base: f64) -> f64 {
    let n = own + base;
    let ties: f64 = all
        .chunk_by(|a, b| a == b)
        .map(|same| (same.len() as f64).powi(3) - same.len() as f64)
        .sum();
    let variance = own * base / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - own * base / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

/// Hodges-Lehmann shift of two samples: the median of all differences.
pub fn shift(own: &[f64], base: &[f64]) -> f64 {
    let differences: Vec<f64> = own.iter().flat_map(|a| base.iter().map(move |b| a - b)).collect();
    median(&differences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired::cliffs_delta;

    /// Student's sleep data (Biometrika 1908), as R ships them.
    const DRUG_1: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const DRUG_2: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    #[test]
    fn students_sleep_as_r_tests_it() {
        // help(t.test): t = -1.8608, df = 17.776, p = 0.07939, interval -3.3654832 to 0.2054832;
        // with var.equal = TRUE df = 18, p = 0.07919.
        let found = welch(&DRUG_1, &DRUG_2).unwrap();
        assert!((found.t + 1.8608).abs() < 5e-5 && (found.freedom - 17.776).abs() < 5e-4);
        assert!((found.p - 0.07939).abs() < 5e-6, "{found:?}");
        assert!(
            (found.ci95[0] + 3.3654832).abs() < 1e-6 && (found.ci95[1] - 0.2054832).abs() < 1e-6
        );
        let found = student(&DRUG_1, &DRUG_2).unwrap();
        assert!((found.t + 1.8608).abs() < 5e-5 && found.freedom == 18.0);
        assert!((found.p - 0.07919).abs() < 5e-6, "{found:?}");
    }

    #[test]
    fn the_cars_of_the_nist_handbook() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.5.3 (AUTO83B.DAT): miles per gallon of 249
        // cars of one country and 79 of another. Pooled: T = -12.62059, 326 degrees; else T = -12.94627, 136.8750.
        let us = Moments { n: 249.0, mean: 20.14458, variance: 6.41470f64.powi(2) };
        let japan = Moments { n: 79.0, mean: 30.48101, variance: 6.10771f64.powi(2) };
        let found = pooled(us, japan).unwrap();
        assert!((found.t + 12.62059).abs() < 2e-4 && found.freedom == 326.0, "{found:?}");
        let found = unequal(us, japan).unwrap();
        assert!((found.t + 12.94627).abs() < 2e-4, "{found:?}");
        assert!((found.freedom - 136.8750).abs() < 2e-3 && found.p < 1e-20, "{found:?}");
    }

    #[test]
    fn a_membrane_of_hollander_and_wolfe_exactly() {
        // Hollander and Wolfe 1973, page 69, as in help(wilcox.test): W = 35, one-sided p = 0.1272; the difference in
        // location is estimated by 0.305.
        let x = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let y = [1.15, 0.88, 0.90, 0.74, 1.21];
        let found = mann_whitney(&x, &y).unwrap();
        assert_eq!(found.u, 35.0);
        assert!((found.p - 2.0 * 0.1272).abs() < 2e-4, "{found:?}");
        assert!((shift(&x, &y) - 0.305).abs() < 1e-9);
        assert!((found.delta - cliffs_delta(&x, &y)).abs() < 1e-12);
    }

    #[test]
    fn ozone_with_ties_by_the_normal_distribution() {
        // Ozone in New York in May and August 1973 (Chambers and others 1983), as in help(wilcox.test): W = 127.5,
        // p = 0.0001208.
        let may = [
            41.0, 36.0, 12.0, 18.0, 28.0, 23.0, 19.0, 8.0, 7.0, 16.0, 11.0, 14.0, 18.0, 14.0, 34.0,
            6.0, 30.0, 11.0, 1.0, 11.0, 4.0, 32.0, 23.0, 45.0, 115.0, 37.0,
        ];
        let august = [
            39.0, 9.0, 16.0, 78.0, 35.0, 66.0, 122.0, 89.0, 110.0, 44.0, 28.0, 65.0, 22.0, 59.0,
            23.0, 31.0, 44.0, 21.0, 9.0, 45.0, 168.0, 73.0, 76.0, 118.0, 84.0, 85.0,
        ];
        let found = mann_whitney(&may, &august).unwrap();
        assert_eq!(found.u, 127.5);
        assert!((found.p - 0.0001208).abs() < 5e-8, "{found:?}");
        assert!((found.delta - cliffs_delta(&may, &august)).abs() < 1e-12);
    }

    #[test]
    fn equivalence_is_two_one_sided_tests() {
        // Schuirmann 1987: equivalent at 5 % just when the 90 % interval lies inside the margin.
        let (own, base) = ([10.1, 9.9, 10.0, 10.2, 9.8], [10.0, 10.1, 9.9, 10.3, 9.9]);
        let found = welch(&own, &base).unwrap();
        let t = StudentsT::new(0.0, 1.0, found.freedom).unwrap();
        let half = (found.ci95[1] - found.difference) * t.inverse_cdf(0.95) / t.inverse_cdf(0.975);
        let edge = found.difference.abs() + half;
        let within = |margin: f64| equivalence(&found, -margin, margin).unwrap();
        assert!((within(edge) - 0.05).abs() < 1e-6);
        assert!(within(2.0 * edge) < 0.05);
        let far = welch(&own, &[20.0, 20.1, 20.2]).unwrap();
        assert!(equivalence(&far, -0.6, 0.6).unwrap() > 0.99);
        let same = welch(&[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert_eq!(equivalence(&same, -0.1, 0.1), Some(0.0));
    }

    #[test]
    fn ties_are_counted_exactly_in_small_samples() {
        // Of the six ways to draw two of (1, 2, 2, 3) one gives the sum of ranks 3.5 and one 6.5.
        let found = mann_whitney(&[1.0, 2.0], &[2.0, 3.0]).unwrap();
        assert_eq!(found.u, 0.5);
        assert!((found.p - 4.0 / 6.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn samples_without_spread_or_values_are_answered() {
        assert!(welch(&[1.0], &[1.0, 2.0]).is_none() && student(&[], &[]).is_none());
        assert!(mann_whitney(&[], &[1.0]).is_none());
        let same = welch(&[2.0, 2.0], &[2.0, 2.0, 2.0]).unwrap();
        assert_eq!((same.p, same.t), (1.0, 0.0));
        let apart = student(&[2.0, 2.0], &[3.0, 3.0]).unwrap();
        assert_eq!((apart.p, apart.difference), (0.0, -1.0));
        assert_eq!(mann_whitney(&[1.0; 40], &[1.0; 40]).map(|m| m.p), Some(1.0));
    }
}
