//! Whether what is measured today stands in the order that a study found, from the data alone.
//!
//! Mechanisms are taken two by two. The study says which of the two is better, or does not distinguish them: a p value above
//! 0.05 shows no equality, so such a pair is neither agreed with nor contradicted. This run says
//! better, worse, equivalent or unresolved, by the experiment's own rule over paired blocks, with Holm's adjustment over all
//! pairs of one quantity.

use std::collections::BTreeMap;

use fordway_stats::describe::median;
use fordway_stats::multiple::{Tests, family};
use fordway_stats::order::kendall;
use fordway_stats::outcomes::beyond;
use fordway_stats::paired::{Comparison, Verdict, compare};
use serde::Serialize;

use crate::analysis::{Cell, Results};
use crate::numbers::nice;
use crate::spec::Experiment;
use crate::spec::published::{Ordering, Placed, Study};

/// How a pair of mechanisms stands here, beside what the study says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// In the same order.
    Agrees,
    /// The other way round.
    Reversed,
    /// The study tells them apart; here they are equivalent.
    Alike,
    /// The study does not distinguish them, so nothing here agrees with it or contradicts it.
    Open,
    /// Not shown either way.
    Unresolved,
}

/// One pair: the one that the study places first, and the other.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Pair {
    /// Their names in the study.
    pub names: [String; 2],
    /// What this run says of the first against the second.
    pub verdict: Verdict,
    /// That, beside what the study says.
    pub outcome: Outcome,
}

/// One quantity in the study's order and in ours.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Agreement {
    /// What is ordered.
    pub title: String,
    /// Rows: what is ordered, name, the study's value, ours, our arm. All as printed.
    pub rows: Vec<Vec<String>>,
    /// All pairs of mechanisms that were measured here.
    pub pairs: Vec<Pair>,
    /// Kendall's tau-b of the study's places and our medians; absent below two places.
    pub tau: Option<f64>,
    /// It in a sentence.
    pub sentence: String,
}

/// All quantities, and what they say together.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Findings {
    /// One entry per quantity of the study.
    pub quantities: Vec<Agreement>,
    /// Head and rows of all of them, for pages.
    #[serde(skip)]
    pub table: Vec<Vec<String>>,
    /// The paragraph.
    pub paragraph: String,
}

/// Sets the run beside a study; under the first condition of the run.
pub(crate) fn findings(experiment: &Experiment, results: &Results, study: &Study) -> Findings {
    let quantities: Vec<Agreement> =
        study.orderings.iter().map(|o| agreement(experiment, results, o)).collect();
    let mut paragraph: Vec<String> = quantities.iter().map(|q| q.sentence.clone()).collect();
    paragraph.push(conclusion(&quantities));
    let head = ["quantity", "mechanism", "the study", "here", "arm"].map(str::to_owned).to_vec();
    let rows = quantities.iter().flat_map(|q| q.rows.clone());
    let table = std::iter::once(head).chain(rows).collect();
    Findings { paragraph: paragraph.join(" "), table, quantities }
}

fn agreement(experiment: &Experiment, results: &Results, ordering: &Ordering) -> Agreement {
    let measured: Vec<(&Placed, BTreeMap<u32, f64>)> = ordering
        .mechanisms
        .iter()
        .map(|placed| (placed, values(results, ordering, &placed.mechanism)))
        .collect();
    let here: Vec<&(&Placed, BTreeMap<u32, f64>)> =
        measured.iter().filter(|(_, values)| !values.is_empty()).collect();
    let mut compared: Vec<(&Placed, &Placed, Option<Comparison>)> = Vec::new();
    for (number, (first, own)) in here.iter().enumerate() {
        for (second, other) in &here[number + 1..] {
            // The better one of the study comes first.
            let swap = first.place > second.place;
            let (a, b) = if swap { (second, first) } else { (first, second) };
            let (x, y) = if swap { (other, own) } else { (own, other) };
            let pairs: Vec<(f64, f64)> =
                x.iter().filter_map(|(block, v)| Some((*v, *y.get(block)?))).collect();
            compared.push((a, b, compare(&pairs, experiment.margin)));
        }
    }
    let raw: Vec<Tests> = compared
        .iter()
        .map(|(_, _, c)| c.as_ref().map(Comparison::tests).unwrap_or_default())
        .collect();
    let higher = ordering.metric.higher_is_better();
    let pairs: Vec<Pair> = compared
        .into_iter()
        .zip(family(&raw))
        .map(|((a, b, found), adjusted)| {
            let said = found
                .map_or(Verdict::Unresolved, |c| c.verdict(adjusted, experiment.alpha, higher));
            let said = beyond([a, b].map(|of| limited(results, ordering, &of.mechanism)), said);
            let names = [a.label.clone(), b.label.clone()];
            Pair { names, verdict: said, outcome: outcome(a.place == b.place, said) }
        })
        .collect();
    let places: Vec<(f64, f64)> = here
        .iter()
        .map(|(placed, values)| {
            let all: Vec<f64> = values.values().copied().collect();
            // Place 1 is the best: with the best value first, both run the same way.
            let sign = if higher { -1.0 } else { 1.0 };
            (f64::from(placed.place), sign * median(&all))
        })
        .collect();
    let tau = kendall(&places);
    let mut rows = Vec::new();
    for (placed, values) in &measured {
        let all: Vec<f64> = values.values().copied().collect();
        let own = match all.is_empty() {
            true => "not measured".into(),
            false => format!("{} {}", nice(median(&all)), ordering.metric.unit()),
        };
        let arm = experiment.mechanism(&placed.mechanism).map(|m| m.label.clone());
        rows.push(vec![
            ordering.title.clone(),
            placed.label.clone(),
            placed.value.clone(),
            own,
            arm.unwrap_or_default(),
        ]);
    }
    let sentence = sentence(ordering, &pairs, &measured, tau);
    Agreement { title: ordering.title.clone(), rows, pairs, tau, sentence }
}

/// Whether the generator limited any of the values.
fn limited(results: &Results, ordering: &Ordering, mechanism: &str) -> bool {
    cells(results, ordering, mechanism).iter().any(|cell| cell.at_least)
}

/// Cells of an ordering under the first condition.
fn cells<'a>(results: &'a Results, ordering: &Ordering, mechanism: &str) -> Vec<&'a Cell> {
    let Some(condition) = results.conditions().first().copied() else { return Vec::new() };
    let at = |cell: &&Cell| {
        let wanted = |(axis, level): (&crate::spec::Axis, &u64)| {
            cell.point.as_ref().and_then(|point| point.at(*axis)) == Some(*level)
        };
        cell.mechanism == mechanism
            && cell.metric == ordering.metric
            && cell.condition == *condition
            && ordering.point.iter().all(wanted)
    };
    results.cells.iter().filter(at).collect()
}

/// One value per block: at the ordering's point, or the mean over all points of a grid, as studies average.
fn values(results: &Results, ordering: &Ordering, mechanism: &str) -> BTreeMap<u32, f64> {
    let cells = cells(results, ordering, mechanism);
    // A mean over fewer points than others have would be another quantity.
    if cells.iter().any(|cell| !cell.valid) {
        return BTreeMap::new();
    }
    let mut sums: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
    for (block, value) in cells.iter().flat_map(|cell| &cell.values) {
        let sum = sums.entry(*block).or_default();
        *sum = (sum.0 + value, sum.1 + 1);
    }
    let whole = sums.into_iter().filter(|(_, (_, n))| *n == cells.len());
    whole.map(|(block, (sum, n))| (block, sum / n as f64)).collect()
}

/// What a verdict of the first against the second means beside the study's word.
fn outcome(tied: bool, said: Verdict) -> Outcome {
    match (tied, said) {
        (true, _) => Outcome::Open,
        (false, Verdict::Unresolved) => Outcome::Unresolved,
        (false, Verdict::Better) => Outcome::Agrees,
        (false, Verdict::Worse) => Outcome::Reversed,
        (false, Verdict::Equivalent) => Outcome::Alike,
    }
}

/// `IPv4, DSTM / TRT`: the best first, with `/` between those that are not distinguished.
fn chain(ordering: &Ordering) -> String {
    let mut sorted: Vec<&Placed> = ordering.mechanisms.iter().collect();
    sorted.sort_by_key(|placed| placed.place);
    let mut text = String::new();
    for (number, placed) in sorted.iter().enumerate() {
        if number > 0 {
            text.push_str(if sorted[number - 1].place == placed.place { " / " } else { ", " });
        }
        text.push_str(&placed.label);
    }
    text
}

fn sentence(
    ordering: &Ordering,
    pairs: &[Pair],
    measured: &[(&Placed, BTreeMap<u32, f64>)],
    tau: Option<f64>,
) -> String {
    let better = if ordering.metric.higher_is_better() { "higher" } else { "lower" };
    let mut text = format!(
        "{} ({better} is better): the study has, best first, {}.",
        ordering.title,
        chain(ordering)
    );
    if pairs.is_empty() {
        text.push_str(" Here fewer than two of them were measured.");
        return text;
    }
    let of = |outcome: Outcome| -> Vec<&Pair> {
        pairs.iter().filter(|pair| pair.outcome == outcome).collect()
    };
    let open = of(Outcome::Open);
    let ordered = pairs.len() - open.len();
    let mut parts = Vec::new();
    if ordered > 0 {
        let agree = of(Outcome::Agrees).len();
        let (s, verb) =
            (if ordered == 1 { "" } else { "s" }, if agree == 1 { "agrees" } else { "agree" });
        parts.push(format!("{agree} of {ordered} pair{s} {verb}"));
    }
    let named = |pairs: &[&Pair], between: &str| -> String {
        let all: Vec<String> =
            pairs.iter().map(|p| format!("{} {between} {}", p.names[0], p.names[1])).collect();
        all.join(", ")
    };
    let reversed = of(Outcome::Reversed);
    if !reversed.is_empty() {
        let all: Vec<String> =
            reversed.iter().map(|p| format!("{} before {}", p.names[1], p.names[0])).collect();
        parts.push(format!("{} reversed ({})", count(reversed.len()), all.join(", ")));
    }
    for (outcome, what) in [
        (Outcome::Alike, "equivalent here, though not in the study"),
        (Outcome::Unresolved, "unresolved"),
    ] {
        let some = of(outcome);
        if !some.is_empty() {
            parts.push(format!("{} {what} ({})", count(some.len()), named(&some, "and")));
        }
    }
    if !open.is_empty() {
        let here: Vec<String> = open
            .iter()
            .map(|p| format!("{} and {}: {} here", p.names[0], p.names[1], p.verdict.word()))
            .collect();
        parts.push(format!(
            "{} not distinguished by the study ({})",
            count(open.len()),
            here.join(", ")
        ));
    }
    text.push_str(&format!(" Here {}", parts.join(", ")));
    if let Some(tau) = tau {
        text.push_str(&format!("; Kendall's tau {tau:.2}"));
    }
    text.push('.');
    let missing: Vec<&str> = measured
        .iter()
        .filter(|(_, values)| values.is_empty())
        .map(|(placed, _)| placed.label.as_str())
        .collect();
    if !missing.is_empty() {
        text.push_str(&format!(" Not measured here: {}.", missing.join(", ")));
    }
    text
}

fn count(n: usize) -> String {
    if n == 1 { "1 is".into() } else { format!("{n} are") }
}

/// The last sentence: all pairs of all quantities.
fn conclusion(quantities: &[Agreement]) -> String {
    let all =
        || quantities.iter().flat_map(|q| &q.pairs).filter(|pair| pair.outcome != Outcome::Open);
    let of = |outcome: Outcome| all().filter(|pair| pair.outcome == outcome).count();
    let total = all().count();
    if total == 0 {
        return "Nothing was measured that the study orders: this run can't say.".into();
    }
    let (agree, unresolved) = (of(Outcome::Agrees), of(Outcome::Unresolved));
    let contrary = total - agree - unresolved;
    let word = match () {
        () if agree + contrary == 0 => {
            "too little is resolved to say whether today's result agrees with the study"
        }
        () if contrary == 0 && unresolved <= agree => {
            "today's result agrees with the study's ordering"
        }
        () if contrary == 0 => {
            "today's result does not contradict the study's ordering, but most of it is unresolved"
        }
        () if agree > contrary => "today's result agrees with the study's ordering in part",
        () => "today's result does not agree with the study's ordering",
    };
    // Said already where nothing contradicts it.
    let most = if contrary > 0 && unresolved > agree + contrary {
        ", as far as it is resolved; most of it is not"
    } else {
        ""
    };
    format!(
        "In all, {agree} of {total} pairs in agreement, {contrary} against it, {unresolved} unresolved: {word}{most}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{results_of, template};
    use crate::spec::published::study;
    use crate::spec::{Axis, Metric, Point};

    fn ordering(places: &[(&str, u32)], metric: Metric) -> Ordering {
        Ordering {
            title: "Quantity".into(),
            metric,
            better: if metric.higher_is_better() { "higher" } else { "lower" }.into(),
            point: BTreeMap::new(),
            mechanisms: places
                .iter()
                .map(|(mechanism, place)| Placed {
                    mechanism: (*mechanism).into(),
                    label: (*mechanism).to_uppercase(),
                    value: "1".into(),
                    place: *place,
                })
                .collect(),
        }
    }

    /// Cells of made-up values by block.
    fn measured(metric: Metric, all: &[(&str, [f64; 6])]) -> Results {
        let cells = all.iter().map(|(name, values)| Cell {
            mechanism: (*name).into(),
            metric,
            values: values.iter().enumerate().map(|(i, v)| (i as u32 + 1, *v)).collect(),
            ..template()
        });
        results_of(cells.collect())
    }

    fn found(places: &[(&str, u32)], metric: Metric, all: &[(&str, [f64; 6])]) -> Agreement {
        let experiment = Experiment::find("clat-vs-dual-stack").unwrap();
        agreement(&experiment, &measured(metric, all), &ordering(places, metric))
    }

    const LOW: [f64; 6] = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0];
    const HIGH: [f64; 6] = [5.0, 5.2, 4.8, 5.1, 4.9, 5.0];
    const SAME: [f64; 6] = [1.001, 1.101, 0.901, 1.049, 0.951, 1.0];
    const WILD: [f64; 6] = [0.2, 3.0, 1.0, 0.5, 2.5, 1.4];

    fn only(places: &[(&str, u32)], metric: Metric, all: &[(&str, [f64; 6])]) -> (Outcome, String) {
        let all = found(places, metric, all);
        assert_eq!(all.pairs.len(), 1);
        (all.pairs[0].outcome, all.sentence)
    }

    #[test]
    fn pairs_agree_whichever_way_is_better() {
        let places = [("a", 1), ("b", 2)];
        let up = Metric::TcpThroughputUp;
        let (outcome, said) = only(&places, up, &[("a", HIGH), ("b", LOW)]);
        assert_eq!(outcome, Outcome::Agrees);
        assert_eq!(
            said,
            "Quantity (higher is better): the study has, best first, A, B. Here 1 of 1 pair agrees; Kendall's tau 1.00."
        );
        assert_eq!(only(&places, Metric::Rtt, &[("a", LOW), ("b", HIGH)]).0, Outcome::Agrees);
        let (outcome, said) = only(&places, Metric::Rtt, &[("a", HIGH), ("b", LOW)]);
        assert_eq!(outcome, Outcome::Reversed);
        assert!(said.contains("0 of 1 pair agree, 1 is reversed (B before A)"), "{said}");
        assert!(said.contains("tau -1.00"), "{said}");
        // The order in which a file lists them is no matter.
        let turned = [("b", 2), ("a", 1)];
        assert_eq!(only(&turned, up, &[("a", HIGH), ("b", LOW)]).0, Outcome::Agrees);
    }

    #[test]
    fn what_is_alike_apart_or_unresolved_is_told() {
        let (up, apart, tied) =
            (Metric::TcpThroughputUp, [("a", 1), ("b", 2)], [("a", 1), ("b", 1)]);
        let (outcome, said) = only(&apart, up, &[("a", SAME), ("b", LOW)]);
        assert_eq!(outcome, Outcome::Alike);
        assert!(said.contains("1 is equivalent here, though not in the study (A and B)"), "{said}");
        let (outcome, said) = only(&apart, up, &[("a", WILD), ("b", LOW)]);
        assert_eq!(outcome, Outcome::Unresolved);
        assert!(said.contains("1 is unresolved (A and B)"), "{said}");
        // No p value of a study shows that two are equal: whatever is found here, it is no agreement.
        for (values, word) in [(SAME, "equivalent"), (HIGH, "better"), (WILD, "unresolved")] {
            let found = found(&tied, up, &[("a", values), ("b", LOW)]);
            assert_eq!(found.pairs[0].outcome, Outcome::Open);
            let want = format!("1 is not distinguished by the study (A and B: {word} here)");
            assert!(found.sentence.contains("best first, A / B."), "{}", found.sentence);
            assert!(found.sentence.contains(&want), "{}", found.sentence);
            assert!(conclusion(&[found]).contains("can't say"));
        }
    }

    #[test]
    fn what_is_not_measured_is_named_and_not_counted() {
        let places = [("a", 1), ("b", 2), ("c", 3)];
        let all = found(&places, Metric::Rtt, &[("a", LOW), ("c", HIGH)]);
        assert_eq!(all.pairs.len(), 1);
        assert!(all.sentence.ends_with("Not measured here: B."), "{}", all.sentence);
        assert_eq!(all.rows[1][3], "not measured");
        let none = found(&places, Metric::Rtt, &[("a", LOW)]);
        assert!(none.sentence.contains("fewer than two"), "{}", none.sentence);
        assert!(conclusion(&[none]).contains("can't say"));
    }

    #[test]
    fn the_conclusion_follows_the_counts() {
        let up = Metric::TcpThroughputUp;
        let apart = [("a", 1), ("b", 2)];
        let agree = found(&apart, up, &[("a", HIGH), ("b", LOW)]);
        let reversed = found(&apart, up, &[("a", LOW), ("b", HIGH)]);
        let open = found(&apart, up, &[("a", WILD), ("b", LOW)]);
        let said =
            |all: &[&Agreement]| conclusion(&all.iter().map(|a| (*a).clone()).collect::<Vec<_>>());
        assert!(said(&[&agree]).ends_with("agrees with the study's ordering."));
        assert!(said(&[&agree, &open, &open]).contains("does not contradict"));
        assert!(said(&[&agree, &agree, &reversed]).ends_with("in part."));
        assert!(said(&[&agree, &reversed]).contains("does not agree"));
        let mostly_open = said(&[&agree, &reversed, &open, &open, &open]);
        assert!(
            mostly_open.ends_with("as far as it is resolved; most of it is not."),
            "{mostly_open}"
        );
        assert!(said(&[&open]).contains("too little is resolved"));
    }

    #[test]
    fn a_grid_is_averaged_and_a_point_picks_one_of_it() {
        let metric = Metric::AbTotalTime;
        let grid = Point::grid(&[(Axis::Requests, vec![10]), (Axis::Connections, vec![1, 2])]);
        let cell = |name: &str, point: &Point, values: [f64; 6]| Cell {
            mechanism: name.into(),
            metric,
            point: Some(point.clone()),
            values: values.iter().enumerate().map(|(i, v)| (i as u32 + 1, *v)).collect(),
            ..template()
        };
        let results = results_of(vec![cell("a", &grid[0], LOW), cell("a", &grid[1], HIGH)]);
        let mut ordering = ordering(&[("a", 1)], metric);
        assert_eq!(values(&results, &ordering, "a")[&1], 3.0);
        ordering.point.insert(Axis::Connections, 2);
        assert_eq!(values(&results, &ordering, "a")[&1], 5.0);
    }

    #[test]
    fn every_experiment_of_a_study_has_its_orderings() {
        for name in
            ["clat-vs-dual-stack", "nat64-vs-nat44", "http-translators", "interop-mechanisms"]
        {
            let experiment = Experiment::find(name).unwrap();
            let study = study(experiment.published.as_deref().unwrap()).unwrap();
            let found = findings(&experiment, &results_of(Vec::new()), &study);
            assert!(!found.quantities.is_empty() && !study.tables.is_empty(), "{name}");
            for ordering in &study.orderings {
                assert_eq!(
                    ordering.better == "higher",
                    ordering.metric.higher_is_better(),
                    "{name}"
                );
                assert!(
                    experiment.metrics.contains(&ordering.metric),
                    "{name}: {}",
                    ordering.title
                );
                for placed in &ordering.mechanisms {
                    experiment.mechanism(&placed.mechanism).unwrap();
                }
            }
        }
    }
}
