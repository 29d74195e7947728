//! A/A: arms that are the same mechanism, each held against each. Whatever differs there is a false verdict.

use std::collections::BTreeMap;

use fordway_stats::multiple::{Tests, family as adjust};
use fordway_stats::paired::{Comparison, Verdict, compare};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Cell, Results, pairs};
use crate::spec::{Experiment, Metric};
use crate::trial::Condition;

/// What comparisons of equal mechanisms came out as.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Noise {
    /// Pairs of equal arms, over all metrics and conditions.
    pub comparisons: usize,
    /// Of them, those that the decision rule calls better or worse: false verdicts.
    pub false_verdicts: usize,
    /// Of them, those whose p is below alpha without Holm's adjustment.
    pub below_alpha: usize,
    /// How many of these chance alone gives: alpha times the comparisons.
    pub expected: f64,
    /// Shown to be equivalent.
    pub equivalent: usize,
    /// Not shown either way.
    pub unresolved: usize,
    /// The false verdicts.
    pub false_pairs: Vec<FalsePair>,
}

/// A false verdict.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FalsePair {
    /// Metric.
    pub metric: Metric,
    /// Factor setting.
    pub condition: Condition,
    /// Both arms.
    pub arms: [String; 2],
    /// Geometric mean of the blocks' ratios.
    pub ratio: f64,
    /// Holm-adjusted p.
    pub p: f64,
}

/// A pair of equal arms.
struct Pair<'a> {
    own: &'a Cell,
    base: &'a Cell,
    found: Comparison,
    /// Whether the generator limited one of them: then they may differ, but are not shown to be equal.
    bound: bool,
}

/// Compares all pairs; `None` where no two arms are the same mechanism. Holm's family is all pairs of a
/// condition, and of a metric that is measured at many points these alone.
pub(super) fn noise(experiment: &Experiment, results: &Results) -> Option<Noise> {
    // Which mechanism an arm is, whatever it is called.
    let root = |name: &str| -> Option<String> {
        let arm = experiment.mechanism(name).ok()?;
        Some(arm.same_as.clone().unwrap_or_else(|| arm.name.clone()))
    };
    let cells: Vec<(&Cell, String)> = results
        .cells
        .iter()
        .filter(|cell| cell.valid)
        .filter_map(|cell| Some((cell, root(&cell.mechanism)?)))
        .collect();
    let mut families: BTreeMap<(&Condition, Option<Metric>), Vec<Pair<'_>>> = BTreeMap::new();
    for (place, (base, of)) in cells.iter().enumerate() {
        let alike = |(own, other): &&(&Cell, String)| {
            other == of
                && own.metric == base.metric
                && own.condition == base.condition
                && own.point == base.point
        };
        for (own, _) in cells[place + 1..].iter().filter(alike) {
            if let Some(found) = compare(&pairs(own, base), experiment.margin) {
                let bound = !own.bounds.is_empty() || !base.bounds.is_empty();
                let own_family = base.point.is_some().then_some(base.metric);
                let family = families.entry((&base.condition, own_family)).or_default();
                family.push(Pair { own, base, found, bound });
            }
        }
    }
    let comparisons = families.values().map(Vec::len).sum();
    let mut all = Noise {
        comparisons,
        false_verdicts: 0,
        below_alpha: 0,
        expected: experiment.alpha * comparisons as f64,
        equivalent: 0,
        unresolved: 0,
        false_pairs: Vec::new(),
    };
    for family in families.into_values() {
        let below = |pair: &&Pair<'_>| pair.found.p_t.is_some_and(|p| p < experiment.alpha);
        all.below_alpha += family.iter().filter(below).count();
        let raw: Vec<Tests> = family.iter().map(|pair| pair.found.tests()).collect();
        for (pair, adjusted) in family.iter().zip(adjust(&raw)) {
            let higher = pair.base.metric.higher_is_better();
            match pair.found.verdict(adjusted, experiment.alpha, higher) {
                Verdict::Equivalent if !pair.bound => all.equivalent += 1,
                Verdict::Equivalent | Verdict::Unresolved => all.unresolved += 1,
                Verdict::Better | Verdict::Worse => {
                    all.false_verdicts += 1;
                    all.false_pairs.push(FalsePair {
                        metric: pair.base.metric,
                        condition: pair.base.condition.clone(),
                        arms: [pair.own.mechanism.clone(), pair.base.mechanism.clone()],
                        ratio: pair.found.ratio,
                        // Without a p, nothing is shown.
                        p: adjusted.difference.unwrap_or(1.0),
                    });
                }
            }
        }
    }
    (comparisons > 0).then_some(all)
}

impl FalsePair {
    /// In one line.
    fn words(&self) -> String {
        let [own, base] = &self.arms;
        let (metric, condition) = (self.metric.name(), self.condition.label());
        format!("{metric}: {own} / {base} = {:.3}, p {:.4} ({condition})", self.ratio, self.p)
    }
}

impl Noise {
    /// In one sentence, and one line for each false verdict.
    pub fn lines(&self) -> Vec<String> {
        let pairs = self.false_pairs.iter().map(FalsePair::words);
        std::iter::once(self.words()).chain(pairs).collect()
    }

    /// In a headline.
    pub fn headline(&self) -> String {
        format!(
            "A/A: {} comparisons of equal mechanisms: {} false verdicts, {} equivalent, {} unresolved.",
            self.comparisons, self.false_verdicts, self.equivalent, self.unresolved
        )
    }

    /// In one sentence.
    fn words(&self) -> String {
        format!(
            "A/A: {} comparisons of equal mechanisms: {} false verdicts (better or worse), {} equivalent, {} unresolved; \
             {} below alpha before Holm's adjustment, where chance alone gives {:.1}",
            self.comparisons,
            self.false_verdicts,
            self.equivalent,
            self.unresolved,
            self.below_alpha,
            self.expected
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Trial;

    /// Three arms that are one mechanism, and one that is not; `of` gives an arm's value in a block.
    fn analysed(of: impl Fn(usize, u32) -> f64) -> Noise {
        let experiment = Experiment::find("small-packets").unwrap();
        let mut experiment = experiment.repeated("native-v6", 3).unwrap();
        experiment.metrics = vec![Metric::UdpRateUp];
        let other = Experiment::find("small-packets").unwrap();
        experiment.mechanisms.push(other.mechanism("native-v4").unwrap().clone());
        let mut run = crate::spec::RunSpec::bare();
        run.mechanisms = experiment.mechanisms.iter().map(|m| m.name.clone()).collect();
        run.blocks = 8;
        experiment.run = Some(run);
        let mut trials = Vec::new();
        for (place, arm) in experiment.mechanisms.iter().enumerate() {
            for block in 1..=8 {
                trials.push(Trial {
                    key: format!("{place}/{block}"),
                    mechanism: arm.name.clone(),
                    block,
                    value: Some(of(place, block)),
                    valid: true,
                    ..Trial::blank(Metric::UdpRateUp)
                });
            }
        }
        let environment = crate::fixture::environment();
        crate::analysis::analyse(&experiment, environment, &trials).unwrap().noise.unwrap()
    }

    #[test]
    fn every_pair_of_equal_arms_is_compared_once_and_no_other() {
        let wave =
            |place: usize, block: u32| 1.0 + 0.001 * f64::from((block * 7 + place as u32) % 5);
        let same = analysed(|place, block| if place == 3 { 9.0 } else { wave(place, block) });
        assert_eq!((same.comparisons, same.false_verdicts, same.equivalent), (3, 0, 3));
        assert!((same.expected - 0.15).abs() < 1e-12);
        assert!(same.lines().len() == 1 && same.lines()[0].contains("3 comparisons"));
    }

    #[test]
    fn an_arm_that_differs_from_its_equals_is_a_false_verdict_in_each_of_its_pairs() {
        let wave =
            |place: usize, block: u32| 1.0 + 0.001 * f64::from((block * 7 + place as u32) % 5);
        let off = analysed(|place, block| wave(place, block) * if place == 1 { 1.2 } else { 1.0 });
        assert_eq!((off.comparisons, off.false_verdicts, off.below_alpha), (3, 2, 2));
        assert_eq!(off.lines().len(), 3);
        assert!(off.false_pairs.iter().all(|pair| pair.arms.iter().any(|a| a == "native-v6-aa2")));
    }
}
