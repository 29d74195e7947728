//! Intervals, each with the level at which it holds.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use super::describe::{mean, sorted};

/// Level that is asked for.
pub const LEVEL: f64 = 0.95;
/// Fewest values of an interval of a median.
pub const FEWEST: usize = 3;

/// An interval and the share of all samples whose interval contains the true value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Level: 0.984375 for the least and the greatest of seven values.
    pub level: f64,
}

impl Interval {
    /// Whether it contains the value.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The order statistics that bound the median of a continuous distribution, by the binomial distribution (David and
/// Nagaraja 2003, section 7.1): the k-th least and the k-th greatest of `n` values, and the exact level.
///
/// k is the largest with a level of at least [`LEVEL`]. Below six values no k has it; the least and the greatest then
/// have a lower level (0.75 of three values). `None` below three values.
pub fn orders(n: usize) -> Option<(usize, f64)> {
    if n < FEWEST {
        return None;
    }
    let below = Binomial::new(0.5, n as u64).ok()?;
    // The interval misses the median if fewer than k values lie on one side of it.
    let level = |k: usize| 1.0 - 2.0 * below.cdf(k as u64 - 1);
    let k = (1..=n / 2).rev().find(|k| level(*k) >= LEVEL).unwrap_or(1);
    Some((k, level(k)))
}

/// The interval of the median of a continuous distribution from a sample of it, with its exact level, whatever the
/// distribution; ties only raise the level. `None` below three values, or if one is not finite.
pub fn of_median(values: &[f64]) -> Option<Interval> {
    let (k, level) = orders(values.len())?;
    let sorted = sorted(values);
    sorted.iter().all(|v| v.is_finite()).then(|| Interval {
        low: sorted[k - 1],
        high: sorted[sorted.len() - k],
        level,
    })
}

/// What a ratio of two means of pairs can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Ratio of the means.
    pub estimate: f64,
    /// Fieller's interval at [`LEVEL`]; absent where the set is not bounded, because the denominator's mean cannot be
    /// told from 0 at that level.
    pub interval: Option<Interval>,
}

/// The ratio of the means of (numerator, denominator) pairs, with Fieller's interval (Fieller 1954): all ratios r for
/// which Student's test does not reject that the mean of numerator - r * denominator is 0. Pairs whose denominator is 0
/// or negative count like all others. `None` below two pairs, or if the denominators' mean is 0.
pub fn of_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let n = pairs.len() as f64;
    let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(0.5 + LEVEL / 2.0);
    let (tops, bottoms): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (top, bottom) = (mean(&tops), mean(&bottoms));
    if bottom == 0.0 {
        return None;
    }
    // t^2 times the covariance of two means.
    let spread = |a: &[f64], b: &[f64], of_a: f64, of_b: f64| {
        let products: f64 = a.iter().zip(b).map(|(x, y)| (x - of_a) * (y - of_b)).sum();
        t * t * products / (n - 1.0) / n
    };
    // The ends are the roots of a r^2 - 2 b r + c.
    let a = bottom * bottom - spread(&bottoms, &bottoms, bottom, bottom);
    let b = top * bottom - spread(&tops, &bottoms, top, bottom);
    let c = top * top - spread(&tops, &tops, top, top);
    let root = (b * b - a * c).max(0.0).sqrt();
    let interval =
        (a > 0.0).then(|| Interval { low: (b - root) / a, high: (b + root) / a, level: LEVEL });
    Some(Ratio { estimate: top / bottom, interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_are_those_of_the_published_table() {
        // Conover, Practical Nonparametric Statistics 1999, table A3 (binomial, p = 0.5): k and level of a 95 % interval.
        for (n, k, level) in [
            (3, 1, 0.75),
            (5, 1, 0.9375),
            (6, 1, 0.96875),
            (7, 1, 0.984375),
            (9, 2, 0.9609375),
            (10, 2, 0.978515625),
            (20, 6, 0.958610534667968),
            (40, 14, 0.961522691),
        ] {
            let (found, exactly) = orders(n).unwrap();
            assert_eq!(found, k, "{n}");
            assert!((exactly - level).abs() < 1e-8, "{n}: {exactly}");
        }
        assert_eq!(orders(2), None);
    }

    #[test]
    fn seven_values_are_bounded_by_the_least_and_the_greatest() {
        let found = of_median(&[3.0, 1.0, 7.0, 2.0, 6.0, 5.0, 4.0]).unwrap();
        assert_eq!((found.low, found.high), (1.0, 7.0));
        assert!((found.level - 0.984375).abs() < 1e-12);
        assert_eq!(of_median(&[1.0, 2.0]), None);
        assert_eq!(of_median(&[1.0, 2.0, f64::NAN]), None);
        assert!(found.contains(1.0) && !found.contains(7.1));
    }

    #[test]
    fn fiellers_ends_are_where_students_test_is_at_its_level() {
        let pairs = [(2.1, 4.0), (1.7, 4.4), (2.4, 3.7), (1.9, 3.9), (2.2, 4.1)];
        let found = of_ratio(&pairs).unwrap();
        assert!((found.estimate - 10.3 / 20.1).abs() < 1e-12);
        let interval = found.interval.unwrap();
        for end in [interval.low, interval.high] {
            let rest: Vec<f64> = pairs.iter().map(|(top, bottom)| top - end * bottom).collect();
            let p = crate::paired::t_test(&rest).unwrap();
            assert!((p - 0.05).abs() < 1e-9, "{end}: {p}");
        }
        assert!(interval.contains(found.estimate));
    }

    #[test]
    fn a_denominator_that_may_be_nothing_has_no_bounded_interval() {
        let found = of_ratio(&[(1.0, 0.5), (1.1, -0.4), (0.9, 0.1)]).unwrap();
        assert_eq!(found.interval, None);
        assert_eq!(of_ratio(&[(1.0, 1.0)]), None);
        assert_eq!(of_ratio(&[(1.0, 1.0), (1.0, -1.0)]), None);
    }
}
