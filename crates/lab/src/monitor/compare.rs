//! What two recordings differ in, series by series.
//!
//! Samples of one recording follow each other and are not independent: in tests a series counts as many values as it is
//! worth independent ones.

use fordway_stats::describe::Summary;
use fordway_stats::multiple::{Tests, family};
use fordway_stats::paired::{Verdict, verdict as judge};
use fordway_stats::serial::{autocorrelation, block_means, effective};
use fordway_stats::unpaired::{
    equivalence, mann_whitney, ranks_of_series, shift, student, welch_of_series,
};
use serde::Serialize;

use super::folder::Recording;
use super::{higher_is_better, label};

/// Difference that does not matter, as a share of the first recording's mean.
pub(crate) const MARGIN: f64 = 0.03;
/// Error rate of the tests.
pub(crate) const ALPHA: f64 = 0.05;
/// Fewest values that a series must be worth for a verdict.
pub(crate) const FEWEST: f64 = 3.0;
/// Samples that depend on each other more than this are warned about.
pub(crate) const DEPENDENT: f64 = 0.2;

/// One series of one recording.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    /// All samples.
    pub(crate) summary: Summary,
    /// Samples without a value.
    pub(crate) gaps: usize,
    /// Autocorrelation of neighbours.
    pub(crate) autocorrelation: f64,
    /// As many independent values as the samples are worth.
    pub(crate) worth: f64,
    /// Means of blocks of neighbours, for drawings.
    pub(crate) blocks: Vec<f64>,
}

impl Side {
    /// `None` when the series never had a value.
    pub(crate) fn of(recording: &Recording, series: &str) -> Option<Self> {
        let values = recording.values(series);
        Some(Self {
            summary: Summary::of(&values)?,
            gaps: recording.gaps(series).0,
            autocorrelation: autocorrelation(&values, 1),
            worth: effective(&values),
            blocks: block_means(&values),
        })
    }
}

/// One series of both; differences are the second recording less the first.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    /// Name in the samples.
    pub(crate) series: String,
    /// Name for people.
    pub(crate) label: String,
    /// Unit of all values.
    pub(crate) unit: &'static str,
    /// The first recording.
    pub(crate) first: Side,
    /// The second one.
    pub(crate) second: Side,
    /// Mean of the second less mean of the first, with its 95 % interval (Welch).
    pub(crate) difference: Option<(f64, [f64; 2])>,
    /// p of Welch's test, each series worth as many values as `worth` says.
    pub(crate) p_welch: Option<f64>,
    /// The same, adjusted by Holm's rule over both tests of all series.
    pub(crate) p_holm: Option<f64>,
    /// p of the same test on the ranks of all samples.
    pub(crate) p_ranks: Option<f64>,
    /// p of Student's pooled test on all samples as if they were independent: the test of the 2012 study.
    pub(crate) p_as_in_the_study: Option<f64>,
    /// p of the equivalence test, adjusted like `p_holm`.
    pub(crate) p_equivalence: Option<f64>,
    /// Hodges-Lehmann shift of block means.
    pub(crate) shift: f64,
    /// Cliff's delta of block means.
    pub(crate) cliffs_delta: Option<f64>,
    /// `better`, `worse`, `equivalent` or `unresolved`; `higher` or `lower` where neither is better.
    pub(crate) verdict: &'static str,
}

/// Compares the series that both have.
pub(crate) fn compare(first: &Recording, second: &Recording) -> Vec<Compared> {
    let common = first.series().into_iter().filter(|s| second.series().contains(s));
    let mut all: Vec<Compared> = common
        .filter_map(|series| {
            let (a, b) = (Side::of(first, series)?, Side::of(second, series)?);
            Some(one(series, a, b, &first.values(series), &second.values(series)))
        })
        .collect();
    let raw: Vec<Tests> = all.iter().map(tests).collect();
    for (compared, adjusted) in all.iter_mut().zip(family(&raw)) {
        compared.p_holm = adjusted.difference;
        compared.p_equivalence = adjusted.equivalence;
        compared.verdict = verdict(compared, adjusted);
    }
    all
}

/// What a verdict rests on; nothing if a series is worth too little.
fn tests(compared: &Compared) -> Tests {
    if compared.first.worth.min(compared.second.worth) < FEWEST {
        return Tests::default();
    }
    Tests { difference: compared.p_welch, equivalence: compared.p_equivalence }
}

fn one(series: &str, first: Side, second: Side, before: &[f64], after: &[f64]) -> Compared {
    let (name, unit) = label(series);
    let test = welch_of_series(after, before);
    let within = MARGIN * first.summary.mean.abs();
    let (own, base) = (&second.blocks, &first.blocks);
    Compared {
        series: series.into(),
        label: name,
        unit,
        difference: test.map(|t| (t.difference, t.ci95)),
        p_welch: test.map(|t| t.p),
        p_holm: None,
        p_ranks: ranks_of_series(after, before).map(|t| t.p),
        p_as_in_the_study: student(after, before).map(|t| t.p),
        p_equivalence: test
            .filter(|_| within > 0.0)
            .and_then(|test| equivalence(&test, -within, within)),
        shift: shift(own, base),
        cliffs_delta: mann_whitney(own, base).map(|r| r.delta),
        first,
        second,
        verdict: "unresolved",
    }
}

fn verdict(compared: &Compared, adjusted: Tests) -> &'static str {
    let rises = compared.difference.is_some_and(|(difference, _)| difference > 0.0);
    let direction = higher_is_better(&compared.series);
    match judge(adjusted, ALPHA, rises == direction.unwrap_or(true)) {
        Verdict::Better if direction.is_none() => "higher",
        Verdict::Worse if direction.is_none() => "lower",
        verdict => verdict.word(),
    }
}

/// What makes the comparison weaker than it looks, in words.
pub(crate) fn warnings(first: &Recording, second: &Recording, all: &[Compared]) -> Vec<String> {
    let mut said = Vec::new();
    let sides = all.iter().flat_map(|c| [(first, c, &c.first), (second, c, &c.second)]);
    for (recording, compared, side) in sides {
        let name = format!("{}, {}", recording.name, compared.label);
        if side.autocorrelation > DEPENDENT {
            said.push(format!(
                "{name}: neighbours correlate by {:.2}, so that {} samples are worth {:.0} independent ones, and count as \
                 that many",
                side.autocorrelation, side.summary.n, side.worth
            ));
        }
        if side.worth < FEWEST {
            said.push(format!(
                "{name}: worth fewer than {FEWEST} values, too few for any verdict; record for longer"
            ));
        }
    }
    if first.spec.every_s != second.spec.every_s {
        said.push(format!(
            "one has a sample every {} s, the other every {} s",
            first.spec.every_s, second.spec.every_s
        ));
    }
    if first.environment.cpu_model != second.environment.cpu_model
        || first.environment.kernel != second.environment.kernel
    {
        said.push("they were recorded by machines of different processors or kernels".into());
    }
    for (name, own, other) in [(&first.name, first, second), (&second.name, second, first)] {
        let alone: Vec<&str> =
            own.series().into_iter().filter(|s| !other.series().contains(s)).collect();
        if !alone.is_empty() {
            said.push(format!("only {name} has {}", alone.join(", ")));
        }
    }
    said.push(
        "Two recordings one after the other differ also in everything else that changed meanwhile, above all in their \
         users' traffic: repeat both, in turns, before anything is concluded from one pair."
            .into(),
    );
    said
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::monitor::folder::{Sample, Spec};
    use crate::monitor::{CPU, FREE, IN};

    fn recording(name: &str, series: &str, values: &[f64]) -> Recording {
        let sample = |(i, v): (usize, &f64)| Sample {
            at_s: i as f64,
            time: String::new(),
            values: BTreeMap::from([(series.to_owned(), *v)]),
            missing: BTreeMap::new(),
        };
        Recording {
            name: name.into(),
            spec: Spec {
                started: String::new(),
                watched: String::new(),
                every_s: 1.0,
                for_s: None,
                targets: Vec::new(),
                absent: Vec::new(),
                replay: String::new(),
            },
            environment: fordway_data::fixture::environment(),
            samples: values.iter().enumerate().map(sample).collect(),
        }
    }

    /// Values around a centre that do not depend on each other.
    fn noise(centre: f64, n: u64) -> Vec<f64> {
        (0..n).map(|i| centre + ((i * 7919) % 101) as f64 / 101.0).collect()
    }

    fn verdict_of(series: &str, a: &[f64], b: &[f64]) -> &'static str {
        compare(&recording("a", series, a), &recording("b", series, b))[0].verdict
    }

    #[test]
    fn verdicts_know_which_way_is_better() {
        let (low, high) = (noise(5.0, 200), noise(9.0, 200));
        assert_eq!(verdict_of(CPU, &low, &high), "worse");
        assert_eq!(verdict_of(CPU, &high, &low), "better");
        assert_eq!(verdict_of(FREE, &low, &high), "better");
        assert_eq!(verdict_of(IN, &low, &high), "higher");
        assert_eq!(verdict_of(CPU, &noise(100.0, 200), &noise(100.1, 200)), "equivalent");
        assert_eq!(verdict_of(CPU, &low[..2], &high[..2]), "unresolved");
    }

    #[test]
    fn samples_that_follow_each_other_are_not_taken_for_independent_ones() {
        // Two halves of slow waves, out of step: their means differ by chance alone.
        let wave = |shift: f64| -> Vec<f64> {
            (0..240).map(|i| 10.0 + (f64::from(i) / 80.0 + shift).sin()).collect()
        };
        let (a, b) = (recording("a", CPU, &wave(0.0)), recording("b", CPU, &wave(1.0)));
        let all = compare(&a, &b);
        assert!(all[0].first.worth < 60.0, "{}", all[0].first.worth);
        // The study's test takes the drift for a difference; this one knows that it can't tell.
        assert!(all[0].p_as_in_the_study.unwrap() < ALPHA && all[0].verdict == "unresolved");
        let said = warnings(&a, &b, &all).join("\n");
        assert!(said.contains("a, Processors busy: neighbours correlate by "), "{said}");
    }

    #[test]
    fn what_only_one_has_is_told() {
        let (a, b) = (recording("a", CPU, &[1.0, 2.0]), recording("b", FREE, &[1.0, 2.0]));
        assert!(compare(&a, &b).is_empty());
        assert!(warnings(&a, &b, &[]).join("\n").contains("only b has memory_free"));
    }
}
