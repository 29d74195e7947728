//! The cost ladder: what each mechanism carries of what native forwarding carries, the most first.

use fordway_stats::paired::compare;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{self, Area, Drawn};
use super::{Figure, INK, MUTED, anchored, colour};
use crate::analysis::pairs;
use crate::artefacts::Run;
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::Metric;
use crate::trial::Condition;

const WIDTH: u32 = 960;
const ROW: u32 = 38;
const LABELS: u32 = 470;

/// What a ladder may be made of, in the order in which a reader asks.
const METRICS: [Metric; 6] = [
    Metric::TcpThroughputDown,
    Metric::TcpThroughputUp,
    Metric::FrameRateUp,
    Metric::UdpRateUp,
    Metric::NewTcpConnections,
    Metric::HttpSmall,
];
/// Ladders of one page at most.
const MOST: usize = 3;

struct Step {
    label: String,
    colour: RGBColor,
    share: f64,
    ci: Option<(f64, f64)>,
    bound: bool,
}

/// Metrics that have a ladder under a condition.
pub(crate) fn metrics(run: &Run, condition: &Condition) -> Vec<Metric> {
    METRICS.into_iter().filter(|m| steps(run, condition, *m).len() > 1).take(MOST).collect()
}

/// Shares of the sentinel's value, paired inside blocks.
fn steps(run: &Run, condition: &Condition, metric: Metric) -> Vec<Step> {
    let native = run.results.cell(&run.experiment.sentinel, metric, condition);
    let Some(native) = native.filter(|c| c.valid) else { return Vec::new() };
    let mut all: Vec<Step> = Vec::new();
    for m in run.experiment.mechanisms.iter().filter(|m| m.same_as.is_none()) {
        let Some(cell) = run.results.cell(&m.name, metric, condition).filter(|c| c.valid) else {
            continue;
        };
        let Some(found) = compare(&pairs(cell, native), run.experiment.margin) else { continue };
        all.push(Step {
            label: m.label.clone(),
            colour: colour(&run.experiment, &m.name),
            share: found.ratio,
            ci: found.ratio_ci,
            // A lower bound of the base makes an upper bound of the share.
            bound: native.at_least && m.name != run.experiment.sentinel,
        });
    }
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all
}

/// Draws one ladder; none where there is no untranslated path or nothing beside it.
pub(super) fn draw(
    run: &Run,
    condition: &Condition,
    metric: Metric,
    tag: &str,
) -> Result<Option<Figure>> {
    let steps = steps(run, condition, metric);
    if steps.len() < 2 {
        return Ok(None);
    }
    let name = super::name_of("ladder", metric, "linear", tag);
    let size = (WIDTH, ROW * steps.len() as u32 + 74);
    frame::figure(name, size, |root| paint(root, &steps, metric)).map(Some)
}

fn paint(root: &Area<'_>, steps: &[Step], metric: Metric) -> Drawn<()> {
    let most = steps.iter().map(|s| 100.0 * s.share).fold(100.0, f64::max) * 1.12;
    let height = steps.len() as f64;
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(26)
        .x_label_area_size(50)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(0.0..most, 0.0..height)?;
    frame::rows(&mut chart, &format!("{}, % of native; line: 95 % interval", metric.label()), 8)?;
    let whole = PathElement::new(vec![(100.0, 0.0), (100.0, height)], MUTED.stroke_width(1));
    chart.draw_series([whole])?;
    for (number, step) in steps.iter().enumerate() {
        let y = height - number as f64 - 0.5;
        let share = 100.0 * step.share;
        let bar = [(0.0, y - 0.28), (share, y + 0.28)];
        chart.draw_series([Rectangle::new(bar, step.colour.mix(0.8).filled())])?;
        if let Some((lo, hi)) = step.ci {
            let ends = vec![((100.0 * lo).clamp(0.0, most), y), ((100.0 * hi).clamp(0.0, most), y)];
            chart.draw_series([PathElement::new(ends, INK.stroke_width(2))])?;
        }
        let (_, pixel) = chart.backend_coord(&(0.0, y));
        let style = anchored(18, INK, HPos::Right, VPos::Center);
        root.draw(&Text::new(step.label.clone(), (LABELS as i32 - 84, pixel), style))?;
        let style = anchored(18, MUTED, HPos::Right, VPos::Center);
        let sign = if step.bound { "≤ " } else { "" };
        let value = format!("{sign}{} %", nice(share));
        root.draw(&Text::new(value, (LABELS as i32 - 8, pixel), style))?;
    }
    Ok(())
}
