//! Figures as SVG. Colours are fixed here; the report page replaces them by its own variables, so
//! that the same figure serves a light and a dark page.

pub mod boxes;
mod frame;
mod grid;
mod heat;
mod ladder;
mod lines;
mod ratios;
mod series;
mod tail;
pub mod time;

use std::collections::BTreeMap;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::artefacts::Run;
use crate::error::{DataError, Result};
use crate::spec::{Experiment, Metric};
use crate::trial::Condition;

/// A drawn figure.
#[derive(Debug, Clone)]
pub struct Figure {
    /// File name without ending.
    pub name: String,
    /// The drawing.
    pub svg: String,
}

/// Text and axes.
const INK: RGBColor = RGBColor(0x1B, 0x1F, 0x24);
/// Secondary text.
const MUTED: RGBColor = RGBColor(0x5B, 0x64, 0x70);
/// Grid lines.
const GRID: RGBColor = RGBColor(0xE3, 0xE6, 0xEA);
/// Bands of tolerance.
const BAND: RGBColor = RGBColor(0xD3, 0xE4, 0xD7);
/// Page.
const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);

/// One colour per mechanism, the same in every figure.
const PALETTE: [RGBColor; 33] = [
    RGBColor(0x2F, 0x6F, 0xBE),
    RGBColor(0x86, 0xAF, 0xE0),
    RGBColor(0x1D, 0x41, 0x7A),
    RGBColor(0x3A, 0x9C, 0x9E),
    RGBColor(0x1F, 0x66, 0x6B),
    RGBColor(0xD9, 0x48, 0x0F),
    RGBColor(0x84, 0x5A, 0xC0),
    RGBColor(0xC2, 0x25, 0x5C),
    RGBColor(0x5C, 0x94, 0x0D),
    RGBColor(0xE0, 0x9A, 0x00),
    RGBColor(0x8F, 0x2D, 0x00),
    RGBColor(0x5F, 0x3D, 0xC4),
    RGBColor(0x7A, 0x6A, 0x00),
    RGBColor(0x0C, 0xA6, 0x78),
    RGBColor(0x49, 0x50, 0x57),
    RGBColor(0xE6, 0x49, 0x80),
    RGBColor(0x4C, 0x6E, 0xF5),
    RGBColor(0x10, 0x98, 0xAD),
    RGBColor(0xB0, 0x89, 0x00),
    RGBColor(0xD6, 0x33, 0x6C),
    RGBColor(0x2B, 0x8A, 0x3E),
    RGBColor(0x74, 0xB8, 0x16),
    RGBColor(0x08, 0x7F, 0x5B),
    RGBColor(0xF7, 0x67, 0x07),
    RGBColor(0xA6, 0x1E, 0x4D),
    RGBColor(0x86, 0x2E, 0x9C),
    RGBColor(0xFD, 0x7E, 0x14),
    RGBColor(0x36, 0x4F, 0xC7),
    RGBColor(0x9C, 0x36, 0xB5),
    RGBColor(0x5C, 0x7C, 0xFA),
    RGBColor(0x1B, 0x6E, 0x8A),
    RGBColor(0x94, 0xA3, 0x1A),
    RGBColor(0x79, 0x55, 0x48),
];

/// Names that always have the palette's colour of the same place.
const ORDER: [&str; 29] = [
    "native-v6",
    "native-v6-again",
    "native-v6-2hop",
    "native-v4",
    "native-v4-2hop",
    "clat-fordway",
    "clat-tayga",
    "clat-tundra",
    "clat-jool",
    "clat-fordway-interface",
    "clat-fordway-uplink",
    "siit-fordway-xdp",
    "464xlat-fordway",
    "464xlat-fordway-user",
    "464xlat-fordway-unbound",
    "464xlat-tayga",
    "dual-stack-fordway",
    "nat64-fordway-ftp",
    "nat-pt-fordway",
    "trt-fordway",
    "softwire-fordway-interface",
    "softwire-fordway",
    "dstm-fordway",
    "proxy-fordway",
    "proxy-apache",
    "proxy-squid",
    "site-fordway",
    "site-nginx",
    "site-apache",
];

/// The place of a mechanism of an experiment in the palette. Those without a colour of their own, and those whose colour an arm before
/// them has, take in their order the colours that no other arm of the experiment has; they are shared only where there are more arms
/// than colours.
pub fn slot(experiment: &Experiment, mechanism: &str) -> usize {
    let arms = || experiment.mechanisms.iter().map(|arm| arm.name.as_str());
    let mut taken: BTreeMap<usize, &str> = BTreeMap::new();
    for name in arms() {
        if let Some(own) = own_slot(name) {
            taken.entry(own).or_insert(name);
        }
    }
    let has_own =
        |name: &str| own_slot(name).filter(|own| taken.get(own).is_none_or(|n| *n == name));
    if let Some(own) = has_own(mechanism) {
        return own;
    }
    let free: Vec<usize> = (0..PALETTE.len()).filter(|place| !taken.contains_key(place)).collect();
    let mut others = arms().filter(|name| has_own(name).is_none());
    let number = others.position(|name| name == mechanism).unwrap_or(0);
    free.get(number % free.len().max(1)).copied().unwrap_or(number % PALETTE.len())
}

/// The place in the palette that a mechanism has in every experiment.
fn own_slot(mechanism: &str) -> Option<usize> {
    // The same engine has the same colour in all modes; NAT44 has that of the IPv4 path.
    let name = match mechanism {
        "siit-fordway" | "nat64-fordway" => "clat-fordway",
        "nat64-fordway-interface" => "clat-fordway-interface",
        "nat64-tayga" => "clat-tayga",
        "nat64-jool" => "clat-jool",
        "nat44" => "native-v4",
        // Beside native IPv4 and the same engine in other modes.
        "nat44-nftables" => "native-v4-2hop",
        "nat44-fordway" => "clat-tundra",
        "siit-fordway-kernel" => "siit-fordway-xdp",
        "clat-fordway-kernel" => "clat-fordway",
        "dstm-fordway-interface" => "dstm-fordway",
        "softwire-fordway-uplink" => "clat-fordway-uplink",
        // These stand beside arms of other modes at the same devices: colours that nobody has there.
        "nat64-fordway-ingress" => "clat-tundra",
        "nat64-fordway-xdp" => "native-v4-2hop",
        // Name servers stand beside arms of all other modes where the goals are judged.
        "dns64-unbound" => "464xlat-fordway",
        "dns64-unbound-again" => "464xlat-tayga",
        "dns64-unbound-all" => "native-v6-2hop",
        "dns64-fordway" => "464xlat-fordway-user",
        "dns64-fordway-all" => "464xlat-fordway-unbound",
        "dns64-bind" => "clat-jool",
        "dns64-bind-all" => "native-v4",
        name => name,
    };
    ORDER.iter().position(|n| *n == name)
}

fn colour(experiment: &Experiment, mechanism: &str) -> RGBColor {
    PALETTE[slot(experiment, mechanism)]
}

/// Colours as a drawing names them, each with its variable in the pages.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    let of = |(place, RGBColor(r, g, b)): (usize, &RGBColor)| {
        (format!("#{r:02X}{g:02X}{b:02X}"), format!("var(--c{place})"))
    };
    PALETTE.iter().enumerate().map(of)
}

/// Draws all figures of a run.
pub fn draw(run: &Run) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (number, condition) in run.results.conditions().into_iter().enumerate() {
        let tag = condition_tag(number, condition);
        for metric in run.experiment.metrics.iter().copied().filter(|m| m.is_throughput()) {
            for scale in [series::Scale::Linear, series::Scale::Log, series::Scale::Dual] {
                figures.extend(series::draw(run, condition, metric, scale, &tag)?);
            }
        }
        for metric in &run.experiment.metrics {
            for log in [false, true] {
                figures.extend(boxes::draw(run, condition, *metric, log, &tag)?);
            }
        }
        for metric in run.experiment.metrics.iter().copied().filter(|m| m.has_points()) {
            figures.extend(grid::draw(run, condition, metric, &tag)?);
        }
        for metric in ladder::metrics(run, condition) {
            figures.extend(ladder::draw(run, condition, metric, &tag)?);
        }
        for metric in run.experiment.metrics.iter().copied() {
            figures.extend(lines::draw(run, condition, metric, &tag)?);
            figures.extend(heat::draw(run, condition, metric, &tag)?);
        }
        figures.extend(tail::draw(run, condition, &tag)?);
        figures.extend(ratios::draw(run, condition, &tag)?);
    }
    Ok(figures)
}

/// A short name of a condition for file names: empty for the first one.
pub(crate) fn condition_tag(number: usize, condition: &Condition) -> String {
    if number == 0 {
        return String::new();
    }
    let shares = condition.shares.map_or_else(String::new, |shares| {
        format!("-cached{}-native{}", shares.cached, shares.native)
    });
    format!("-{}-{}s{shares}", condition.clocksource, condition.duration_s)
}

/// The file name of a figure.
pub(crate) fn name_of(kind: &str, metric: Metric, variant: &str, tag: &str) -> String {
    format!("{kind}-{}-{variant}{tag}", metric.name().replace('_', "-"))
}

fn failed(what: &str) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> DataError + '_ {
    move |why| DataError::Draw { what: what.to_owned(), why: why.to_string() }
}

fn text(size: u32, colour: RGBColor) -> TextStyle<'static> {
    let font = FontDesc::from(("system-ui, -apple-system, 'Segoe UI', sans-serif", size));
    font.color(&colour)
}

fn anchored(size: u32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    text(size, colour).pos(Pos::new(h, v))
}

/// Rough width of a text in the page's font, for layout.
fn width_of(text: &str, size: u32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.47) as i32
}

/// A tick label: no trailing zeros.
fn tick(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".into() } else { text.to_owned() }
}

/// The least value of a logarithmic axis that shows `least`, and the greatest for `most`.
fn log_range(least: f64, most: f64) -> (f64, f64) {
    let down = 10f64.powf(least.log10().floor());
    // Half decades keep the figure from being mostly empty.
    let down = if least / down >= 3.0 { 3.0 * down } else { down };
    (down * 0.9, most * 1.35)
}

/// Marks of a logarithmic axis: 1, 2 and 5 of each decade, or decades alone over a wide range.
fn log_marks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low > 2000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    decades
        .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
        .filter(|mark| (low..=high).contains(mark))
        .collect()
}

/// Makes an SVG scale with its box: the page decides the width.
fn responsive(svg: &str) -> String {
    svg.replacen("<svg ", "<svg role=\"img\" preserveAspectRatio=\"xMidYMid meet\" ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ticks_have_no_trailing_zeros() {
        assert_eq!([tick(0.5), tick(20.0), tick(0.0)], ["0.5", "20", "0"]);
    }

    #[test]
    fn logarithmic_axes_have_marks_inside_their_range() {
        let marks = log_marks(0.15, 12.0);
        assert_eq!(marks.len(), 6);
        assert!((marks[0] - 0.2).abs() < 1e-12 && (marks[5] - 10.0).abs() < 1e-9);
        assert_eq!(log_marks(0.5, 5000.0).len(), 4);
    }

    #[test]
    fn no_two_mechanisms_of_an_experiment_have_one_colour() {
        for experiment in crate::spec::Experiment::built_in().unwrap() {
            let slots: BTreeSet<usize> =
                experiment.mechanisms.iter().map(|m| slot(&experiment, &m.name)).collect();
            assert_eq!(slots.len(), experiment.mechanisms.len(), "{}", experiment.name);
        }
    }

    #[test]
    fn every_known_mechanism_has_its_own_colour() {
        let slots: BTreeSet<usize> = ORDER.iter().filter_map(|n| own_slot(n)).collect();
        assert_eq!(slots.len(), ORDER.len());
    }

    #[test]
    fn mechanisms_of_a_users_own_experiment_have_colours_of_their_own() {
        let mut experiment = Experiment::find("nat64").unwrap();
        // By the sum of their octets, these two had one colour; the last repeats another arm under a new name.
        let sum = |name: &str| name.bytes().map(usize::from).sum::<usize>() % PALETTE.len();
        let own = ["my-nat64-ab", "my-nat64-ba", "native-v6-aa2"];
        assert_eq!(sum(own[0]), sum(own[1]));
        for name in own {
            let first = experiment.mechanisms[0].clone();
            experiment.mechanisms.push(crate::spec::MechanismSpec { name: name.into(), ..first });
        }
        let slots: BTreeSet<usize> =
            experiment.mechanisms.iter().map(|m| slot(&experiment, &m.name)).collect();
        assert_eq!(slots.len(), experiment.mechanisms.len());
    }

    #[test]
    fn every_colour_follows_the_pages_theme() {
        let style = include_str!("../../../templates/report.css");
        for (_, variable) in variables() {
            let declared = variable.replace("var(", "").replace(')', ": #");
            assert_eq!(style.matches(&declared).count(), 2, "{declared}: light and dark");
        }
    }

    #[test]
    fn conditions_that_differ_have_figures_of_their_own() {
        let experiment = crate::fixture::experiment("dns64");
        let run = crate::spec::RunSpec {
            cached: vec![0, 50, 100],
            native: vec![0, 100],
            clocksources: vec!["tsc".into(), "hpet".into()],
            ..experiment.run.clone().unwrap()
        };
        let conditions = crate::plan::lay_out(&experiment, &run, "tsc").conditions;
        let tags: BTreeSet<String> =
            conditions.iter().enumerate().map(|(n, c)| condition_tag(n, c)).collect();
        assert_eq!((tags.len(), conditions.len()), (10, 10));
    }
}
