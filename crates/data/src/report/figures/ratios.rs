//! Ratios to the base with their intervals, and the band in which two are called the same.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{self, Area, Drawn};
use super::{BAND, Figure, INK, MUTED, anchored, colour, log_marks};
use crate::artefacts::Run;
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::{Group, Metric};
use crate::trial::Condition;

const WIDTH: u32 = 960;
const ROW: u32 = 44;
const LABELS: u32 = 470;

struct Row {
    label: String,
    colour: RGBColor,
    ratio: f64,
    ci: Option<[f64; 2]>,
}

/// What the figure shows: the study's quantities and rates. The rest stands in the tables.
fn shown(metric: Metric) -> bool {
    matches!(
        metric.group(),
        Some(
            Group::Flow
                | Group::Packets
                | Group::Sessions
                | Group::Waiting
                | Group::Dns
                | Group::Web
                | Group::Own
        )
    )
}

/// Draws the figure; none when nothing was compared.
pub(super) fn draw(run: &Run, condition: &Condition, tag: &str) -> Result<Option<Figure>> {
    let mut rows = Vec::new();
    for metric in run.experiment.metrics.iter().filter(|m| shown(**m)) {
        for cell in &run.results.cells {
            if cell.metric != *metric || cell.condition != *condition || cell.point.is_some() {
                continue;
            }
            if let Some(vs) = &cell.vs_baseline {
                let what = match (cell.direction.as_str(), metric.is_throughput()) {
                    ("both", _) => metric.short().to_owned(),
                    (way, true) => way.to_owned(),
                    (way, false) => format!("{} {way}", metric.short()),
                };
                rows.push(Row {
                    label: format!("{}, {what}", cell.label),
                    colour: colour(&run.experiment, &cell.mechanism),
                    ratio: vs.ratio,
                    ci: vs.ci95,
                });
            }
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let name = format!("ratios{tag}");
    let size = (WIDTH, ROW * rows.len() as u32 + 74);
    let margin = run.experiment.margin;
    frame::figure(name, size, |root| paint(root, &rows, margin)).map(Some)
}

fn paint(root: &Area<'_>, rows: &[Row], margin: f64) -> Drawn<()> {
    // Wide intervals of small samples are cut at the frame; the numbers stand in the table.
    let low = rows.iter().map(|r| r.ratio).fold(0.5, f64::min) * 0.6;
    let high = rows.iter().map(|r| r.ratio).fold(1.5, f64::max) * 1.6;
    let height = rows.len() as f64;
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(26)
        .x_label_area_size(50)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(
            (low..high).log_scale().with_key_points(log_marks(low, high)),
            0.0..height,
        )?;
    frame::rows(&mut chart, "ratio to the base, logarithmic; bar: 95 % interval", 18)?;
    let band = [(1.0 - margin, 0.0), (1.0 + margin, height)];
    chart.draw_series([Rectangle::new(band, BAND.filled())])?;
    let one = PathElement::new(vec![(1.0, 0.0), (1.0, height)], MUTED.stroke_width(1));
    chart.draw_series([one])?;
    for (number, row) in rows.iter().enumerate() {
        let y = height - number as f64 - 0.5;
        if let Some([lo, hi]) = row.ci {
            let ends = vec![(lo.clamp(low, high), y), (hi.clamp(low, high), y)];
            chart.draw_series([PathElement::new(ends, row.colour.mix(0.55).stroke_width(7))])?;
        }
        let at = (row.ratio.clamp(low, high), y);
        chart.draw_series([Circle::new(at, 6, row.colour.filled())])?;
        let (_, pixel) = chart.backend_coord(&(1.0, y));
        let style = anchored(18, INK, HPos::Right, VPos::Center);
        root.draw(&Text::new(row.label.clone(), (LABELS as i32 - 70, pixel), style))?;
        let style = anchored(18, MUTED, HPos::Right, VPos::Center);
        root.draw(&Text::new(nice(row.ratio), (LABELS as i32 - 8, pixel), style))?;
    }
    Ok(())
}
