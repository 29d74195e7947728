//! Runs for tests, made up of a built-in experiment: every arm and metric, and a folder as a run leaves it.

use std::path::Path;

use crate::environment::Environment;
use crate::files::write_file;
use crate::plan;
use crate::spec::{Experiment, Metric, RunSpec};
use crate::trial::Check;
use crate::trial::CpuUse;
use crate::trial::{CALIBRATION, Condition, Ledger, Trial};

/// A machine about which nothing is known but its two processors.
pub fn environment() -> Environment {
    let empty = serde_json::json!({
        "started": "2026-01-01T00:00:00Z", "kernel": "", "command_line": "", "system": "",
        "cpu_model": "", "processors": 2, "smt": "", "governor": "", "clocksource": "tsc",
        "clocksources": [], "virtualisation": "", "steal_share": 0.0, "load_average": 0.0,
        "memory_mib": 1, "mitigations": {}, "sysctls": {}, "ruleset": "", "veth_features": [],
        "versions": {}, "programs": {}
    });
    serde_json::from_value(empty).unwrap()
}

/// A built-in experiment whose run had all of its arms.
pub fn experiment(name: &str) -> Experiment {
    let mut experiment = Experiment::find(name).unwrap();
    let mechanisms = experiment.mechanisms.iter().map(|m| m.name.clone()).collect();
    let replay = format!("fordway-lab run {name} --seed 1");
    experiment.run = Some(RunSpec { mechanisms, replay, seed: 1, ..RunSpec::bare() });
    experiment
}

/// Trials of every arm and metric in so many blocks. An arm's values are its place in the list, times `factor`, with a
/// spread of some per cent.
pub fn trials(experiment: &Experiment, blocks: u32, factor: f64) -> Vec<Trial> {
    let condition = Condition {
        clocksource: "tsc".into(),
        duration_s: 1,
        flow_octets: None,
        offloads: true,
        shares: None,
    };
    let profile = &experiment.profile["quick"];
    let mut all = Vec::new();
    let names = experiment.mechanisms.iter().map(|m| m.name.as_str());
    for (place, name) in names.chain([CALIBRATION]).enumerate() {
        for metric in experiment.metrics.iter().copied().chain([Metric::Gate]) {
            let once = name == CALIBRATION || metric == Metric::Gate;
            let load = metric.load().filter(|_| name != CALIBRATION);
            let points = load.map_or_else(|| vec![None], |load| plan::points(load, profile));
            let settings = points.into_iter().flat_map(|point| {
                let blocks = if once { 0..1 } else { 1..blocks + 1 };
                blocks.map(move |block| (point.clone(), block))
            });
            for (point, block) in settings {
                // The same spread in all arms of a block would be no spread of ratios.
                let noise = f64::from((block * 7 + place as u32 * 3) % 5) / 100.0;
                // What the generator does by itself takes less time than what stands in between.
                let size = match (name == CALIBRATION, metric.includes_the_tester()) {
                    (true, true) => 0.5,
                    (true, false) => 10.0 * (place + 1) as f64,
                    (false, _) => (place + 1) as f64,
                };
                let value = factor * size * (1.0 + noise);
                all.push(Trial {
                    key: format!("{name} {} {block} {point:?}", metric.name()),
                    experiment: experiment.name.clone(),
                    mechanism: name.into(),
                    block,
                    point,
                    condition: condition.clone(),
                    value: (metric != Metric::Gate).then_some(value),
                    replies: if metric.has_replies() { vec![value] } else { Vec::new() },
                    checks: vec![Check::of("path mtu", Err("not told".into()))],
                    cpu: Some(CpuUse { busy_share: 0.5, ..CpuUse::default() }),
                    valid: true,
                    flags: vec!["a remark".into()],
                    argv: vec!["/home/somebody/bin/iperf3".into()],
                    started: "2026-01-01T00:00:00Z".into(),
                    ..Trial::blank(metric)
                });
            }
        }
    }
    all
}

/// Such an experiment with these of its metrics alone.
pub fn experiment_about(name: &str, metrics: &[Metric]) -> Experiment {
    let mut experiment = experiment(name);
    experiment.metrics.retain(|metric| metrics.contains(metric));
    for arm in &mut experiment.mechanisms {
        arm.metrics.retain(|metric| metrics.contains(metric));
    }
    experiment
}

/// Writes the folder of such a run.
pub fn folder(dir: &Path, name: &str, blocks: u32, factor: f64) {
    folder_of(dir, &experiment(name), blocks, factor);
}

/// The same of this experiment.
pub fn folder_of(dir: &Path, experiment: &Experiment, blocks: u32, factor: f64) {
    write_file(&dir.join("spec.toml"), toml::to_string(experiment).unwrap().as_bytes()).unwrap();
    let environment = serde_json::to_vec(&environment()).unwrap();
    write_file(&dir.join("environment.json"), &environment).unwrap();
    let raw = "{\"system_info\": \"Linux box7.example.org 6.1\"}";
    write_file(&dir.join("raw/one-iperf3-up.json"), raw.as_bytes()).unwrap();
    for trial in trials(experiment, blocks, factor) {
        Ledger::of(dir).append(&trial).unwrap();
    }
}
