//! The report as one page that needs nothing else: no network, no script.

use std::collections::BTreeMap;

use minijinja::Environment;
use serde::Serialize;

use super::deviations::deviations;
use super::figures::{self, Figure, name_of, slot};
use super::words::{self, headline, interval, interval_at, p, value, verdict};
use super::{cards, decision, grid, rfc8219, rfc9693, tables};
use crate::analysis::{Cell, Noise, Power, VsBaseline};
use crate::artefacts::Run;
use crate::error::{DataError, Result};
use crate::model::Decision;
use crate::numbers::nice;
use crate::plan::in_words;
use crate::spec::published::study;
use crate::spec::{Group, Metric, RunSpec};
use crate::trial::{GATE, NAMES};

const TEMPLATE: &str = include_str!("../../templates/report.html");
/// What the templates of all pages share.
const PARTS: &str = include_str!("../../templates/parts.html");
/// The style of all pages.
pub const STYLE: &str = include_str!("../../templates/report.css");

/// Colours of the figures and the page's variables for them.
const VARIABLES: &[(&str, &str)] = &[
    ("#1B1F24", "var(--ink)"),
    ("#5B6470", "var(--muted)"),
    ("#E3E6EA", "var(--grid)"),
    ("#D3E4D7", "var(--band)"),
    ("#FFFFFF", "none"),
];

#[derive(Serialize)]
struct Row {
    label: String,
    slot: usize,
    engine: Option<String>,
    cells: Vec<RowCell>,
}

#[derive(Serialize)]
struct RowCell {
    value: String,
    interval: String,
    ratio: String,
    ratio_interval: String,
    verdict: String,
    own: String,
    valid: bool,
}

#[derive(Serialize)]
struct Tab {
    label: &'static str,
    svg: String,
}

#[derive(Serialize)]
struct Chart {
    title: String,
    note: &'static str,
    tabs: Vec<Tab>,
}

#[derive(Serialize)]
struct Section {
    label: String,
    ladders: Vec<Chart>,
    lines: Vec<Chart>,
    heat: Vec<String>,
    verdicts: Option<super::verdicts::Matrix>,
    costs: Vec<Costs>,
    tails: Vec<Vec<String>>,
    tail: Option<String>,
    series: Vec<Chart>,
    boxes: Vec<Chart>,
    grids: Vec<Chart>,
    ratios: Option<String>,
    rtt: Vec<Vec<String>>,
    tests: Vec<Vec<String>>,
    rates: Vec<Vec<String>>,
    stateful: Option<rfc9693::Stated>,
    points: Vec<super::points::Table>,
}

#[derive(Serialize)]
struct GateRow {
    label: String,
    slot: usize,
    checks: Vec<(String, Option<bool>, String)>,
    broken: Vec<String>,
}

/// Metrics that belong together, as a table.
#[derive(Serialize)]
struct Costs {
    id: &'static str,
    title: &'static str,
    note: &'static str,
    metrics: Vec<String>,
    rows: Vec<Row>,
}

/// Makes the page.
pub fn render(run: &Run, drawn: &[Figure], decision: Option<&Decision>) -> Result<String> {
    let results = &run.results;
    let choices = run.experiment.run()?;
    let published = run.experiment.published.as_deref().map(study).transpose()?;
    let conditions = results.conditions();
    let sections: Vec<Section> =
        (0..conditions.len()).map(|number| section(run, number, drawn)).collect();
    let mut jinja = Environment::new();
    let fail =
        |e: minijinja::Error| DataError::Draw { what: "report.html".into(), why: e.to_string() };
    add_parts(&mut jinja).map_err(fail)?;
    jinja.add_template("report.html", TEMPLATE).map_err(fail)?;
    let template = jinja.get_template("report.html").map_err(fail)?;
    template
        .render(minijinja::Value::from(minijinja::value::Serde(serde_json::json!({
            "style": STYLE,
            "experiment": run.experiment,
            "run": choices,
            "headline": headline(&run.experiment, results),
            "started": results.started,
            "environment": results.environment,
            "cards": cards::cards(run),
            "unmeasured": unmeasured(run),
            "program_costs": results.program_costs.as_ref().map(costs_of_programs),
            "contents": contents(&sections, decision.is_some()),
            "decision": decision.map(decision::in_short),
            "http": run.experiment.metrics.iter().any(|m| m.group() == Some(Group::Web)),
            "sections": sections,
            "grids": rfc8219::grids(run),
            "gate_checks": columns(run),
            "gate": gate(run),
            "matrix": super::terminal::matrix(&run.experiment, results),
            "goals": results.goals.iter().map(goal_row).collect::<Vec<_>>(),
            "study": published,
            "agreement": results.agreement,
            "agreement_rows": results.agreement.as_ref().map(|found| &found.table),
            "averages": published.as_ref().filter(|s| !s.tests.is_empty()).map(|s| {
                grid::table(&grid::averaged(run), s)
            }),
            "study_throughput": published
                .as_ref()
                .filter(|s| !s.throughput.is_empty())
                .map(|s| tables::beside(run, s)),
            "study_rtt": published.as_ref().filter(|s| !s.rtt.is_empty()).map(tables::study_rtt),
            "calibration": results.calibration.iter().map(|c| {
                let over = c.family.map_or_else(String::new, |family| format!(" over IP{}", family.name()));
                let blocks = c.values.len();
                vec![
                    c.condition.label(),
                    format!("{}{over}", crate::spec::quantity(c.metric, c.point.as_ref())),
                    format!("{} {} (median of {blocks})", nice(c.value), c.metric.unit()),
                ]
            }).collect::<Vec<_>>(),
            "drift": results.drift.iter().map(|d| vec![
                d.condition.label(),
                crate::spec::quantity(d.metric, d.point.as_ref()),
                d.values.iter().map(|v| nice(v.1)).collect::<Vec<_>>().join("  "),
                format!("{:.1} %", 100.0 * d.spread),
                format!("{:+.1} %", 100.0 * d.per_block),
            ]).collect::<Vec<_>>(),
            "processors": super::processors::section(&results.environment),
            "limits": limits(run),
            "aa": aa(run),
            "power": Power::table(&results.power),
            "power_line": Power::line(&results.power),
            "noise": results.noise.as_ref().map(Noise::lines),
            "exclusions": results.exclusions.iter().map(|rule| vec![
                rule.when.clone(),
                rule.about.into(),
                rule.reason.clone(),
                if rule.declared { "declared" } else { "built in" }.into(),
                rule.trials.to_string(),
            ]).collect::<Vec<_>>(),
            "discarded": listed(&results.discarded),
            "failed": listed(&results.failed),
            "flagged": listed(&results.flagged),
            "warnings": results.warnings,
            "deviations": deviations(run),
            "trials": run.trials.len(),
            "path_mtus": super::points::path_mtus(run),
            "took": in_words(took(run)),
        }))))
        .map_err(fail)
}

/// A figure inside the page: scaled by the page, coloured by its variables.
fn inline(drawn: &[Figure], name: &str) -> Option<String> {
    drawn.iter().find(|f| f.name == name).map(in_page)
}

/// The drawing of a figure for a page that has the variables.
pub fn in_page(figure: &Figure) -> String {
    let mut svg = figure.svg.clone();
    for (from, to) in VARIABLES {
        svg = svg.replace(from, to);
    }
    for (from, to) in figures::variables() {
        svg = svg.replace(&from, &to);
    }
    // The drawing keeps its viewBox; a fixed size would not fit a phone.
    if let Some(at) = svg.find("width=\"") {
        let end = svg[at..].find(" viewBox").map_or(at, |e| at + e);
        svg.replace_range(at..end, "");
    }
    svg
}

/// Makes the macros of all pages known.
pub(super) fn add_parts(jinja: &mut Environment<'_>) -> std::result::Result<(), minijinja::Error> {
    jinja.add_template("parts.html", PARTS)
}

/// Anchors and names of what the page has, in its order.
fn contents(sections: &[Section], decision: bool) -> Vec<(&'static str, &'static str)> {
    let some = |of: fn(&Section) -> bool| sections.first().is_some_and(of);
    let mut all = vec![
        (decision, "decision", "Decision"),
        (true, "works", "What works"),
        (some(|s| !s.ladders.is_empty()), "ladder", "Cost ladder"),
    ];
    let groups = sections.first().map(|s| s.costs.as_slice()).unwrap_or_default();
    all.extend(groups.iter().map(|group| (true, group.id, group.title)));
    all.extend([
        (some(|s| !s.points.is_empty()), "points", "Points of a load"),
        (some(|s| !s.heat.is_empty()), "heat", "Heat map"),
        (some(|s| !s.series.is_empty()), "time", "Over time"),
        (some(|s| s.stateful.is_some()), "repetitions", "Repetitions"),
        (some(|s| !s.boxes.is_empty()), "distribution", "Distribution"),
        (some(|s| !s.tails.is_empty()), "tail", "Tail"),
        (some(|s| s.ratios.is_some() || s.verdicts.is_some()), "verdicts", "Verdicts"),
        (true, "validity", "Validity"),
        (true, "environment", "Environment"),
        (true, "replay", "Replay"),
    ]);
    all.into_iter().filter(|(there, ..)| *there).map(|(_, id, name)| (id, name)).collect()
}

/// How to read lines over points.
const DOTS: &str = "Line: medians. Dots: each deployment.";

fn section(run: &Run, number: usize, drawn: &[Figure]) -> Section {
    let conditions = run.results.conditions();
    let condition = conditions[number];
    let tag = figures::condition_tag(number, condition);
    let metrics = &run.experiment.metrics;
    let chart = |kind: &str, metric: Metric, variants: &[(&'static str, &str)], note| {
        let tabs: Vec<Tab> = variants
            .iter()
            .filter_map(|(label, variant)| {
                Some(Tab { label, svg: inline(drawn, &name_of(kind, metric, variant, &tag))? })
            })
            .collect();
        (!tabs.is_empty()).then(|| Chart { title: metric.label().into(), note, tabs })
    };
    let scales = [("Linear", "linear"), ("Logarithmic", "log"), ("Two axes", "dual")];
    let over_grid = "Median of the blocks' differences at each point. Thin: to native.";
    let over_time = "Thick: mean of all deployments. Thin: each deployment.";
    let lines = |metric: Metric| {
        let kinds = std::iter::once("points".to_owned()).chain((1..).map(|n| format!("points{n}")));
        kinds
            .map_while(move |kind| chart(&kind, metric, &scales[..2], DOTS))
            .collect::<Vec<Chart>>()
    };
    Section {
        label: condition.label(),
        ladders: metrics.iter().filter_map(|m| chart("ladder", *m, &scales[..1], "")).collect(),
        lines: metrics.iter().flat_map(|m| lines(*m)).collect(),
        heat: metrics
            .iter()
            .filter_map(|m| inline(drawn, &name_of("heat", *m, "map", &tag)))
            .collect(),
        verdicts: super::verdicts::matrix(run, number),
        costs: Group::ALL.into_iter().filter_map(|g| costs(run, number, g)).collect(),
        tails: tables::tails(run, number),
        tail: inline(drawn, &format!("tail{tag}")),
        series: metrics.iter().filter_map(|m| chart("series", *m, &scales, over_time)).collect(),
        boxes: metrics.iter().filter_map(|m| chart("box", *m, &scales[..2], "")).collect(),
        grids: metrics
            .iter()
            .filter_map(|m| chart("grid", *m, &[("Difference", "difference")], over_grid))
            .collect(),
        ratios: inline(drawn, &format!("ratios{tag}")),
        rtt: tables::round_trips(run, number),
        tests: tables::tests(run, number),
        rates: rfc8219::rates(run, number),
        stateful: rfc9693::stated(run, number),
        points: super::points::of_run(run, number),
    }
}

/// The table of one group; none when nothing of it was measured.
fn costs(run: &Run, number: usize, group: Group) -> Option<Costs> {
    let condition = run.results.conditions()[number];
    let wanted = |m: &&Metric| {
        m.group() == Some(group)
            && !m.has_points()
            && run.results.cells.iter().any(|c| c.metric == **m)
    };
    let metrics: Vec<Metric> = run.experiment.metrics.iter().filter(wanted).copied().collect();
    let mut rows = Vec::new();
    for m in &run.experiment.mechanisms {
        let of = |metric: &Metric| run.results.cell(&m.name, *metric, condition);
        let found: Vec<Option<&Cell>> = metrics.iter().map(of).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let engine = found.iter().flatten().find_map(|c| c.engine.clone());
        rows.push(Row {
            label: m.label.clone(),
            slot: slot(&run.experiment, &m.name),
            engine,
            cells: found.into_iter().map(row_cell).collect(),
        });
    }
    let head = |m: &Metric| match (group, m.direction()) {
        (Group::Processor, "both") => format!("{}, {}", m.short(), m.unit()),
        (Group::Processor, way) => format!("{} {way}, {}", m.short(), m.unit()),
        _ => format!("{}, {}", m.label(), m.unit()),
    };
    (!rows.is_empty()).then(|| Costs {
        id: group.id(),
        title: group.title(),
        note: group.note(),
        metrics: metrics.iter().map(head).collect(),
        rows,
    })
}

fn row_cell(cell: Option<&Cell>) -> RowCell {
    let vs = cell.and_then(|c| c.vs_baseline.as_ref());
    RowCell {
        value: cell.map_or_else(|| "–".into(), value),
        interval: interval_at(cell.and_then(|c| c.interval)),
        ratio: vs.map_or_else(String::new, VsBaseline::times),
        ratio_interval: interval(vs.and_then(|v| v.ci95)),
        verdict: cell.map(verdict).unwrap_or_default(),
        own: cell.and_then(|c| c.own_process).map_or_else(String::new, nice),
        valid: cell.is_none_or(|c| c.valid),
    }
}

/// The columns of the matrix: probes that somebody passed through.
fn columns(run: &Run) -> Vec<&'static str> {
    let made = |name: &&str| run.results.gate.values().flatten().any(|check| check.name == **name);
    GATE.iter().chain(NAMES).copied().filter(made).collect()
}

fn gate(run: &Run) -> Vec<GateRow> {
    let columns = columns(run);
    let mut rows = Vec::new();
    for m in &run.experiment.mechanisms {
        let Some(checks) = run.results.gate.get(&m.name) else { continue };
        let of = |name: &&str| {
            let check = checks.iter().find(|c| c.name == **name);
            let detail = check.map(|c| c.detail.clone()).unwrap_or_default();
            ((*name).to_owned(), check.map(|c| c.ok), detail)
        };
        let failed = checks.iter().filter(|c| !c.ok);
        rows.push(GateRow {
            label: m.label.clone(),
            slot: slot(&run.experiment, &m.name),
            checks: columns.iter().map(of).collect(),
            broken: failed.map(|c| format!("{}: {}", c.name, c.detail)).collect(),
        });
    }
    rows
}

fn goal_row(goal: &crate::analysis::Judged) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("text", goal.text.clone()),
        ("goal", goal.goal.clone()),
        (
            "measured",
            goal.measured.map_or_else(|| "–".into(), |v| format!("{} {}", nice(v), goal.unit)),
        ),
        ("interval", interval_at(goal.interval)),
        ("word", goal.word().into()),
        ("close", if goal.close { "close: chance may have decided" } else { "" }.into()),
        ("detail", goal.detail.clone()),
    ])
}

/// Metrics that could not be measured here: names and reason.
fn unmeasured(run: &Run) -> Vec<(String, String)> {
    let reasons = run.experiment.run().map(RunSpec::unmeasured_by_reason).unwrap_or_default();
    reasons.into_iter().map(|(why, what)| (what.join(", "), why.to_owned())).collect()
}

/// The table of the gateway's own measurement, or why there is none.
fn costs_of_programs(costs: &crate::costs::Costs) -> serde_json::Value {
    let mut table = costs.table();
    let head = table.remove(0);
    serde_json::json!({ "head": head, "rows": table, "missing": costs.missing })
}

fn listed(trials: &[crate::analysis::Discarded]) -> Vec<Vec<String>> {
    let row = |d: &crate::analysis::Discarded| {
        vec![
            d.mechanism.clone(),
            crate::spec::quantity(d.metric, d.point.as_ref()),
            d.block.to_string(),
            d.why.clone(),
        ]
    };
    trials.iter().map(row).collect()
}

/// What held each value down, with what shows it.
fn limits(run: &Run) -> Vec<Vec<String>> {
    let known = |cell: &&Cell| !matches!(cell.limiter.as_str(), "" | "none");
    let row = |cell: &Cell| {
        let arm = run.experiment.mechanism(&cell.mechanism);
        vec![
            arm.map_or_else(|_| cell.mechanism.clone(), |arm| arm.label.clone()),
            crate::spec::quantity(cell.metric, cell.point.as_ref()),
            cell.condition.label(),
            cell.limiter.clone(),
            cell.limiter_evidence.clone(),
            cell.n.to_string(),
        ]
    };
    run.results.cells.iter().filter(known).map(row).collect()
}

fn aa(run: &Run) -> Vec<Vec<String>> {
    let pairs = run.results.cells.iter().filter_map(|c| Some((c, c.vs_baseline.as_ref()?)));
    pairs
        .filter(|(_, vs)| vs.same)
        .map(|(cell, vs)| {
            vec![
                cell.condition.label(),
                crate::spec::quantity(cell.metric, cell.point.as_ref()),
                vs.times(),
                interval(vs.ci95),
                p(vs.p),
                words::verdict(cell),
            ]
        })
        .collect()
}

fn took(run: &Run) -> f64 {
    // Trials of one deployment share its time: count it once.
    let mut by_deployment: BTreeMap<(String, u32, String, bool), f64> = BTreeMap::new();
    for t in &run.trials {
        let gate = t.metric == Metric::Gate;
        let key = (t.condition.label(), t.block, t.mechanism.clone(), gate);
        let longest = by_deployment.entry(key).or_default();
        *longest = longest.max(t.elapsed_s);
    }
    by_deployment.values().sum()
}
