//! Heat maps: a quantity over an axis of its load, or two; a row per mechanism and level of the other axes.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{self, Area, Drawn};
use super::lines::along;
use super::{Figure, INK, MUTED, anchored};
use crate::artefacts::Run;
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::{Axis, Metric, Point};
use crate::trial::Condition;

const WIDTH: i32 = 960;
const LABELS: i32 = 400;
const ROW: i32 = 34;
const HEAD: i32 = 50;
const MARGIN: i32 = 14;

/// The colour of what is worst and of what is best: told apart without red and green, and in grey.
const WORST: (f64, f64, f64) = (251.0, 233.0, 219.0);
const BEST: (f64, f64, f64) = (45.0, 108.0, 186.0);

struct Row {
    label: String,
    values: Vec<Option<f64>>,
}

/// Draws the map of one quantity; none with fewer than two levels.
pub(super) fn draw(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    tag: &str,
) -> Result<Option<Figure>> {
    let points = run.results.points(metric, condition);
    let Some(axis) = along(&points) else { return Ok(None) };
    let mut levels: Vec<u64> = points.iter().filter_map(|point| point.at(axis)).collect();
    levels.sort_unstable();
    levels.dedup();
    let rows = rows(run, condition, metric, axis, &points, &levels);
    if levels.len() < 2 || rows.is_empty() {
        return Ok(None);
    }
    let name = super::name_of("heat", metric, "map", tag);
    let size = (WIDTH as u32, (HEAD + ROW * rows.len() as i32 + 2 * MARGIN) as u32);
    frame::figure(name, size, |root| paint(root, &rows, &levels, axis, metric)).map(Some)
}

fn rows(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    axis: Axis,
    points: &[&Point],
    levels: &[u64],
) -> Vec<Row> {
    let families = super::lines::families(points, axis);
    let mut all = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.same_as.is_none()) {
        for (fixed, points) in &families {
            let value = |level: &u64| {
                let point = points.iter().find(|p| p.at(axis) == Some(*level))?;
                let cell = run.results.cell_at(&m.name, metric, condition, Some(point))?;
                cell.median.filter(|_| cell.valid)
            };
            let values: Vec<Option<f64>> = levels.iter().map(value).collect();
            if values.iter().any(Option::is_some) {
                let fixed = fixed.label();
                let label = if fixed.is_empty() {
                    m.label.clone()
                } else {
                    format!("{}; {fixed}", m.label)
                };
                all.push(Row { label, values });
            }
        }
    }
    all
}

fn paint(root: &Area<'_>, rows: &[Row], levels: &[u64], axis: Axis, metric: Metric) -> Drawn<()> {
    let known =
        || rows.iter().flat_map(|r| r.values.iter().flatten()).copied().filter(|v| *v > 0.0);
    let (low, high) = known().fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
    let step = (WIDTH - LABELS - MARGIN) / levels.len() as i32;
    let head = format!("{}, {} over {}", metric.label(), metric.unit(), axis.label());
    root.draw(&Text::new(head, (MARGIN, MARGIN), anchored(17, MUTED, HPos::Left, VPos::Top)))?;
    for (column, level) in levels.iter().enumerate() {
        let x = LABELS + step * column as i32 + step / 2;
        let style = anchored(17, MUTED, HPos::Center, VPos::Bottom);
        root.draw(&Text::new(level.to_string(), (x, HEAD + MARGIN - 6), style))?;
    }
    for (number, row) in rows.iter().enumerate() {
        let top = HEAD + MARGIN + ROW * number as i32;
        let style = anchored(17, INK, HPos::Right, VPos::Center);
        root.draw(&Text::new(row.label.clone(), (LABELS - 10, top + ROW / 2), style))?;
        for (column, value) in row.values.iter().enumerate() {
            let left = LABELS + step * column as i32;
            let Some(value) = value else { continue };
            let share = shade(*value, low, high, metric.higher_is_better());
            let corners = [(left + 1, top + 1), (left + step - 1, top + ROW - 1)];
            root.draw(&Rectangle::new(corners, mixed(share).filled()))?;
            // On the darker half white text is read more easily.
            let ink =
                if share > 0.55 { RGBColor(0xFE, 0xFE, 0xFE) } else { RGBColor(0x20, 0x20, 0x20) };
            let style = anchored(if step < 56 { 13 } else { 16 }, ink, HPos::Center, VPos::Center);
            root.draw(&Text::new(nice(*value), (left + step / 2, top + ROW / 2), style))?;
        }
    }
    Ok(())
}

/// Place of a value between the worst, 0, and the best, 1, by its logarithm.
fn shade(value: f64, low: f64, high: f64, higher_is_better: bool) -> f64 {
    if !(value > 0.0 && high > low) {
        return if value > 0.0 { 1.0 } else { 0.0 };
    }
    let place = ((value / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
    if higher_is_better { place } else { 1.0 - place }
}

fn mixed(share: f64) -> RGBColor {
    let between = |a: f64, b: f64| (a + share * (b - a)).round() as u8;
    RGBColor(between(WORST.0, BEST.0), between(WORST.1, BEST.1), between(WORST.2, BEST.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_dark_whichever_way_is_better() {
        assert_eq!([shade(1.0, 1.0, 100.0, true), shade(100.0, 1.0, 100.0, true)], [0.0, 1.0]);
        assert_eq!([shade(1.0, 1.0, 100.0, false), shade(100.0, 1.0, 100.0, false)], [1.0, 0.0]);
        assert!((shade(10.0, 1.0, 100.0, true) - 0.5).abs() < 1e-12);
        // One value alone is both.
        assert_eq!([shade(5.0, 5.0, 5.0, true), shade(0.0, 5.0, 9.0, true)], [1.0, 0.0]);
    }
}
