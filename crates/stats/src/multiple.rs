//! Several tests at once.

/// Holm's step-down adjustment (Holm 1979); the order of the input is kept.
pub fn holm(p: &[f64]) -> Vec<f64> {
    step_down(p, p.len())
}

/// Holm's adjustment of hypotheses of which at most `most` can be true together (Shaffer 1986).
fn step_down(p: &[f64], most: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut least = 0.0f64;
    for (rank, index) in order.into_iter().enumerate() {
        least = least.max(p[index] * (p.len() - rank).min(most) as f64).min(1.0);
        adjusted[index] = least;
    }
    adjusted
}

/// The two p values of one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tests {
    /// Of the hypothesis that there is no difference.
    pub difference: Option<f64>,
    /// Of the hypothesis that the difference is at least the margin.
    pub equivalence: Option<f64>,
}

/// Adjusts both tests of all comparisons of a family together, so that the probability of any false verdict, be it
/// better, worse or equivalent, is alpha at most.
///
/// A difference cannot be nothing and reach the margin, so at most one of a comparison's two hypotheses is true: the
/// factors begin with the number of comparisons, not of tests.
pub fn family(tests: &[Tests]) -> Vec<Tests> {
    let raw: Vec<f64> =
        tests.iter().flat_map(|t| [t.difference, t.equivalence]).flatten().collect();
    let most = tests.iter().filter(|t| t.difference.or(t.equivalence).is_some()).count();
    let mut adjusted = step_down(&raw, most).into_iter();
    let mut next = |p: Option<f64>| p.and_then(|_| adjusted.next());
    tests
        .iter()
        .map(|t| {
            let difference = next(t.difference);
            Tests { difference, equivalence: next(t.equivalence) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_textbook_example_of_four_tests() {
        // The worked example of "Holm-Bonferroni method", Wikipedia: 0.01, 0.04, 0.03, 0.005.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, want) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - want).abs() < 1e-12, "{got} {want}");
        }
    }

    #[test]
    fn nothing_exceeds_one_and_one_test_is_not_adjusted() {
        assert_eq!(holm(&[0.7, 0.9]), [1.0, 1.0]);
        assert_eq!(holm(&[0.2]), [0.2]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn a_familys_factors_are_numbers_of_comparisons() {
        let of = |difference, equivalence| Tests { difference, equivalence };
        // Ordered: 0.001 (times 2), 0.02 (times 2), 0.3 (times 2), 0.9 (times 1).
        let found =
            family(&[of(Some(0.001), Some(0.9)), of(Some(0.3), Some(0.02)), of(None, None)]);
        let want = [(0.002, 0.9), (0.6, 0.04)];
        for (got, (difference, equivalence)) in found.iter().zip(want) {
            assert!((got.difference.unwrap() - difference).abs() < 1e-12, "{got:?}");
            assert!((got.equivalence.unwrap() - equivalence).abs() < 1e-12, "{got:?}");
        }
        assert_eq!(found[2], Tests::default());
        assert_eq!(family(&[of(Some(0.04), None)]), [of(Some(0.04), None)]);
    }
}
