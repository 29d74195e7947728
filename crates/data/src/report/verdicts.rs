//! The comparison matrix: a mark for every comparison that the run made.

use fordway_stats::paired::Verdict;
use serde::Serialize;

use super::figures::slot;
use super::words::{interval, verdict};
use crate::artefacts::Run;
use crate::spec::Metric;

/// The matrix of one condition.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    /// Quantities.
    head: Vec<String>,
    /// A row per mechanism.
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    label: String,
    slot: usize,
    base: String,
    marks: Vec<Option<Mark>>,
}

#[derive(Debug, Serialize)]
struct Mark {
    /// Class of its colour.
    class: &'static str,
    /// The sign.
    sign: &'static str,
    ratio: String,
    /// Everything, for a pointer that rests on it.
    title: String,
}

/// The matrix; none where nothing was compared. Quantities with points have tables of their own.
pub(super) fn matrix(run: &Run, number: usize) -> Option<Matrix> {
    let condition = run.results.conditions()[number];
    let compared = |metric: &&Metric| {
        run.experiment.mechanisms.iter().any(|m| {
            let cell = run.results.cell(&m.name, **metric, condition);
            cell.is_some_and(|c| c.vs_baseline.is_some())
        })
    };
    let metrics: Vec<&Metric> = run.experiment.metrics.iter().filter(compared).collect();
    let mut rows = Vec::new();
    for m in &run.experiment.mechanisms {
        let mark = |metric: &&Metric| {
            let cell = run.results.cell(&m.name, **metric, condition)?;
            let vs = cell.vs_baseline.as_ref()?;
            let (class, sign) = match (vs.verdict, vs.same) {
                (Verdict::Better, false) => ("better", "▲"),
                (Verdict::Worse, false) => ("worse", "▼"),
                (Verdict::Equivalent, _) => ("equivalent", "="),
                (Verdict::Better | Verdict::Worse, true) => ("worse", "≠"),
                (Verdict::Unresolved, _) => ("unresolved", "?"),
            };
            let title = format!(
                "{}: × {} ({}), {}",
                metric.label(),
                vs.times(),
                interval(vs.ci95),
                verdict(cell)
            );
            Some(Mark { class, sign, ratio: vs.times(), title })
        };
        let marks: Vec<Option<Mark>> = metrics.iter().map(mark).collect();
        if marks.iter().any(Option::is_some) {
            let base = m.base.as_deref().and_then(|name| run.experiment.mechanism(name).ok());
            rows.push(Row {
                label: m.label.clone(),
                slot: slot(&run.experiment, &m.name),
                base: base.map(|b| b.label.clone()).unwrap_or_default(),
                marks,
            });
        }
    }
    let name = |metric: &&Metric| match metric.direction() {
        "both" => metric.label().to_owned(),
        way => format!("{} {way}", metric.short()),
    };
    (!rows.is_empty()).then(|| Matrix { head: metrics.iter().map(name).collect(), rows })
}
