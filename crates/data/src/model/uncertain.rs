//! Intervals of the model's results: of the median of what each block alone gives, so that what all cells of a block have
//! in common stays in common.

use std::collections::{BTreeMap, BTreeSet};

use fordway_stats::describe::median;
use fordway_stats::interval::{Interval, of_median};

use super::inputs::{Quantity, Source, Sources};
use super::options::Values;

/// The quantities' medians.
pub(crate) fn medians(sources: &Sources) -> Values {
    let value = |source: &Source| median(&source.values.iter().map(|v| v.1).collect::<Vec<f64>>());
    sources.iter().map(|(quantity, source)| (*quantity, value(source))).collect()
}

/// The interval of what `result` makes of a block's values, by order statistics over the blocks. The blocks of one run that
/// have all quantities that the result needs (it has no value without them) are taken with the blocks of the others,
/// first with first. None below three such blocks, or where nothing measured is needed.
pub(crate) fn interval(
    sources: &Sources,
    result: impl Fn(&Values) -> Option<f64>,
) -> Option<Interval> {
    let values = medians(sources);
    result(&values)?;
    let needed = |quantity: &&Quantity| {
        let mut without = values.clone();
        without.remove(*quantity);
        result(&without).is_none()
    };
    let needed: Vec<&Quantity> = sources.keys().filter(needed).collect();
    let mut by_run: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for quantity in &needed {
        let own: BTreeSet<u32> = sources[quantity].values.iter().map(|v| v.0).collect();
        let common = by_run.entry(sources[quantity].run).or_insert_with(|| own.clone());
        common.retain(|block| own.contains(block));
    }
    let blocks = by_run.values().map(BTreeSet::len).min()?;
    let of_block = |place: usize| {
        let mut here = values.clone();
        for quantity in &needed {
            let source = &sources[quantity];
            let block = by_run[&source.run].iter().nth(place)?;
            let (_, value) = source.values.iter().find(|v| v.0 == *block)?;
            here.insert(**quantity, *value);
        }
        result(&here)
    };
    of_median(&(0..blocks).map(of_block).collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let spread = |runs: [usize; 2], base: &[f64]| {
            let sources = Sources::from([
                source(Quantity::Nat44Traffic, runs[0], base),
                source(Quantity::Nat64Traffic, runs[1], &twice),
            ]);
            let of = |v: &Values| {
                Some(v.get(&Quantity::Nat64Traffic)? - v.get(&Quantity::Nat44Traffic)?)
            };
            let found = interval(&sources, of).unwrap();
            assert!(found.low <= 1.0 + 1e-9 && found.high >= 1.0 - 1e-9);
            found.high - found.low
        };
        assert!(spread([0, 0], &NOISE) < 1e-9);
        let mut turned = NOISE;
        turned.reverse();
        assert!(spread([0, 1], &turned) > 0.1);
    }

    #[test]
    fn too_few_deployments_give_no_interval_to_what_needs_them_alone() {
        let sources = Sources::from([
            source(Quantity::Nat44Traffic, 0, &NOISE),
            source(Quantity::Nat64Traffic, 0, &NOISE[..2]),
        ]);
        let of = |q: Quantity| interval(&sources, |v: &Values| v.get(&q).copied());
        assert!(of(Quantity::Nat44Traffic).is_some());
        assert_eq!(of(Quantity::Nat64Traffic), None);
        assert_eq!(of(Quantity::Dns64), None);
    }
}
