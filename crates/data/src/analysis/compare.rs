//! Comparison of every cell with its base.

use std::collections::BTreeMap;

use fordway_stats::multiple::{Tests, family};
use fordway_stats::outcomes::{Outcome, Paired};
use fordway_stats::paired::Verdict;

use super::{Results, VsBaseline, outcomes};
use crate::spec::{Experiment, Metric};
use crate::trial::Condition;

/// Fills in the comparisons of cells that are valid. Holm's family is both tests of all comparisons of one condition; its
/// A/A pairs are a family of their own, and so is a metric that is measured at many points.
pub(super) fn compare_all(experiment: &Experiment, results: &mut Results) {
    let mut found: Vec<(usize, String, Paired, bool)> = Vec::new();
    let mut undecided = Vec::new();
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
        // Only counts of an experiment's own metrics can be 0.
        if own.values.iter().chain(&base.values).any(|(_, value)| *value <= 0.0) {
            undecided.push((index, "a value is 0: no ratio"));
            continue;
        }
        let (mut pairs, same) = (outcomes(own, base), spec.same_as.is_some());
        if spec.cost_percent.is_some() {
            // A known cost comes after the generator, which limits both alike: it hides nothing of the ratio.
            let known = |it: Outcome| it.value().map_or(it, Outcome::Value);
            pairs = pairs.into_iter().map(|(a, b)| (known(a), known(b))).collect();
        }
        match Paired::of(&pairs, experiment.margin, own.metric.higher_is_better()) {
            Some(c) if c.bounds == [true, true] && !same => {
                undecided.push((index, "the generator limited both: no ratio"));
            }
            Some(c) => found.push((index, base_name.clone(), c, same)),
            None => undecided.push((index, "in no block did both have a value: no ratio")),
        }
    }
    for (index, why) in undecided {
        results.cells[index].undecided = Some(why.to_owned());
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
    for ((index, base, paired, same), (adjusted, family)) in found.into_iter().zip(adjusted) {
        let c = paired.comparison;
        // Equal mechanisms have equal limits: that they differ shows how unsteady the machine is, also at a bound.
        let verdict = match (same, paired.bounds, paired.failed) {
            (true, [true, true], [0, 0]) => {
                let higher = results.cells[index].metric.higher_is_better();
                Some(c.verdict(adjusted, experiment.alpha, higher)).filter(|found| found.differs())
            }
            _ => Some(paired.verdict(adjusted, experiment.alpha)),
        };
        results.cells[index].vs_baseline = Some(VsBaseline {
            base,
            ratio: c.ratio,
            deviation: c.deviation,
            ci95: c.ratio_ci.map(|(lo, hi)| [lo, hi]),
            p: adjusted.difference,
            verdict: verdict.unwrap_or(Verdict::Unresolved),
            n: c.n,
            of: paired.of,
            failed: paired.failed,
            bound: paired.bound(),
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
