//! What figures of one kind have in common: how they begin, their axes, their legend.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Figure, GRID, INK, MUTED, PAPER, anchored, failed, responsive, text, tick, width_of};
use crate::error::Result;

/// The drawing.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
/// What drawing yields.
pub(super) type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Makes a figure of this size with what `paint` draws.
pub(super) fn figure(
    name: String,
    size: (u32, u32),
    paint: impl FnOnce(&Area<'_>) -> Drawn<()>,
) -> Result<Figure> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let error = failed(&name);
        root.fill(&PAPER).map_err(|e| error(e.into()))?;
        paint(&root).map_err(&error)?;
        root.present().map_err(|e| error(e.into()))?;
    }
    Ok(Figure { name, svg: responsive(&svg) })
}

/// Axes of a figure with a row per mechanism: marks below, names drawn by the caller.
pub(super) fn rows<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    what: &str,
    marks: usize,
) -> Drawn<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(PAPER.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(17, INK))
        .axis_desc_style(text(17, MUTED))
        .x_desc(what)
        .x_labels(marks)
        .x_label_formatter(&|v| tick(*v))
        .y_label_formatter(&|_| String::new())
        .draw()?;
    Ok(())
}

/// Axes of a figure with lines.
pub(super) fn lines<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    along: &str,
    what: &str,
) -> Drawn<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(PAPER.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(MUTED)
        .label_style(text(17, INK))
        .axis_desc_style(text(18, MUTED))
        .x_desc(along)
        .y_desc(what)
        .x_label_formatter(&|v| tick(*v))
        .y_label_formatter(&|v| tick(*v))
        .y_labels(7)
        .draw()?;
    Ok(())
}

/// Draws a legend in rows and returns the height it took.
pub(super) fn legend(root: &Area<'_>, width: u32, entries: &[(String, RGBColor)]) -> Drawn<i32> {
    let (mut x, mut y) = (70, 16);
    for (label, colour) in entries {
        let own = 34 + width_of(label, 18) + 14;
        if x + own > width as i32 - 20 && x > 70 {
            (x, y) = (70, y + 22);
        }
        root.draw(&PathElement::new(vec![(x, y), (x + 24, y)], colour.stroke_width(3)))?;
        let style = anchored(18, INK, HPos::Left, VPos::Center);
        root.draw(&Text::new(label.clone(), (x + 31, y), style))?;
        x += own;
    }
    Ok(y + 18)
}
