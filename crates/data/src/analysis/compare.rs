//! Comparison of every cell with its base.

use std::collections::BTreeMap;

use fordway_stats::multiple::{Tests, family};
use fordway_stats::paired::{Comparison, compare};

use super::{Results, VsBaseline, pairs};
use crate::spec::{Experiment, Metric};
use crate::trial::Condition;

/// Fills in the comparisons of cells that are valid. Holm's family is both tests of all comparisons of one condition; its
/// A/A pairs are a family of their own, and so is a metric that is measured at many points.
pub(super) fn compare_all(experiment: &Experiment, results: &mut Results) {
    let mut found: Vec<(usize, String, Comparison, bool)> = Vec::new();
    for (index, own) in results.cells.iter().enumerate() {
        let Ok(spec) = experiment.mechanism(&own.mechanism) else { continue };
        let Some(base_name) = &spec.base else { continue };
        let Some(base) = results.cell_at(base_name, own.metric, &own.condition, own.point.as_ref())
        else {
            continue;
        };
        // A mechanism that changes what it carries has no share of anything.
        if !(own.valid && base.valid) {
            continue;
        }
        if let Some(c) = compare(&pairs(own, base), experiment.margin) {
            found.push((index, base_name.clone(), c, spec.same_as.is_some()));
        }
    }
    let mut families: BTreeMap<(Condition, bool, Option<Metric>), Vec<usize>> = BTreeMap::new();
    for (place, (index, _, _, same)) in found.iter().enumerate() {
        let cell = &results.cells[*index];
        let own = cell.point.is_some().then_some(cell.metric);
        families.entry((cell.condition.clone(), *same, own)).or_default().push(place);
    }
    let mut adjusted = vec![(Tests::default(), 0); found.len()];
    for places in families.values() {
        let raw: Vec<Tests> = places.iter().map(|place| found[*place].2.tests()).collect();
        for (place, tests) in places.iter().zip(family(&raw)) {
            adjusted[*place] = (tests, places.len());
        }
    }
    for ((index, base, c, same), (adjusted, family)) in found.into_iter().zip(adjusted) {
        let higher = results.cells[index].metric.higher_is_better();
        results.cells[index].vs_baseline = Some(VsBaseline {
            base,
            ratio: c.ratio,
            deviation: c.deviation,
            ci95: c.ratio_ci.map(|(lo, hi)| [lo, hi]),
            p: adjusted.difference,
            verdict: c.verdict(adjusted, experiment.alpha, higher),
            n: c.n,
            p_t: c.p_t,
            p_wilcoxon: c.p_wilcoxon,
            p_equivalence: c.p_equivalence,
            p_equivalence_adjusted: adjusted.equivalence,
            family,
            shift: c.shift,
            cliffs_delta: c.delta,
            same,
        });
    }
}
