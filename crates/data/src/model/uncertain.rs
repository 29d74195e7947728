//! Intervals of the model's results: a bootstrap over blocks, in which all cells of a run keep what they have in common.

use std::collections::{BTreeMap, BTreeSet};

use fordway_stats::describe::{median, quantile, sorted};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::inputs::{Source, Sources};
use super::options::Values;

/// Resamples.
pub(crate) const RESAMPLES: usize = 2000;
/// Fewest deployments behind every quantity: as for the interval of a median.
pub(crate) const FEWEST: usize = 6;

/// The quantities' medians.
pub(crate) fn medians(sources: &Sources) -> Values {
    let value = |source: &Source| median(&source.values.iter().map(|v| v.1).collect::<Vec<f64>>());
    sources.iter().map(|(quantity, source)| (*quantity, value(source))).collect()
}

/// The quantities' medians in resamples of the runs' blocks.
pub(crate) fn resample(sources: &Sources, seed: u64) -> Vec<Values> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut blocks: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for source in sources.values() {
        blocks.entry(source.run).or_default().extend(source.values.iter().map(|v| v.0));
    }
    let mut all = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut drawn: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (run, of) in &blocks {
            let of: Vec<u32> = of.iter().copied().collect();
            drawn.insert(*run, (0..of.len()).map(|_| of[rng.random_range(0..of.len())]).collect());
        }
        let value = |source: &Source| {
            let by_block: BTreeMap<u32, f64> = source.values.iter().copied().collect();
            let of: Vec<f64> =
                drawn[&source.run].iter().filter_map(|b| by_block.get(b).copied()).collect();
            (!of.is_empty()).then(|| median(&of))
        };
        // A resample without any value of a quantity says nothing of it.
        all.push(sources.iter().filter_map(|(q, source)| Some((*q, value(source)?))).collect());
    }
    all
}

/// The percentile interval of what `result` makes of the resamples. None where it needs a quantity with too few
/// deployments (`result` has no value without that quantity), or nothing measured at all.
pub(crate) fn interval(
    sources: &Sources,
    resamples: &[Values],
    result: impl Fn(&Values) -> Option<f64>,
) -> Option<[f64; 2]> {
    let values = medians(sources);
    result(&values)?;
    let mut measured = false;
    for (quantity, source) in sources {
        let mut without = values.clone();
        without.remove(quantity);
        if result(&without).is_none() {
            measured = true;
            if source.values.len() < FEWEST {
                return None;
            }
        }
    }
    if !measured {
        return None;
    }
    let found = sorted(&resamples.iter().filter_map(result).collect::<Vec<f64>>());
    (!found.is_empty()).then(|| [quantile(&found, 0.025), quantile(&found, 0.975)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::inputs::Quantity;
    use crate::spec::Metric;

    fn source(quantity: Quantity, run: usize, values: &[f64]) -> (Quantity, Source) {
        let values = (1..).zip(values.iter().copied()).collect();
        let source = Source {
            quantity,
            run,
            folder: String::new(),
            mechanism: String::new(),
            label: String::new(),
            metric: Metric::Rtt,
            condition: String::new(),
            made: "",
            values,
        };
        (quantity, source)
    }

    const NOISE: [f64; 8] = [1.0, 1.2, 0.9, 1.1, 1.3, 0.8, 1.05, 0.95];

    #[test]
    fn what_blocks_have_in_common_does_not_widen_a_difference() {
        let twice: Vec<f64> = NOISE.iter().map(|v| v + 1.0).collect();
        let spread = |runs: [usize; 2]| {
            let sources = Sources::from([
                source(Quantity::Nat44Traffic, runs[0], &NOISE),
                source(Quantity::Nat64Traffic, runs[1], &twice),
            ]);
            let all = resample(&sources, 1);
            let of = |v: &Values| {
                Some(v.get(&Quantity::Nat64Traffic)? - v.get(&Quantity::Nat44Traffic)?)
            };
            let [low, high] = interval(&sources, &all, of).unwrap();
            assert!(low <= 1.0 + 1e-9 && high >= 1.0 - 1e-9);
            high - low
        };
        assert!(spread([0, 0]) < 1e-9);
        assert!(spread([0, 1]) > 0.1);
    }

    #[test]
    fn too_few_deployments_give_no_interval_to_what_needs_them_alone() {
        let sources = Sources::from([
            source(Quantity::Nat44Traffic, 0, &NOISE),
            source(Quantity::Nat64Traffic, 0, &NOISE[..5]),
        ]);
        let all = resample(&sources, 1);
        let of = |q: Quantity| interval(&sources, &all, |v: &Values| v.get(&q).copied());
        assert!(of(Quantity::Nat44Traffic).is_some());
        assert_eq!(of(Quantity::Nat64Traffic), None);
        assert_eq!(of(Quantity::Dns64), None);
    }
}
