//! What a reader must know before believing the numbers.

use super::{Results, VsBaseline};
use crate::spec::Experiment;
use crate::stats::paired::{Verdict, t_test};
use crate::trial::Trial;

/// Warnings about the run as a whole.
pub(super) fn warnings(experiment: &Experiment, results: &Results) -> Vec<String> {
    let mut all = Vec::new();
    for cell in &results.cells {
        let differs = |vs: &&VsBaseline| {
            let shown = vs.p_t.is_some_and(|p| p < experiment.alpha);
            vs.same && shown && vs.verdict != Verdict::Equivalent
        };
        if let Some(vs) = cell.vs_baseline.as_ref().filter(differs) {
            all.push(format!(
                "A/A: the same mechanism measured twice differs in {} ({}): ratio {:.3}. The \
                 machine was not steady; trust no difference of that size.",
                cell.metric.name(),
                cell.condition.label(),
                vs.ratio
            ));
        }
    }
    for drift in &results.drift {
        let steps: Vec<f64> = drift.values.windows(2).map(|w| w[1].1 - w[0].1).collect();
        let all_one_way = steps.len() >= 4 && t_test(&steps).is_some_and(|p| p < 0.05);
        if all_one_way && drift.per_block.abs() > 0.01 {
            all.push(format!(
                "Drift: the sentinel's {} moved by {:+.1} % per block.",
                drift.metric.name(),
                100.0 * drift.per_block
            ));
        }
    }
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
