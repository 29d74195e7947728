//! Quantities that are measured at many points of one deployment: a column for each, and differences between mechanisms.

use std::collections::BTreeMap;

use fordway_stats::describe::median;
use serde::Serialize;

use super::words::value;
use crate::analysis::{Cell, Results, pairs};
use crate::artefacts::Run;
use crate::numbers::nice;
use crate::spec::{Axis, Experiment, Metric, Point};
use crate::trial::Condition;

/// One quantity over one axis.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    /// Quantity, unit, and what of the other axes is fixed.
    pub(crate) title: String,
    /// Names of the columns.
    pub(crate) head: Vec<String>,
    /// Medians, and below them ratios to the base, where there is one.
    pub(crate) rows: Vec<Vec<String>>,
    /// Differences between mechanisms, in the quantity's unit.
    pub(crate) differences: Vec<Vec<String>>,
}

/// All tables of a condition.
pub(crate) fn tables(experiment: &Experiment, results: &Results, of: &Condition) -> Vec<Table> {
    let all = experiment.metrics.iter().flat_map(|metric| {
        let groups = groups(&results.points(*metric, of));
        let draw = |(rest, points): (String, Vec<&Point>)| {
            table(experiment, results, of, *metric, rest, &points)
        };
        groups.into_iter().map(draw).collect::<Vec<Table>>()
    });
    all.filter(|table| !table.rows.is_empty()).collect()
}

/// The tables of a run's condition.
pub(super) fn of_run(run: &Run, number: usize) -> Vec<Table> {
    tables(&run.experiment, &run.results, run.results.conditions()[number])
}

/// The axis that a table goes along: the last one.
fn along(point: &Point) -> Option<Axis> {
    point.axes().last()
}

/// Points that differ in the last axis alone, by what they have in common, in words.
fn groups<'a>(points: &[&'a Point]) -> Vec<(String, Vec<&'a Point>)> {
    let mut all: Vec<(String, Vec<&Point>)> = Vec::new();
    for point in points {
        let rest = along(point).map(|axis| point.without(axis).label()).unwrap_or_default();
        match all.iter_mut().find(|(known, _)| *known == rest) {
            Some((_, group)) => group.push(point),
            None => all.push((rest, vec![point])),
        }
    }
    all
}

fn table(
    experiment: &Experiment,
    results: &Results,
    condition: &Condition,
    metric: Metric,
    rest: String,
    points: &[&Point],
) -> Table {
    let axis = points.first().and_then(|point| along(point));
    let mut head = vec![axis.map(Axis::label).unwrap_or_default().to_owned()];
    let level = |point: &&Point| axis.and_then(|axis| point.at(axis)).unwrap_or_default();
    head.extend(points.iter().map(|point| level(point).to_string()));
    let at = |name: &str, point: &Point| results.cell_at(name, metric, condition, Some(point));
    let mut rows = Vec::new();
    for m in &experiment.mechanisms {
        let cells: Vec<Option<&Cell>> = points.iter().map(|point| at(&m.name, point)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let words = cells.into_iter().map(|cell| cell.map_or_else(|| "–".into(), cell_words));
        rows.push(std::iter::once(m.label.clone()).chain(words).collect());
    }
    let mut differences = Vec::new();
    for difference in &experiment.differences {
        let of = |point: &&Point| {
            let (own, other) = (at(&difference.of, point)?, at(&difference.minus, point)?);
            (own.valid && other.valid).then(|| typical_difference(own, other)).flatten()
        };
        let all: Vec<Option<f64>> = points.iter().map(of).collect();
        if all.iter().any(Option::is_some) {
            let label = |name: &str| {
                let arm = experiment.mechanism(name);
                arm.map_or_else(|_| name.to_owned(), |arm| arm.label.clone())
            };
            let name = format!("{} − {}", label(&difference.of), label(&difference.minus));
            let words = all.into_iter().map(|one| one.map_or_else(|| "–".into(), signed));
            differences.push(std::iter::once(name).chain(words).collect());
        }
    }
    let fixed = if rest.is_empty() { rest } else { format!(", {rest}") };
    Table {
        title: format!("{}, {}{fixed}", metric.label(), metric.unit()),
        head,
        rows,
        differences,
    }
}

fn cell_words(cell: &Cell) -> String {
    match (cell.n, cell.of) {
        (0, 0) => return "does not count".into(),
        (0, _) => return "failed".into(),
        _ => {}
    }
    let vs = cell.vs_baseline.as_ref();
    let times = vs.map_or_else(String::new, |vs| format!(" (× {})", vs.times()));
    format!("{}{times}", value(cell))
}

/// Median of the blocks' differences.
fn typical_difference(own: &Cell, other: &Cell) -> Option<f64> {
    let all: Vec<f64> = pairs(own, other).into_iter().map(|(a, b)| a - b).collect();
    (!all.is_empty()).then(|| median(&all))
}

fn signed(value: f64) -> String {
    let sign = if value < 0.0 { "−" } else { "+" };
    format!("{sign}{}", nice(value.abs()))
}

/// How often each path MTU was seen, by mechanism: where requests with much content are slow, it is the first suspect.
pub(super) fn path_mtus(run: &Run) -> Vec<Vec<String>> {
    let mut seen: BTreeMap<(usize, u32), (u64, u64)> = BTreeMap::new();
    for trial in run.trials.iter().filter(|t| t.valid) {
        let place = run.experiment.mechanisms.iter().position(|m| m.name == trial.mechanism);
        if let (Some(place), Some(mtu)) = (place, trial.path_mtu) {
            let (trials, again) = seen.entry((place, mtu)).or_default();
            *trials += 1;
            *again += trial.retransmits.unwrap_or(0);
        }
    }
    let row = |((place, mtu), (trials, again)): ((usize, u32), (u64, u64))| {
        let label = run.experiment.mechanisms[place].label.clone();
        vec![label, mtu.to_string(), trials.to_string(), again.to_string()]
    };
    seen.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_becomes_a_table_for_each_level_of_its_first_axis() {
        let grid =
            Point::grid(&[(Axis::Requests, vec![1000, 2000]), (Axis::Connections, vec![10, 100])]);
        let all: Vec<&Point> = grid.iter().collect();
        let groups = groups(&all);
        assert_eq!(groups.len(), 2);
        assert_eq!((groups[0].0.as_str(), groups[0].1.len()), ("1000 requests", 2));
        let line = Point::grid(&[(Axis::Flows, vec![10, 20, 30])]);
        let all: Vec<&Point> = line.iter().collect();
        assert_eq!(super::groups(&all), [(String::new(), all.clone())]);
    }

    #[test]
    fn what_failed_is_told_from_what_does_not_count() {
        let cell = |n, of| Cell { n, of, ..crate::analysis::tests::template() };
        assert_eq!(
            [cell_words(&cell(0, 0)), cell_words(&cell(0, 2))],
            ["does not count", "failed"]
        );
        assert!(!["does not count", "failed"].contains(&cell_words(&cell(1, 2)).as_str()));
    }

    #[test]
    fn differences_have_their_sign() {
        assert_eq!([signed(-1.5), signed(0.0), signed(20.0)], ["−1.50", "+0", "+20.0"]);
    }
}
