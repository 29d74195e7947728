use fordway_stats::outcomes::Bound;
use fordway_stats::paired::Verdict;

use super::*;
use crate::fixture::{self, environment};
use crate::spec::{Axis, Family, Point, RunSpec};
use crate::trial::{CALIBRATION, CpuUse};

fn experiment(blocks: u32) -> Experiment {
    let mut experiment = Experiment::find("clat-vs-dual-stack").unwrap();
    experiment.run = Some(RunSpec {
        profile: "quick".into(),
        method: crate::spec::METHOD,
        seed: 1,
        blocks,
        durations_s: vec![2],
        clocksources: vec![],
        offloads: true,
        cached: vec![],
        native: vec![],
        mechanisms: ["native-v6", "native-v6-again", "clat-tayga"].map(str::to_owned).into(),
        skipped: BTreeMap::new(),
        unmeasured: BTreeMap::new(),
        versions: BTreeMap::new(),
        replay: String::new(),
        hosts: None,
        pin: None,
        guest: None,
    });
    experiment
}

fn condition() -> Condition {
    Condition {
        clocksource: "tsc".into(),
        duration_s: 2,
        flow_octets: None,
        offloads: true,
        shares: None,
    }
}

fn trial(mechanism: &str, block: u32, metric: Metric, value: f64) -> Trial {
    Trial {
        key: format!("{mechanism} {block} {}", metric.name()),
        mechanism: mechanism.into(),
        block,
        value: Some(value),
        valid: true,
        condition: condition(),
        ..Trial::blank(metric)
    }
}

/// A cell that counts, without values of its own.
pub(crate) fn template() -> Cell {
    let results = analyse(&experiment(4), environment(), &run_of(0.05)).unwrap();
    Cell { values: Vec::new(), ..cell_of(&results, "clat-tayga") }
}

/// The results of a run that consist of these cells.
pub(crate) fn results_of(cells: Vec<Cell>) -> Results {
    let mut results = analyse(&experiment(4), environment(), &run_of(0.05)).unwrap();
    results.cells = cells;
    results
}

const UP: Metric = Metric::TcpThroughputUp;

fn run_of(factor: f64) -> Vec<Trial> {
    let mut trials = vec![trial(CALIBRATION, 0, UP, 21.0)];
    for (block, noise) in [(1, 1.00), (2, 1.01), (3, 0.99), (4, 1.005)] {
        trials.push(trial("native-v6", block, UP, 20.0 * noise));
        trials.push(trial("native-v6-again", block, UP, 20.0 * noise * 1.001));
        trials.push(trial("clat-tayga", block, UP, 20.0 * factor * noise * noise));
    }
    trials
}

fn cell_of(results: &Results, name: &str) -> Cell {
    results.cells.iter().find(|c| c.mechanism == name).unwrap().clone()
}

#[test]
fn ratios_are_paired_and_verdicts_follow() {
    let results = analyse(&experiment(4), environment(), &run_of(0.05)).unwrap();
    let vs = cell_of(&results, "clat-tayga").vs_baseline.unwrap();
    assert_eq!((vs.base.as_str(), vs.n, vs.verdict), ("native-v6", 4, Verdict::Worse));
    assert!((vs.ratio - 0.05).abs() < 0.001, "{}", vs.ratio);
    assert_eq!(vs.bound, Some(Bound::AtMost), "the generator limits the base");
    // What the generator limits in both is not shown to be equal, not even to itself.
    let again = cell_of(&results, "native-v6-again").vs_baseline.unwrap();
    assert_eq!((again.verdict, again.bound), (Verdict::Unresolved, None));
    assert!(results.warnings.is_empty(), "{:?}", results.warnings);
}

#[test]
fn values_near_the_generators_ceiling_are_bounds() {
    let results = analyse(&experiment(4), environment(), &run_of(0.05)).unwrap();
    let native = cell_of(&results, "native-v6");
    assert!(native.at_least);
    assert_eq!(native.limiter, "generator");
    assert!(!cell_of(&results, "clat-tayga").at_least);
}

#[test]
fn two_values_that_the_generator_limited_have_no_ratio() {
    let experiment = experiment(4);
    let of = |factor| analyse(&experiment, environment(), &run_of(factor)).unwrap();
    let near = cell_of(&of(0.99), "clat-tayga");
    assert!(near.at_least && near.vs_baseline.is_none());
    assert_eq!(near.undecided.as_deref(), Some("the generator limited both: no ratio"));
    // Without a ceiling, the same numbers are equivalent.
    let unlimited: Vec<Trial> =
        run_of(0.99).into_iter().filter(|t| t.mechanism != CALIBRATION).collect();
    let results = analyse(&experiment, environment(), &unlimited).unwrap();
    let vs = cell_of(&results, "clat-tayga").vs_baseline.unwrap();
    assert_eq!((vs.verdict, vs.bound), (Verdict::Equivalent, None));
}

#[test]
fn each_family_and_block_has_a_ceiling_of_its_own() {
    use crate::trial::calibration;
    let mut trials: Vec<Trial> =
        run_of(0.05).into_iter().filter(|t| t.mechanism != CALIBRATION).collect();
    for block in 1..=4 {
        let of = |family, value| trial(&calibration(family), block, UP, value);
        // In the last block the generator itself was slow over IPv4.
        trials.push(of(Family::V4, if block == 4 { 1.1 } else { 30.0 }));
        trials.push(of(Family::V6, 300.0));
    }
    let results = analyse(&experiment(4), environment(), &trials).unwrap();
    assert_eq!(results.calibration.len(), 2);
    assert!(!cell_of(&results, "native-v6").at_least, "IPv6 has room");
    assert_eq!(cell_of(&results, "clat-tayga").bounds, [4], "it carries IPv4");
    assert!(results.warnings.is_empty(), "{:?}", results.warnings);
}

#[test]
fn a_failure_of_the_mechanism_enters_the_verdict_and_says_so() {
    // As good as its base in every block in which it carries anything.
    let with = |failures: std::ops::RangeInclusive<u32>| {
        let mut trials = Vec::new();
        for block in 1..=8 {
            let noise = if block % 2 == 0 { 1.001 } else { 0.999 };
            trials.push(trial("native-v6", block, UP, 5.0));
            let own = trial("clat-tayga", block, UP, 5.0 * noise);
            let failed =
                if failures.contains(&block) { vec!["nothing got through".into()] } else { vec![] };
            trials.push(Trial { failed, ..own });
        }
        analyse(&experiment(8), environment(), &trials).unwrap()
    };
    let verdict = |results: &Results| cell_of(results, "clat-tayga").vs_baseline.unwrap();
    assert_eq!(verdict(&with(9..=9)).verdict, Verdict::Equivalent);
    let some = with(1..=2);
    let vs = verdict(&some);
    assert_eq!((vs.verdict, vs.p_equivalence), (Verdict::Unresolved, None), "survivors look equal");
    assert_eq!((vs.n_of().as_deref(), vs.failed), (Some("6 of 8"), [2, 0]));
    assert!(some.discarded.is_empty() && some.failed.len() == 2);
    assert!(
        crate::report::words::verdict(&cell_of(&some, "clat-tayga")).contains("(6 of 8 blocks)")
    );
    assert_eq!(verdict(&with(1..=7)).verdict, Verdict::Worse);
    // Nothing is left to compare: broken, with the reason.
    let cell = cell_of(&with(1..=8), "clat-tayga");
    assert_eq!((cell.valid, cell.n, cell.of), (false, 0, 8));
    assert!(cell.broken.unwrap().contains("failed in 8 of 8 blocks: nothing got through"));
}

#[test]
fn a_value_at_a_point_is_held_against_the_ceiling_at_that_point() {
    let at = |requests| Point::grid(&[(Axis::Requests, vec![requests])]).remove(0);
    let of = |name: &str, block, requests, value| Trial {
        key: format!("{name} {block} {requests}"),
        point: Some(at(requests)),
        ..trial(name, block, Metric::AbRequestsPerS, value)
    };
    let mut experiment = experiment(4);
    experiment.metrics.push(Metric::AbRequestsPerS);
    let mut trials = vec![of(CALIBRATION, 0, 100, 1000.0), of(CALIBRATION, 0, 200, 5000.0)];
    for block in 1..=4 {
        trials.extend([100, 200].map(|requests| of("native-v6", block, requests, 900.0)));
    }
    let results = analyse(&experiment, environment(), &trials).unwrap();
    let bound = |requests| {
        let own = |cell: &&Cell| cell.point == Some(at(requests));
        let cell = results.cells.iter().find(own).unwrap();
        (cell.at_least, cell.limiter.clone())
    };
    assert_eq!(bound(100), (true, "generator".into()));
    assert!(!bound(200).0);
    assert!(results.warnings.is_empty(), "{:?}", results.warnings);
}

#[test]
fn a_full_process_is_named_as_the_limit() {
    let mut trials = run_of(0.05);
    for t in trials.iter_mut().filter(|t| t.mechanism == "clat-tayga") {
        let cpu = CpuUse { mechanism_cores: Some(0.97), ..CpuUse::default() };
        t.cpu = Some(CpuUse { mechanism_threads: Some(1), busy_share: 0.8, ..cpu });
    }
    let results = analyse(&experiment(4), environment(), &trials).unwrap();
    let cell = cell_of(&results, "clat-tayga");
    assert_eq!(cell.limiter, "mechanism cpu");
    assert!(cell.limiter_evidence.contains("0.97"), "{}", cell.limiter_evidence);
}

#[test]
fn invalid_trials_are_listed_and_not_averaged() {
    let mut trials = run_of(0.05);
    let mut bad = trial("clat-tayga", 2, UP, 1000.0);
    bad.valid = false;
    bad.invalid.push("counters disagree".into());
    trials.push(bad);
    let results = analyse(&experiment(4), environment(), &trials).unwrap();
    let cell = cell_of(&results, "clat-tayga");
    assert_eq!(cell.n, 4);
    assert!(cell.max.unwrap() < 2.0);
    assert_eq!(results.discarded.len(), 1);
    assert_eq!(results.discarded[0].why, "counters disagree");
}

#[test]
fn a_broken_payload_makes_the_cell_invalid_and_a_missing_error_does_not() {
    for (name, valid) in [("tcp checksum", false), ("icmp time exceeded", true)] {
        let mut trials = run_of(0.05);
        let mut gate = trial("clat-tayga", 0, Metric::Gate, 0.0);
        gate.checks = vec![Check::of(name, Err("no answer".into()))];
        trials.push(gate);
        let results = analyse(&experiment(4), environment(), &trials).unwrap();
        let cell = cell_of(&results, "clat-tayga");
        assert_eq!(cell.valid, valid);
        assert_eq!(cell.vs_baseline.is_some(), valid, "what changes the payload is not compared");
        assert!(cell.broken.unwrap().contains(name));
    }
}

#[test]
fn an_aa_pair_that_differs_is_a_warning() {
    let mut trials = run_of(0.05);
    for t in trials.iter_mut().filter(|t| t.mechanism == "native-v6-again") {
        t.value = t.value.map(|v| v * 1.5);
    }
    let results = analyse(&experiment(4), environment(), &trials).unwrap();
    assert!(results.warnings.iter().any(|w| w.starts_with("A/A")), "{:?}", results.warnings);
}

#[test]
fn one_of_many_aa_pairs_may_differ_by_chance() {
    let mut trials = Vec::new();
    let metrics =
        [UP, Metric::TcpThroughputDown, Metric::Rtt, Metric::UdpRateUp, Metric::UdpRateDown];
    for (number, metric) in metrics.into_iter().enumerate() {
        // The first differs with an unadjusted p of 0.03; the others by less than their noise.
        let shift = if number == 0 { 1.06 } else { 1.0 };
        for (block, noise) in [(1, 1.0), (2, 1.07), (3, 0.98), (4, 1.02)] {
            trials.push(trial("native-v6", block, metric, 20.0));
            trials.push(trial("native-v6-again", block, metric, 20.0 * shift * noise));
        }
    }
    let results = analyse(&experiment(4), environment(), &trials).unwrap();
    let vs = cell_of(&results, "native-v6-again").vs_baseline.unwrap();
    assert!(vs.p_t.unwrap() < 0.05 && vs.p.unwrap() > 0.05, "{vs:?}");
    assert!(!results.warnings.iter().any(|w| w.starts_with("A/A")), "{:?}", results.warnings);
}

#[test]
fn a_sentinel_that_slowly_moves_is_a_warning_and_one_that_only_varies_is_not() {
    let noise = [1.0, 0.99, 1.01, 1.004, 0.992, 1.008, 0.997, 1.003];
    for (per_block, warned) in [(0.0, false), (0.02, true), (-0.02, true), (0.001, false)] {
        let value =
            |block: u32| 20.0 * (1.0 + per_block * f64::from(block)) * noise[block as usize];
        let trials: Vec<Trial> = (0..8).map(|b| trial("native-v6", b + 1, UP, value(b))).collect();
        let results = analyse(&experiment(8), environment(), &trials).unwrap();
        let told = results.warnings.iter().any(|w| w.starts_with("Drift"));
        assert_eq!(told, warned, "{per_block}: {:?}", results.drift);
    }
}

#[test]
fn a_ceiling_that_was_not_found_is_a_warning() {
    let trials: Vec<Trial> =
        run_of(0.05).into_iter().filter(|t| t.mechanism != CALIBRATION).collect();
    let results = analyse(&experiment(4), environment(), &trials).unwrap();
    let told = |w: &String| w.contains("not found for tcp_throughput_up");
    assert!(results.warnings.iter().any(told), "{:?}", results.warnings);
}

/// A run of the goals with round-trip times alone: name and one value per block, none where it is 0.
fn goals_of(arms: [(&str, [f64; 8]); 3], gate: Option<&str>) -> crate::analysis::Judged {
    let mut goals = Experiment::find("goals").unwrap();
    let mechanisms = arms.map(|a| a.0.to_owned()).into();
    goals.run = Some(RunSpec { mechanisms, ..RunSpec::bare() });
    let mut trials: Vec<Trial> = Vec::new();
    for (name, values) in arms {
        let all = (1..).zip(values).filter(|(_, v)| *v > 0.0);
        trials.extend(all.map(|(block, v)| trial(name, block, Metric::Rtt, v)));
    }
    if let Some(name) = gate {
        let checks = vec![Check::of("tcp checksum", Err("wrong".into()))];
        trials.push(Trial { checks, ..trial(name, 0, Metric::Gate, 0.0) });
    }
    let results = analyse(&goals, environment(), &trials).unwrap();
    results.goals.into_iter().find(|g| g.id == "user-rtt-added").unwrap()
}

#[test]
fn what_is_added_is_compared_inside_blocks() {
    let native = ("native-v6", [1.0, 10.0, 100.0, 1000.0, 1.0, 1.0, 1.0, 1.0]);
    // Adds 1, 2, 3 ..., but was not measured in the first block.
    let own = ("clat-fordway", [0.0, 11.0, 102.0, 1003.0, 5.0, 6.0, 7.0, 8.0]);
    // Adds twice as much everywhere, but less than nothing in the last block, which counts like all others.
    let tayga = ("clat-tayga", [10.0, 12.0, 104.0, 1006.0, 9.0, 11.0, 13.0, 0.5]);
    let goal = goals_of([native, own, tayga], None);
    assert!((goal.measured.unwrap() - 28.0 / 41.5).abs() < 1e-12, "{goal:?}");
    let interval = goal.interval.unwrap();
    assert!(interval.contains(0.5) && interval.level == 0.95, "{interval:?}");
    assert!(
        goal.close && goal.detail.contains("added 4.000 and 5.929, means of 7 blocks"),
        "{goal:?}"
    );
}

#[test]
fn a_base_that_adds_nothing_certain_leaves_a_goal_open() {
    let native = ("native-v6", [1.0; 8]);
    let own = ("clat-fordway", [1.1; 8]);
    let tayga = ("clat-tayga", [1.3, 0.8, 1.2, 0.9, 1.1, 1.0, 1.25, 0.75]);
    let goal = goals_of([native, own, tayga], None);
    assert!(goal.close && goal.interval.is_none(), "{goal:?}");
    assert!(goal.detail.ends_with("what CLAT, TAYGA adds cannot be told from nothing"), "{goal:?}");
    let less = goals_of([native, own, ("clat-tayga", [0.9; 8])], None);
    assert!(less.measured.is_none() && less.detail.contains("adds less than nothing"), "{less:?}");
}

#[test]
fn what_has_points_is_judged_at_the_middle_one() {
    let mut goals = fixture::experiment_about("goals", &[Metric::AbRequestsPerS]);
    goals.profile.get_mut("quick").unwrap().ab_connections = vec![10, 100, 300];
    let mut trials = fixture::trials(&goals, 7, 1.0);
    for trial in trials.iter_mut().filter(|trial| trial.metric == Metric::AbRequestsPerS) {
        let connections = trial.point.as_ref().and_then(|point| point.at(Axis::Connections));
        trial.value = Some(match (trial.mechanism.as_str(), connections) {
            ("nat64-fordway-direct", Some(100)) => 110.0,
            ("nat64-fordway-direct", _) => 50.0,
            (CALIBRATION, _) => 10_000.0,
            _ => 100.0,
        });
    }
    let results = analyse(&goals, environment(), &trials).unwrap();
    let goal = results.goals.iter().find(|goal| goal.id == "pages-direct").unwrap();
    assert_eq!((goal.measured, goal.met), (Some(1.1), Some(true)), "{goal:?}");
}

#[test]
fn a_broken_mechanism_meets_no_goal() {
    let arm = |name, ms| (name, [ms; 8]);
    let arms = [arm("native-v6", 1.0), arm("clat-fordway", 1.1), arm("clat-tayga", 2.0)];
    assert_eq!(goals_of(arms, None).met, Some(true));
    for broken in ["clat-fordway", "clat-tayga", "native-v6"] {
        let goal = goals_of(arms, Some(broken));
        assert_eq!(goal.met, None);
        assert!(goal.detail.contains("is broken: tcp checksum (wrong)"), "{}", goal.detail);
    }
}

#[test]
fn two_blocks_resolve_nothing() {
    let trials: Vec<Trial> = run_of(0.05).into_iter().filter(|t| t.block <= 2).collect();
    let results = analyse(&experiment(2), environment(), &trials).unwrap();
    for cell in &results.cells {
        let resolved = cell.vs_baseline.as_ref().is_some_and(|v| v.verdict != Verdict::Unresolved);
        assert!(!resolved, "{}", cell.mechanism);
        assert_eq!(cell.interval, None);
    }
}

/// A run of the manual's example of own loads, on the disk; `change` changes its text.
fn own_run(dir: &std::path::Path, change: (&str, &str), values: impl Fn(&Trial) -> Option<f64>) {
    let text = include_str!("../../../../docs/experiments/own-loads.toml");
    let mut own = Experiment::parse(&text.replace(change.0, change.1)).unwrap();
    let mechanisms = own.mechanisms.iter().map(|m| m.name.clone()).collect();
    own.run = Some(RunSpec { mechanisms, ..RunSpec::bare() });
    crate::fixture::folder_of(dir, &own, 4, 1.0);
    std::fs::remove_file(dir.join("trials.jsonl")).unwrap();
    for trial in crate::fixture::trials(&own, 4, 1.0) {
        let value = values(&trial).filter(|_| trial.metric != Metric::Gate);
        crate::trial::Ledger::of(dir).append(&Trial { value, ..trial }).unwrap();
    }
}

#[test]
fn own_metrics_are_read_compared_and_held_against_own_goals() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Jitter is 0 once; two hops lose a tenth of the datagrams.
    own_run(one.path(), ("", ""), |trial| match (trial.metric.name(), trial.mechanism.as_str()) {
        ("udp_jitter", _) if trial.block == 2 => Some(0.0),
        ("udp_received", "native-v6-2hop") => Some(45.0 + f64::from(trial.block) / 10.0),
        ("udp_received", name) if name != CALIBRATION => Some(50.0),
        ("udp_received", _) => Some(1000.0),
        _ => trial.value,
    });
    let run = crate::artefacts::read(one.path()).unwrap();
    let metric =
        |name: &str| *run.experiment.metrics.iter().find(|metric| metric.name() == name).unwrap();
    let cell = |name: &str| first(&run.results, "native-v6-2hop", metric(name)).unwrap();
    let vs = cell("udp_received").vs_baseline.as_ref().unwrap();
    assert_eq!((vs.verdict, vs.n), (Verdict::Worse, 4));
    assert!((vs.ratio - 0.905).abs() < 1e-3, "{}", vs.ratio);
    assert_eq!(cell("udp_received").limiter, "unknown");
    // A count that is 0 has no ratio.
    assert_eq!(cell("udp_jitter").n, 4);
    assert!(cell("udp_jitter").vs_baseline.is_none());
    assert_eq!(cell("udp_jitter").undecided.as_deref(), Some("a value is 0: no ratio"));
    // A smaller deviation of round trips is the better one.
    assert_eq!(cell("ping_deviation").vs_baseline.as_ref().unwrap().verdict, Verdict::Worse);
    let judged: Vec<(&str, &str, &str)> = run
        .results
        .goals
        .iter()
        .map(|goal| (goal.id.as_str(), goal.goal.as_str(), goal.word()))
        .collect();
    assert_eq!(
        judged,
        [("udp-second-hop", "≥ 0.99 x", "missed"), ("rtt-second-hop", "≤ 1 ms", "missed")]
    );
    let drawn = crate::report::figures::draw(&run).unwrap();
    let page = crate::report::page::render(&run, &drawn, None).unwrap();
    assert!(
        page.contains("Loads of this experiment") && page.contains("Load ping is the experiment")
    );
    // A metric that is read in another way is another one.
    own_run(other.path(), ("/end/sum/jitter_ms", "/end/sum/other"), |trial| trial.value);
    let again = crate::artefacts::read(other.path()).unwrap();
    let found = crate::compare::compare(&[("a".into(), run)], &[("b".into(), again)]);
    let jitter = |all: &[String]| all.iter().filter(|name| name.contains("UDP jitter")).count();
    assert_eq!((jitter(&found.only_a), jitter(&found.only_b)), (3, 3));
    assert!(found.cells.iter().any(|pair| pair.metric.name() == "ping_deviation"));
    assert!(
        found.differences.iter().any(|it| it.a == "/end/sum/jitter_ms"),
        "{:?}",
        found.differences
    );
}

#[test]
fn the_same_definitions_make_the_same_metrics_whatever_else_is_read() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let read = |dir: &tempfile::TempDir| {
        own_run(dir.path(), ("", ""), |trial| trial.value);
        crate::artefacts::read(dir.path()).unwrap().experiment
    };
    let [a, b] = [read(&dirs[0]), read(&dirs[1])];
    assert_eq!(a.metrics, b.metrics);
    assert_eq!(toml::to_string(&a).unwrap(), toml::to_string(&b).unwrap());
}
