//! One series over time, however many samples it has: their mean, and how far they spread, by short stretches.

use plotters::prelude::*;

use super::{Figure, GRID, INK, MUTED, PALETTE, PAPER, failed, responsive, text, tick};
use crate::error::Result;

const SIZE: (u32, u32) = (960, 260);
/// Stretches that the figure tells apart.
const STRETCHES: usize = 400;

/// Draws a series of (seconds, value); it must not be empty.
pub fn draw(name: &str, unit: &str, points: &[(f64, f64)]) -> Result<Figure> {
    let name = name.to_owned();
    let end = points.iter().map(|p| p.0).fold(1e-3, f64::max);
    let (scale, word) = match end {
        e if e < 300.0 => (1.0, "s"),
        e if e < 3.0 * 3600.0 => (60.0, "min"),
        e if e < 3.0 * 86_400.0 => (3600.0, "h"),
        _ => (86_400.0, "days"),
    };
    let bins = stretches(points, end);
    let most = points.iter().map(|p| p.1).fold(0.0, f64::max).max(1e-6);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let error = failed(&name);
        let paint = || -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
            root.fill(&PAPER)?;
            let mut chart = ChartBuilder::on(&root)
                .margin(8)
                .margin_right(26)
                .x_label_area_size(44)
                .y_label_area_size(84)
                .build_cartesian_2d(0.0..end / scale, 0.0..1.08 * most)?;
            chart
                .configure_mesh()
                .light_line_style(PAPER.mix(0.0))
                .bold_line_style(GRID)
                .axis_style(MUTED)
                .label_style(text(16, INK))
                .axis_desc_style(text(16, MUTED))
                .x_desc(word)
                .y_desc(unit)
                .y_labels(5)
                .x_label_formatter(&|v| tick(*v))
                .y_label_formatter(&|v| tick(*v))
                .draw()?;
            let colour = PALETTE[0];
            chart.draw_series(bins.iter().map(|bin| {
                let x = bin.at / scale;
                PathElement::new(
                    vec![(x, bin.least), (x, bin.most)],
                    colour.mix(0.35).stroke_width(2),
                )
            }))?;
            let line = bins.iter().map(|bin| (bin.at / scale, bin.mean));
            chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            root.present()?;
            Ok(())
        };
        paint().map_err(error)?;
    }
    Ok(Figure { name, svg: responsive(&svg) })
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch {
    at: f64,
    mean: f64,
    least: f64,
    most: f64,
}

/// At most so many neighbours in one stretch that the figure has room for all.
fn stretches(points: &[(f64, f64)], end: f64) -> Vec<Stretch> {
    let width = end / STRETCHES as f64;
    let bin = |point: &(f64, f64)| (point.0 / width) as u64;
    points
        .chunk_by(|a, b| points.len() > STRETCHES && bin(a) == bin(b))
        .map(|some| {
            let n = some.len() as f64;
            let values = || some.iter().map(|p| p.1);
            Stretch {
                at: some.iter().map(|p| p.0).sum::<f64>() / n,
                mean: values().sum::<f64>() / n,
                least: values().fold(f64::MAX, f64::min),
                most: values().fold(f64::MIN, f64::max),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_of_samples_become_a_few_hundred_stretches() {
        let points: Vec<(f64, f64)> =
            (0..100_000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let bins = stretches(&points, 100_000.0);
        assert_eq!(bins.len(), STRETCHES);
        assert!(
            bins.iter().all(|b| b.least == 0.0 && b.most == 1.0 && (b.mean - 0.5).abs() < 1e-9)
        );
        let few = [(1.0, 5.0), (2.0, 7.0)];
        assert_eq!(stretches(&few, 2.0).len(), 2);
        let figure = draw("x", "%", &few).unwrap();
        assert!(figure.svg.contains("<svg") && !figure.svg.contains("NaN"));
    }
}
