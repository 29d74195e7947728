//! What a number of blocks can show: power of the paired t test, and of the two one-sided tests for equivalence.
//!
//! Exact for normal logarithms: the noncentral t distribution as an integral over the estimated standard
//! deviation, which is distributed as a chi with the test's degrees of freedom.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::gamma::ln_gamma;

/// Power that is asked for.
pub const POWER: f64 = 0.8;
/// More blocks than this nobody runs.
pub const MOST_BLOCKS: u32 = 1000;
/// Steps of the integral (Simpson's rule).
const STEPS: u32 = 400;

/// Mean of a function of the ratio of the estimated to the true standard deviation.
fn over_deviation(df: f64, of: impl Fn(f64) -> f64) -> f64 {
    let scale = (0.5 * df * (0.5 * df).ln() - ln_gamma(0.5 * df)) + 2f64.ln();
    let density = |s: f64| match s > 0.0 {
        true => (scale + (df - 1.0) * s.ln() - 0.5 * df * s * s).exp(),
        // Of one degree of freedom it is half a normal curve, of more it begins at nothing.
        false => {
            if df > 1.0 {
                0.0
            } else {
                scale.exp()
            }
        }
    };
    let end = 1.0 + 12.0 / (2.0 * df).sqrt();
    let step = end / f64::from(STEPS);
    let weighed = |number: u32| {
        let weight = match number {
            0 | STEPS => 1.0,
            odd if odd % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let s = f64::from(number) * step;
        weight * density(s) * of(s)
    };
    (0..=STEPS).map(weighed).sum::<f64>() * step / 3.0
}

fn quantile(df: f64, p: f64) -> Option<f64> {
    StudentsT::new(0.0, 1.0, df).ok().map(|t| t.inverse_cdf(p))
}

/// Power of a two-sided t test whose true mean is so many standard errors from 0.
fn power_of_t(df: f64, effect: f64, alpha: f64) -> Option<f64> {
    let t = quantile(df, 1.0 - alpha / 2.0)?;
    let normal = Normal::standard();
    Some(over_deviation(df, |s| normal.cdf(effect - t * s) + normal.cdf(-effect - t * s)))
}

/// Power of two one-sided t tests when the true mean is 0 and the margins are so many standard errors off.
fn power_of_equivalence(df: f64, low: f64, high: f64, alpha: f64) -> Option<f64> {
    let t = quantile(df, 1.0 - alpha)?;
    let normal = Normal::standard();
    let inside = |s: f64| (normal.cdf(high - t * s) - normal.cdf(low + t * s)).max(0.0);
    Some(over_deviation(df, inside))
}

/// Probabilities of a comparison's verdicts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chance {
    /// Of better or worse.
    pub different: f64,
    /// Of equivalent.
    pub equivalent: f64,
}

impl Chance {
    /// Probability of any verdict but unresolved.
    pub fn decided(self) -> f64 {
        self.different + self.equivalent
    }
}

/// What so many blocks say of a true ratio, by the rule of [`super::paired::verdict`] with both tests at `alpha`, when the
/// logarithm of one block's ratio has this standard deviation. `None` below the blocks that a verdict takes.
///
/// In a family of m comparisons, alpha / m gives the probability by the first step of Holm's rule: the least that the
/// whole rule has.
pub fn chance(blocks: u32, deviation: f64, ratio: f64, margin: f64, alpha: f64) -> Option<Chance> {
    if blocks < super::paired::MIN_PAIRS as u32 {
        return None;
    }
    let df = f64::from(blocks - 1);
    // A spread of exactly 0 would make every difference infinitely many standard errors.
    let error = deviation.max(1e-9) / f64::from(blocks).sqrt();
    let [centre, low, high] = [ratio, 1.0 - margin, 1.0 + margin].map(|r| r.ln() / error);
    let (two, one) = (quantile(df, 1.0 - alpha / 2.0)?, quantile(df, 1.0 - alpha)?);
    let normal = Normal::standard();
    let between = |from: f64, to: f64| match from < to {
        true => normal.cdf(to - centre) - normal.cdf(from - centre),
        false => 0.0,
    };
    // The mean in standard errors, given the estimated deviation: where it is equivalent, and where it differs besides.
    let inside = |s: f64| (low + one * s, high - one * s);
    let equivalent = over_deviation(df, |s| between(inside(s).0, inside(s).1));
    let different = over_deviation(df, |s| {
        let (from, to) = inside(s);
        let all = between(f64::NEG_INFINITY, -two * s) + between(two * s, f64::INFINITY);
        all - between(from, to.min(-two * s)) - between(from.max(two * s), to)
    });
    Some(Chance { different, equivalent })
}

/// Blocks with which a true ratio gets a verdict with power 0.8. `None`: more than a thousand.
pub fn blocks_to_decide(deviation: f64, ratio: f64, margin: f64, alpha: f64) -> Option<u32> {
    first(|blocks| {
        chance(blocks, deviation, ratio, margin, alpha).is_some_and(|c| c.decided() >= POWER)
    })
}

/// Standard deviation of the logarithm of one block's ratio, when each of both values has this coefficient of
/// variation.
pub fn deviation_of_ratio(cv: f64) -> f64 {
    (2.0 * (1.0 + cv * cv).ln()).sqrt()
}

/// The coefficient of variation of each of both values, from the standard deviation of the ratio's logarithm.
pub fn cv_of_ratio(deviation: f64) -> f64 {
    ((0.5 * deviation * deviation).exp() - 1.0).sqrt()
}

/// The least difference that so many blocks show with power 0.8: 0.04 is a ratio of 1.04, or of 1 / 1.04. `None` below
/// two blocks.
pub fn least_difference(blocks: u32, deviation: f64, alpha: f64) -> Option<f64> {
    let df = f64::from(blocks.checked_sub(1).filter(|df| *df > 0)?);
    let (mut low, mut high) = (0.0, 4.0);
    while power_of_t(df, high, alpha)? < POWER {
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if power_of_t(df, middle, alpha)? < POWER { low = middle } else { high = middle }
    }
    Some((high * deviation / f64::from(blocks).sqrt()).exp() - 1.0)
}

/// Blocks that show with power 0.8 that two equal mechanisms differ by less than the margin. `None`: more than a
/// thousand.
pub fn blocks_for_equivalence(deviation: f64, margin: f64, alpha: f64) -> Option<u32> {
    let enough = |blocks: u32| {
        let error = deviation / f64::from(blocks).sqrt();
        let (low, high) = ((1.0 - margin).ln() / error, (1.0 + margin).ln() / error);
        let power = power_of_equivalence(f64::from(blocks - 1), low, high, alpha);
        power.is_some_and(|power| power >= POWER)
    };
    first(enough)
}

/// Blocks that show a difference of this size with power 0.8. `None`: more than a thousand.
pub fn blocks_for_difference(deviation: f64, difference: f64, alpha: f64) -> Option<u32> {
    first(|blocks| {
        let effect = (1.0 + difference).ln() * f64::from(blocks).sqrt() / deviation;
        power_of_t(f64::from(blocks - 1), effect, alpha).is_some_and(|power| power >= POWER)
    })
}

/// The least number of blocks, from three on, that is enough.
fn first(enough: impl Fn(u32) -> bool) -> Option<u32> {
    let least = super::paired::MIN_PAIRS as u32;
    let mut high = least;
    while !enough(high) {
        high *= 2;
        if high > MOST_BLOCKS {
            return None;
        }
    }
    let mut low = high / 2;
    while high > least && low + 1 < high {
        let middle = low.midpoint(high);
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R's manual of power.t.test, and that of its package pwr: the examples' output.
    #[test]
    fn power_of_the_t_test_is_the_published_one() {
        // power.t.test(n = 20, delta = 1, sd = 1): two samples, so 38 degrees of freedom.
        let two = power_of_t(38.0, 1.0 / (2.0f64 / 20.0).sqrt(), 0.05).unwrap();
        assert!((two - 0.868_952_8).abs() < 1e-6, "{two}");
        // pwr.t.test(d = 0.2, n = 60, sig.level = 0.10, type = "one.sample")
        let one = power_of_t(59.0, 0.2 * 60f64.sqrt(), 0.10).unwrap();
        assert!((one - 0.455_581_8).abs() < 1e-6, "{one}");
        // Cohen 1988, table 2.3.5, and every table since: a medium effect takes 34 pairs.
        let pairs = |n: f64| power_of_t(n - 1.0, 0.5 * n.sqrt(), 0.05).unwrap();
        assert!(pairs(33.0) < 0.8 && pairs(34.0) >= 0.8);
    }

    /// Diletti, Hauschke, Steinijans: Sample size determination for bioequivalence assessment by means of
    /// confidence intervals, Int J Clin Pharmacol Ther Toxicol 1991, table 1: 80 % power, limits 0.80 to 1.25, true ratio 1.
    #[test]
    fn sample_sizes_for_equivalence_are_those_of_the_published_table() {
        for (cv, published) in [
            (0.125, 8),
            (0.15, 10),
            (0.175, 14),
            (0.20, 16),
            (0.225, 20),
            (0.25, 24),
            (0.275, 28),
            (0.30, 32),
        ] {
            let deviation = deviation_of_ratio(cv);
            // A crossover of two sequences has one degree of freedom less than pairs, and even numbers.
            let enough = |n: &u32| {
                let error = deviation / f64::from(*n).sqrt();
                let (low, high) = (0.8f64.ln() / error, 1.25f64.ln() / error);
                power_of_equivalence(f64::from(*n) - 2.0, low, high, 0.05).unwrap() >= 0.8
            };
            let found = (4..100).step_by(2).find(enough).unwrap();
            assert_eq!(found, published, "coefficient of variation {cv}");
        }
    }

    #[test]
    fn answers_fit_each_other() {
        let deviation = deviation_of_ratio(0.03);
        let least = least_difference(12, deviation, 0.05).unwrap();
        assert_eq!(blocks_for_difference(deviation, least * 1.0001, 0.05), Some(12));
        assert!(least_difference(24, deviation, 0.05).unwrap() < least);
        assert!(least_difference(12, deviation, 0.01).unwrap() > least);
        assert!((cv_of_ratio(deviation) - 0.03).abs() < 1e-12);
        assert_eq!(least_difference(1, deviation, 0.05), None);
        assert_eq!(blocks_for_equivalence(deviation_of_ratio(2.0), 0.001, 0.05), None);
        assert_eq!(blocks_for_equivalence(deviation_of_ratio(0.0001), 0.03, 0.05), Some(3));
    }
}
