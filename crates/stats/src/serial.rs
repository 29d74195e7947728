//! Values that follow each other in time: how much they depend on each other, and what they are worth in a test.

use super::describe::mean;

/// Fewest blocks worth a test.
const FEWEST_BLOCKS: usize = 2;

/// Most blocks: every pair of them is looked at.
const MOST_BLOCKS: usize = 1000;
/// Longest series whose every lag is looked at; of a longer one the means of neighbours are.
const LONGEST: usize = 20_000;

/// Autocorrelation at a lag; 0 of a series without spread.
pub fn autocorrelation(values: &[f64], lag: usize) -> f64 {
    let centre = mean(values);
    let square: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    if square <= 0.0 || lag >= values.len() {
        return 0.0;
    }
    let product: f64 =
        values.iter().zip(&values[lag..]).map(|(a, b)| (a - centre) * (b - centre)).sum();
    product / square
}

/// As many independent values as these are worth for the mean; n at most, and 1 at least. Of a very long series it is
/// that of means of neighbours, which is less.
///
/// It is the lesser of two estimates, because each is too high where the other is not: n / (1 + 2 (r1 + r2 + ...)), summed
/// over pairs of lags as long as a pair's sum is positive (Geyer's initial positive sequence, 1992); and n (1 - r) / (1 + r)
/// of a first-order process whose r is r1 without its bias of -(1 + 4 r) / n (Marriott and Pope 1954), which decides in
/// short series.
pub fn effective(values: &[f64]) -> f64 {
    if values.len() > LONGEST {
        let coarse: Vec<f64> = values.chunks(values.len().div_ceil(LONGEST)).map(mean).collect();
        return effective(&coarse);
    }
    let n = values.len() as f64;
    let neighbours = autocorrelation(values, 1);
    if neighbours == 0.0 {
        return n;
    }
    // Estimates at lags of a large part of the series are noise.
    let far = values.len() / 4;
    let mut sum = neighbours;
    let mut lag = 2;
    while lag < far {
        let pair = autocorrelation(values, lag) + autocorrelation(values, lag + 1);
        if pair <= 0.0 {
            break;
        }
        sum += pair;
        lag += 2;
    }
    let by_lags = n / (1.0 + 2.0 * sum.max(0.0));
    let unbiased = (neighbours + (1.0 + 4.0 * neighbours) / n).clamp(0.0, 1.0);
    let first_order = n * (1.0 - unbiased) / (1.0 + unbiased);
    by_lags.min(first_order).clamp(1.0f64.min(n), n)
}

/// Means of as many blocks of neighbours as the series is worth values; the rest at the end, shorter than a block,
/// belongs to none. They still depend on each other a little: for drawings, not for tests.
pub fn block_means(values: &[f64]) -> Vec<f64> {
    let blocks = (effective(values).floor() as usize).clamp(FEWEST_BLOCKS, MOST_BLOCKS);
    let length = values.len().div_ceil(blocks).min(values.len() / FEWEST_BLOCKS).max(1);
    values.chunks_exact(length).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_as_r_correlates_it() {
        // acf(1:10): 0.700, 0.412, 0.148, -0.079.
        let line: Vec<f64> = (1..=10).map(f64::from).collect();
        for (lag, want) in [(1, 0.700), (2, 0.412), (3, 0.148), (4, -0.079)] {
            assert!((autocorrelation(&line, lag) - want).abs() < 6e-4, "{lag}");
        }
        assert_eq!(autocorrelation(&[3.0; 5], 1), 0.0);
        assert_eq!(autocorrelation(&line, 10), 0.0);
    }

    #[test]
    fn a_first_order_process_is_worth_what_theory_says() {
        // x(t) = 0.8 x(t-1) + e: n (1 - 0.8) / (1 + 0.8) = n / 9 (Wilks, Statistical Methods in the Atmospheric
        // Sciences, section 5.2.4). The noise is a fixed sequence of a linear congruential generator.
        let (mut state, mut x) = (1u64, 0.0);
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        let noise: Vec<f64> = (0..9000).map(|_| next()).collect();
        let series: Vec<f64> = noise
            .iter()
            .map(|e| {
                x = 0.8 * x + e;
                x
            })
            .collect();
        let worth = effective(&series);
        assert!((700.0..1400.0).contains(&worth), "{worth}");
        assert!(effective(&noise) > 7000.0);
        let blocks = block_means(&series);
        assert!(blocks.len() as f64 <= worth && autocorrelation(&blocks, 1) < 0.4);
    }

    #[test]
    fn short_series_and_constant_ones_have_blocks() {
        assert_eq!(effective(&[]), 0.0);
        assert_eq!(effective(&[1.0, 1.0]), 2.0);
        assert_eq!(block_means(&[1.0, 2.0, 3.0, 4.0, 5.0]), [1.5, 3.5]);
        assert!(block_means(&[]).is_empty());
        let weeks: Vec<f64> = (0..120_000).map(|i: u64| (i * 7919 % 101) as f64).collect();
        assert!(effective(&weeks) <= 20_000.0);
        assert!((900..=1000).contains(&block_means(&weeks).len()));
    }
}
