//! A recording, and two beside each other, as pages that need nothing else; and the same for a terminal.

use std::path::{Path, PathBuf};

use fordway_data::error::DataError;
use fordway_data::files::write_file;
use fordway_data::numbers::nice;
use fordway_data::report::figures::boxes::{Recorded, recordings};
use fordway_data::report::figures::{Figure, time};
use fordway_data::report::page::{STYLE, in_page};
use fordway_data::report::words::p;
use minijinja::Environment;
use serde::Serialize;

use super::compare::{ALPHA, Compared, MARGIN, Side, compare, warnings};
use super::folder::Recording;
use super::label;
use crate::error::Result;

const TEMPLATE: &str = include_str!("../../templates/monitor.html");

/// What is known of one recording.
#[derive(Debug, Serialize)]
pub(crate) struct Summed {
    /// Its folder's own name.
    pub(crate) name: String,
    /// What was watched.
    pub(crate) watched: String,
    /// When it began.
    pub(crate) started: String,
    /// Samples.
    pub(crate) samples: usize,
    /// Seconds from its beginning to the last of them.
    pub(crate) seconds: f64,
    /// By name: label, unit and numbers.
    pub(crate) series: Vec<Series>,
    /// Series without any value, and why.
    pub(crate) never: Vec<(String, String)>,
}

/// One series of a recording.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    /// Name in the samples.
    pub(crate) name: String,
    /// Name for people.
    pub(crate) label: String,
    /// Unit of all values.
    pub(crate) unit: &'static str,
    /// Its numbers.
    #[serde(flatten)]
    pub(crate) side: Side,
}

/// Sums a recording up.
pub(crate) fn sum(recording: &Recording) -> Summed {
    let series = recording.series().into_iter().filter_map(|name| {
        let (label, unit) = label(name);
        Some(Series { name: name.into(), label, unit, side: Side::of(recording, name)? })
    });
    Summed {
        name: recording.name.clone(),
        watched: recording.spec.watched.clone(),
        started: recording.spec.started.clone(),
        samples: recording.samples.len(),
        seconds: recording.samples.last().map_or(0.0, |s| s.at_s),
        series: series.collect(),
        never: recording.never(),
    }
}

/// Head and rows of the table of one recording.
pub(crate) fn table(summed: &Summed) -> Vec<Vec<String>> {
    let head = [
        "series", "unit", "n", "gaps", "min", "mean", "median", "P95", "max", "std dev", "r1",
        "worth",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for series in &summed.series {
        let s = &series.side.summary;
        let mut row = vec![series.label.clone(), series.unit.into()];
        row.extend([s.n.to_string(), series.side.gaps.to_string()]);
        row.extend([s.min, s.mean, s.median].map(nice));
        row.push(s.p95.map_or_else(|| "–".into(), nice));
        row.extend([s.max, s.stddev].map(nice));
        row.push(format!("{:.2}", series.side.autocorrelation));
        row.push(format!("{:.0}", series.side.worth));
        rows.push(row);
    }
    rows
}

/// Head and rows of the table of a comparison.
pub(crate) fn comparison(all: &[Compared]) -> Vec<Vec<String>> {
    let head = [
        "series",
        "unit",
        "verdict",
        "mean A",
        "mean B",
        "median A",
        "median B",
        "worth",
        "B - A",
        "95 %",
        "p Welch",
        "p Holm",
        "p ranks",
        "p as in 2012",
        "Hodges-Lehmann",
        "Cliff δ",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for c in all {
        let (a, b) = (&c.first, &c.second);
        let mut row = vec![c.label.clone(), c.unit.into(), c.verdict.into()];
        row.extend([a.summary.mean, b.summary.mean, a.summary.median, b.summary.median].map(nice));
        row.push(format!("{:.0} / {:.0}", a.worth, b.worth));
        row.push(c.difference.map_or_else(|| "–".into(), |d| signed(d.0)));
        row.push(c.difference.map_or_else(String::new, |d| d.1.map(signed).join(" – ")));
        row.extend([c.p_welch, c.p_holm, c.p_ranks, c.p_as_in_the_study].map(p));
        row.push(signed(c.shift));
        row.push(c.cliffs_delta.map_or_else(|| "–".into(), |d| format!("{d:+.2}")));
        rows.push(row);
    }
    rows
}

fn signed(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", nice(value))
}

/// Writes the report of a recording into its folder, and says where.
pub(crate) fn write_report(dir: &Path, recording: &Recording) -> Result<PathBuf> {
    let summed = sum(recording);
    let mut drawn = Vec::new();
    for series in &summed.series {
        let name = format!("time-{}", file_name(&series.name));
        drawn.push((
            series.label.clone(),
            time::draw(&name, series.unit, &recording.points(&series.name))?,
        ));
    }
    let mut notes: Vec<String> = summed
        .never
        .iter()
        .map(|(series, why)| format!("{}: never: {why}", label(series).0))
        .collect();
    if !recording.spec.absent.is_empty() {
        notes.push(format!("The agent does not have {}.", recording.spec.absent.join(", ")));
    }
    let facts = vec![
        summed.started.clone(),
        format!("{} samples, one every {} s", summed.samples, recording.spec.every_s),
        format!("recorded by {}", recording.environment.cpu_model),
        recording.environment.kernel.clone(),
    ];
    write(dir, "report.html", &Page {
        title: recording.spec.watched.clone(),
        lede: "Thick line: mean; behind it: from the least to the greatest sample of each short stretch. r1: \
               correlation of neighbours; worth: as many independent values as the samples are worth."
            .into(),
        facts,
        warnings: notes,
        tables: vec![(String::new(), table(&summed))],
        figures: drawn,
        replay: vec![recording.spec.replay.clone()],
    })
}

/// Writes a comparison into a folder, and says where.
pub(crate) fn write_comparison(
    dir: &Path,
    first: &Recording,
    second: &Recording,
) -> Result<PathBuf> {
    let all = compare(first, second);
    let mut drawn = Vec::new();
    for c in &all {
        let side = |letter: char, recording: &Recording, side: &Side| Recorded {
            label: format!("{letter}: {}", recording.name),
            values: recording.values(&c.series),
            dots: side.blocks.clone(),
        };
        let both = vec![side('A', first, &c.first), side('B', second, &c.second)];
        let name = format!("box-{}", file_name(&c.series));
        drawn.push((c.label.clone(), recordings(name, c.unit, both)?));
    }
    let fact = |letter: char, r: &Recording| {
        let samples = r.samples.len();
        format!("{letter}: {}: {}, {}, {samples} samples", r.name, r.spec.watched, r.spec.started)
    };
    let json = serde_json::to_vec_pretty(&all).unwrap_or_default();
    write_file(&dir.join("comparison.json"), &json)?;
    write(
        dir,
        "comparison.html",
        &Page {
            title: format!("{} against {}", second.spec.watched, first.spec.watched),
            lede: format!(
                "B against A. In tests each series counts as many values as it is worth independent ones. Equivalent: two \
             one-sided Welch tests within ±{:.0} % of A's mean; else better or worse: Welch's test; both adjusted \
             together by Holm's rule, below {ALPHA}. \"p ranks\" is Welch's test on ranks. \"p as in 2012\" is Student's pooled test on all \
             samples as if they were independent, as in the study: it finds too much.",
                100.0 * MARGIN
            ),
            facts: vec![fact('A', first), fact('B', second)],
            warnings: warnings(first, second, &all),
            tables: vec![(String::new(), comparison(&all))],
            figures: drawn,
            replay: vec![first.spec.replay.clone(), second.spec.replay.clone()],
        },
    )
}

/// What the template fills in.
struct Page {
    title: String,
    lede: String,
    facts: Vec<String>,
    warnings: Vec<String>,
    tables: Vec<(String, Vec<Vec<String>>)>,
    figures: Vec<(String, Figure)>,
    replay: Vec<String>,
}

fn write(dir: &Path, file: &str, page: &Page) -> Result<PathBuf> {
    let path = dir.join(file);
    let fail = |e: minijinja::Error| DataError::Draw { what: file.into(), why: e.to_string() };
    for (_, figure) in &page.figures {
        let to = dir.join("figures").join(format!("{}.svg", figure.name));
        write_file(&to, figure.svg.as_bytes())?;
    }
    let figures: Vec<(&String, String)> =
        page.figures.iter().map(|(title, figure)| (title, in_page(figure))).collect();
    let mut jinja = Environment::new();
    jinja.add_template("monitor.html", TEMPLATE).map_err(fail)?;
    let text = jinja
        .get_template("monitor.html")
        .and_then(|template| {
            template.render(minijinja::Value::from(minijinja::value::Serde(serde_json::json!({
                "style": STYLE, "title": page.title, "lede": page.lede, "facts": page.facts,
                "warnings": page.warnings, "tables": page.tables, "figures": figures,
                "replay": page.replay, "version": env!("CARGO_PKG_VERSION"),
            }))))
        })
        .map_err(fail)?;
    write_file(&path, text.as_bytes())?;
    Ok(path)
}

/// A series' name as that of a file.
fn file_name(series: &str) -> String {
    series.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
