//! Agreement of two orders.

/// Kendall's tau-b, which allows for ties; `None` when one side has no two values that differ.
pub fn kendall(points: &[(f64, f64)]) -> Option<f64> {
    let (mut sum, mut left, mut right) = (0i64, 0i64, 0i64);
    for (number, a) in points.iter().enumerate() {
        for b in &points[number + 1..] {
            let sign = |x: f64, y: f64| i64::from(x > y) - i64::from(x < y);
            let (x, y) = (sign(a.0, b.0), sign(a.1, b.1));
            sum += x * y;
            left += x * x;
            right += y * y;
        }
    }
    (left > 0 && right > 0).then(|| sum as f64 / ((left * right) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuna_as_r_correlates_it() {
        // Hollander and Wolfe 1973, page 187, as in help(cor.test): T = 26, tau = 0.4444444.
        let x = [44.4, 45.9, 41.9, 53.3, 44.7, 44.1, 50.7, 45.2, 60.1];
        let y = [2.6, 3.1, 2.5, 5.0, 3.6, 4.0, 5.2, 2.8, 3.8];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        assert!((kendall(&points).unwrap() - 0.4444444).abs() < 1e-6);
    }

    #[test]
    fn ties_as_scipy_counts_them() {
        // The example of scipy.stats.kendalltau: -0.47140452079103173.
        let points = [(12.0, 1.0), (2.0, 4.0), (1.0, 7.0), (12.0, 1.0), (2.0, 0.0)];
        assert!((kendall(&points).unwrap() + 0.471_404_520_791_031_73).abs() < 1e-12);
        assert_eq!(kendall(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(kendall(&[]), None);
    }
}
