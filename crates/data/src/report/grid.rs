//! Averages over a grid of points, and the two-sample t tests that older studies make of them.
//!
//! A two-sample test takes the points of a grid for repetitions, though they differ by design: it finds too little. It
//! stands here beside the paired one because a study used it.

use fordway_stats::describe::mean;
use fordway_stats::paired::t_test;
use fordway_stats::unpaired::{student, welch};
use serde::Serialize;

use super::words::p;
use crate::analysis::Results;
use crate::artefacts::Run;
use crate::numbers::nice;
use crate::spec::published::{Study, Test};
use crate::spec::{Difference, Metric, Point};

/// Fewest points of a grid, or replies, that are averaged.
const FEWEST: usize = 2;

/// One quantity of two mechanisms.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Averaged {
    /// What is measured.
    pub(crate) metric: Metric,
    /// The one mechanism.
    pub(crate) of: String,
    /// The other one.
    pub(crate) minus: String,
    /// Points of the grid, or replies, on either side.
    pub(crate) n: [usize; 2],
    /// Averages.
    pub(crate) averages: [f64; 2],
    /// p of Student's test with the pooled variance.
    pub(crate) p_student: Option<f64>,
    /// p of Welch's test.
    pub(crate) p_welch: Option<f64>,
    /// p of the paired test over the points of a grid.
    pub(crate) p_paired: Option<f64>,
}

/// Every difference that the experiment names, for every quantity measured over a grid, and of the replies to pings;
/// under the run's first condition.
pub(crate) fn averaged(run: &Run) -> Vec<Averaged> {
    let Some(condition) = run.results.conditions().first().copied() else { return Vec::new() };
    let mut all = Vec::new();
    for metric in run.experiment.metrics.iter().copied() {
        let points = run.results.points(metric, condition);
        for difference in &run.experiment.differences {
            let (own, other, paired) = if metric == Metric::Rtt {
                let of = |name: &str| replies(run, name);
                (of(&difference.of), of(&difference.minus), None)
            } else {
                let (own, other) = over_grid(&run.results, metric, &points, difference);
                let each: Vec<f64> = own.iter().zip(&other).map(|(a, b)| a - b).collect();
                (own, other, t_test(&each))
            };
            if own.len().min(other.len()) < FEWEST {
                continue;
            }
            all.push(Averaged {
                metric,
                of: difference.of.clone(),
                minus: difference.minus.clone(),
                n: [own.len(), other.len()],
                averages: [mean(&own), mean(&other)],
                p_student: student(&own, &other).map(|t| t.p),
                p_welch: welch(&own, &other).map(|t| t.p),
                p_paired: paired,
            });
        }
    }
    all
}

/// Mean over all blocks at each point that both mechanisms have.
fn over_grid(
    results: &Results,
    metric: Metric,
    points: &[&Point],
    difference: &Difference,
) -> (Vec<f64>, Vec<f64>) {
    let Some(condition) = results.conditions().first().copied() else { return Default::default() };
    let at = |name: &str, point: &Point| {
        results.cell_at(name, metric, condition, Some(point)).filter(|c| c.valid)?.mean
    };
    points
        .iter()
        .filter_map(|point| Some((at(&difference.of, point)?, at(&difference.minus, point)?)))
        .unzip()
}

/// Replies of all deployments together.
fn replies(run: &Run, name: &str) -> Vec<f64> {
    let of = run
        .trials
        .iter()
        .filter(|t| t.valid && t.block > 0 && t.metric == Metric::Rtt && t.mechanism == name);
    of.flat_map(|t| t.replies.iter().copied()).collect()
}

/// Head and rows, beside what the study reports.
pub(crate) fn table(all: &[Averaged], study: &Study) -> Vec<Vec<String>> {
    let head = [
        "quantity",
        "difference",
        "n",
        "averages",
        "difference of them",
        "p two-sample",
        "p Welch",
        "p paired",
        "at 0.05",
        "the study: averages",
        "its p",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in all {
        let theirs: Option<&Test> = study
            .tests
            .iter()
            .find(|t| t.metric == one.metric && t.of == one.of && t.minus == one.minus);
        let difference = one.averages[0] - one.averages[1];
        let n = if one.n[0] == one.n[1] {
            one.n[0].to_string()
        } else {
            one.n.map(|n| n.to_string()).join(", ")
        };
        rows.push(vec![
            format!("{}, {}", one.metric.label(), one.metric.unit()),
            format!("{} − {}", one.of, one.minus),
            n,
            one.averages.map(nice).join(" − "),
            format!("{}{}", if difference > 0.0 { "+" } else { "" }, nice(difference)),
            p(one.p_student),
            p(one.p_welch),
            p(one.p_paired),
            word(one).into(),
            theirs.map(|t| t.averages.clone()).unwrap_or_default(),
            theirs.map(|t| t.p.clone()).unwrap_or_default(),
        ]);
    }
    rows
}

/// The study's own words for its own test.
fn word(one: &Averaged) -> &'static str {
    let better = (one.averages[0] > one.averages[1]) == one.metric.higher_is_better();
    match one.p_student {
        Some(p) if p < 0.05 && better => "positive difference",
        Some(p) if p < 0.05 => "negative difference",
        Some(_) => "no significant difference",
        None => "–",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Cell;
    use crate::analysis::tests::{results_of, template};
    use crate::spec::published::study;
    use crate::spec::{Axis, Experiment, RunSpec};

    /// A run whose mechanisms have these means over the grid, one value per point.
    fn run(own: [f64; 4], other: [f64; 4]) -> Run {
        let mut experiment = Experiment::find("nat64-vs-nat44").unwrap();
        experiment.run = Some(RunSpec::bare());
        let grid = Point::grid(&[(Axis::Requests, vec![1, 2]), (Axis::Connections, vec![1, 2])]);
        let cells = [("nat64-tayga", own), ("nat44-nftables", other)].into_iter().flat_map(
            |(name, values)| {
                let cell = |(point, mean): (&Point, f64)| Cell {
                    mechanism: name.into(),
                    metric: Metric::AbTotalTime,
                    point: Some(point.clone()),
                    mean: Some(mean),
                    values: vec![(1, mean)],
                    ..template()
                };
                grid.iter().zip(values).map(cell).collect::<Vec<Cell>>()
            },
        );
        Run { experiment, trials: Vec::new(), results: results_of(cells.collect()) }
    }

    #[test]
    fn points_are_averaged_and_tested_beside_the_study() {
        let run = run([1.1, 2.2, 3.3, 4.2], [1.0, 2.0, 3.0, 4.0]);
        let all = averaged(&run);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].n, all[0].averages), ([4, 4], [2.7, 2.5]));
        // Points differ by more than mechanisms do: only the paired test sees it.
        assert!(all[0].p_student.unwrap() > 0.5 && all[0].p_paired.unwrap() < 0.05);
        let study = study("nat64-vs-nat44").unwrap();
        let rows = table(&all, &study);
        assert_eq!(rows[1][8], "no significant difference");
        assert_eq!((rows[1][9].as_str(), rows[1][10].as_str()), ("32.231 − 32.295 s", "0.991"));
    }

    #[test]
    fn a_clear_difference_has_its_direction() {
        let all = averaged(&run([1.0, 1.1, 1.2, 1.0], [9.0, 9.1, 9.0, 9.2]));
        assert_eq!(word(&all[0]), "positive difference");
        let all = averaged(&run([9.0, 9.1, 9.2, 9.0], [1.0, 1.1, 1.0, 1.2]));
        assert_eq!(word(&all[0]), "negative difference");
    }
}
