//! What a reader must know before believing the numbers.

use super::{Ceiling, Drift, Results, VsBaseline};
use crate::report::words::quantity;
use crate::spec::Experiment;
use crate::stats::multiple::holm;
use crate::trial::Trial;

/// Warnings about the run as a whole.
pub(super) fn warnings(experiment: &Experiment, results: &Results) -> Vec<String> {
    let mut all = Vec::new();
    for cell in &results.cells {
        // Adjusted for all A/A pairs of the run: one in twenty differs by chance alone.
        let differs = |vs: &&VsBaseline| vs.same && vs.verdict.differs();
        if let Some(vs) = cell.vs_baseline.as_ref().filter(differs) {
            all.push(format!(
                "A/A: the same mechanism measured twice differs in {} ({}): ratio {:.3}. The \
                 machine was not steady; trust no difference of that size.",
                quantity(cell.metric, cell.point.as_ref()),
                cell.condition.label(),
                vs.ratio
            ));
        }
    }
    all.extend(drifts(experiment, results));
    all.extend(uncalibrated(results));
    let busy = results.environment.load_average;
    if busy > 0.5 * results.environment.processors as f64 {
        all.push(format!(
            "The load average was {busy:.1} on {} processors when the run began: other work \
             disturbed it.",
            results.environment.processors
        ));
    }
    all
}

/// Quantities of the sentinel that went up or down over the run by more than the margin.
fn drifts(experiment: &Experiment, results: &Results) -> Vec<String> {
    let tested: Vec<(&Drift, f64)> =
        results.drift.iter().filter_map(|drift| Some((drift, drift.p?))).collect();
    let adjusted = holm(&tested.iter().map(|t| t.1).collect::<Vec<f64>>());
    let told = tested.into_iter().zip(adjusted).filter_map(|((drift, _), p)| {
        let steps = drift.values.len().saturating_sub(1) as f64;
        let whole = drift.per_block * steps;
        (p < experiment.alpha && whole.abs() > experiment.margin).then(|| {
            format!(
                "Drift: the sentinel's {} moved by {:+.1} % over the run ({:+.1} % per block).",
                quantity(drift.metric, drift.point.as_ref()),
                100.0 * whole,
                100.0 * drift.per_block
            )
        })
    });
    told.collect()
}

/// Metrics whose values cannot be held against the generator's ceiling, as it was not found.
fn uncalibrated(results: &Results) -> Vec<String> {
    let mut missing: Vec<&str> = results
        .cells
        .iter()
        .filter(|c| c.metric.has_ceiling() && c.n > 0)
        .filter(|c| {
            let of = |found: &&Ceiling| {
                (found.metric, &found.point) == (c.metric, &c.point)
                    && found.condition == c.condition
            };
            results.calibration.iter().find(of).is_none()
        })
        .map(|c| c.metric.name())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "The ceiling of the generator was not found for {}: it may have been the limit, unmarked.",
        missing.join(", ")
    )]
}

/// Says how many trials other programs disturbed, when it is more than a tenth of them.
pub(super) fn disturbed(trials: &[&Trial]) -> Option<String> {
    let timed: Vec<&&Trial> = trials.iter().filter(|t| t.cpu.is_some()).collect();
    let hit = timed
        .iter()
        .filter(|t| t.flags.iter().any(|f| f.starts_with(crate::trials::OTHER_WORK)))
        .count();
    (hit * 10 > timed.len()).then(|| {
        format!(
            "Other programs used the processors during {hit} of {} measurements: intervals are \
             wide and differences blurred. Run again on a quiet machine.",
            timed.len()
        )
    })
}
