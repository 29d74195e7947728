//! Whether a quantity rises or falls over a run.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::describe::mean;

/// A straight line through points, by least squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Rise per step of the first coordinate.
    pub slope: f64,
    /// Two-sided p of Student's test that the slope is 0; `None` below four points.
    pub p: Option<f64>,
}

/// The trend of points; `None` when all stand at one place.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x, y) = (mean(&x), mean(&y));
    let wide: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    if wide <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / wide;
    let rest: f64 = points.iter().map(|p| (p.1 - y - slope * (p.0 - x)).powi(2)).sum();
    let freedom = points.len().saturating_sub(2) as f64;
    let p = || {
        let error = (rest / freedom / wide).sqrt();
        if error == 0.0 {
            return Some(if slope == 0.0 { 1.0 } else { 0.0 });
        }
        Some(2.0 * StudentsT::new(0.0, 1.0, freedom).ok()?.sf((slope / error).abs()))
    };
    Some(Trend { slope, p: if points.len() < 4 { None } else { p() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_set_of_anscombes_quartet() {
        // Anscombe 1973: slope 0.5001, t = 4.24 with 9 degrees of freedom; p = 0.00217.
        let points = [
            (10.0, 8.04),
            (8.0, 6.95),
            (13.0, 7.58),
            (9.0, 8.81),
            (11.0, 8.33),
            (14.0, 9.96),
            (6.0, 7.24),
            (4.0, 4.26),
            (12.0, 10.84),
            (7.0, 4.82),
            (5.0, 5.68),
        ];
        let found = trend(&points).unwrap();
        assert!((found.slope - 0.5001).abs() < 5e-5, "{found:?}");
        assert!((found.p.unwrap() - 0.00217).abs() < 5e-6, "{found:?}");
    }

    #[test]
    fn few_points_have_no_p_and_one_place_has_no_trend() {
        assert_eq!(trend(&[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0)]).unwrap().p, None);
        assert_eq!(trend(&[(1.0, 2.0), (1.0, 4.0)]), None);
        assert_eq!(trend(&[]), None);
        let flat = trend(&[(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (4.0, 2.0)]).unwrap();
        assert_eq!((flat.slope, flat.p), (0.0, Some(1.0)));
    }
}
