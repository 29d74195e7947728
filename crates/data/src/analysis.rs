//! From trials to cells: a pure function of a run's folder.

mod agreement;
mod checks;
mod compare;
mod goals;
mod limiter;
mod noise;
mod power;
mod results;

use std::collections::{BTreeMap, BTreeSet};

use fordway_stats::describe::{Summary, median};
use fordway_stats::interval::of_median;
use fordway_stats::trend::trend;

use crate::environment::Environment;
use crate::error::Result;
use crate::spec::published::study;
use crate::spec::{Exclusion, Experiment, MechanismSpec, Metric, Point, rules};
use crate::trial::Check;
use crate::trial::{Condition, Trial, calibrates};
use agreement::findings;

pub use agreement::{Agreement, Findings};
use checks::{disturbed, warnings};
use compare::compare_all;
pub use goals::Judged;
use limiter::{Limit, average, limiter};
pub use noise::Noise;
pub use power::{Power, undecided};
pub(crate) use results::first;
pub use results::{
    Ceiling, Cell, Discarded, Drift, Excluded, Results, VsBaseline, outcomes, pairs,
};

/// Version of the form of `results.json`: raised when a reader of the old one would misread the new one.
const VERSION: u32 = 2;

/// Checks whose failure means that payload does not arrive as it was sent.
const PAYLOAD_CHECKS: &[&str] =
    &["tcp payload", "tcp checksum", "udp checksum", "dns synthesis", "dns native"];

/// Analyses a run.
pub(crate) fn analyse(
    experiment: &Experiment,
    environment: Environment,
    trials: &[Trial],
) -> Result<Results> {
    let run = experiment.run()?;
    let latest = latest(trials);
    let mut results = Results {
        version: VERSION,
        experiment: experiment.name.clone(),
        started: environment.started.clone(),
        environment,
        cells: Vec::new(),
        gate: BTreeMap::new(),
        matrix: BTreeMap::new(),
        calibration: Vec::new(),
        drift: Vec::new(),
        discarded: listed(trials.iter().filter(|t| !t.valid), |t| &t.invalid),
        failed: listed(latest.iter().copied().filter(|t| t.valid), |t| &t.failed),
        flagged: listed(trials.iter().filter(|t| t.valid), |t| &t.flags),
        warnings: Vec::new(),
        exclusions: excluded(experiment, trials),
        noise: None,
        power: Vec::new(),
        agreement: None,
        goals: Vec::new(),
        program_costs: None,
    };
    for trial in &latest {
        if trial.metric == Metric::Gate {
            results.gate.insert(trial.mechanism.clone(), gate_of(trial));
            if !trial.ways.is_empty() {
                results.matrix.insert(trial.mechanism.clone(), trial.ways.clone());
            }
        }
    }
    results.calibration = ceilings(&latest);
    let mut conditions: Vec<&Condition> =
        latest.iter().filter(|t| t.block > 0).map(|t| &t.condition).collect();
    conditions.sort();
    conditions.dedup();
    let by_place = by_place(&latest);
    for condition in conditions {
        for (metric, point) in places(experiment, &by_place, condition) {
            let mut cells: Vec<Cell> = Vec::new();
            for m in experiment.mechanisms.iter().filter(|m| run.mechanisms.contains(&m.name)) {
                let place = (condition, metric, point, m.name.as_str());
                if let Some(trials) = by_place.get(&place) {
                    cells.push(cell(m, condition, metric, trials, &results));
                }
            }
            results.drift.extend(drift(&cells, &experiment.sentinel, condition, metric));
            results.cells.extend(cells);
        }
    }
    compare_all(experiment, &mut results);
    results.noise = noise::noise(experiment, &results);
    results.power = power::power(experiment, &results);
    results.warnings = warnings(experiment, &results);
    results.warnings.extend(disturbed(&latest));
    let study = experiment.published.as_deref().map(study).transpose()?;
    // Without an order of mechanisms there is nothing to agree with.
    let ordered = study.filter(|study| !study.orderings.is_empty());
    results.agreement = ordered.map(|study| findings(experiment, &results, &study));
    results.goals = goals::judge(experiment, &results)?;
    Ok(results)
}

/// The generator's ceilings, one for each condition, metric, point and family.
fn ceilings(trials: &[&Trial]) -> Vec<Ceiling> {
    let mut all: Vec<Ceiling> = Vec::new();
    for trial in trials {
        let Some((family, value)) = calibrates(&trial.mechanism).zip(trial.counted()) else {
            continue;
        };
        let same = |c: &&mut Ceiling| {
            (c.family, c.metric, &c.point, &c.condition)
                == (family, trial.metric, &trial.point, &trial.condition)
        };
        match all.iter_mut().find(same) {
            Some(known) => known.values.push((trial.block, value)),
            None => all.push(Ceiling {
                condition: trial.condition.clone(),
                metric: trial.metric,
                point: trial.point.clone(),
                family,
                value,
                values: vec![(trial.block, value)],
            }),
        }
    }
    for ceiling in &mut all {
        ceiling.value = median(&ceiling.values.iter().map(|v| v.1).collect::<Vec<f64>>());
    }
    all
}

/// How many of all trials fell under each rule.
fn excluded(experiment: &Experiment, trials: &[Trial]) -> Vec<Excluded> {
    let count = |when: &str| trials.iter().filter(|t| t.excluded.iter().any(|e| e == when)).count();
    let rule = |rule: Exclusion| {
        let when = rule.when.to_string();
        Excluded {
            trials: count(&when),
            about: rule.when.quantity.about(),
            declared: experiment.exclusions.contains(&rule),
            reason: rule.reason,
            when,
        }
    };
    rules(&experiment.exclusions).into_iter().map(rule).collect()
}

/// The last valid trial of each place in the plan, or the last one when none is valid.
fn latest(trials: &[Trial]) -> Vec<&Trial> {
    let mut by_key: BTreeMap<&str, &Trial> = BTreeMap::new();
    for trial in trials {
        let known = by_key.entry(&trial.key).or_insert(trial);
        if trial.valid || !known.valid {
            *known = trial;
        }
    }
    let mut all: Vec<&Trial> = by_key.into_values().collect();
    all.sort_by_key(|t| (t.condition.clone(), t.block, t.order));
    all
}

/// Condition, metric, point and mechanism of trials.
type Place<'a> = (&'a Condition, Metric, Option<&'a Point>, &'a str);

/// The trials of blocks, by what they measured.
fn by_place<'a>(trials: &[&'a Trial]) -> BTreeMap<Place<'a>, Vec<&'a Trial>> {
    let mut all: BTreeMap<Place<'_>, Vec<&Trial>> = BTreeMap::new();
    for t in trials.iter().filter(|t| t.block > 0) {
        let place = (&t.condition, t.metric, t.point.as_ref(), t.mechanism.as_str());
        all.entry(place).or_default().push(t);
    }
    all
}

/// Metrics of the experiment, each with the points at which there are trials of it.
fn places<'a>(
    experiment: &Experiment,
    trials: &BTreeMap<Place<'a>, Vec<&'a Trial>>,
    condition: &Condition,
) -> Vec<(Metric, Option<&'a Point>)> {
    let here = trials.keys().filter(|(own, ..)| *own == condition);
    let found: BTreeSet<(Metric, Option<&Point>)> =
        here.map(|(_, metric, point, _)| (*metric, *point)).collect();
    let of = |metric: &Metric| {
        let own = found.iter().filter(|(own, _)| own == metric).copied();
        own.collect::<Vec<_>>()
    };
    experiment.metrics.iter().flat_map(of).collect()
}

fn gate_of(trial: &Trial) -> Vec<Check> {
    if trial.checks.is_empty() {
        let why = [&trial.failed[..], &trial.invalid].concat().join("; ");
        return vec![Check { name: "comes up".into(), ok: false, detail: why }];
    }
    trial.checks.clone()
}

fn listed<'a>(
    trials: impl Iterator<Item = &'a Trial>,
    reasons: impl Fn(&Trial) -> &Vec<String>,
) -> Vec<Discarded> {
    trials
        .filter(|t| !reasons(t).is_empty())
        .map(|t| Discarded {
            mechanism: t.mechanism.clone(),
            metric: t.metric,
            point: t.point.clone(),
            block: t.block,
            why: reasons(t).join("; "),
        })
        .collect()
}

fn cell(
    m: &MechanismSpec,
    condition: &Condition,
    metric: Metric,
    trials: &[&Trial],
    results: &Results,
) -> Cell {
    let counted: Vec<&Trial> = trials.iter().copied().filter(|t| t.valid).collect();
    let values: Vec<(u32, f64)> =
        counted.iter().filter_map(|t| Some((t.block, t.counted()?))).collect();
    let failed_trials: Vec<&Trial> =
        counted.iter().copied().filter(|t| !t.failed.is_empty()).collect();
    let numbers: Vec<f64> = values.iter().map(|v| v.1).collect();
    let summary = Summary::of(&numbers);
    let good = counted.iter().filter(|t| t.failed.is_empty());
    let replies: Vec<f64> = good.flat_map(|t| t.replies.iter().copied()).collect();
    let replies = Summary::of(&replies);
    let failed: Vec<&Check> =
        results.gate.get(&m.name).into_iter().flatten().filter(|c| !c.ok).collect();
    let payload_broken =
        failed.iter().any(|c| PAYLOAD_CHECKS.contains(&c.name.as_str()) || c.name == "comes up");
    let mut words: Vec<String> =
        failed.iter().map(|c| format!("{} ({})", c.name, c.detail)).collect();
    if let Some(first) = failed_trials.first().filter(|_| numbers.is_empty()) {
        let (n, why) = (failed_trials.len(), first.failed.join("; "));
        words.push(format!("failed in {n} of {n} blocks: {why}"));
    }
    let point = trials.first().and_then(|t| t.point.clone());
    let ceiling = results.ceiling(condition, metric, point.as_ref(), m.family);
    let Limit { what: limiter, evidence: limiter_evidence, bounds } =
        limiter(metric, &values, ceiling, &counted);
    Cell {
        mechanism: m.name.clone(),
        implementation: m.implementation.clone(),
        metric,
        point,
        unit: metric.unit().into(),
        stateful: counted.iter().find_map(|t| t.stateful.clone()),
        n: numbers.len(),
        of: counted.len(),
        min: summary.map(|s| s.min),
        mean: summary.map(|s| s.mean),
        median: summary.map(|s| s.median),
        max: summary.map(|s| s.max),
        stddev: summary.filter(|s| s.n > 1).map(|s| s.stddev),
        p95: if metric.has_replies() {
            replies.and_then(|r| r.p95)
        } else {
            summary.and_then(|s| s.p95)
        },
        interval: of_median(&numbers),
        vs_baseline: None,
        limiter,
        valid: !numbers.is_empty() && !payload_broken,
        label: m.label.clone(),
        condition: condition.clone(),
        kind: m.kind,
        hops: m.hops,
        direction: metric.direction().into(),
        limiter_evidence,
        at_least: !bounds.is_empty(),
        bounds,
        failures: failed_trials.iter().map(|t| t.block).collect(),
        undecided: None,
        broken: (!words.is_empty()).then(|| words.join("; ")),
        discarded: trials.len() - counted.len(),
        values,
        replies,
        sent: sum(&counted, |t| t.sent),
        arrived: sum(&counted, |t| t.arrived),
        engine: counted.iter().find_map(|t| t.engine.clone()),
        own_process: average(&counted, own_process),
        mechanism_cores: average(&counted, |t| t.cpu?.mechanism_cores),
        busy_share: average(&counted, |t| Some(t.cpu?.busy_share)),
    }
}

fn sum(trials: &[&Trial], of: impl Fn(&Trial) -> Option<u64>) -> Option<u64> {
    let all: Vec<u64> = trials.iter().filter_map(|t| of(t)).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

/// The share of the mechanism's process in a processor time.
fn own_process(trial: &Trial) -> Option<f64> {
    let timed = trial.metric.includes_the_tester();
    let cpu = trial.cpu.filter(|cpu| timed && cpu.busy_s > 0.0)?;
    Some(trial.value? * cpu.mechanism_s? / cpu.busy_s)
}

fn drift(cells: &[Cell], sentinel: &str, condition: &Condition, metric: Metric) -> Option<Drift> {
    let cell = cells.iter().find(|c| c.mechanism == sentinel)?;
    let centre = cell.mean.filter(|mean| *mean > 0.0)?;
    let points: Vec<(f64, f64)> = cell.values.iter().map(|(b, v)| (f64::from(*b), *v)).collect();
    let trend = trend(&points);
    Some(Drift {
        condition: condition.clone(),
        metric,
        point: cell.point.clone(),
        values: cell.values.clone(),
        per_block: trend.map_or(0.0, |t| t.slope / centre),
        p: trend.and_then(|t| t.p),
        spread: cell.stddev.unwrap_or(0.0) / centre,
    })
}

#[cfg(test)]
pub(crate) mod tests;
