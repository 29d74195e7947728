//! The goals of a table, judged by one run.

use std::collections::BTreeMap;

use fordway_stats::describe::{mean, median};
use fordway_stats::interval::{Interval, of_median, of_ratio};
use serde::Serialize;

use crate::analysis::{Cell, Results, pairs};
use crate::error::Result;
use crate::numbers::nice;
use crate::spec::goals::{Goal, Measure, Table, Want};
use crate::spec::{Experiment, Load, RunSpec};
use crate::trial::Condition;

/// A goal with what was measured.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Judged {
    /// Short name.
    pub id: String,
    /// The goal in words.
    pub text: String,
    /// The goal as a number: `>= 0.7 x`.
    pub goal: String,
    /// Measured.
    pub measured: Option<f64>,
    /// Interval of what was measured, with its level.
    pub interval: Option<Interval>,
    /// `x` or `ms`.
    pub unit: String,
    /// Whether the estimate reaches the goal; absent when it was not measured, and when the generator was the limit so
    /// that the ratio is a bound which leaves it open.
    pub met: Option<bool>,
    /// Whether chance may have decided: the goal lies inside the interval, or there is none.
    pub close: bool,
    /// The absolute values behind it.
    pub detail: String,
}

impl Judged {
    /// `met`, `missed`, `not decided` where a bound leaves it open, `not measured`.
    pub fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None if self.measured.is_some() => "not decided",
            None => "not measured",
        }
    }
}

/// Judges the goals of the experiment and of the table that it names, under the run's first condition.
pub(crate) fn judge(experiment: &Experiment, results: &Results) -> Result<Vec<Judged>> {
    let table = experiment.goals.as_deref().map(Table::find).transpose()?;
    let all = table.iter().flat_map(|table| &table.goal).chain(&experiment.own_goals);
    let run = experiment.run()?;
    Ok(all.map(|goal| judge_one(goal, experiment, results, run)).collect())
}

/// Why a goal has no number.
fn excuse(goal: &Goal, results: &Results, run: &RunSpec) -> String {
    let names =
        || [Some(&goal.mechanism), goal.base.as_ref(), goal.zero.as_ref()].into_iter().flatten();
    let skipped = names().find_map(|name| Some((name, run.skipped.get(name)?)));
    let broken = || {
        let of = |name: &String| results.cells.iter().find(|c| c.mechanism == **name && !c.valid);
        names().find_map(|name| Some((name, of(name)?.broken.clone()?)))
    };
    match (skipped, run.unmeasured.get(goal.metric.name())) {
        (Some((name, why)), _) => format!("{name} was skipped: {why}"),
        (None, Some(why)) => format!("not measured: {why}"),
        (None, None) => broken().map_or_else(
            || "no valid trial of a mechanism that it needs".into(),
            |(name, why)| format!("{name} is broken: {why}"),
        ),
    }
}

fn judge_one(goal: &Goal, experiment: &Experiment, results: &Results, run: &RunSpec) -> Judged {
    let measured = measure(goal, experiment, results);
    let sign = if goal.want == Want::AtLeast { "≥" } else { "≤" };
    let (value, interval, detail) =
        measured.unwrap_or_else(|| (None, None, excuse(goal, results, run)));
    let reached = |v: f64| match goal.want {
        Want::AtLeast => v >= goal.value,
        Want::AtMost => v <= goal.value,
    };
    Judged {
        id: goal.id.clone(),
        text: goal.text.clone(),
        goal: format!("{sign} {} {}", goal.value, goal.unit()),
        measured: value,
        interval,
        unit: goal.unit().to_owned(),
        met: value.map(reached).filter(|met| decides(goal, bounds(goal, results), *met)),
        close: value.is_some() && interval.is_none_or(|i| reached(i.low) != reached(i.high)),
        detail,
    }
}

/// Whether the generator may have limited the mechanism, and the base.
fn bounds(goal: &Goal, results: &Results) -> [bool; 2] {
    let Some(condition) = results.conditions().first().copied() else { return [false, false] };
    let of = |name: &str| cell(goal, name, results, condition).is_some_and(|c| c.at_least);
    [of(&goal.mechanism), goal.base.as_deref().is_some_and(of)]
}

/// A mechanism's cell of what the goal is about: of a metric with points at the middle one.
fn cell<'r>(
    goal: &Goal,
    name: &str,
    results: &'r Results,
    condition: &Condition,
) -> Option<&'r Cell> {
    let is_of = |c: &&Cell| {
        c.mechanism == goal.mechanism && c.metric == goal.metric && c.condition == *condition
    };
    let points: Vec<_> = results.cells.iter().filter(is_of).map(|c| c.point.as_ref()).collect();
    results.cell_at(name, goal.metric, condition, *points.get(points.len() / 2)?)
}

/// Whether an estimate that is a bound decides a goal: a lower one that reaches what is wanted at least, or an upper one
/// that does not. Only rates have bounds.
fn decides(goal: &Goal, bounds: [bool; 2], met: bool) -> bool {
    match (bounds, goal.want == Want::AtLeast) {
        ([false, false], _) => true,
        ([true, false], at_least) => met == at_least,
        ([false, true], at_least) => met != at_least,
        ([true, true], _) => false,
    }
}

/// Time per packet in a gateway, ns, when sender and receiver alone reach `ceiling`; both rates in
/// thousands per second, and all three work on one processor.
fn nanoseconds(rate: f64, ceiling: f64) -> f64 {
    1e6 / rate - 1e6 / ceiling
}

type Measured = (Option<f64>, Option<Interval>, String);

fn measure(goal: &Goal, experiment: &Experiment, results: &Results) -> Option<Measured> {
    let condition = results.conditions().first().copied()?.clone();
    let cell = |name: &str| cell(goal, name, results, &condition).filter(|c| c.valid);
    let own = cell(&goal.mechanism)?;
    let unit = goal.metric.unit();
    let family = experiment.mechanism(&goal.mechanism).ok()?.family;
    let ceiling = results.ceiling(&condition, goal.metric, None, family).map(|c| c.value);
    match goal.measure() {
        Measure::Value => {
            let (least, most) = (nice(own.min?), nice(own.max?));
            let detail = format!("{} deployments, least {least}, most {most} {unit}", own.n);
            Some((own.median, own.interval, detail))
        }
        Measure::Ratio | Measure::AddedShare => {
            let base = cell(goal.base.as_deref()?)?;
            let off = if goal.measure() == Measure::AddedShare { 1.0 } else { 0.0 };
            let ratios: Vec<f64> = pairs(own, base).iter().map(|(a, b)| a / b - off).collect();
            if ratios.is_empty() {
                return None;
            }
            if ratios.iter().any(|ratio| !ratio.is_finite()) {
                return Some((
                    None,
                    None,
                    format!("{} is 0 in a block: there is no ratio", base.label),
                ));
            }
            let mut detail = format!(
                "{} against {} {unit} ({}); median of {} pairs",
                nice(own.median?),
                nice(base.median?),
                base.label,
                ratios.len(),
            );
            detail.push_str(match (own.at_least, base.at_least) {
                (true, _) => "; the generator may have been the limit",
                (false, true) => "; the generator may have been the base's limit: at most this",
                (false, false) => "",
            });
            let one_processor = matches!(
                goal.metric.load(),
                Some(Load::Frames(_) | Load::Imix(_) | Load::NewFlows(_) | Load::Recycled)
            );
            if let Some(ceiling) = ceiling.filter(|_| one_processor) {
                let [own, base] = [own.median?, base.median?].map(|v| nanoseconds(v, ceiling));
                detail
                    .push_str(&format!("; without the tester {own:.0} against {base:.0} ns each"));
            }
            if let Some(native) = goal.zero.as_deref().and_then(cell) {
                let times: Vec<f64> = pairs(native, base).iter().map(|(a, b)| a / b).collect();
                detail.push_str(&format!("; {} itself is {:.1} times it", native.label, {
                    median(&times)
                }));
            }
            Some((Some(median(&ratios)), of_median(&ratios), detail))
        }
        Measure::AddedRatio => {
            let (base, zero) = (cell(goal.base.as_deref()?)?, cell(goal.zero.as_deref()?)?);
            // Blocks in which all three were measured.
            let natives: BTreeMap<u32, f64> = zero.values.iter().copied().collect();
            let bases: BTreeMap<u32, f64> = base.values.iter().copied().collect();
            let added = |(block, value): &(u32, f64)| {
                let native = natives.get(block)?;
                Some((value - native, bases.get(block)? - native))
            };
            let added: Vec<(f64, f64)> = own.values.iter().filter_map(added).collect();
            let ratio = of_ratio(&added)?;
            let (own_added, base_added): (Vec<f64>, Vec<f64>) = added.iter().copied().unzip();
            let (own_added, base_added) = (mean(&own_added), mean(&base_added));
            if base_added < 0.0 {
                let why = format!("{} adds less than nothing: there is no ratio", base.label);
                return Some((None, None, why));
            }
            let unbounded = if ratio.interval.is_none() {
                format!("; what {} adds cannot be told from nothing", base.label)
            } else {
                String::new()
            };
            let detail = format!(
                "{:.3} against {:.3} {unit} ({}), native {:.3}; added {own_added:.3} and {base_added:.3}, means of {} \
                 blocks{unbounded}",
                own.median?,
                base.median?,
                base.label,
                zero.median?,
                added.len()
            );
            Some((Some(ratio.estimate), ratio.interval, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_decides_a_goal_only_on_its_own_side() {
        let mut goal = Table::find("goals").unwrap().goal.remove(0);
        goal.want = Want::AtLeast;
        let of = |goal: &Goal, bounds| [true, false].map(|met| decides(goal, bounds, met));
        assert_eq!(of(&goal, [false, false]), [true, true]);
        assert_eq!(of(&goal, [true, false]), [true, false], "at least so much, and that is enough");
        assert_eq!(
            of(&goal, [false, true]),
            [false, true],
            "at most so much, and that is too little"
        );
        assert_eq!(of(&goal, [true, true]), [false, false]);
        goal.want = Want::AtMost;
        assert_eq!(of(&goal, [true, false]), [false, true]);
    }

    #[test]
    fn the_testers_own_time_is_taken_off() {
        // 2 million per second are 500 ns each; 10 million are 100.
        assert_eq!(nanoseconds(2000.0, 10_000.0), 400.0);
    }

    #[test]
    fn the_goals_name_mechanisms_and_metrics_of_the_experiment() {
        for (name, rows) in [("goals", 41), ("mechanisms-goals", 27)] {
            let table = Table::find(name).unwrap();
            let experiment = Experiment::find(name).unwrap();
            assert_eq!(experiment.goals.as_deref(), Some(name));
            assert_eq!(table.goal.len(), rows);
            for goal in table.goal {
                assert!(experiment.metrics.contains(&goal.metric), "{}", goal.id);
                let others = [goal.base.as_ref(), goal.zero.as_ref()];
                for name in others.into_iter().flatten().chain([&goal.mechanism]) {
                    let arm = experiment.mechanism(name).unwrap();
                    let own = arm.metrics.is_empty() || arm.metrics.contains(&goal.metric);
                    assert!(own, "{}: {name} does not measure it", goal.id);
                }
                assert_eq!(goal.measure() == Measure::Value, goal.base.is_none(), "{}", goal.id);
            }
        }
        assert!(Table::find("no such").is_err());
    }
}
