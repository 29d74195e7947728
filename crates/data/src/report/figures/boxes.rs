//! Box plots with a dot per deployment, one row per mechanism.

use fordway_stats::describe::{quantile, sorted};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{self, Area, Drawn};
use super::{
    Figure, INK, MUTED, PALETTE, anchored, colour, log_marks, log_range, name_of, own_slot,
};
use crate::analysis::Cell;
use crate::artefacts::Run;
use crate::compare::Pair;
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::Metric;
use crate::trial::Condition;

const WIDTH: u32 = 960;
const ROW: u32 = 50;
const LABELS: u32 = 390;

struct Row {
    label: String,
    colour: RGBColor,
    /// Least or 5 %, quartiles and median, greatest or 95 %.
    box_of: [f64; 5],
    dots: Vec<f64>,
    at_least: bool,
}

/// Draws one figure; none when nothing was measured.
pub(super) fn draw(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    log: bool,
    tag: &str,
) -> Result<Option<Figure>> {
    let rows: Vec<Row> = run
        .results
        .cells
        .iter()
        .filter(|c| c.metric == metric && c.condition == *condition && c.point.is_none())
        .filter_map(|c| row(run, c))
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let name = name_of("box", metric, if log { "log" } else { "linear" }, tag);
    let what = if metric.has_replies() {
        format!(
            "{}; box and whiskers: 5, 25, 50, 75, 95 % of all; dots: deployments",
            metric.unit()
        )
    } else {
        of_deployments(metric)
    };
    drawn(name, &rows, log, &what).map(Some)
}

fn of_deployments(metric: Metric) -> String {
    format!("{}; box: quartiles, whiskers: extremes, dots: deployments", metric.unit())
}

/// Draws one metric of two runs: for each cell its deployments in A, and below them those in B.
pub(crate) fn side_by_side(metric: Metric, cells: &[&Pair], log: bool) -> Result<Option<Figure>> {
    let of = |name: &str| PALETTE[own_slot(name).unwrap_or_default()];
    let mut rows = Vec::new();
    for cell in cells {
        let point = cell.point.as_ref().map_or_else(String::new, |p| format!(", {}", p.label()));
        for (name, side, colour) in [("A", &cell.a, MUTED), ("B", &cell.b, of(&cell.mechanism))] {
            if !side.values.is_empty() {
                let sample = sorted(&side.values);
                rows.push(Row {
                    label: format!("{}{point}: {name}", cell.label),
                    colour,
                    box_of: [0.0, 0.25, 0.5, 0.75, 1.0].map(|p| quantile(&sample, p)),
                    dots: side.values.clone(),
                    at_least: side.at_least,
                });
            }
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let name = name_of("side", metric, if log { "log" } else { "linear" }, "");
    drawn(name, &rows, log, &of_deployments(metric)).map(Some)
}

/// Values of a recording.
pub struct Recorded {
    /// Name of the row.
    pub label: String,
    /// What the box is of.
    pub values: Vec<f64>,
    /// What the dots are.
    pub dots: Vec<f64>,
}

/// Draws recordings of one series, one row each; none of them may be empty.
pub fn recordings(name: String, unit: &str, all: Vec<Recorded>) -> Result<Figure> {
    let row = |(number, one): (usize, Recorded)| {
        let sample = sorted(&one.values);
        let box_of = [0.05, 0.25, 0.5, 0.75, 0.95].map(|p| quantile(&sample, p));
        // Far apart in the palette.
        let colour = super::PALETTE[5 * number % super::PALETTE.len()];
        Row { label: one.label, colour, box_of, dots: one.dots, at_least: false }
    };
    let rows: Vec<Row> = all.into_iter().enumerate().map(row).collect();
    let what = format!(
        "{unit}; box and whiskers: 5, 25, 50, 75, 95 % of all samples; dots: means of blocks"
    );
    drawn(name, &rows, false, &what)
}

fn drawn(name: String, rows: &[Row], log: bool, what: &str) -> Result<Figure> {
    let size = (WIDTH, ROW * rows.len() as u32 + 74);
    let everything = || rows.iter().flat_map(|r| r.dots.iter().chain(&r.box_of)).copied();
    let most = everything().fold(0.0, f64::max);
    let least = everything().filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
    frame::figure(name, size, |root| {
        if log {
            let (lo, hi) = log_range(least, most);
            let x = (lo..hi).log_scale().with_key_points(log_marks(lo, hi));
            paint(root, rows, x, lo, &format!("{what}; logarithmic"))
        } else {
            paint(root, rows, 0.0..1.12 * most.max(1e-6), 0.0, what)
        }
    })
}

fn row(run: &Run, cell: &Cell) -> Option<Row> {
    let dots: Vec<f64> = cell.values.iter().map(|v| v.1).collect();
    if dots.is_empty() {
        return None;
    }
    let (sample, ends) = if cell.metric.has_replies() {
        let replies: Vec<f64> = run
            .trials
            .iter()
            .filter(|t| t.valid && t.failed.is_empty())
            .filter(|t| t.metric == cell.metric && t.mechanism == cell.mechanism)
            .filter(|t| t.condition == cell.condition)
            .flat_map(|t| t.replies.iter().copied())
            .collect();
        (sorted(&replies), [0.05, 0.95])
    } else {
        (sorted(&dots), [0.0, 1.0])
    };
    let at = |p| quantile(&sample, p);
    Some(Row {
        label: cell.label.clone(),
        colour: colour(&run.experiment, &cell.mechanism),
        box_of: [at(ends[0]), at(0.25), at(0.5), at(0.75), at(ends[1])],
        dots,
        at_least: cell.at_least,
    })
}

fn paint<X>(root: &Area<'_>, rows: &[Row], x: X, floor: f64, what: &str) -> Drawn<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(26)
        .x_label_area_size(50)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(x, 0.0..rows.len() as f64)?;
    frame::rows(&mut chart, what, 8)?;
    let clamp = |v: f64| v.max(floor);
    for (number, row) in rows.iter().enumerate() {
        // The first row stands at the top.
        let y = rows.len() as f64 - number as f64 - 0.5;
        let [low, q1, middle, q3, high] = row.box_of.map(clamp);
        let line = row.colour.stroke_width(2);
        let draw = |points: Vec<(f64, f64)>, style: ShapeStyle| PathElement::new(points, style);
        chart.draw_series([
            draw(vec![(low, y), (q1, y)], line),
            draw(vec![(q3, y), (high, y)], line),
            draw(vec![(low, y - 0.12), (low, y + 0.12)], line),
            draw(vec![(high, y - 0.12), (high, y + 0.12)], line),
        ])?;
        let body = [(q1, y - 0.27), (q3, y + 0.27)];
        chart.draw_series([
            Rectangle::new(body, row.colour.mix(0.22).filled()),
            Rectangle::new(body, line),
        ])?;
        let thick = row.colour.stroke_width(4);
        chart.draw_series([draw(vec![(middle, y - 0.27), (middle, y + 0.27)], thick)])?;
        let count = row.dots.len() as f64;
        chart.draw_series(row.dots.iter().enumerate().map(|(i, v)| {
            let offset = 0.3 * ((i as f64 + 0.5) / count - 0.5);
            Circle::new((clamp(*v), y + offset), 3, INK.mix(0.72).filled())
        }))?;
        let (_, pixel) = chart.backend_coord(&(floor, y));
        let style = anchored(18, INK, HPos::Right, VPos::Center);
        root.draw(&Text::new(row.label.clone(), (LABELS as i32 - 4, pixel - 8), style))?;
        let median = sorted(&row.dots);
        let sign = if row.at_least { "≥ " } else { "" };
        let value = format!("{sign}{}", nice(quantile(&median, 0.5)));
        let style = anchored(16, MUTED, HPos::Right, VPos::Center);
        root.draw(&Text::new(value, (LABELS as i32 - 4, pixel + 11), style))?;
    }
    Ok(())
}
