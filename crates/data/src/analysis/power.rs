//! What this run's spread lets a number of blocks show: the probability of a verdict on a known cost.

use fordway_stats::describe::median;
use fordway_stats::power::{MOST_BLOCKS, blocks_to_decide, chance};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Results, VsBaseline};
use crate::spec::{Experiment, Metric};

/// Costs whose probability of a verdict is given: 0.01 is a ratio of 1.01.
const COSTS: [f64; 3] = [0.01, 0.03, 0.1];
/// Numbers of blocks in the curve, beside the run's own.
const BLOCKS: [u32; 6] = [5, 7, 10, 20, 50, 100];

/// One metric's curve.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Power {
    /// Metric.
    pub metric: Metric,
    /// Standard deviation of the logarithm of a block's ratio: median over the metric's comparisons.
    pub deviation: f64,
    /// Comparisons of the family, by which both tests are adjusted.
    pub family: usize,
    /// Blocks that most of the metric's comparisons have.
    pub blocks: u32,
    /// Probabilities by number of blocks and cost.
    pub curve: Vec<Decided>,
}

/// How probable the verdicts on one true cost are.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Decided {
    /// Blocks.
    pub blocks: u32,
    /// True cost: 0.01 is one per cent.
    pub cost: f64,
    /// Probability of any verdict but unresolved.
    pub decided: f64,
    /// Of equivalent alone.
    pub equivalent: f64,
}

/// The curves of all metrics that were compared over two blocks at least.
pub(super) fn power(experiment: &Experiment, results: &Results) -> Vec<Power> {
    experiment.metrics.iter().filter_map(|metric| of(*metric, experiment, results)).collect()
}

fn of(metric: Metric, experiment: &Experiment, results: &Results) -> Option<Power> {
    let compared: Vec<&VsBaseline> = results
        .cells
        .iter()
        .filter(|cell| cell.metric == metric)
        .filter_map(|cell| cell.vs_baseline.as_ref())
        .collect();
    let deviations: Vec<f64> = compared.iter().filter_map(|vs| vs.deviation).collect();
    let most = |of: fn(&VsBaseline) -> usize| compared.iter().map(|vs| of(vs)).max();
    let family = most(|vs| vs.family)?;
    let blocks = most(|vs| vs.n)? as u32;
    if deviations.is_empty() {
        return None;
    }
    let deviation = median(&deviations);
    let mut sizes = BLOCKS.to_vec();
    sizes.push(blocks);
    sizes.sort_unstable();
    sizes.dedup();
    let alpha = experiment.alpha / family as f64;
    let at = |(blocks, cost): (u32, f64)| {
        let found = chance(blocks, deviation, 1.0 + cost, experiment.margin, alpha)?;
        let (decided, equivalent) = (found.decided(), found.equivalent);
        Some(Decided { blocks, cost, decided, equivalent })
    };
    let points = sizes.into_iter().flat_map(|blocks| COSTS.map(|cost| (blocks, cost)));
    Some(Power { metric, deviation, family, blocks, curve: points.filter_map(at).collect() })
}

impl Power {
    /// Head and rows of the table of all metrics at the run's own blocks.
    pub fn table(all: &[Self]) -> Vec<Vec<String>> {
        let per_cent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut head: Vec<String> =
            ["quantity", "spread of a block's ratio", "family", "blocks"].map(str::to_owned).into();
        head.extend(COSTS.map(|cost| format!("{} cost", per_cent(cost))));
        let mut rows = vec![head];
        for one in all {
            let spread = format!("{:.1} %", 100.0 * one.deviation);
            let mut sizes: Vec<u32> = one.curve.iter().map(|d| d.blocks).collect();
            sizes.dedup();
            for blocks in sizes {
                let mark = if blocks == one.blocks { " (this run)" } else { "" };
                let mut row = vec![one.metric.label().to_owned(), spread.clone()];
                row.extend([one.family.to_string(), format!("{blocks}{mark}")]);
                let here = one.curve.iter().filter(|d| d.blocks == blocks);
                row.extend(here.map(|d| per_cent(d.decided)));
                rows.push(row);
            }
        }
        rows
    }

    /// The metric of middling spread at the run's own blocks, in one line; none where nothing was compared, or over too
    /// few blocks for any verdict.
    pub fn line(all: &[Self]) -> Option<String> {
        let mut sorted: Vec<&Self> = all.iter().collect();
        sorted.sort_by(|a, b| a.deviation.total_cmp(&b.deviation));
        let middle = sorted.get(sorted.len() / 2)?;
        let said: Vec<String> = middle
            .curve
            .iter()
            .filter(|d| d.blocks == middle.blocks)
            .map(|d| format!("{:.0} % in {:.0} % of runs", 100.0 * d.cost, 100.0 * d.decided))
            .collect();
        (!said.is_empty()).then(|| {
            format!(
                "Power at {} blocks, {} (middling spread): a true cost gets a verdict, of {}.",
                middle.blocks,
                middle.metric.label(),
                said.join(", ")
            )
        })
    }
}

/// What an unresolved comparison would take, in words.
pub fn undecided(vs: &VsBaseline, experiment: &Experiment) -> String {
    let alpha = experiment.alpha / vs.family as f64;
    let blocks = |deviation| match blocks_to_decide(deviation, vs.ratio, experiment.margin, alpha) {
        // The run was not lucky: as many would not do again.
        Some(blocks) => format!("{} blocks would do", blocks.max(vs.n as u32 + 1)),
        None => format!("{MOST_BLOCKS} blocks would not do"),
    };
    let needed = vs.deviation.map_or_else(|| "one block shows nothing".into(), blocks);
    format!("not decided by this run: {needed}")
}
