//! From trials to cells: a pure function of a run's folder.

mod agreement;
mod checks;
mod compare;
mod goals;
mod limiter;
mod noise;
mod power;

use std::collections::{BTreeMap, BTreeSet};

use fordway_stats::describe::{Summary, median};
use fordway_stats::interval::{Interval, of_median};
use fordway_stats::outcomes::{Bound, Outcome};
use fordway_stats::paired::Verdict;
use fordway_stats::trend::trend;
use serde::Serialize;

use crate::costs::Costs;
use crate::environment::Environment;
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::published::study;
use crate::spec::{Exclusion, Experiment, Family, Kind, MechanismSpec, Metric, Point, rules};
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

/// Version of the form of `results.json`: raised when a reader of the old one would misread the new one.
const VERSION: u32 = 2;

/// Everything that a run shows; `results.json`.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Results {
    /// Version of this form: 2.
    pub version: u32,
    /// Experiment.
    pub experiment: String,
    /// When the run began.
    pub started: String,
    /// The machine.
    pub environment: Environment,
    /// One entry per mechanism, metric and condition.
    pub cells: Vec<Cell>,
    /// Outcome of the correctness gate by mechanism.
    pub gate: BTreeMap<String, Vec<Check>>,
    /// Which ways each mechanism opens, where the experiment asks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matrix: BTreeMap<String, Vec<Check>>,
    /// Ceiling of the generator by condition.
    pub calibration: Vec<Ceiling>,
    /// The sentinel's course over the blocks.
    pub drift: Vec<Drift>,
    /// Trials that do not count, and why.
    pub discarded: Vec<Discarded>,
    /// Trials in which the mechanism failed, and how: they count.
    pub failed: Vec<Discarded>,
    /// What is worth knowing of trials that count.
    pub flagged: Vec<Discarded>,
    /// Warnings about the run as a whole.
    pub warnings: Vec<String>,
    /// Rules of exclusion, and how many trials fell under each.
    pub exclusions: Vec<Excluded>,
    /// What comparisons of equal mechanisms came out as, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// How probable a verdict on a known cost is with this run's spread, by metric.
    pub power: Vec<Power>,
    /// Whether this run stands in the order of the study that the experiment repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Findings>,
    /// Goals and whether they are met, for experiments with goals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Judged>,
    /// What one packet costs inside the gateway's programs, where the run asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_costs: Option<Costs>,
}

/// One mechanism, one metric, one condition.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Cell {
    /// Arm.
    pub mechanism: String,
    /// Program.
    pub implementation: String,
    /// Metric.
    pub metric: Metric,
    /// Setting of the load, where it is run at several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// Unit of all values.
    pub unit: String,
    /// Deployments with a value.
    pub n: usize,
    /// Deployments that count: those with a value, and those that failed.
    pub of: usize,
    /// Least.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub median: Option<f64>,
    /// Greatest.
    pub max: Option<f64>,
    /// Standard deviation over deployments.
    pub stddev: Option<f64>,
    /// 95th percentile: of all replies, sessions or pages where one deployment has many, of deployments else; absent below ten beyond it.
    pub p95: Option<f64>,
    /// Interval of the median by order statistics, with its exact level; absent below three deployments.
    pub interval: Option<Interval>,
    /// Comparison with the base.
    pub vs_baseline: Option<VsBaseline>,
    /// What held the value down.
    pub limiter: String,
    /// Whether the value counts: measured, and nothing broken in the payload.
    pub valid: bool,
    /// Name for people.
    pub label: String,
    /// Factor setting.
    pub condition: Condition,
    /// Whether the mechanism is a baseline or a translator.
    pub kind: Kind,
    /// Forwarding namespaces on the way.
    pub hops: u8,
    /// `up`, `down`, `both`.
    pub direction: String,
    /// The number behind the limiter.
    pub limiter_evidence: String,
    /// Whether the generator may have been the limit in some block: print the value with ">=".
    pub at_least: bool,
    /// Blocks in which it may have been: their values are lower bounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<u32>,
    /// Blocks in which the mechanism failed: worse than every value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<u32>,
    /// Why there is no comparison with the base, where both were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<String>,
    /// Failed correctness checks, in words.
    pub broken: Option<String>,
    /// Deployments that do not count.
    pub discarded: usize,
    /// Value of each deployment by block.
    pub values: Vec<(u32, f64)>,
    /// All replies, sessions or pages together, where one deployment has many.
    pub replies: Option<Summary>,
    /// Datagrams that were sent, over all deployments, where they are counted.
    pub sent: Option<u64>,
    /// Of them, those that arrived or were answered.
    pub arrived: Option<u64>,
    /// What the mechanism said it runs.
    pub engine: Option<String>,
    /// Of a processor time, the part of the mechanism's own process; mean, in the cell's unit.
    pub own_process: Option<f64>,
    /// Cores that the mechanism's process used, mean.
    pub mechanism_cores: Option<f64>,
    /// Share of the machine that was busy, mean.
    pub busy_share: Option<f64>,
}

/// A comparison with the base.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct VsBaseline {
    /// The base's name.
    pub base: String,
    /// Geometric mean of the blocks' ratios.
    pub ratio: f64,
    /// Standard deviation of the logarithm of a block's ratio; absent for one block.
    pub deviation: Option<f64>,
    /// The ratio's 95 % interval: Student's, on logarithms.
    pub ci95: Option<[f64; 2]>,
    /// p of the paired t test, adjusted by Holm over both tests of the whole family; with failures, of the signed-rank test
    /// in which they rank worst.
    pub p: Option<f64>,
    /// Verdict by the decision rule.
    pub verdict: Verdict,
    /// Blocks in which both have a value: those of the ratio.
    pub n: usize,
    /// Blocks in which both count, failures included: those of the verdict.
    pub of: usize,
    /// Blocks in which the mechanism failed, and in which the base did.
    pub failed: [usize; 2],
    /// Set where the ratio is a bound, as the generator limited one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// p of the paired t test, not adjusted.
    pub p_t: Option<f64>,
    /// p of the Wilcoxon signed-rank test, not adjusted.
    pub p_wilcoxon: Option<f64>,
    /// p of the equivalence test, not adjusted.
    pub p_equivalence: Option<f64>,
    /// p of the equivalence test, adjusted like `p`.
    pub p_equivalence_adjusted: Option<f64>,
    /// Comparisons of the family.
    pub family: usize,
    /// Hodges-Lehmann shift, in the metric's unit.
    pub shift: f64,
    /// Cliff's delta.
    pub cliffs_delta: f64,
    /// Whether this is an A/A pair, which must not differ.
    pub same: bool,
}

impl VsBaseline {
    /// The ratio in figures, with its sign where it is a bound.
    pub fn times(&self) -> String {
        format!("{}{}", self.bound.map_or("", Bound::sign), nice(self.ratio))
    }

    /// `7 of 9`, where some blocks have no ratio.
    pub fn n_of(&self) -> Option<String> {
        (self.n < self.of).then(|| format!("{} of {}", self.n, self.of))
    }
}

/// What the generator does with nothing in the way.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Ceiling {
    /// Factor setting.
    pub condition: Condition,
    /// Metric.
    pub metric: Metric,
    /// Setting of a load that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// The family over which it was measured; absent in runs that did not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Median over the blocks.
    pub value: f64,
    /// Value by block; block 0 where it was measured once for the run.
    pub values: Vec<(u32, f64)>,
}

impl Ceiling {
    /// Its value in a block; the median where it was not measured there.
    pub fn at(&self, block: u32) -> f64 {
        self.values.iter().find(|(own, _)| *own == block).map_or(self.value, |(_, value)| *value)
    }
}

/// The sentinel over the blocks.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Drift {
    /// Factor setting.
    pub condition: Condition,
    /// Metric.
    pub metric: Metric,
    /// Setting of the load, where it is run at several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// Value by block.
    pub values: Vec<(u32, f64)>,
    /// Trend per block as a share of the mean: slope of the straight line.
    pub per_block: f64,
    /// p of the test that there is none; absent below four blocks.
    pub p: Option<f64>,
    /// Standard deviation as a share of the mean.
    pub spread: f64,
}

/// A trial with something to say about it.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Discarded {
    /// Arm.
    pub mechanism: String,
    /// Metric.
    pub metric: Metric,
    /// Setting of the load, where it is run at several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// Block.
    pub block: u32,
    /// Reasons.
    pub why: String,
}

/// A rule of exclusion and what it did.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Excluded {
    /// `steal > 0.1`
    pub when: String,
    /// What the quantity is.
    pub about: &'static str,
    /// Why such trials don't count.
    pub reason: String,
    /// Whether the experiment declares it; otherwise it is built in.
    pub declared: bool,
    /// Trials that it excluded.
    pub trials: usize,
}

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
    for condition in conditions {
        for (metric, point) in places(experiment, &latest, condition) {
            let of = |m: &MechanismSpec| -> Vec<&Trial> {
                let here = |t: &&&Trial| {
                    t.block > 0
                        && t.condition == *condition
                        && t.metric == metric
                        && t.point.as_ref() == point
                        && t.mechanism == m.name
                };
                latest.iter().filter(here).copied().collect()
            };
            let mut cells: Vec<Cell> = Vec::new();
            for m in experiment.mechanisms.iter().filter(|m| run.mechanisms.contains(&m.name)) {
                let trials = of(m);
                if !trials.is_empty() {
                    cells.push(cell(m, condition, metric, &trials, &results));
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
    results.agreement = study.map(|study| findings(experiment, &results, &study));
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

/// Metrics of the experiment, each with the points at which there are trials of it.
fn places<'a>(
    experiment: &Experiment,
    trials: &[&'a Trial],
    condition: &Condition,
) -> Vec<(Metric, Option<&'a Point>)> {
    let mut all = Vec::new();
    for metric in &experiment.metrics {
        let here = trials
            .iter()
            .filter(|t| t.block > 0 && t.condition == *condition && t.metric == *metric);
        let points: BTreeSet<Option<&Point>> = here.map(|t| t.point.as_ref()).collect();
        all.extend(points.into_iter().map(|point| (*metric, point)));
    }
    all
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

/// Outcomes of two cells by block.
pub fn outcomes(own: &Cell, base: &Cell) -> Vec<(Outcome, Outcome)> {
    let of: BTreeMap<u32, Outcome> = base.outcomes().collect();
    own.outcomes().filter_map(|(block, outcome)| Some((outcome, *of.get(&block)?))).collect()
}

/// Pairs of two cells by block, where both have a value.
pub fn pairs(own: &Cell, base: &Cell) -> Vec<(f64, f64)> {
    let of: BTreeMap<u32, f64> = base.values.iter().copied().collect();
    own.values.iter().filter_map(|(block, v)| Some((*v, *of.get(block)?))).collect()
}

fn drift(cells: &[Cell], sentinel: &str, condition: &Condition, metric: Metric) -> Option<Drift> {
    let cell = cells.iter().find(|c| c.mechanism == sentinel)?;
    let centre = cell.mean?;
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

impl Cell {
    /// What each block gave, by block.
    fn outcomes(&self) -> impl Iterator<Item = (u32, Outcome)> + '_ {
        let value = |(block, value): &(u32, f64)| {
            let bound = self.bounds.contains(block);
            (*block, if bound { Outcome::AtLeast(*value) } else { Outcome::Value(*value) })
        };
        let failures = self.failures.iter().map(|block| (*block, Outcome::Failed));
        self.values.iter().map(value).chain(failures)
    }
}

/// The cell of a mechanism under the run's first condition.
pub(crate) fn first<'a>(results: &'a Results, name: &str, metric: Metric) -> Option<&'a Cell> {
    let condition = results.conditions().first().copied()?;
    results.cell(name, metric, condition)
}

impl Results {
    /// What the generator does by itself over a family.
    pub fn ceiling(
        &self,
        of: &Condition,
        metric: Metric,
        point: Option<&Point>,
        family: Family,
    ) -> Option<&Ceiling> {
        self.calibration.iter().find(|c| {
            c.condition == *of
                && c.metric == metric
                && c.point.as_ref() == point
                && c.family.is_none_or(|own| own == family)
        })
    }

    /// The cell of a mechanism, metric and condition, for metrics without points.
    pub fn cell(&self, mechanism: &str, metric: Metric, of: &Condition) -> Option<&Cell> {
        self.cell_at(mechanism, metric, of, None)
    }

    /// The cell of a mechanism, metric, condition and point.
    pub fn cell_at(
        &self,
        mechanism: &str,
        metric: Metric,
        of: &Condition,
        point: Option<&Point>,
    ) -> Option<&Cell> {
        let this = |c: &&Cell| {
            c.mechanism == mechanism
                && c.metric == metric
                && c.condition == *of
                && c.point.as_ref() == point
        };
        self.cells.iter().find(this)
    }

    /// Points at which a metric was measured under a condition, in order.
    pub fn points(&self, metric: Metric, of: &Condition) -> Vec<&Point> {
        let here = self.cells.iter().filter(|c| c.metric == metric && c.condition == *of);
        let all: BTreeSet<&Point> = here.filter_map(|c| c.point.as_ref()).collect();
        all.into_iter().collect()
    }

    /// Conditions of the run, in order.
    pub fn conditions(&self) -> Vec<&Condition> {
        let mut all: Vec<&Condition> = Vec::new();
        for cell in &self.cells {
            if !all.contains(&&cell.condition) {
                all.push(&cell.condition);
            }
        }
        all
    }
}

#[cfg(test)]
pub(crate) mod tests;
