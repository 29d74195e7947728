//! The formulas held against what was measured: rates that follow from processor times alone.

use fordway_stats::describe::{mean, median};
use fordway_stats::interval::Interval;
use fordway_stats::queues::{Station, closed};
use serde::Serialize;

use super::inputs::Named;
use crate::analysis::Cell;
use crate::analysis::first;
use crate::spec::{Axis, Kind, MechanismSpec, Metric, Point};
use crate::trial::Trial;

/// Questions under way per thread of a server, and flows under way: as the tester has them.
const QUESTIONS: usize = 100;
const FLOWS: usize = 256;

/// A process that uses less than this is not part of the path.
const PART: f64 = 0.05;

/// Unit of rates.
const RATE: &str = "thousand/s";

/// A rate or a time, predicted and measured.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    /// Folder of the run.
    pub folder: String,
    /// The arm's name for people.
    pub label: String,
    /// What was predicted of what, in words.
    pub what: String,
    /// Processors that take part.
    pub processors: usize,
    /// Unit of both.
    pub unit: &'static str,
    /// Predicted.
    pub predicted: f64,
    /// Measured, the median.
    pub measured: f64,
    /// Interval of the median.
    pub interval: Option<Interval>,
    /// Deployments.
    pub n: usize,
}

/// All that can be checked on these runs.
pub(super) fn check(runs: &[Named<'_>]) -> Vec<Checked> {
    let mut all = Vec::new();
    for named in runs {
        all.extend(dns(named));
        all.extend(flows(named));
        all.extend(curves(named));
    }
    all
}

fn measured<'a>(named: &Named<'a>, arm: &str, metric: Metric) -> Option<(&'a Cell, f64)> {
    let cell = first(&named.run.results, arm, metric).filter(|c| c.valid)?;
    Some((cell, cell.median.filter(|m| *m > 0.0)?))
}

fn station(demand: f64, servers: usize) -> Station {
    Station { demand, servers: Some(servers) }
}

/// DNS64: from the processor time per answer of a server with one thread to its rate, and to that of the same server with
/// a thread on each processor, where the tester takes its part of them.
fn dns(named: &Named<'_>) -> Vec<Checked> {
    let processors = named.run.results.environment.processors;
    let arms = || {
        named
            .run
            .experiment
            .mechanisms
            .iter()
            .filter(|m| m.kind == Kind::Dns64 && m.same_as.is_none())
    };
    let mut all = Vec::new();
    for one in arms().filter(|m| m.threads != Some(0)) {
        let Some((cost, total)) = measured(named, &one.name, Metric::CpuPerAnswerFresh) else {
            continue;
        };
        let Some(own) = cost.own_process.filter(|own| *own > 0.0 && *own < total) else { continue };
        let (server, tester) = (1e-6 * own, 1e-6 * (total - own));
        let whole =
            |m: &&MechanismSpec| m.threads == Some(0) && m.implementation == one.implementation;
        for (arm, threads) in [(Some(one), 1), (arms().find(whole), processors)] {
            let Some(arm) = arm else { continue };
            let Some((rate, value)) = measured(named, &arm.name, Metric::DnsFresh) else {
                continue;
            };
            // A server with one thread has a processor to itself, the tester the others; else they share all.
            let stations = if threads == 1 && processors > 1 {
                vec![station(tester, processors - 1), station(server, 1)]
            } else {
                vec![station(tester + server, processors)]
            };
            all.push(Checked {
                folder: named.folder.to_owned(),
                label: arm.label.clone(),
                what: format!(
                    "answers, {threads} at once, from {own:.1} µs of the server and {:.1} µs of the tester per answer, \
                     measured with one thread",
                    total - own
                ),
                processors,
                unit: RATE,
                predicted: closed(QUESTIONS * threads, &stations).rate / 1e3,
                measured: value,
                interval: rate.interval,
                n: rate.n,
            });
        }
    }
    all
}

/// New flows through a translator with a process of its own: from the untranslated path's time per flow on the sender's
/// processor, and the process's time on another one.
fn flows(named: &Named<'_>) -> Vec<Checked> {
    let experiment = &named.run.experiment;
    let processors = named.run.results.environment.processors;
    let mut all = Vec::new();
    for metric in [Metric::NewUdpFlows, Metric::NewTcpConnections] {
        let Some((_, native)) = measured(named, &experiment.sentinel, metric) else { continue };
        for arm in &experiment.mechanisms {
            let Some((cell, value)) = measured(named, &arm.name, metric) else { continue };
            let Some(cores) = cell.mechanism_cores.filter(|cores| *cores > PART) else { continue };
            let (path, own) = (1e-3 / native, 1e-3 * cores / value);
            let others = processors.saturating_sub(1).max(1);
            let stations = [station(path, 1), station(own, others)];
            all.push(Checked {
                folder: named.folder.to_owned(),
                label: arm.label.clone(),
                what: format!(
                    "{} from {:.1} µs of the untranslated path and {:.1} µs of the process per flow",
                    metric.label(),
                    1e6 * path,
                    1e6 * own
                ),
                processors,
                unit: RATE,
                predicted: closed(FLOWS, &stations).rate / 1e3,
                measured: value,
                interval: cell.interval,
                n: cell.n,
            });
        }
    }
    all
}

/// Round trips over many connections at a time: from the processor time of one at the number of connections before it, and
/// from what a lone one waits for that is no work, which others' requests can fill.
fn curves(named: &Named<'_>) -> Vec<Checked> {
    let (experiment, results) = (&named.run.experiment, &named.run.results);
    let Some(condition) = results.conditions().first().copied() else { return Vec::new() };
    let mut all = Vec::new();
    for metric in experiment.metrics.iter().copied().filter(|m| m.has_points() && m.unit() == "µs")
    {
        let level = |point: &&Point| point.at(Axis::Connections);
        let mut points = results.points(metric, condition);
        points.retain(|point| level(point).is_some());
        points.sort_by_key(level);
        for arm in experiment.mechanisms.iter().filter(|m| m.same_as.is_none()) {
            let cell = |point| {
                results.cell_at(&arm.name, metric, condition, Some(point)).filter(|c| c.valid)
            };
            let work_at = |point: &Point| -> Vec<f64> {
                let here = |t: &&Trial| {
                    t.valid
                        && t.block > 0
                        && t.mechanism == arm.name
                        && t.metric == metric
                        && t.condition == *condition
                        && t.point.as_ref() == Some(point)
                };
                named.run.trials.iter().filter(here).filter_map(work).collect()
            };
            let alone = points.first().filter(|point| level(point) == Some(1));
            let Some((alone, one)) = alone.and_then(|at| Some((at, cell(at)?.median?))) else {
                continue;
            };
            let lone_work = work_at(alone);
            if lone_work.is_empty() {
                continue;
            }
            let rest = (1e-6 * one - median(&lone_work)).max(0.0);
            for pair in points.windows(2) {
                let (Some(fewer), Some(clients)) = (level(&pair[0]), level(&pair[1])) else {
                    continue;
                };
                let (work, Some(found)) = (work_at(pair[0]), cell(pair[1])) else { continue };
                let Some(value) = found.median.filter(|m| *m > 0.0 && !work.is_empty()) else {
                    continue;
                };
                let (us, rest_us) = (1e6 * median(&work), 1e6 * rest);
                let what = format!(
                    "{}, {clients} connections, from {us:.1} µs of work at {fewer} and {rest_us:.1} µs of waiting of one alone",
                    metric.label()
                );
                let stations = [
                    station(mean(&work), results.environment.processors),
                    Station { demand: rest, servers: None },
                ];
                all.push(Checked {
                    folder: named.folder.to_owned(),
                    label: arm.label.clone(),
                    what,
                    processors: results.environment.processors,
                    unit: "µs",
                    predicted: 1e6 * closed(clients as usize, &stations).response,
                    measured: value,
                    interval: found.interval,
                    n: found.n,
                });
            }
        }
    }
    all
}

/// Processor time of one answered request, s.
fn work(trial: &Trial) -> Option<f64> {
    let answered = trial.arrived.filter(|n| *n > 0)?;
    Some(trial.cpu?.busy_s / answered as f64).filter(|s| *s > 0.0)
}
