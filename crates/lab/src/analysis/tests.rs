use super::*;
use crate::host::cpu::CpuUse;
use crate::spec::RunSpec;
use crate::trials::blank;

fn environment() -> Environment {
    let empty = serde_json::json!({
        "started": "2026-01-01T00:00:00Z", "kernel": "", "command_line": "", "system": "",
        "cpu_model": "", "processors": 2, "smt": "", "governor": "", "clocksource": "tsc",
        "clocksources": [], "virtualisation": "", "steal_share": 0.0, "load_average": 0.0,
        "memory_mib": 1, "mitigations": {}, "sysctls": {}, "ruleset": "", "veth_features": [],
        "versions": {}, "programs": {}
    });
    serde_json::from_value(empty).unwrap()
}

fn experiment(blocks: u32) -> Experiment {
    let mut experiment = Experiment::find("clat-vs-dual-stack").unwrap();
    experiment.run = Some(RunSpec {
        profile: "quick".into(),
        seed: 1,
        blocks,
        durations_s: vec![2],
        clocksources: vec![],
        offloads: true,
        mechanisms: ["native-v6", "native-v6-again", "clat-tayga"].map(str::to_owned).into(),
        skipped: BTreeMap::new(),
        unmeasured: BTreeMap::new(),
        versions: BTreeMap::new(),
        replay: String::new(),
    });
    experiment
}

fn trial(mechanism: &str, block: u32, metric: Metric, value: f64) -> Trial {
    Trial {
        key: format!("{mechanism} {block} {}", metric.name()),
        mechanism: mechanism.into(),
        block,
        value: Some(value),
        valid: true,
        condition: Condition { clocksource: "tsc".into(), duration_s: 2, offloads: true },
        ..blank(metric)
    }
}

const UP: Metric = Metric::TcpThroughputUp;

fn run_of(factor: f64) -> Vec<Trial> {
    let mut trials = vec![trial(CALIBRATION, 0, UP, 30.0)];
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
    let again = cell_of(&results, "native-v6-again").vs_baseline.unwrap();
    assert_eq!(again.verdict, Verdict::Equivalent);
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
fn two_blocks_resolve_nothing() {
    let trials: Vec<Trial> = run_of(0.05).into_iter().filter(|t| t.block <= 2).collect();
    let results = analyse(&experiment(2), environment(), &trials).unwrap();
    for cell in &results.cells {
        let resolved = cell.vs_baseline.as_ref().is_some_and(|v| v.verdict != Verdict::Unresolved);
        assert!(!resolved, "{}", cell.mechanism);
        assert_eq!(cell.ci95, None);
    }
}
