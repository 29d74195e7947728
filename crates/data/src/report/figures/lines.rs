//! A quantity over an axis of its load: one line per mechanism through the medians, a dot per deployment.

use std::collections::BTreeMap;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::frame::{self, Area, Drawn};
use super::{Figure, colour, log_marks, log_range};
use crate::artefacts::Run;
use crate::error::Result;
use crate::spec::{Axis, Metric, Point};
use crate::trial::Condition;

const SIZE: (u32, u32) = (960, 470);

struct Line {
    label: String,
    colour: RGBColor,
    /// Level and median.
    medians: Vec<(f64, f64)>,
    /// Level and value of each deployment.
    dots: Vec<(f64, f64)>,
}

/// The axis along which a quantity's points lie: their last one.
pub(super) fn along(points: &[&Point]) -> Option<Axis> {
    points.first().and_then(|point| point.axes().last())
}

/// Points that differ in the last axis alone, by what they have in common.
pub(super) fn families<'a>(points: &[&'a Point], axis: Axis) -> BTreeMap<Point, Vec<&'a Point>> {
    let mut all: BTreeMap<Point, Vec<&Point>> = BTreeMap::new();
    for point in points {
        all.entry(point.without(axis)).or_default().push(point);
    }
    all
}

/// Draws one quantity over its axis, both scales of the quantity; a figure for each family of points.
pub(super) fn draw(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    tag: &str,
) -> Result<Vec<Figure>> {
    let points = run.results.points(metric, condition);
    let Some(axis) = along(&points) else { return Ok(Vec::new()) };
    let mut figures = Vec::new();
    for (number, (fixed, points)) in families(&points, axis).into_iter().enumerate() {
        let lines = lines(run, condition, metric, axis, &points);
        if points.len() < 2 || lines.is_empty() {
            continue;
        }
        for log in [false, true] {
            let kind =
                format!("points{}", if number == 0 { String::new() } else { number.to_string() });
            let name = super::name_of(&kind, metric, if log { "log" } else { "linear" }, tag);
            let mut what = metric.unit().to_owned();
            if !fixed.label().is_empty() {
                what = format!("{what}; {}", fixed.label());
            }
            let legend: Vec<(String, RGBColor)> =
                lines.iter().map(|l| (l.label.clone(), l.colour)).collect();
            figures.push(frame::figure(name, SIZE, |root| {
                let used = frame::legend(root, SIZE.0, &legend)?;
                let (_, plot) = root.split_vertically(used);
                paint(&plot, &lines, axis, &what, log)
            })?);
        }
    }
    Ok(figures)
}

fn lines(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    axis: Axis,
    points: &[&Point],
) -> Vec<Line> {
    let mut all = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.same_as.is_none()) {
        let mut line = Line {
            label: m.label.clone(),
            colour: colour(&run.experiment, &m.name),
            medians: Vec::new(),
            dots: Vec::new(),
        };
        for point in points {
            let cell = run.results.cell_at(&m.name, metric, condition, Some(point));
            let (Some(cell), Some(level)) = (cell.filter(|c| c.valid), point.at(axis)) else {
                continue;
            };
            line.medians.extend(cell.median.map(|median| (level as f64, median)));
            line.dots.extend(cell.values.iter().map(|v| (level as f64, v.1)));
        }
        if !line.medians.is_empty() {
            all.push(line);
        }
    }
    all
}

fn paint(plot: &Area<'_>, lines: &[Line], axis: Axis, what: &str, log: bool) -> Drawn<()> {
    let every = || lines.iter().flat_map(|l| l.dots.iter().chain(&l.medians)).copied();
    let most = every().map(|p| p.1).fold(0.0, f64::max).max(1e-9);
    let least = every().map(|p| p.1).fold(f64::MAX, f64::min);
    let (first, last) = every().fold((f64::MAX, 0.0f64), |(a, b), p| (a.min(p.0), b.max(p.0)));
    let side = 0.03 * (last - first);
    let x = (first - side)..(last + side);
    if log && least > 0.0 && least < f64::MAX {
        let (lo, hi) = log_range(least, most);
        let y = (lo..hi).log_scale().with_key_points(log_marks(lo, hi));
        axes(plot, lines, x, y, axis, &format!("{what}, logarithmic"))
    } else {
        // A difference may be less than 0.
        axes(plot, lines, x, 1.1 * least.min(0.0)..1.1 * most, axis, what)
    }
}

fn axes<Y>(
    plot: &Area<'_>,
    lines: &[Line],
    x: std::ops::Range<f64>,
    y: Y,
    axis: Axis,
    what: &str,
) -> Drawn<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(plot)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)?;
    frame::lines(&mut chart, axis.label(), what)?;
    for line in lines {
        let dot = line.colour.mix(0.45).filled();
        chart.draw_series(line.dots.iter().map(|at| Circle::new(*at, 3, dot)))?;
        chart.draw_series(LineSeries::new(line.medians.clone(), line.colour.stroke_width(3)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_a_grid_make_a_figure_for_each_level_of_the_first_axis() {
        let grid =
            Point::grid(&[(Axis::Requests, vec![1, 2]), (Axis::Connections, vec![10, 20, 30])]);
        let points: Vec<&Point> = grid.iter().collect();
        let axis = along(&points).unwrap();
        assert_eq!(axis, Axis::Connections);
        let families = families(&points, axis);
        assert_eq!(families.len(), 2);
        assert!(families.values().all(|f| f.len() == 3));
        assert_eq!(along(&[]), None);
    }
}
