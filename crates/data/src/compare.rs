//! Runs against runs: two versions, machines or kernels, several runs of each. Runs of different days have no blocks in
//! common; what each has for itself are ratios to its own untranslated path. Deployments of one run share its day, machine
//! and build, so that they cannot stand in for runs: a run is one value.

mod differences;

use fordway_stats::describe::{mean, median};
use fordway_stats::interval::{Interval, of_median};
use fordway_stats::multiple::{Tests, family};
use fordway_stats::paired::{self, Verdict, verdict};
use fordway_stats::unpaired::{equivalence, welch};
use serde::Serialize;

use crate::analysis::{Cell, pairs};
use crate::artefacts::Run;
use crate::spec::quantity;
use crate::spec::{Metric, Point};
use crate::trial::Condition;

pub use differences::Difference;
use differences::differences;

/// Fewest runs on each side for a verdict.
pub const FEWEST: usize = 3;

/// All of a comparison: B against A.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The runs that are compared with.
    pub a: Vec<Side>,
    /// The runs that are judged.
    pub b: Vec<Side>,
    /// What differs between the first runs of both sides besides the numbers.
    pub differences: Vec<Difference>,
    /// What must be known before the numbers are believed.
    pub warnings: Vec<String>,
    /// Two are the same within this share.
    pub margin: f64,
    /// Level of the tests.
    pub alpha: f64,
    /// Cells that both sides have.
    pub cells: Vec<Pair>,
    /// Cells that only A has.
    pub only_a: Vec<String>,
    /// Cells that only B has.
    pub only_b: Vec<String>,
}

/// A run of one side.
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

/// One cell of both sides.
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
    /// The arm to which each run's ratio is: the sentinel, or the arm's base where the sentinel has no such cell.
    pub reference: Option<String>,
    /// In A.
    pub a: Measured,
    /// In B.
    pub b: Measured,
    /// B / A of the runs' ratios to the reference, geometric means; without a reference, of the medians.
    pub ratio: Option<f64>,
    /// Its 95 % interval: Welch's, on the logarithms of the runs' ratios; absent below two runs on a side.
    pub ratio_ci95: Option<[f64; 2]>,
    /// p of Welch's t test on them.
    pub p_welch: Option<f64>,
    /// The same, adjusted by Holm over both tests of all cells.
    pub p: Option<f64>,
    /// p of the equivalence test, not adjusted.
    pub p_equivalence: Option<f64>,
    /// The same, adjusted like `p`.
    pub p_equivalence_adjusted: Option<f64>,
    /// B against A.
    pub verdict: Verdict,
    /// Why it has no verdict, where there is a reason beside chance.
    pub why: Option<String>,
}

/// What one side says of a cell.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Runs in which the cell counts.
    pub runs: usize,
    /// Their deployments.
    pub n: usize,
    /// Median of the runs' medians.
    pub median: Option<f64>,
    /// Its interval: over the runs; of one run, over its deployments.
    pub interval: Option<Interval>,
    /// Whether the generator may have been the limit in one of them.
    pub at_least: bool,
    /// Value of each deployment.
    pub values: Vec<f64>,
    /// Each run's ratio to the reference: geometric mean over its blocks.
    pub ratios: Vec<f64>,
}

impl Measured {
    fn of(cells: &[(&Run, &Cell)], reference: Option<&str>) -> Self {
        let medians: Vec<f64> = cells.iter().filter_map(|(_, cell)| cell.median).collect();
        let ratio = |(run, cell): &(&Run, &Cell)| ratio_of_run(run, cell, reference?);
        Self {
            runs: cells.len(),
            n: cells.iter().map(|(_, cell)| cell.n).sum(),
            median: (!medians.is_empty()).then(|| median(&medians)),
            interval: match cells {
                [(_, only)] => only.interval,
                _ => of_median(&medians),
            },
            at_least: cells.iter().any(|(_, cell)| cell.at_least),
            values: cells.iter().flat_map(|(_, cell)| cell.values.iter().map(|v| v.1)).collect(),
            ratios: cells.iter().filter_map(ratio).collect(),
        }
    }
}

/// A run's ratio of a cell to another arm's, paired inside its blocks.
fn ratio_of_run(run: &Run, cell: &Cell, reference: &str) -> Option<f64> {
    let base = counted(run, reference, cell)?;
    Some(paired::compare(&pairs(cell, base), run.experiment.margin)?.ratio)
}

/// The cell of another arm under the same setting, if it counts.
fn counted<'a>(run: &'a Run, mechanism: &str, like: &Cell) -> Option<&'a Cell> {
    let found = run.results.cell_at(mechanism, like.metric, &like.condition, like.point.as_ref());
    found.filter(|cell| cell.valid)
}

/// Compares the runs of B with those of A, by the margin and level of B's first experiment. Each side has one run at
/// least.
pub fn compare(a: &[(String, Run)], b: &[(String, Run)]) -> Compared {
    let experiment = &b[0].1.experiment;
    let mut cells: Vec<Pair> = Vec::new();
    let mut only_b = Vec::new();
    for (run, cell) in distinct(b) {
        let (own, base) = (alike(b, run, cell), alike(a, run, cell));
        if base.is_empty() {
            only_b.push(name(cell));
        } else {
            cells.push(pair(&base, &own, cell, run));
        }
    }
    let missing = |(run, cell): &(&Run, &Cell)| alike(b, run, cell).is_empty();
    let only_a: Vec<String> =
        distinct(a).into_iter().filter(missing).map(|(_, cell)| name(cell)).collect();
    judge(&mut cells, experiment.alpha);
    let differences = differences(&a[0].1, &b[0].1);
    Compared {
        a: a.iter().map(side).collect(),
        b: b.iter().map(side).collect(),
        warnings: warnings(a, b, &differences, &cells),
        differences,
        margin: experiment.margin,
        alpha: experiment.alpha,
        cells,
        only_a,
        only_b,
    }
}

fn side((folder, run): &(String, Run)) -> Side {
    let machine = &run.results.environment;
    Side {
        folder: folder.clone(),
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

/// Cells of a side's runs, each kind once, with the first run that has it.
fn distinct(side: &[(String, Run)]) -> Vec<(&Run, &Cell)> {
    let mut all: Vec<(&Run, &Cell)> = Vec::new();
    for (_, run) in side {
        for cell in &run.results.cells {
            if !all.iter().any(|(other, known)| same_cell(known, cell, other, run)) {
                all.push((run, cell));
            }
        }
    }
    all
}

/// The cells of a side that are of one kind with this one of `run`.
fn alike<'a>(side: &'a [(String, Run)], run: &Run, cell: &Cell) -> Vec<(&'a Run, &'a Cell)> {
    let of = |(_, own): &'a (String, Run)| {
        let found = own.results.cells.iter().find(|c| same_cell(c, cell, own, run));
        Some((own, found?))
    };
    side.iter().filter_map(of).collect()
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

/// The cells of a side that count.
fn valid<'a>(cells: &[(&'a Run, &'a Cell)]) -> Vec<(&'a Run, &'a Cell)> {
    cells.iter().copied().filter(|(_, cell)| cell.valid).collect()
}

fn pair(a: &[(&Run, &Cell)], b: &[(&Run, &Cell)], like: &Cell, run: &Run) -> Pair {
    let (base, own) = (valid(a), valid(b));
    let broken = base.len() < a.len() || own.len() < b.len();
    let arm = run.experiment.mechanism(&like.mechanism).ok();
    let others = [Some(&run.experiment.sentinel), arm.and_then(|arm| arm.base.as_ref())];
    let everywhere = |name: &&String| {
        **name != like.mechanism
            && base.iter().chain(&own).all(|(run, cell)| counted(run, name, cell).is_some())
    };
    let failed =
        [&base, &own].map(|cells| cells.iter().map(|(_, cell)| cell.failures.len()).sum::<usize>());
    let reference = others.into_iter().flatten().find(everywhere).cloned();
    let [a, b] = [base, own].map(|cells| Measured::of(&cells, reference.as_deref()));
    let logs = |of: &Measured| of.ratios.iter().map(|r| r.ln()).collect::<Vec<f64>>();
    let (before, after) = (logs(&a), logs(&b));
    let test = welch(&after, &before);
    let ratio = match (before.is_empty() || after.is_empty(), a.median, b.median) {
        (false, ..) => Some((mean(&after) - mean(&before)).exp()),
        (true, Some(a), Some(b)) if reference.is_none() && a > 0.0 && b > 0.0 => Some(b / a),
        _ => None,
    };
    let few = before.len().min(after.len()) < FEWEST;
    let why = if like.mechanism == run.experiment.sentinel {
        Some("the untranslated path, to which the ratios of the others are".into())
    } else if reference.is_none() {
        Some("no other arm was measured in all runs: no ratio inside a run".into())
    } else if failed.iter().any(|blocks| *blocks > 0) {
        Some(format!("the mechanism failed in {} blocks of A and {} of B", failed[0], failed[1]))
    } else if a.at_least || b.at_least {
        Some("the generator may have been the limit".into())
    } else if few && broken {
        Some("the cell does not count in some of the runs".into())
    } else if few {
        Some(format!("fewer than {FEWEST} runs on a side: can't be decided"))
    } else {
        None
    };
    Pair {
        mechanism: like.mechanism.clone(),
        label: like.label.clone(),
        metric: like.metric,
        point: like.point.clone(),
        unit: like.unit.clone(),
        condition: like.condition.label(),
        reference,
        ratio,
        ratio_ci95: test.map(|t| t.ci95.map(f64::exp)),
        p_welch: test.map(|t| t.p),
        p: None,
        p_equivalence: test.and_then(|t| {
            let margin = run.experiment.margin;
            equivalence(&t, (1.0 - margin).ln(), (1.0 + margin).ln())
        }),
        p_equivalence_adjusted: None,
        verdict: Verdict::Unresolved,
        why,
        a,
        b,
    }
}

/// Holm over all cells that can have a verdict, then the rule of a run's own comparisons.
fn judge(cells: &mut [Pair], alpha: f64) {
    let tests = |cell: &Pair| match cell.why {
        None => Tests { difference: cell.p_welch, equivalence: cell.p_equivalence },
        Some(_) => Tests::default(),
    };
    let raw: Vec<Tests> = cells.iter().map(tests).collect();
    for (cell, adjusted) in cells.iter_mut().zip(family(&raw)) {
        cell.p = adjusted.difference;
        cell.p_equivalence_adjusted = adjusted.equivalence;
        let better = cell.ratio.is_some_and(|r| (r > 1.0) == cell.metric.higher_is_better());
        cell.verdict = verdict(adjusted, alpha, better);
    }
}

impl Compared {
    /// Whether both sides have enough runs for a verdict.
    pub fn can_decide(&self) -> bool {
        self.a.len().min(self.b.len()) >= FEWEST
    }
}

fn warnings(
    a: &[(String, Run)],
    b: &[(String, Run)],
    differences: &[Difference],
    cells: &[Pair],
) -> Vec<String> {
    let mut all = Vec::new();
    let (one, other) = (&a[0].1, &b[0].1);
    if a.len().min(b.len()) < FEWEST {
        all.push(format!(
            "{} against {}: this can't decide anything, as a run is one value. The ratios describe these runs alone; \
             {FEWEST} runs on each side are the least for a verdict (--before RUN... --after RUN...).",
            runs(a.len()),
            runs(b.len())
        ));
    }
    let experiments = a.iter().chain(b).map(|(_, run)| run.experiment.name.as_str());
    if let Some(second) = experiments.clone().find(|name| *name != one.experiment.name) {
        all.push(format!(
            "Two experiments: {} and {second}. Arms of one name may not be the same.",
            one.experiment.name
        ));
    }
    let machine = |differences: &[Difference]| -> Vec<String> {
        differences.iter().filter(|d| d.machine).map(|d| d.what.clone()).collect()
    };
    let between = machine(differences);
    if !between.is_empty() {
        all.push(format!(
            "The machines differ ({}): a difference between the sides may be theirs.",
            between.join(", ")
        ));
    }
    for (name, side, first) in [("A", a, one), ("B", b, other)] {
        for (folder, run) in &side[1..] {
            let inside = machine(&self::differences(first, run));
            if !inside.is_empty() {
                all.push(format!(
                    "{name}: the machine of {folder} differs from the first run's ({}).",
                    inside.join(", ")
                ));
            }
        }
    }
    let margin = other.experiment.margin;
    let moved = |c: &&Pair| {
        c.mechanism == other.experiment.sentinel
            && c.ratio.is_some_and(|r| (r - 1.0).abs() > margin)
    };
    for cell in cells.iter().filter(moved) {
        all.push(format!(
            "The sentinel, which no translator touches, has {:.2} times A's {} in B: the machine or the kernel is \
             another, and ratios to the sentinel move with it.",
            cell.ratio.unwrap_or(1.0),
            quantity(cell.metric, cell.point.as_ref())
        ));
    }
    for (name, side) in [("A", a), ("B", b)] {
        for (folder, run) in side {
            all.extend(run.results.warnings.iter().map(|w| format!("{name}, {folder}: {w}")));
        }
    }
    if cells.is_empty() {
        all.push("The sides have no cell in common: nothing could be compared.".into());
    }
    all
}

fn runs(n: usize) -> String {
    format!("{n} {}", if n == 1 { "run" } else { "runs" })
}

#[cfg(test)]
mod tests;
