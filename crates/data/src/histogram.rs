//! Histograms of round-trip times, and their percentiles.

use crate::trial::Lack;

/// A percentile is given only with at least this many datagrams beyond it.
const BEYOND: f64 = 10.0;

/// A percentile in µs over all datagrams that were due. One without an answer is later than all
/// others, so that losses can't make a path look fast: where the percentile falls among them, there
/// is none. `p` from 0 to 1.
pub fn percentile(histogram: &[(u64, u64)], sent: u64, p: f64) -> std::result::Result<f64, Lack> {
    let beyond = sent as f64 * (1.0 - p);
    // The slack keeps 10,000 datagrams enough for P99.9 in spite of binary fractions.
    if p > 0.5 && beyond + 1e-6 < BEYOND {
        return Err(Lack::Unmeasured(format!("{sent} datagrams are too few for P{}", 100.0 * p)));
    }
    let rank = ((sent as f64 * p - 1e-6).ceil() as u64).max(1);
    let mut passed = 0;
    for (ns, count) in histogram {
        passed += count;
        if passed >= rank {
            return Ok(*ns as f64 / 1e3);
        }
    }
    let lost = sent - passed;
    Err(Lack::Failed(format!("{lost} of {sent} datagrams were lost: P{} has no value", 100.0 * p)))
}

/// Adds histograms up.
pub fn together<'a>(all: impl Iterator<Item = &'a [(u64, u64)]>) -> Vec<(u64, u64)> {
    let mut sums = std::collections::BTreeMap::new();
    for (ns, count) in all.flatten() {
        *sums.entry(*ns).or_insert(0) += count;
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 µs, 2 µs, ... one each.
    fn ramp(count: u64) -> Vec<(u64, u64)> {
        (1..=count).map(|i| (i * 1000, 1)).collect()
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let all = ramp(10_000);
        assert_eq!(percentile(&all, 10_000, 0.5), Ok(5000.0));
        assert_eq!(percentile(&all, 10_000, 0.99), Ok(9900.0));
        assert_eq!(percentile(&all, 10_000, 0.999), Ok(9990.0));
        assert_eq!(percentile(&[(7000, 3)], 3, 0.5), Ok(7.0));
    }

    #[test]
    fn lost_datagrams_are_later_than_all_others() {
        // 100 of 10,000 lost: the last 1 % has no value, and P98 moves to what would be P99 without.
        let all = ramp(9900);
        assert_eq!(percentile(&all, 10_000, 0.99), Ok(9900.0));
        let why = percentile(&all, 10_000, 0.999).unwrap_err();
        assert!(matches!(&why, Lack::Failed(w) if w.contains("100 of 10000 datagrams were lost")));
        assert!(percentile(&[], 10, 0.5).is_err());
    }

    #[test]
    fn a_percentile_needs_ten_datagrams_beyond_it() {
        assert!(percentile(&ramp(9_999), 9_999, 0.999).is_err());
        assert!(percentile(&ramp(999), 999, 0.99).is_err());
        assert!(percentile(&ramp(1000), 1000, 0.99).is_ok());
    }

    #[test]
    fn histograms_add_up() {
        let (a, b) = ([(10, 1), (20, 2)], [(20, 3), (30, 1)]);
        assert_eq!(together([&a[..], &b[..]].into_iter()), [(10, 1), (20, 5), (30, 1)]);
    }
}
