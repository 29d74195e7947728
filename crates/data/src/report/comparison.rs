//! The page of a comparison of runs.

use minijinja::Environment;
use serde::Serialize;

use super::figures::{Figure, boxes, name_of};
use super::page::{STYLE, add_parts, in_page};
use super::words::{interval, interval_at, p};
use crate::compare::{Compared, Measured, Pair};
use crate::error::{DataError, Result};
use crate::numbers::nice;
use crate::spec::Metric;
use crate::spec::quantity;

const TEMPLATE: &str = include_str!("../../templates/compare.html");

#[derive(Serialize)]
struct Row {
    label: String,
    metric: String,
    unit: String,
    a: String,
    a_interval: String,
    b: String,
    b_interval: String,
    ratio: String,
    ratio_interval: String,
    tests: Vec<String>,
    verdict: &'static str,
    why: Option<String>,
}

/// A median with its sign of being a lower bound.
pub fn value(of: &Measured) -> String {
    let sign = if of.at_least { "≥ " } else { "" };
    of.median.map_or_else(|| "–".into(), |v| format!("{sign}{}", nice(v)))
}

/// One figure per metric and scale: both runs side by side.
pub fn draw(found: &Compared) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for metric in metrics(found) {
        let of: Vec<&Pair> = found.cells.iter().filter(|c| c.metric == metric).collect();
        for log in [false, true] {
            figures.extend(boxes::side_by_side(metric, &of, log)?);
        }
    }
    Ok(figures)
}

/// The metrics of a comparison, in its order.
fn metrics(found: &Compared) -> Vec<Metric> {
    let mut all = Vec::new();
    for cell in &found.cells {
        if !all.contains(&cell.metric) {
            all.push(cell.metric);
        }
    }
    all
}

/// A metric's two figures as the page has them.
fn chart(metric: Metric, drawn: &[Figure]) -> Option<serde_json::Value> {
    let tab = |(label, scale): (&str, &str)| {
        let name = name_of("side", metric, scale, "");
        let figure = drawn.iter().find(|f| f.name == name)?;
        Some(serde_json::json!({"label": label, "svg": in_page(figure)}))
    };
    let tabs: Vec<_> =
        [("Linear", "linear"), ("Logarithmic", "log")].into_iter().filter_map(tab).collect();
    (!tabs.is_empty())
        .then(|| serde_json::json!({"title": metric.label(), "note": "", "tabs": tabs}))
}

/// Makes the page.
pub fn render(found: &Compared, drawn: &[Figure]) -> Result<String> {
    let mut jinja = Environment::new();
    let fail =
        |e: minijinja::Error| DataError::Draw { what: "compare.html".into(), why: e.to_string() };
    add_parts(&mut jinja).map_err(fail)?;
    jinja.add_template("compare.html", TEMPLATE).map_err(fail)?;
    let rows: Vec<Row> = found.cells.iter().map(row).collect();
    let count = |word: &str| rows.iter().filter(|r| r.verdict == word).count();
    let words = ["better", "worse", "equivalent", "unresolved"];
    let counts: Vec<(&str, usize)> = words.into_iter().map(|w| (w, count(w))).collect();
    let charts: Vec<_> = metrics(found).into_iter().filter_map(|m| chart(m, drawn)).collect();
    let values = serde_json::json!({
        "style": STYLE,
        "found": found,
        "rows": rows,
        "counts": counts,
        "charts": charts,
    });
    let template = jinja.get_template("compare.html").map_err(fail)?;
    template.render(minijinja::Value::from(minijinja::value::Serde(values))).map_err(fail)
}

/// What stands below a side's median: its interval, and of how many it is.
fn below(of: &Measured) -> String {
    format!("{} n {} in {} runs", interval_at(of.interval), of.n, of.runs)
}

/// The ratios of a side's runs.
fn ratios(of: &Measured) -> String {
    of.ratios.iter().map(|r| nice(*r)).collect::<Vec<String>>().join("  ")
}

fn row(cell: &Pair) -> Row {
    Row {
        label: cell.label.clone(),
        metric: quantity(cell.metric, cell.point.as_ref()),
        unit: cell.unit.clone(),
        a: value(&cell.a),
        a_interval: below(&cell.a),
        b: value(&cell.b),
        b_interval: below(&cell.b),
        ratio: cell.ratio.map_or_else(|| "–".into(), nice),
        ratio_interval: interval(cell.ratio_ci95),
        tests: vec![
            cell.label.clone(),
            quantity(cell.metric, cell.point.as_ref()),
            cell.reference.clone().unwrap_or_else(|| "–".into()),
            ratios(&cell.a),
            ratios(&cell.b),
            p(cell.p_welch),
            p(cell.p),
            p(cell.p_equivalence),
            p(cell.p_equivalence_adjusted),
        ],
        verdict: cell.verdict.word(),
        why: cell.why.clone(),
    }
}
