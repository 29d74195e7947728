//! What a run shows, cell by cell: the form of `results.json`.

use std::collections::{BTreeMap, BTreeSet};

use fordway_stats::describe::Summary;
use fordway_stats::interval::Interval;
use fordway_stats::outcomes::{Bound, Outcome};
use fordway_stats::paired::Verdict;
use serde::Serialize;

use super::{Findings, Judged, Noise, Power};
use crate::costs::Costs;
use crate::environment::Environment;
use crate::numbers::nice;
use crate::spec::{Family, Kind, Metric, Point};
use crate::trial::{Check, Condition, Stateful};

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
    /// Parameters of a test of RFC 9693.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stateful: Option<Stateful>,
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
