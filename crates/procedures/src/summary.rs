//! What repetitions of a test are reported by (RFC 8219 section 12, RFC 9693 section 6).

use fordway_stats::describe::{mean, median, sorted, stddev};
use fordway_stats::interval::{Interval, of_median};
use serde::{Deserialize, Serialize};

use crate::distribution::rank;

/// The values of all repetitions with the median as the summarising function, and percentiles of RFC 2330 section 11.3 as
/// measures of variation. Below 100 values the 1st and 99th percentile are the least and the greatest value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Every value, in the order of measurement.
    pub values: Vec<f64>,
    /// Median.
    pub median: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Average.
    pub average: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
    /// Standard deviation with n - 1; 0 of one value.
    pub stddev: f64,
    /// Interval of the median with its level; absent below three values.
    pub interval: Option<Interval>,
}

impl Repeated {
    /// Summarises repetitions; `None` of nothing.
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let sorted = sorted(&values);
        let at = |share| Some(sorted[rank(share, sorted.len() as u64)? as usize - 1]);
        Some(Self {
            median: median(&sorted),
            p1: at(0.01)?,
            p99: at(0.99)?,
            average: mean(&sorted),
            min: *sorted.first()?,
            max: *sorted.last()?,
            stddev: stddev(&sorted),
            interval: of_median(&sorted),
            values,
        })
    }

    /// Number of repetitions.
    pub fn n(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_repetitions_vary_from_the_least_to_the_greatest() {
        let all = Repeated::of((1..=20).rev().map(f64::from).collect()).unwrap();
        assert_eq!((all.n(), all.median, all.p1, all.p99), (20, 10.5, 1.0, 20.0));
        assert_eq!((all.values[0], all.average), (20.0, 10.5));
        let interval = all.interval.unwrap();
        assert!(interval.contains(10.5) && interval.level >= 0.95);
    }

    #[test]
    fn two_hundred_have_two_values_beyond_each_percentile() {
        let all = Repeated::of((1..=200).map(f64::from).collect()).unwrap();
        assert_eq!((all.p1, all.p99), (2.0, 198.0));
    }

    #[test]
    fn one_repetition_has_no_interval_and_none_no_summary() {
        let one = Repeated::of(vec![7.0]).unwrap();
        assert_eq!((one.median, one.stddev, one.interval), (7.0, 0.0, None));
        assert_eq!(Repeated::of(Vec::new()), None);
    }
}
