//! Two runs against each other: two versions, machines or kernels. What was measured on different days has no pairs.

mod differences;

use fordway_stats::multiple::holm;
use fordway_stats::paired::Verdict;
use fordway_stats::unpaired::{equivalence, mann_whitney, shift, welch};
use serde::Serialize;

use crate::analysis::Cell;
use crate::artefacts::Run;
use crate::spec::quantity;
use crate::spec::{Metric, Point};
use crate::trial::Condition;

pub use differences::Difference;
use differences::differences;

/// Fewest deployments on each side for a verdict.
const FEWEST: usize = 3;

/// All of a comparison: B against A.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The run that is compared with.
    pub a: Side,
    /// The run that is judged.
    pub b: Side,
    /// What differs between them besides the numbers.
    pub differences: Vec<Difference>,
    /// What must be known before the numbers are believed.
    pub warnings: Vec<String>,
    /// Two are the same within this share.
    pub margin: f64,
    /// Level of the tests.
    pub alpha: f64,
    /// Cells that both runs have.
    pub cells: Vec<Pair>,
    /// Cells that only A has.
    pub only_a: Vec<String>,
    /// Cells that only B has.
    pub only_b: Vec<String>,
}

/// One of the two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Folder.
    pub folder: String,
    /// Experiment.
    pub experiment: String,
    /// When it began.
    pub started: String,
    /// Processor and kernel.
    pub machine: String,
}

/// One cell of both runs.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// Arm.
    pub mechanism: String,
    /// Its name for people.
    pub label: String,
    /// What was measured.
    pub metric: Metric,
    /// Setting of the load, where it is run at several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// Its unit.
    pub unit: String,
    /// Factor setting, of B.
    pub condition: String,
    /// In A.
    pub a: Measured,
    /// In B.
    pub b: Measured,
    /// B / A: ratio of the geometric means.
    pub ratio: Option<f64>,
    /// Its 95 % interval: Welch's, on logarithms.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Hodges-Lehmann shift, B less A, in the unit.
    pub shift: Option<f64>,
    /// Cliff's delta.
    pub cliffs_delta: Option<f64>,
    /// p of Welch's t test on logarithms.
    pub p_welch: Option<f64>,
    /// The same, adjusted by Holm over all cells.
    pub p: Option<f64>,
    /// p of the Mann-Whitney test.
    pub p_mann_whitney: Option<f64>,
    /// p of the equivalence test.
    pub p_equivalence: Option<f64>,
    /// B against A.
    pub verdict: Verdict,
    /// Why it has no verdict, where there is a reason beside chance.
    pub why: Option<String>,
}

/// What one run says of a cell.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Deployments.
    pub n: usize,
    /// Median.
    pub median: Option<f64>,
    /// Its interval.
    pub ci95: Option<[f64; 2]>,
    /// Whether the generator may have been the limit.
    pub at_least: bool,
    /// Value of each deployment.
    pub values: Vec<f64>,
}

impl Measured {
    fn of(cell: &Cell) -> Self {
        Self {
            n: cell.n,
            median: cell.median,
            ci95: cell.ci95,
            at_least: cell.at_least,
            values: cell.values.iter().map(|v| v.1).collect(),
        }
    }
}

/// Compares run B with run A, by the margin and level of B's experiment.
pub fn compare(a: (&str, &Run), b: (&str, &Run)) -> Compared {
    let (one, other) = (&a.1.results, &b.1.results);
    let mut cells: Vec<Pair> = Vec::new();
    let mut only_b = Vec::new();
    for cell in &other.cells {
        match one.cells.iter().find(|c| same_cell(c, cell, a.1, b.1)) {
            Some(base) => cells.push(pair(base, cell, b.1.experiment.margin)),
            None => only_b.push(name(cell)),
        }
    }
    let missing = |c: &&Cell| !other.cells.iter().any(|cell| same_cell(c, cell, a.1, b.1));
    let only_a: Vec<String> = one.cells.iter().filter(missing).map(name).collect();
    judge(&mut cells, b.1.experiment.alpha);
    let differences = differences(a.1, b.1);
    Compared {
        a: side(a.0, a.1),
        b: side(b.0, b.1),
        warnings: warnings(a.1, b.1, &differences, &cells),
        differences,
        margin: b.1.experiment.margin,
        alpha: b.1.experiment.alpha,
        cells,
        only_a,
        only_b,
    }
}

fn side(folder: &str, run: &Run) -> Side {
    let machine = &run.results.environment;
    Side {
        folder: folder.to_owned(),
        experiment: run.experiment.name.clone(),
        started: run.results.started.clone(),
        machine: format!(
            "{}, {} processors, {}",
            machine.cpu_model, machine.processors, machine.kernel
        ),
    }
}

fn name(cell: &Cell) -> String {
    let what = quantity(cell.metric, cell.point.as_ref());
    format!("{}, {what} ({})", cell.label, cell.condition.label())
}

fn same_cell(a: &Cell, b: &Cell, of_a: &Run, of_b: &Run) -> bool {
    a.mechanism == b.mechanism
        && a.metric == b.metric
        && a.point == b.point
        && same_condition(&a.condition, &b.condition, of_a, of_b)
}

/// Clock sources may differ between machines: where none was chosen in either run, they are no part of the condition.
fn same_condition(a: &Condition, b: &Condition, of_a: &Run, of_b: &Run) -> bool {
    let chosen = |run: &Run| run.experiment.run().is_ok_and(|r| !r.clocksources.is_empty());
    let clock =
        if chosen(of_a) || chosen(of_b) { a.clocksource.clone() } else { b.clocksource.clone() };
    Condition { clocksource: clock, ..a.clone() } == *b
}

fn pair(a: &Cell, b: &Cell, margin: f64) -> Pair {
    let (own, base) = (Measured::of(b), Measured::of(a));
    let mut pair = Pair {
        mechanism: b.mechanism.clone(),
        label: b.label.clone(),
        metric: b.metric,
        point: b.point.clone(),
        unit: b.unit.clone(),
        condition: b.condition.label(),
        ratio: None,
        ratio_ci95: None,
        shift: None,
        cliffs_delta: None,
        p_welch: None,
        p: None,
        p_mann_whitney: None,
        p_equivalence: None,
        verdict: Verdict::Unresolved,
        why: None,
        a: base,
        b: own,
    };
    let (own, base) = (&pair.b.values, &pair.a.values);
    pair.why = if !(a.valid && b.valid) {
        Some("a cell does not count in one of the runs".into())
    } else if own.iter().chain(base).any(|v| *v <= 0.0) {
        Some("a value is not positive: no ratio".into())
    } else if own.len() < FEWEST || base.len() < FEWEST {
        Some(format!("fewer than {FEWEST} deployments in one of the runs"))
    } else {
        None
    };
    if !(a.valid && b.valid) || own.is_empty() || base.is_empty() {
        return pair;
    }
    if own.iter().chain(base).all(|v| *v > 0.0) {
        let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<f64>>();
        let (own, base) = (logs(own), logs(base));
        let mean = fordway_stats::describe::mean;
        pair.ratio = Some((mean(&own) - mean(&base)).exp());
        if let Some(t) = welch(&own, &base) {
            pair.ratio_ci95 = Some(t.ci95.map(f64::exp));
            pair.p_welch = Some(t.p);
        }
    }
    if let Some(test) = mann_whitney(own, base) {
        pair.p_mann_whitney = Some(test.p);
        pair.cliffs_delta = Some(test.delta);
    }
    pair.p_equivalence = equivalence(own, base, margin);
    pair.shift = Some(shift(own, base));
    pair
}

/// Holm over all cells that can have a verdict, then the rule of a run's own comparisons.
fn judge(cells: &mut [Pair], alpha: f64) {
    let places: Vec<usize> = (0..cells.len())
        .filter(|i| cells[*i].why.is_none() && cells[*i].p_welch.is_some())
        .collect();
    let raw: Vec<f64> = places.iter().filter_map(|i| cells[*i].p_welch).collect();
    for (place, p) in places.into_iter().zip(holm(&raw)) {
        let cell = &mut cells[place];
        cell.p = Some(p);
        let better = cell.ratio.is_some_and(|r| (r > 1.0) == cell.metric.higher_is_better());
        cell.verdict = if cell.p_equivalence.is_some_and(|p| p < alpha) {
            Verdict::Equivalent
        } else if p >= alpha {
            Verdict::Unresolved
        } else if better {
            Verdict::Better
        } else {
            Verdict::Worse
        };
    }
}

fn warnings(a: &Run, b: &Run, differences: &[Difference], cells: &[Pair]) -> Vec<String> {
    let mut all = Vec::new();
    if a.experiment.name != b.experiment.name {
        all.push(format!(
            "Two experiments: {} and {}. Arms of one name may not be the same.",
            a.experiment.name, b.experiment.name
        ));
    }
    let machine: Vec<&str> =
        differences.iter().filter(|d| d.machine).map(|d| d.what.as_str()).collect();
    if !machine.is_empty() {
        all.push(format!(
            "The machines differ ({}): a difference between the runs may be theirs. Compare ratios inside each run.",
            machine.join(", ")
        ));
    }
    let drifted =
        cells.iter().filter(|c| c.mechanism == b.experiment.sentinel && c.verdict.differs());
    for cell in drifted {
        all.push(format!(
            "The sentinel, which no translator touches, is {} in {}: the runs differ by more than what is compared.",
            cell.verdict.word(),
            quantity(cell.metric, cell.point.as_ref())
        ));
    }
    for (name, run) in [("A", a), ("B", b)] {
        all.extend(run.results.warnings.iter().map(|w| format!("{name}: {w}")));
    }
    if cells.is_empty() {
        all.push("The runs have no cell in common: nothing could be compared.".into());
    }
    all
}

#[cfg(test)]
mod tests;
