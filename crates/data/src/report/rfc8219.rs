//! DNS64 in the form of RFC 8219 section 9.2: median and percentiles of the rate without loss, the self-test of
//! the tester, and the two-dimensional table over names that are known and names with AAAA records of their own.

use fordway_stats::describe::{median, quantile, sorted};
use serde::Serialize;

use crate::analysis::Cell;
use crate::artefacts::Run;
use crate::numbers::nice;
use crate::spec::Metric;
use crate::trial::{Condition, Shares};

const RATE: Metric = Metric::DnsRate;
/// Fewest repetitions for the 1st and the 99th percentile.
const REPETITIONS: usize = 20;
/// What the tester must be able to do, per question that a server gets with one for each record it has to ask
/// for: RFC 8219 section 9.2.1.
const DELTA: f64 = 0.1;

/// The two-dimensional table of one server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Grid {
    /// The server.
    label: String,
    /// Heads: names with AAAA records.
    head: Vec<String>,
    /// A row for each share of known names.
    rows: Vec<Vec<String>>,
}

/// A row for each server under one condition.
pub(super) fn rates(run: &Run, number: usize) -> Vec<Vec<String>> {
    let condition = run.results.conditions()[number];
    let own = |cell: &Cell| {
        let family = run.experiment.mechanism(&cell.mechanism).ok()?.family;
        run.results.ceiling(condition, RATE, None, family).map(|ceiling| ceiling.value)
    };
    let cells = run.results.cells.iter().filter(|c| c.metric == RATE && c.condition == *condition);
    cells.filter(|cell| cell.n > 0).map(|cell| row(cell, condition, own(cell))).collect()
}

fn row(cell: &Cell, condition: &Condition, own: Option<f64>) -> Vec<String> {
    let values = sorted(&cell.values.iter().map(|v| v.1).collect::<Vec<f64>>());
    let middle = median(&values);
    let extreme = |p: f64| {
        if values.len() < REPETITIONS { "–".into() } else { nice(quantile(&values, p)) }
    };
    let needed = needed(middle, condition.shares.unwrap_or_default());
    let passed = match own {
        None => "not made".into(),
        Some(own) if own >= needed => format!("passed {}", nice(own)),
        Some(own) => format!("only {}: the tester may have been the limit", nice(own)),
    };
    vec![
        cell.label.clone(),
        cell.n.to_string(),
        nice(middle),
        extreme(0.01),
        extreme(0.99),
        nice(needed),
        passed,
    ]
}

/// The rate that the self-test has to pass for a result.
fn needed(rate: f64, shares: Shares) -> f64 {
    let of = |share: u8| f64::from(share) / 100.0;
    // Questions of the server's own for each that it is asked.
    let own = (1.0 - of(shares.cached)) * (2.0 - of(shares.native));
    (1.0 + DELTA) * own.max(1.0) * rate
}

/// The tables over both shares, where the run had more than one pair of them.
pub(super) fn grids(run: &Run) -> Vec<Grid> {
    let conditions = run.results.conditions();
    let Some(first) = conditions.first() else { return Vec::new() };
    // One table for each server: the first setting of the other factors.
    let same = |c: &&&Condition| {
        c.shares.is_some() && Condition { shares: first.shares, ..(**c).clone() } == **first
    };
    let conditions: Vec<&Condition> = conditions.iter().filter(same).copied().collect();
    if conditions.len() < 2 {
        return Vec::new();
    }
    let levels = |of: &dyn Fn(Shares) -> u8| {
        let mut all: Vec<u8> = conditions.iter().filter_map(|c| c.shares).map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (cached, native) = (levels(&|s| s.cached), levels(&|s| s.native));
    let found = |name: &str, shares: Shares| {
        let condition = conditions.iter().find(|c| c.shares == Some(shares))?;
        run.results.cell(name, RATE, condition).filter(|cell| cell.n > 0)
    };
    let mut all = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.same_as.is_none()) {
        let cell = |cached: u8, native: u8| {
            // Where all names are known, it makes no difference which records they have.
            let native = if cached == 100 { levels(&|s| s.native)[0] } else { native };
            found(&m.name, Shares { cached, native }).map_or_else(|| "–".into(), in_words)
        };
        let mut head = vec!["known names".to_owned()];
        head.extend(native.iter().map(|share| format!("{share} % with AAAA")));
        let rows: Vec<Vec<String>> = cached
            .iter()
            .map(|known| {
                let own = native.iter().map(|share| cell(*known, *share));
                std::iter::once(format!("{known} %")).chain(own).collect()
            })
            .collect();
        if rows.iter().flatten().any(|field| field != "–" && !field.ends_with('%')) {
            all.push(Grid { label: m.label.clone(), head, rows });
        }
    }
    all
}

/// Median and, with enough repetitions, both percentiles.
fn in_words(cell: &Cell) -> String {
    let values = sorted(&cell.values.iter().map(|v| v.1).collect::<Vec<f64>>());
    let middle = nice(median(&values));
    if values.len() < REPETITIONS {
        return middle;
    }
    format!("{middle} [{}; {}]", nice(quantile(&values, 0.01)), nice(quantile(&values, 0.99)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_self_test_is_that_of_the_standard_where_all_names_are_new() {
        let needed = |cached, native| needed(10.0, Shares { cached, native });
        assert!((needed(0, 0) - 22.0).abs() < 1e-9);
        assert!((needed(0, 100) - 11.0).abs() < 1e-9);
        assert!((needed(100, 0) - 11.0).abs() < 1e-9);
        assert!((needed(20, 0) - 17.6).abs() < 1e-9);
    }
}
