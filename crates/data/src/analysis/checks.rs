//! What a reader must know before believing the numbers.

use fordway_stats::multiple::holm;

use super::{Cell, Drift, Results, VsBaseline};
use crate::environment::Environment;
use crate::spec::{Experiment, METHOD, MechanismSpec, quantity};
use crate::trial::FLAG_OTHER;
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
    all.extend(controls(experiment, results));
    if experiment.run.as_ref().is_some_and(|run| run.method < METHOD) {
        all.push(
            "Measured by method 1: conditions and loads in a fixed order, the generator's ceiling once for the run, \
             processor time per packet under a flood and divided by what arrived, and no trial in which a mechanism \
             failed."
                .into(),
        );
    }
    all.extend(drifts(experiment, results));
    all.extend(uncalibrated(experiment, results));
    all.extend(busy(&results.environment));
    all.extend(moved(&results.environment));
    all
}

/// Known costs that the run measured as other ones: rates whose interval does not contain what was injected.
fn controls(experiment: &Experiment, results: &Results) -> Vec<String> {
    let known = |cell: &Cell| {
        let arm = experiment.mechanism(&cell.mechanism).ok()?;
        let base = experiment.mechanism(arm.base.as_deref()?).ok()?;
        let left = |arm: &MechanismSpec| Some(1.0 - f64::from(arm.cost_percent?) / 100.0);
        Some(left(arm)? / left(base)?)
    };
    let told = results.cells.iter().filter(|cell| cell.metric.higher_is_better()).filter_map(|cell| {
        let (vs, truth) = (cell.vs_baseline.as_ref()?, known(cell)?);
        let [low, high] = vs.ci95?;
        (truth < low || truth > high).then(|| {
            format!(
                "Control: {} leaves {:.0} % of its base's {}, and was measured as {:.1} % ({:.1} to {:.1} %).",
                cell.label,
                100.0 * truth,
                quantity(cell.metric, cell.point.as_ref()),
                100.0 * vs.ratio,
                100.0 * low,
                100.0 * high
            )
        })
    });
    told.collect()
}

/// Whether something that the run had bound was elsewhere at its end.
fn moved(environment: &Environment) -> Option<String> {
    let servers = environment.hosts.iter().flat_map(|record| record.hosts.values());
    let machines = servers.filter_map(|host| host.environment.as_ref()).chain([environment]);
    let moved: Vec<&str> = machines
        .filter_map(|machine| machine.pinned.as_ref())
        .flat_map(|pinned| pinned.moved.iter().map(String::as_str))
        .collect();
    (!moved.is_empty())
        .then(|| format!("What --pin had bound was moved during the run: {}.", moved.join("; ")))
}

/// Whether the machine was busy with other work when the run began. The load average also remembers work that had ended
/// by then: it counts only in records that have nothing better.
fn busy(environment: &Environment) -> Option<String> {
    let (load, processors) = (environment.load_average, environment.processors);
    match environment.other_cores {
        Some(cores) => (cores > FLAG_OTHER).then(|| {
            format!(
                "Other programs kept {cores:.1} of {processors} processors busy when the run began: \
                 they disturbed it."
            )
        }),
        None => (load > 0.5 * processors as f64).then(|| {
            format!(
                "The load average was {load:.1} on {processors} processors when the run began: other \
                 work disturbed it."
            )
        }),
    }
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
fn uncalibrated(experiment: &Experiment, results: &Results) -> Vec<String> {
    let mut missing: Vec<&str> = results
        .cells
        .iter()
        .filter(|c| c.metric.has_ceiling() && c.n > 0)
        .filter(|c| {
            let own = |arm: &&MechanismSpec| arm.name == c.mechanism;
            let family = experiment.mechanisms.iter().find(own).map(|arm| arm.family);
            family.is_some_and(|family| {
                results.ceiling(&c.condition, c.metric, c.point.as_ref(), family).is_none()
            })
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
        .filter(|t| t.flags.iter().any(|f| f.starts_with(crate::trial::OTHER_WORK)))
        .count();
    (hit * 10 > timed.len()).then(|| {
        format!(
            "Other programs used the processors during {hit} of {} measurements: intervals are \
             wide and differences blurred. Run again on a quiet machine.",
            timed.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::environment::Pinned;
    use crate::fixture::{self, environment};

    #[test]
    fn what_was_moved_is_told() {
        assert_eq!(moved(&environment()), None);
        let pinned = Pinned {
            asked: "auto".into(),
            roles: Default::default(),
            in_force: Default::default(),
            moved: vec!["interrupt 35 eth1: 0 at first, 1 at the end".into()],
        };
        let said = moved(&Environment { pinned: Some(pinned), ..environment() }).unwrap();
        assert!(said.contains("interrupt 35 eth1"), "{said}");
    }

    #[test]
    fn a_known_cost_that_was_measured_as_another_is_a_warning() {
        let experiment = fixture::experiment("control");
        let of = |factor: f64| {
            let mut trials = fixture::trials(&experiment, 7, 1.0);
            for trial in &mut trials {
                let arm = experiment.mechanism(&trial.mechanism).ok();
                let cost = arm.and_then(|arm| arm.cost_percent).map_or(0.0, f64::from);
                let noise = 1.0 + 0.002 * f64::from((trial.block * 7 + cost as u32 * 3) % 5);
                trial.value = trial.value.map(|_| (1.0 - factor * cost / 100.0) * noise);
            }
            let results = analyse(&experiment, environment(), &trials).unwrap();
            controls(&experiment, &results)
        };
        assert_eq!(of(1.0), Vec::<String>::new());
        let said = of(0.5);
        assert!(
            said.iter().any(|w| w.contains("leaves 90 % of its base's Datagrams up")),
            "{said:?}"
        );
    }

    #[test]
    fn what_others_did_counts_and_a_load_average_only_without_it() {
        let of = |load_average, other_cores| {
            busy(&Environment { load_average, other_cores, processors: 2, ..environment() })
        };
        assert_eq!(of(2.1, Some(0.0)), None, "the build that made the lab has ended");
        assert!(of(0.0, Some(0.8)).is_some_and(|said| said.contains("0.8 of 2 processors")));
        assert!(of(2.1, None).is_some_and(|said| said.contains("load average was 2.1")));
        assert_eq!(of(0.9, None), None);
    }
}
