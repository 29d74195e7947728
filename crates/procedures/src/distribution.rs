//! Distributions of delays, with the percentiles of RFC 2330 section 11.3.

use serde::{Deserialize, Serialize};

/// Values in ns with their counts, in rising order of values.
///
/// A trial of a minute has millions of delays, so a Tester may round them into bins; the values are then those of the bins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(i64, u64)>", into = "Vec<(i64, u64)>")]
pub struct Distribution {
    bins: Vec<(i64, u64)>,
}

impl From<Vec<(i64, u64)>> for Distribution {
    fn from(mut bins: Vec<(i64, u64)>) -> Self {
        bins.retain(|(_, count)| *count > 0);
        bins.sort_unstable();
        bins.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        Self { bins }
    }
}

impl From<Distribution> for Vec<(i64, u64)> {
    fn from(all: Distribution) -> Self {
        all.bins
    }
}

impl FromIterator<i64> for Distribution {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        values.into_iter().map(|value| (value, 1)).collect::<Vec<_>>().into()
    }
}

impl Distribution {
    /// Values with their counts, in rising order.
    pub fn bins(&self) -> &[(i64, u64)] {
        &self.bins
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.bins.iter().map(|(_, count)| count).sum()
    }

    /// Least value, ns.
    pub fn min(&self) -> Option<i64> {
        self.bins.first().map(|(value, _)| *value)
    }

    /// Greatest value, ns.
    pub fn max(&self) -> Option<i64> {
        self.bins.last().map(|(value, _)| *value)
    }

    /// The least value at which the empirical distribution function reaches `share` (0 to 1).
    pub fn percentile(&self, share: f64) -> Option<i64> {
        let rank = rank(share, self.count())?;
        self.at(rank)
    }

    /// The median: of an even number of values, the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let n = self.count();
        let (low, high) = (self.at(n.div_ceil(2))?, self.at(n / 2 + 1)?);
        Some((low as f64 + high as f64) / 2.0)
    }

    /// The value with a rank, from 1.
    fn at(&self, rank: u64) -> Option<i64> {
        let mut left = rank.checked_sub(1)?;
        for (value, count) in &self.bins {
            match left.checked_sub(*count) {
                Some(rest) => left = rest,
                None => return Some(*value),
            }
        }
        None
    }
}

/// The rank, from 1, of a percentile among `n` values (RFC 2330 section 11.3); `None` of nothing.
pub(crate) fn rank(share: f64, n: u64) -> Option<u64> {
    // The slack keeps binary fractions such as 0.999 times 1000 from the next rank.
    (n > 0).then(|| ((share.clamp(0.0, 1.0) * n as f64 - 1e-6).ceil() as u64).clamp(1, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_rfc_2330() {
        // The example of RFC 2330 section 11.3.
        let all: Distribution = [-2, 7, 7, 4, 18, -5].into_iter().collect();
        assert_eq!(all.percentile(0.5), Some(4));
        assert_eq!(all.percentile(0.25), Some(-2));
        assert_eq!((all.percentile(0.0), all.percentile(1.0)), (Some(-5), Some(18)));
        assert_eq!(all.median(), Some(5.5));
        assert_eq!((all.min(), all.max(), all.count()), (Some(-5), Some(18), 6));
    }

    #[test]
    fn the_999th_permille_leaves_one_value_of_a_thousand_beyond() {
        let all: Distribution = (1..=1000).collect();
        assert_eq!((all.percentile(0.999), all.percentile(0.99)), (Some(999), Some(990)));
        assert_eq!(all.median(), Some(500.5));
    }

    #[test]
    fn bins_are_merged_and_empty_ones_forgotten() {
        let all = Distribution::from(vec![(5, 1), (3, 2), (5, 4), (9, 0)]);
        assert_eq!(all.bins(), [(3, 2), (5, 5)]);
        assert_eq!(all.median(), Some(5.0));
    }

    #[test]
    fn nothing_has_no_percentile() {
        let none = Distribution::default();
        assert_eq!((none.percentile(0.5), none.median(), none.min()), (None, None, None));
    }
}
