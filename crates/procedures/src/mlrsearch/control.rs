//! The Controller: which load is tried next, and for how long (RFC 9971 leaves both open).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::classify::{Class, Measured, conditional_throughput, load_class};
use super::{Goal, GoalResult, SearchResult};

/// Bounds of a search, and how durations grow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// Min Load: nothing is tried below; positive.
    pub min_load: f64,
    /// Max Load: nothing is tried above.
    pub max_load: f64,
    /// Each duration is at most this many times the one before; more than 1.
    pub growth: f64,
    /// After so many trials the search ends, with irregular results for goals that are not reached.
    pub max_trials: u32,
}

/// Loads are kept apart by this share of themselves; closer ones are the same load.
const SAME: f64 = 1e-9;
/// Each step away from a bound is wider than the one before by this power.
const WIDEN: f64 = 2.0;

/// Every trial so far, by load. The bits of positive floating-point numbers are in the order of the numbers.
#[derive(Default)]
struct Trials {
    by_load: BTreeMap<u64, Vec<Measured>>,
    count: u32,
    seconds: f64,
}

impl Trials {
    fn at(&self, load: f64) -> &[Measured] {
        self.by_load.get(&load.to_bits()).map_or(&[], Vec::as_slice)
    }

    /// Relevant Lower and Upper Bound of a goal. Without an upper bound: the greatest lower bound.
    fn bounds(&self, goal: &Goal) -> (Option<f64>, Option<f64>) {
        let mut lower = None;
        for (bits, trials) in &self.by_load {
            match load_class(goal, trials) {
                Class::LowerBound => lower = Some(f64::from_bits(*bits)),
                Class::UpperBound => return (lower, Some(f64::from_bits(*bits))),
                Class::Undecided => {}
            }
        }
        (lower, None)
    }
}

/// Searches; `measure` runs a trial at a load for some seconds and returns its loss ratio over all directions.
pub fn search<E>(
    goals: &[Goal],
    control: &Control,
    mut measure: impl FnMut(f64, f64) -> Result<f64, E>,
) -> Result<SearchResult, E> {
    let mut trials = Trials::default();
    // Goals that bear less loss have smaller bounds, and smaller loads are better measured first (RFC 9971 section 5.3.4).
    let mut order: Vec<&Goal> = goals.iter().collect();
    order.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    // What a goal's search begins with: at first the rate that is forwarded at full load.
    let mut hints = None;
    for goal in order {
        for phase in phases(goal, control.growth) {
            reach(&phase, control, &mut trials, hints, &mut measure)?;
            let (lower, upper) = trials.bounds(&phase);
            hints = Some((lower, upper));
        }
    }
    let results = goals.iter().map(|goal| result(goal, &trials)).collect();
    Ok(SearchResult { goals: results, trials: trials.count, seconds: trials.seconds })
}

/// A goal's phases: trials of growing duration towards narrower bounds. The last one is the goal itself.
fn phases(goal: &Goal, growth: f64) -> Vec<Goal> {
    let span = (goal.final_s / goal.initial_s).max(1.0);
    let steps = (span.ln() / growth.max(1.1).ln() - 1e-9).ceil().max(0.0) as i32;
    let phase = |left: i32| {
        let shorter = span.powf(f64::from(left) / f64::from(steps.max(1)));
        let width = (goal.width * 2f64.powi(left)).min(0.5);
        Goal { final_s: goal.final_s / shorter, sum_s: goal.sum_s / shorter, width, ..*goal }
    };
    let mut all: Vec<Goal> = (1..=steps).rev().map(phase).collect();
    all.push(*goal);
    all
}

type Hints = Option<(Option<f64>, Option<f64>)>;

/// Measures until the bounds of a goal are close enough, or can't be found.
fn reach<E>(
    goal: &Goal,
    control: &Control,
    trials: &mut Trials,
    hints: Hints,
    measure: &mut impl FnMut(f64, f64) -> Result<f64, E>,
) -> Result<(), E> {
    let (mut hint_low, mut hint_high) = hints.unwrap_or_default();
    let mut step = 1.0 / (1.0 - goal.width);
    let mut begins = hints.is_none();
    loop {
        let (lower, upper) = trials.bounds(goal);
        let load = match (lower, upper) {
            (Some(low), Some(high)) if is_within(goal, low, high) => return Ok(()),
            (Some(low), None) if low >= control.max_load => return Ok(()),
            (None, Some(high)) if high <= control.min_load => return Ok(()),
            _ => {
                let inside = |load: &f64| {
                    lower.is_none_or(|low| *load > low * (1.0 + SAME))
                        && upper.is_none_or(|high| *load < high * (1.0 - SAME))
                };
                let hinted = hint_low.take().filter(inside);
                let hinted = hinted.or_else(|| hint_high.take().filter(inside));
                hinted.unwrap_or_else(|| {
                    let next = match (lower, upper) {
                        (Some(low), Some(high)) => (low * high).sqrt(),
                        (Some(low), None) => low * step,
                        (None, Some(high)) => high / step,
                        (None, None) => control.max_load,
                    };
                    if lower.is_none() != upper.is_none() {
                        step = step.powf(WIDEN);
                    }
                    next
                })
            }
        };
        let load = load.clamp(control.min_load, control.max_load);
        let mut loss = 0.0;
        while load_class(goal, trials.at(load)) == Class::Undecided {
            if trials.count >= control.max_trials {
                return Ok(());
            }
            loss = measure(load, goal.final_s)?;
            trials.count += 1;
            trials.seconds += goal.final_s;
            let measured = Measured { seconds: goal.final_s, loss_ratio: loss };
            trials.by_load.entry(load.to_bits()).or_default().push(measured);
        }
        if std::mem::take(&mut begins) && loss > goal.loss_ratio {
            // A device that loses the excess alone forwards this much.
            hint_low = Some(load * (1.0 - loss) * (1.0 - goal.width));
            hint_high = Some(load * (1.0 - loss));
        }
    }
}

/// Whether two bounds meet the Goal Width; the slack is that of binary fractions.
fn is_within(goal: &Goal, low: f64, high: f64) -> bool {
    (high - low) / high <= goal.width + SAME
}

fn result(goal: &Goal, trials: &Trials) -> GoalResult {
    let (lower, upper) = trials.bounds(goal);
    GoalResult {
        goal: *goal,
        lower,
        upper,
        conditional_throughput: lower
            .and_then(|load| conditional_throughput(goal, load, trials.at(load))),
        is_regular: lower.zip(upper).is_some_and(|(low, high)| is_within(goal, low, high)),
    }
}
