//! How far a run is, by the files in its folder alone: what is planned, what the ledger has, what that shows so far.

pub(crate) mod screen;

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use fordway_data::artefacts;
use fordway_data::plan;
use fordway_data::spec::{Experiment, Metric, Point, quantity};
use fordway_data::trial::{Condition, Ledger, Trial, calibrates};
use fordway_stats::describe::median;
use serde::Serialize;

use crate::error::{LabError, Result};

/// After so many seconds without a trial, and longer than its deployment should take, a run may have been interrupted.
const QUIET_S: f64 = 120.0;

/// What tells a trial from all others of its run: mechanism, block, condition, metric, point.
type Id = (String, u32, String, &'static str, String);

fn id(mechanism: &str, block: u32, condition: &str, metric: Metric, point: Option<&Point>) -> Id {
    let point = point.map(Point::label).unwrap_or_default();
    (mechanism.to_owned(), block, condition.to_owned(), metric.name(), point)
}

/// A deployment with all that is measured on it, or a gate.
struct Step {
    label: String,
    /// 0: the gate.
    block: u32,
    trials: Vec<Id>,
    metrics: Vec<Metric>,
    /// As planned.
    seconds: f64,
}

/// A run's folder while the run writes to it.
pub(crate) struct Watched {
    dir: PathBuf,
    experiment: Experiment,
    steps: Vec<Step>,
    read: u64,
    /// The last trial of each, where `resume` has repeated some.
    trials: BTreeMap<Id, Trial>,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct State {
    /// Experiment.
    pub(crate) name: String,
    /// Profile.
    pub(crate) profile: String,
    /// Seed.
    pub(crate) seed: u64,
    /// Trials in the ledger, and planned: gates and calibrations are among them.
    pub(crate) done: usize,
    /// See `done`.
    pub(crate) of: usize,
    /// Expected seconds to the last trial, by the plan and the time that what is done took.
    pub(crate) left_s: f64,
    /// Seconds since the last trial was written.
    pub(crate) quiet_s: f64,
    /// Whether the report is written.
    pub(crate) ended: bool,
    /// The block that is measured; 0: the gates.
    pub(crate) block: u32,
    /// How many there are.
    pub(crate) blocks: u32,
    /// What is deployed now; `None`: all is measured.
    pub(crate) now: Option<Now>,
    /// What is measured so far, in the experiment's order.
    pub(crate) values: Vec<Values>,
    /// Trials that do not count, and why, in the ledger's order of mechanisms and blocks.
    pub(crate) discarded: Vec<Remark>,
    /// What mechanisms failed to do.
    pub(crate) failed: Vec<Remark>,
    /// Mechanisms that do not pass their gate.
    pub(crate) broken: Vec<Remark>,
    /// What disturbed trials that count, and how many of them.
    pub(crate) noise: BTreeMap<String, usize>,
}

/// The deployment that is measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Now {
    /// The mechanism, for people.
    pub(crate) label: String,
    /// What is still to be measured on it.
    pub(crate) metrics: Vec<&'static str>,
    /// How long it takes, as planned.
    pub(crate) seconds: f64,
}

/// A quantity under a condition, of each mechanism.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Values {
    /// What it is.
    pub(crate) quantity: String,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// The condition; empty, where there is one alone.
    pub(crate) condition: String,
    /// By mechanism.
    pub(crate) of: Vec<Value>,
}

/// What is known of a quantity of one mechanism.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Value {
    /// The mechanism's name.
    pub(crate) mechanism: String,
    /// Its name for people.
    pub(crate) label: String,
    /// Median of the deployments so far.
    pub(crate) median: Option<f64>,
    /// Deployments with a value.
    pub(crate) n: usize,
    /// Deployments in which the mechanism failed.
    pub(crate) failed: usize,
}

/// A trial with what is to be said of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Remark {
    /// Mechanism.
    pub(crate) mechanism: String,
    /// Quantity.
    pub(crate) quantity: String,
    /// Block.
    pub(crate) block: u32,
    /// What.
    pub(crate) why: String,
}

/// One trial as it comes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Line {
    /// Trials so far, and planned.
    pub(crate) done: usize,
    /// See `done`.
    pub(crate) of: usize,
    /// Block; 0: the gate.
    pub(crate) block: u32,
    /// How many there are.
    pub(crate) blocks: u32,
    /// Mechanism.
    pub(crate) mechanism: String,
    /// Metric.
    pub(crate) metric: &'static str,
    /// Setting of the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) point: Option<String>,
    /// Its value.
    pub(crate) value: Option<f64>,
    /// Unit.
    pub(crate) unit: String,
    /// Whether it counts.
    pub(crate) valid: bool,
    /// Why not.
    pub(crate) invalid: Vec<String>,
    /// What the mechanism failed to do.
    pub(crate) failed: Vec<String>,
    /// Remarks.
    pub(crate) flags: Vec<String>,
}

impl Watched {
    /// Opens the folder of a run.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let experiment = artefacts::read_experiment(dir)?;
        let clocksource = artefacts::read_environment(dir)?.map(|found| found.clocksource);
        let steps = steps(&experiment, &clocksource.unwrap_or_default())?;
        let trials = BTreeMap::new();
        Ok(Self { dir: dir.to_path_buf(), experiment, steps, read: 0, trials })
    }

    /// Reads what the ledger has got since the last time; a line that is not whole yet comes the next time.
    pub(crate) fn read(&mut self) -> Result<Vec<Line>> {
        let path = self.dir.join("trials.jsonl");
        let mut file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(LabError::file(path)(error)),
        };
        let length = file.metadata().map_err(LabError::file(&path))?.len();
        if length < self.read {
            // A copy that is made anew.
            (self.read, self.trials) = (0, BTreeMap::new());
        }
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(self.read)).map_err(LabError::file(&path))?;
        file.read_to_end(&mut text).map_err(LabError::file(&path))?;
        let whole = text.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
        let mut lines = Vec::new();
        for line in text[..whole].split(|octet| *octet == b'\n').filter(|line| !line.is_empty()) {
            let read = Ledger::read_line(line, &self.experiment);
            let trial = read.map_err(|error| LabError::Parse {
                tool: "trials.jsonl",
                why: error.to_string(),
            })?;
            let key = id(
                &trial.mechanism,
                trial.block,
                &trial.condition.label(),
                trial.metric,
                trial.point.as_ref(),
            );
            // Without the raw data, which nothing here shows.
            let bare = Trial {
                replies: Vec::new(),
                histogram: Vec::new(),
                series: Vec::new(),
                counters: None,
                links: BTreeMap::new(),
                ..trial
            };
            self.trials.insert(key, bare.clone());
            lines.push(self.line(bare));
        }
        self.read += whole as u64;
        Ok(lines)
    }

    fn line(&self, trial: Trial) -> Line {
        Line {
            done: self.trials.len(),
            of: self.planned(),
            block: trial.block,
            blocks: self.blocks(),
            mechanism: trial.mechanism,
            metric: trial.metric.name(),
            point: trial.point.as_ref().map(Point::label),
            value: trial.value,
            unit: trial.unit,
            valid: trial.valid,
            invalid: trial.invalid,
            failed: trial.failed,
            flags: trial.flags,
        }
    }

    fn planned(&self) -> usize {
        // A run that was made with other clock sources than its record names has trials that are not in this plan.
        self.steps.iter().map(|step| step.trials.len()).sum::<usize>().max(self.trials.len())
    }

    fn blocks(&self) -> u32 {
        self.experiment.run.as_ref().map_or(0, |run| run.blocks)
    }

    /// How far the run is.
    pub(crate) fn state(&self) -> Result<State> {
        let run = self.experiment.run()?;
        let missing = |step: &&Step| step.trials.iter().any(|id| !self.trials.contains_key(id));
        let open: Vec<&Step> = self.steps.iter().filter(missing).collect();
        let quiet_s = age(&self.dir.join("trials.jsonl"))
            .or_else(|| age(&self.dir.join("spec.toml")))
            .unwrap_or(0.0);
        let report = age(&self.dir.join("results.json"));
        // `report` may be asked for in the middle of a run.
        let ended = report.is_some_and(|written| written <= quiet_s)
            && (open.is_empty() || quiet_s > QUIET_S);
        let now = open.first().filter(|_| !ended).map(|step| Now {
            label: step.label.clone(),
            metrics: step.metrics.iter().map(|metric| metric.short()).collect(),
            seconds: step.seconds,
        });
        let planned: f64 = open.iter().map(|step| step.seconds).sum();
        Ok(State {
            name: self.experiment.name.clone(),
            profile: run.profile.clone(),
            seed: run.seed,
            done: self.trials.len(),
            of: self.planned(),
            left_s: if ended { 0.0 } else { (planned * self.pace() - quiet_s).max(0.0) },
            quiet_s,
            ended,
            block: open.first().map_or(run.blocks, |step| step.block),
            blocks: run.blocks,
            now,
            values: self.values(),
            discarded: self.remarks(|trial| &trial.invalid),
            failed: self.remarks(|trial| &trial.failed),
            broken: self.broken(),
            noise: self.noise(),
        })
    }

    /// How much longer deployments take than planned; 1, where too little is known.
    fn pace(&self) -> f64 {
        let (mut planned, mut took) = (0.0, 0.0);
        for step in &self.steps {
            let done = step.trials.iter().filter_map(|id| self.trials.get(id));
            let longest = done.map(|trial| trial.elapsed_s).fold(0.0, f64::max);
            if longest > 0.0 {
                (planned, took) = (planned + step.seconds, took + longest);
            }
        }
        if planned < 5.0 { 1.0 } else { (took / planned).clamp(0.5, 3.0) }
    }

    fn measured(&self) -> impl Iterator<Item = &Trial> {
        self.trials
            .values()
            .filter(|t| t.metric != Metric::Gate && calibrates(&t.mechanism).is_none())
    }

    fn values(&self) -> Vec<Values> {
        let mut conditions: Vec<String> = self.measured().map(|t| t.condition.label()).collect();
        conditions.sort();
        conditions.dedup();
        let mut all = Vec::new();
        for metric in &self.experiment.metrics {
            let of = self.measured().filter(|trial| trial.metric == *metric);
            let mut points: Vec<Option<&Point>> = of.map(|trial| trial.point.as_ref()).collect();
            points.sort();
            points.dedup();
            for (point, condition) in
                points.iter().flat_map(|point| conditions.iter().map(move |c| (*point, c)))
            {
                let of: Vec<Value> = self
                    .experiment
                    .mechanisms
                    .iter()
                    .filter_map(|arm| {
                        let mine = |t: &&Trial| {
                            t.mechanism == arm.name
                                && t.metric == *metric
                                && t.point.as_ref() == point
                                && t.condition.label() == *condition
                        };
                        let mine: Vec<&Trial> = self.measured().filter(mine).collect();
                        let counted: Vec<f64> = mine.iter().filter_map(|t| t.counted()).collect();
                        let failed = mine.iter().filter(|t| t.valid && !t.failed.is_empty());
                        (!mine.is_empty()).then(|| Value {
                            mechanism: arm.name.clone(),
                            label: arm.label.clone(),
                            median: (!counted.is_empty()).then(|| median(&counted)),
                            n: counted.len(),
                            failed: failed.count(),
                        })
                    })
                    .collect();
                if !of.is_empty() {
                    all.push(Values {
                        quantity: quantity(*metric, point),
                        unit: metric.unit(),
                        condition: match conditions.len() {
                            1 => String::new(),
                            _ => condition.clone(),
                        },
                        of,
                    });
                }
            }
        }
        all
    }

    fn remarks(&self, of: impl Fn(&Trial) -> &Vec<String>) -> Vec<Remark> {
        let some = self.trials.values().filter(|trial| !of(trial).is_empty());
        some.map(|trial| remark(trial, of(trial).join("; "))).collect()
    }

    fn broken(&self) -> Vec<Remark> {
        let gates = self.trials.values().filter(|trial| trial.metric == Metric::Gate);
        let failed = gates.filter_map(|trial| {
            let check = trial.checks.iter().find(|check| !check.ok)?;
            Some(remark(trial, format!("{}: {}", check.name, check.detail)))
        });
        failed.collect()
    }

    /// What disturbed trials: their flags without the numbers, which differ from trial to trial.
    fn noise(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for flag in self.trials.values().filter(|trial| trial.valid).flat_map(|t| &t.flags) {
            let words =
                flag.split(' ').filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
            *all.entry(words.collect::<Vec<&str>>().join(" ")).or_insert(0) += 1;
        }
        all
    }
}

fn remark(trial: &Trial, why: String) -> Remark {
    let quantity = match trial.metric {
        Metric::Gate => "gate".to_owned(),
        metric => quantity(metric, trial.point.as_ref()),
    };
    Remark { mechanism: trial.mechanism.clone(), quantity, block: trial.block, why }
}

/// What a run does, in its order.
fn steps(experiment: &Experiment, clocksource: &str) -> Result<Vec<Step>> {
    let run = experiment.run()?;
    let profile = experiment.profile(&run.profile)?;
    let laid_out = plan::lay_out(experiment, run, clocksource);
    let mut all = Vec::new();
    let first = laid_out.conditions.first().map(Condition::label).unwrap_or_default();
    for name in &run.mechanisms {
        let arm = experiment.mechanism(name)?;
        all.push(Step {
            label: format!("correctness gate: {}", arm.label),
            block: 0,
            trials: vec![id(name, 0, &first, Metric::Gate, None)],
            metrics: Vec::new(),
            seconds: plan::gate_seconds(experiment, arm),
        });
    }
    for d in &laid_out.deployments {
        let (label, metrics, seconds) = match experiment.mechanism(&d.mechanism) {
            Ok(arm) => {
                let metrics = plan::metrics_of(experiment, &run.unmeasured, arm);
                let s = plan::deployment_seconds(profile, &metrics, d.condition.duration_s);
                (arm.label.clone(), metrics, s)
            }
            Err(_) => {
                let metrics = plan::calibrated(experiment, run, &d.mechanism);
                let s = plan::calibration_seconds(profile, &metrics, d.condition.duration_s);
                ("the generator alone".to_owned(), metrics, s)
            }
        };
        let condition = d.condition.label();
        let trials = metrics.iter().flat_map(|metric| {
            let load = metric.load();
            let points = load.map_or_else(|| vec![None], |load| plan::points(load, profile));
            let of = |point: Option<Point>| {
                id(&d.mechanism, d.block, &condition, *metric, point.as_ref())
            };
            points.into_iter().map(of).collect::<Vec<Id>>()
        });
        let trials = trials.collect();
        all.push(Step { label, block: d.block, trials, metrics, seconds });
    }
    Ok(all)
}

/// Seconds since a file was written; `None`: there is none.
fn age(path: &Path) -> Option<f64> {
    let written = std::fs::metadata(path).ok()?.modified().ok()?;
    Some(written.elapsed().map_or(0.0, |age| age.as_secs_f64()))
}

#[cfg(test)]
mod tests;
