//! Differences between mechanisms over a grid of points.

use fordway_stats::describe::median;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{
    Figure, GRID, INK, MUTED, PAPER, anchored, colour, failed, name_of, responsive, text, tick,
    width_of,
};
use crate::analysis::pairs;
use crate::artefacts::Run;
use crate::error::Result;
use crate::spec::{Axis, Metric, Point};
use crate::trial::Condition;

const SIZE: (u32, u32) = (960, 420);
/// Fewest points that make a grid worth a figure.
const FEWEST: usize = 4;

struct Line {
    label: String,
    colour: RGBColor,
    /// To a thin line belongs native IPv6, to a thick one the first other mechanism.
    thick: bool,
    /// Number of the point, difference.
    dots: Vec<(f64, f64)>,
}

/// Draws one figure; none for what is measured on fewer than two axes.
pub(super) fn draw(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    tag: &str,
) -> Result<Option<Figure>> {
    let points = run.results.points(metric, condition);
    let two_axes = points.iter().all(|point| point.axes().count() > 1);
    let lines = lines(run, condition, metric, &points);
    if points.len() < FEWEST || !two_axes || lines.is_empty() {
        return Ok(None);
    }
    let name = name_of("grid", metric, "difference", tag);
    let ends = || lines.iter().flat_map(|line| line.dots.iter().map(|dot| dot.1));
    let (low, high) = (ends().fold(0.0, f64::min), ends().fold(0.0, f64::max));
    let air = 0.08 * (high - low).max(1e-9);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let error = failed(&name);
        let paint = || -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
            root.fill(&PAPER)?;
            let (mut x, mut y) = (70, 16);
            for line in &lines {
                let width = 34 + width_of(&line.label, 15) + 14;
                if x > 70 && x + width > SIZE.0 as i32 - 20 {
                    (x, y) = (70, y + 20);
                }
                let stroke = line.colour.stroke_width(if line.thick { 3 } else { 1 });
                root.draw(&PathElement::new(vec![(x, y), (x + 24, y)], stroke))?;
                let style = anchored(15, INK, HPos::Left, VPos::Center);
                root.draw(&Text::new(line.label.clone(), (x + 31, y), style))?;
                x += width;
            }
            let (_, plot) = root.split_vertically(y + 16);
            let mut chart = ChartBuilder::on(&plot)
                .margin(8)
                .margin_right(26)
                .x_label_area_size(50)
                .y_label_area_size(84)
                .build_cartesian_2d(-0.5..points.len() as f64 - 0.5, low - air..high + air)?;
            let at = |v: &f64| {
                let whole = (v - v.round()).abs() < 1e-6 && *v >= 0.0;
                points
                    .get(v.round() as usize)
                    .filter(|_| whole)
                    .map_or_else(String::new, |p| short(p))
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(PAPER.mix(0.0))
                .bold_line_style(GRID)
                .axis_style(MUTED)
                .label_style(text(14, INK))
                .axis_desc_style(text(15, MUTED))
                .x_labels(2 * points.len() + 1)
                .x_desc("requests / connections")
                .y_desc(format!("difference, {}", metric.unit()))
                .x_label_formatter(&at)
                .y_label_formatter(&|v| tick(*v))
                .draw()?;
            let zero = vec![(-0.5, 0.0), (points.len() as f64 - 0.5, 0.0)];
            chart.draw_series([PathElement::new(zero, MUTED.stroke_width(1))])?;
            for line in &lines {
                let stroke = line.colour.stroke_width(if line.thick { 3 } else { 1 });
                chart.draw_series(LineSeries::new(line.dots.iter().copied(), stroke))?;
                let dots = line.dots.iter().map(|dot| Circle::new(*dot, 3, line.colour.filled()));
                chart.draw_series(dots)?;
            }
            root.present()?;
            Ok(())
        };
        paint().map_err(error)?;
    }
    Ok(Some(Figure { name, svg: responsive(&svg) }))
}

/// `1000/10`.
fn short(point: &Point) -> String {
    let level = |axis| point.at(axis).map(|level| level.to_string());
    let both = [level(Axis::Requests), level(Axis::Connections)];
    both.into_iter().flatten().collect::<Vec<String>>().join("/")
}

/// The median of the blocks' differences at each point.
fn lines(run: &Run, condition: &Condition, metric: Metric, points: &[&Point]) -> Vec<Line> {
    let mut all = Vec::new();
    for difference in &run.experiment.differences {
        let at = |point: &Point| {
            let of = |name: &str| {
                run.results.cell_at(name, metric, condition, Some(point)).filter(|c| c.valid)
            };
            let (own, other) = (of(&difference.of)?, of(&difference.minus)?);
            let each: Vec<f64> = pairs(own, other).into_iter().map(|(a, b)| a - b).collect();
            (!each.is_empty()).then(|| median(&each))
        };
        let dots: Vec<(f64, f64)> = points
            .iter()
            .enumerate()
            .filter_map(|(number, point)| Some((number as f64, at(point)?)))
            .collect();
        if dots.is_empty() {
            continue;
        }
        let native = run
            .experiment
            .mechanism(&difference.minus)
            .is_ok_and(|m| m.kind == crate::spec::Kind::Native);
        all.push(Line {
            label: format!("{} − {}", difference.of, difference.minus),
            colour: colour(&run.experiment, &difference.of),
            thick: !native,
            dots,
        });
    }
    all
}
