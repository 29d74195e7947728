//! Throughput over time: every deployment as a thin line, their mean as a thick one.

use std::collections::BTreeMap;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::frame::{self, Area, Drawn};
use super::{Figure, INK, MUTED, colour, log_marks, log_range, name_of, text, tick};
use crate::artefacts::Run;
use crate::error::Result;
use crate::spec::{Kind, Metric};
use crate::trial::Condition;

const SIZE: (u32, u32) = (960, 470);

/// The axes of the study's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// Logarithmic.
    Log,
    /// Baselines on the left axis, translators on the right one.
    Dual,
}

impl Scale {
    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
            Self::Dual => "dual",
        }
    }
}

type Points = Vec<(f64, f64)>;

struct Arm {
    label: String,
    kind: Kind,
    colour: RGBColor,
    runs: Vec<Points>,
    mean: Points,
}

/// Draws one figure; none when there is no series.
pub(super) fn draw(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    scale: Scale,
    tag: &str,
) -> Result<Option<Figure>> {
    let arms = arms(run, condition, metric);
    let native = arms.iter().any(|a| a.kind == Kind::Native);
    let clat = arms.iter().any(|a| a.kind == Kind::Clat);
    if arms.is_empty() || (scale == Scale::Dual && !(native && clat)) {
        return Ok(None);
    }
    let name = name_of("series", metric, scale.name(), tag);
    let legend = entries(&arms, scale);
    let paint = |root: &Area<'_>| {
        let used = frame::legend(root, SIZE.0, &legend)?;
        let (_, plot) = root.split_vertically(used);
        paint(&plot, &arms, scale)
    };
    frame::figure(name, SIZE, paint).map(Some)
}

fn arms(run: &Run, condition: &Condition, metric: Metric) -> Vec<Arm> {
    let mut all = Vec::new();
    for m in &run.experiment.mechanisms {
        // The repeated sentinel would only hide the first one.
        if m.same_as.is_some() {
            continue;
        }
        let runs: Vec<Points> = run
            .trials
            .iter()
            .filter(|t| t.valid && t.block > 0 && t.metric == metric)
            .filter(|t| t.mechanism == m.name && t.condition == *condition)
            .map(|t| t.series.clone())
            .filter(|s| !s.is_empty())
            .collect();
        if !runs.is_empty() {
            let ends = runs.iter().filter_map(|run| run.last());
            let length = match condition.flow_octets {
                Some(_) => ends.map(|(time, _)| *time).fold(0.0, f64::max),
                None => condition.duration_s as f64,
            };
            let mean = mean_of(&runs, length);
            let label = m.label.clone();
            all.push(Arm {
                label,
                kind: m.kind,
                colour: colour(&run.experiment, &m.name),
                runs,
                mean,
            });
        }
    }
    all
}

/// The mean over deployments at each time, by the interval in which a point lies.
fn mean_of(runs: &[Points], duration: f64) -> Points {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let step = duration / longest as f64;
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for (time, value) in runs.iter().flatten() {
        let bin = (time / step).round().max(1.0) as usize;
        // A last crumb after the end of the flow is no interval of its own.
        if bin <= longest {
            let sum = sums.entry(bin).or_default();
            *sum = (sum.0 + value, sum.1 + 1.0);
        }
    }
    sums.into_iter().map(|(bin, (sum, n))| (bin as f64 * step, sum / n)).collect()
}

/// Names and colours for the legend.
fn entries(arms: &[Arm], scale: Scale) -> Vec<(String, RGBColor)> {
    let entry = |arm: &Arm| {
        let label = match (scale, arm.kind) {
            (Scale::Dual, Kind::Clat) => format!("{} (right)", arm.label),
            _ => arm.label.clone(),
        };
        (label, arm.colour)
    };
    arms.iter().map(entry).collect()
}

fn greatest<'a>(arms: impl Iterator<Item = &'a Arm>) -> f64 {
    arms.flat_map(|a| a.runs.iter().flatten()).map(|p| p.1).fold(0.0, f64::max).max(1e-6)
}

fn least(arms: &[Arm]) -> f64 {
    arms.iter()
        .flat_map(|a| a.runs.iter().flatten())
        .map(|p| p.1)
        .filter(|v| *v > 0.0)
        .fold(f64::MAX, f64::min)
}

fn paint(plot: &Area<'_>, arms: &[Arm], scale: Scale) -> Drawn<()> {
    let end = arms.iter().flat_map(|a| a.mean.iter()).map(|p| p.0).fold(1.0, f64::max);
    let native = |a: &&Arm| a.kind == Kind::Native;
    match scale {
        Scale::Linear => axes(plot, arms, end, 0.0..1.1 * greatest(arms.iter()), "Gbit/s"),
        Scale::Log => {
            let (lo, hi) = log_range(least(arms), greatest(arms.iter()));
            axes(
                plot,
                arms,
                end,
                (lo..hi).log_scale().with_key_points(log_marks(lo, hi)),
                "Gbit/s, logarithmic",
            )
        }
        Scale::Dual => {
            let left = 0.0..1.1 * greatest(arms.iter().filter(native));
            let right = 0.0..1.1 * greatest(arms.iter().filter(|a| a.kind == Kind::Clat));
            let mut chart = ChartBuilder::on(plot)
                .margin(8)
                .x_label_area_size(46)
                .y_label_area_size(62)
                .right_y_label_area_size(62)
                .build_cartesian_2d(0.0..end, left)?
                .set_secondary_coord(0.0..end, right);
            frame::lines(&mut chart, "seconds", "native, Gbit/s")?;
            chart
                .configure_secondary_axes()
                .axis_style(MUTED)
                .label_style(text(17, INK))
                .y_label_formatter(&|v| tick(*v))
                .y_desc("translated, Gbit/s")
                .axis_desc_style(text(18, MUTED))
                .draw()?;
            for arm in arms.iter().filter(native) {
                for (points, style) in lines(arm) {
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
            for arm in arms.iter().filter(|a| a.kind == Kind::Clat) {
                for (points, style) in lines(arm) {
                    chart.draw_secondary_series(LineSeries::new(points, style))?;
                }
            }
            Ok(())
        }
    }
}

fn axes<Y>(plot: &Area<'_>, arms: &[Arm], end: f64, y: Y, what: &str) -> Drawn<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(plot)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(46)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..end, y)?;
    frame::lines(&mut chart, "seconds", what)?;
    for arm in arms {
        for (points, style) in lines(arm) {
            chart.draw_series(LineSeries::new(points, style))?;
        }
    }
    Ok(())
}

/// Thin lines of the deployments, then the thick mean.
fn lines(arm: &Arm) -> Vec<(Points, ShapeStyle)> {
    let mut all: Vec<(Points, ShapeStyle)> =
        arm.runs.iter().map(|run| (run.clone(), arm.colour.mix(0.28).stroke_width(1))).collect();
    all.push((arm.mean.clone(), arm.colour.stroke_width(3)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_taken_at_each_time() {
        let runs = vec![vec![(0.5, 2.0), (1.0, 4.0)], vec![(0.51, 4.0), (1.0, 8.0), (1.001, 0.0)]];
        let mean = mean_of(&runs[..1], 1.0);
        assert_eq!(mean, vec![(0.5, 2.0), (1.0, 4.0)]);
        assert!(mean_of(&runs, 1.0).len() <= 3);
    }
}
