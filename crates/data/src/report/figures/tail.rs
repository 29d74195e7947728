//! The tail: round-trip times under a steady load, from the median to the last datagram.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{
    Figure, GRID, INK, MUTED, PAPER, anchored, colour, failed, log_marks, log_range, responsive,
    text, tick, width_of,
};
use crate::artefacts::Run;
use crate::error::Result;
use crate::histogram::{percentile, together};
use crate::spec::Metric;
use crate::trial::Condition;

const SIZE: (u32, u32) = (960, 470);
/// Steps per tenfold of rarity.
const STEPS: u32 = 20;

/// One mechanism: how many datagrams there are to one that took longer, and that time in µs.
struct Curve {
    label: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Draws the figure; none when no such load was run.
pub(super) fn draw(run: &Run, condition: &Condition, tag: &str) -> Result<Option<Figure>> {
    let curves = curves(run, condition);
    if curves.is_empty() {
        return Ok(None);
    }
    let name = format!("tail{tag}");
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let error = failed(&name);
        root.fill(&PAPER).map_err(|e| error(e.into()))?;
        paint(&root, &curves).map_err(&error)?;
        root.present().map_err(|e| error(e.into()))?;
    }
    Ok(Some(Figure { name, svg: responsive(&svg) }))
}

fn curves(run: &Run, condition: &Condition) -> Vec<Curve> {
    let mut all = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.same_as.is_none()) {
        let Some(cell) = run.results.cell(&m.name, Metric::LatencyP50, condition) else { continue };
        let of = run.trials.iter().filter(|t| {
            t.valid
                && t.mechanism == m.name
                && t.condition == *condition
                && t.metric == Metric::LatencyP50
        });
        let histogram = together(of.map(|t| t.histogram.as_slice()));
        let points = curve(&histogram, cell.sent.unwrap_or(0));
        if points.len() > 1 {
            all.push(Curve {
                label: m.label.clone(),
                colour: colour(&run.experiment, &m.name),
                points,
            });
        }
    }
    all
}

/// From the median on, as far as there are enough datagrams: (1 / share beyond, µs).
fn curve(histogram: &[(u64, u64)], sent: u64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for step in 0.. {
        let one_in = 2.0 * 10f64.powf(f64::from(step) / f64::from(STEPS));
        match percentile(histogram, sent, 1.0 - 1.0 / one_in) {
            Ok(us) => points.push((one_in, us)),
            Err(_) => break,
        }
    }
    points
}

type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn paint(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    curves: &[Curve],
) -> Drawn<()> {
    let used = legend(root, curves)?;
    let (_, plot) = root.split_vertically(used);
    let values = || curves.iter().flat_map(|c| c.points.iter());
    let least = values().map(|p| p.1).filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
    let most = values().map(|p| p.1).fold(0.0, f64::max);
    let end = values().map(|p| p.0).fold(10.0, f64::max);
    let (low, high) = log_range(least, most);
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .margin_right(40)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (2.0..end).log_scale().with_key_points(vec![2.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6]),
            (low..high).log_scale().with_key_points(log_marks(low, high)),
        )?;
    chart
        .configure_mesh()
        .light_line_style(PAPER.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(17, INK))
        .axis_desc_style(text(18, MUTED))
        .x_desc("percentile: each step to the right is ten times rarer")
        .y_desc("µs, logarithmic")
        .x_label_formatter(&|v| rarity(*v))
        .y_label_formatter(&|v| tick(*v))
        .draw()?;
    for curve in curves {
        chart.draw_series(LineSeries::new(
            curve.points.iter().map(|(x, y)| (*x, y.max(low))),
            curve.colour.stroke_width(3),
        ))?;
    }
    Ok(())
}

/// `P99.9` for one in a thousand.
fn rarity(one_in: f64) -> String {
    let percent = 100.0 * (1.0 - 1.0 / one_in);
    format!("P{}", tick(percent))
}

/// Draws the legend in rows and returns the height it took.
fn legend(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    curves: &[Curve],
) -> Drawn<i32> {
    let (mut x, mut y) = (70, 16);
    for curve in curves {
        let width = 34 + width_of(&curve.label, 18) + 14;
        if x + width > SIZE.0 as i32 - 20 {
            (x, y) = (70, y + 22);
        }
        root.draw(&PathElement::new(vec![(x, y), (x + 24, y)], curve.colour.stroke_width(3)))?;
        let style = anchored(18, INK, HPos::Left, VPos::Center);
        root.draw(&Text::new(curve.label.clone(), (x + 31, y), style))?;
        x += width;
    }
    Ok(y + 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_ends_where_too_few_datagrams_are_left() {
        let histogram: Vec<(u64, u64)> = (1..=10_000).map(|i| (i * 1000, 1)).collect();
        let points = curve(&histogram, 10_000);
        assert_eq!(points[0].1, 5000.0);
        let last = points[points.len() - 1];
        assert!(last.0 > 800.0 && last.0 <= 1000.1, "{last:?}");
        assert!(points.windows(2).all(|w| w[0].1 <= w[1].1));
        assert!(curve(&[], 0).is_empty());
    }

    #[test]
    fn marks_bear_the_names_of_percentiles() {
        assert_eq!([rarity(2.0), rarity(1e2), rarity(1e3)], ["P50", "P99", "P99.9"]);
    }
}
