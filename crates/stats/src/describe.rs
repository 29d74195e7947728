//! Description of a sample.

use serde::{Deserialize, Serialize};

/// A percentile is given only with at least this many values beyond it.
const BEYOND: f64 = 10.0;

/// The usual numbers of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Summary {
    /// Size.
    pub n: usize,
    /// Least value.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Middle value.
    pub median: f64,
    /// Greatest value.
    pub max: f64,
    /// Standard deviation with n - 1; 0 for one value.
    pub stddev: f64,
    /// 95th percentile, when at least ten values lie beyond it.
    pub p95: Option<f64>,
}

impl Summary {
    /// Describes a sample; `None` when it is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            n: sorted.len(),
            min: first,
            mean: mean(&sorted),
            median: quantile(&sorted, 0.5),
            max: last,
            stddev: stddev(&sorted),
            p95: percentile(&sorted, 0.95),
        })
    }
}

/// A sorted copy.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation with n - 1.
pub fn stddev(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Median of an unsorted sample.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// Mean of the middle half of an unsorted sample: as robust as the median, and finer than the steps in
/// which the values were read. `None` of nothing.
pub fn midmean(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let quarter = sorted.len() / 4;
    let middle = &sorted[quarter..sorted.len() - quarter];
    (!middle.is_empty()).then(|| mean(middle))
}

/// Quantile of a sorted sample by linear interpolation (Hyndman and Fan 1996, type 7).
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

/// A percentile of a sorted sample, unless too few values lie beyond it.
pub fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    // The small slack keeps 200 values enough for P95 in spite of binary fractions.
    (sorted.len() as f64 * (1.0 - p) + 1e-9 >= BEYOND).then(|| quantile(sorted, p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_of_a_known_sample() {
        // Worked by hand: mean 5, sum of squares 32.
        let s = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((s.n, s.min, s.max, s.mean, s.median), (8, 2.0, 9.0, 5.0, 4.5));
        assert!((s.stddev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(s.p95, None);
    }

    #[test]
    fn quantiles_are_those_of_type_7() {
        let v: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!((quantile(&v, 0.25) - 3.25).abs() < 1e-12);
        assert!((quantile(&v, 0.95) - 9.55).abs() < 1e-12);
    }

    #[test]
    fn a_percentile_needs_ten_values_beyond_it() {
        let v: Vec<f64> = (0..199).map(f64::from).collect();
        assert_eq!(percentile(&v, 0.95), None);
        let v: Vec<f64> = (0..200).map(f64::from).collect();
        assert!(percentile(&v, 0.95).is_some());
    }

    #[test]
    fn the_midmean_forgets_both_ends() {
        assert_eq!(midmean(&[100.0, 2.0, 4.0, -50.0]), Some(3.0));
        assert_eq!(midmean(&[0.019, 0.019, 0.020, 0.020, 0.020, 9.0, 0.001, 0.019]), Some(0.0195));
        assert_eq!((midmean(&[7.0]), midmean(&[])), (Some(7.0), None));
    }

    #[test]
    fn nothing_has_no_description() {
        assert_eq!(Summary::of(&[]), None);
    }
}
