//! The benchmarks of RFC 8219 section 7 and section 10 on a deployment, which is one repetition of each.

use fordway_data::spec::{Axis, Metric, Point, Sender, Way};
use fordway_data::trial::Trial;
use fordway_procedures::Ended;
use fordway_procedures::back_to_back::back_to_back;
use fordway_procedures::latency::{Definition, latency};
use fordway_procedures::mlrsearch::mlrsearch;
use fordway_procedures::overload::{self, Dimension, Score};
use fordway_procedures::recovery::recovery;
use fordway_procedures::session::Session;
use fordway_procedures::suite::control;
use fordway_procedures::summary::Repeated;
use fordway_procedures::tester::{Load, Record};
use fordway_procedures::throughput::throughput;
use fordway_procedures::traffic::{
    Direction, Flows, Limit, Maximum, Point as Setup, Start, Traffic,
};
use fordway_procedures::variation::variation;

use super::benchmark::{Bench, Ceiling, connections, fitting, lack, with};
use super::packets::check;
use super::{Before, Lack, Measured, Values, now};
use crate::error::{LabError, Result};

/// µs in a ms.
const US: f64 = 1e3;
/// The smallest frame of all.
const SMALLEST: u64 = 64;

/// Loss ratios that MLRsearch is asked about: none, and half a per cent.
const LOSSY: usize = 1;

/// What is sent at a point.
fn setup(at: &Measured<'_>, point: Option<&Point>, trial: &mut Trial) -> Result<Setup> {
    let level = |axis, default| point.and_then(|point| point.at(axis)).unwrap_or(default);
    let size = level(Axis::Octets, SMALLEST);
    let octets = u16::try_from(size).map_err(|error| LabError::Usage(error.to_string()))?;
    let traffic = Traffic {
        translated: 100 - level(Axis::Native, 0).min(100) as u8,
        networks: level(Axis::Networks, 1) as u16,
        ..fitting(at.kind, octets, at.network.widest_mtu())?
    };
    let maximum = Maximum {
        rate: Ceiling::of(at.highest, size, at.network.speed(), trial)?,
        limit: Limit::Calibrated,
    };
    Ok(Setup { traffic, maximum })
}

/// Runs benchmarks, keeps what was said, and compares counters.
fn measured<R>(
    at: &Measured<'_>,
    setup: &Setup,
    sender: Sender,
    load: &str,
    point: Option<&Point>,
    trial: &mut Trial,
    work: impl FnOnce(&mut Session<'_, Bench<'_>>) -> std::result::Result<R, Ended<LabError>>,
) -> Result<R> {
    let mut bench = Bench::open(at, setup.traffic.frame.initiator, sender)?;
    trial.started = now();
    trial.argv = bench.generator.argv().to_vec();
    let before = Before::read(at)?;
    let done = with(&mut bench, at.rfc.waits, work);
    before.finish(at, trial)?;
    let name = point.map_or_else(String::new, |point| format!("-{}", point.file_name()));
    at.keep(&format!("{load}{name}.jsonl"), &bench.generator.said)?;
    for (way, [sent, arrived]) in [Way::Up, Way::Down].into_iter().zip(bench.passed) {
        if sent > 0 {
            check(trial, at, way, arrived, Some(sent));
        }
    }
    trial.exit_status = Some(0);
    trial.flags.append(&mut bench.remarks);
    done
}

/// A value, or why there is none.
fn or(value: Option<f64>, why: &str) -> std::result::Result<f64, Lack> {
    value.ok_or_else(|| Lack::Failed(why.to_owned()))
}

/// Medians in µs.
fn put(values: &mut Values, metrics: &[Metric], all: &[&Repeated]) {
    let all = all.iter().map(|value| Ok(US * value.median));
    values.extend(metrics.iter().copied().zip(all));
}

/// The same reason for all of these.
fn lacks(values: &mut Values, metrics: &[Metric], why: &Lack) {
    values.extend(metrics.iter().map(|metric| (*metric, Err(why.clone()))));
}

/// Throughput, latency, PDV and IPDV with frames of one size.
pub(super) fn forwarding(
    at: &Measured<'_>,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let setup = setup(at, point, trial)?;
    let profile = at.rfc;
    let wanted = |metric| at.metrics.contains(&metric);
    trial.cap = Some(setup.maximum.rate / 1e3);
    measured(at, &setup, at.profile.sender, "forwarding", point, trial, |session| {
        let found = throughput(session, &setup, &profile.throughput)?;
        let rate = found.rate.median;
        values.insert(Metric::Throughput, Ok(rate / 1e3));
        if wanted(Metric::ThroughputLossy) {
            let control = control(profile, &setup);
            let found = mlrsearch(session, &setup, &profile.goals, &control)?;
            let goal = found.result.goals.get(LOSSY);
            let value = goal.and_then(|goal| goal.conditional_throughput);
            let why = "no rate loses as little as half a per cent of the frames";
            values.insert(Metric::ThroughputLossy, or(value.map(|rate| rate / 1e3), why));
        }
        if rate <= 0.0 {
            return Ok(());
        }
        let setup = &setup.traffic;
        use Metric::*;
        if wanted(TypicalLatencyUp) || wanted(WorstLatencyUp) {
            let (up, down) =
                ([TypicalLatencyUp, WorstLatencyUp], [TypicalLatencyDown, WorstLatencyDown]);
            let definition = Definition::StoreAndForward;
            match latency(session, setup, rate, definition, &profile.latency) {
                Ok(found) => {
                    for one in found.directions {
                        let metrics = if one.direction == Direction::Forward { up } else { down };
                        put(values, &metrics, &[&one.typical_ms, &one.worst_case_ms]);
                    }
                }
                Err(why) => lacks(values, &[up, down].concat(), &lack(why)?),
            }
        }
        if wanted(PdvUp) || wanted(IpdvMaxUp) {
            let up = [PdvUp, IpdvMinUp, IpdvMedianUp, IpdvMaxUp];
            let down = [PdvDown, IpdvMinDown, IpdvMedianDown, IpdvMaxDown];
            match variation(session, setup, rate, &profile.variation) {
                Ok(found) => {
                    for one in found.directions {
                        let metrics = if one.direction == Direction::Forward { up } else { down };
                        let ipdv = &one.ipdv_ms;
                        let all = [&one.pdv_ms, &ipdv.min, &ipdv.median, &ipdv.max];
                        put(values, &metrics, &all);
                    }
                }
                Err(why) => lacks(values, &[up, down].concat(), &lack(why)?),
            }
        }
        Ok(())
    })
}

/// Back-to-back frames and system recovery with frames of one size.
pub(super) fn disturbance(
    at: &Measured<'_>,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let setup = setup(at, point, trial)?;
    let profile = at.rfc;
    let wanted = |metric| at.metrics.contains(&metric);
    measured(at, &setup, at.profile.sender, "disturbance", point, trial, |session| {
        let rate = throughput(session, &setup, &profile.throughput)?.rate.median;
        use Metric::*;
        if wanted(BackToBack) || wanted(BufferTime) {
            let found = back_to_back(session, &setup, rate, &profile.back_to_back);
            match found.map_err(lack) {
                Ok(Some(found)) => {
                    values.insert(BackToBack, Ok(found.frames.average));
                    values.insert(BufferTime, Ok(1e3 * found.corrected_buffer_s));
                }
                // RFC 9004 section 6.1.
                Ok(None) => {
                    let why = "the throughput is the highest rate: no burst fills a buffer";
                    lacks(values, &[BackToBack, BufferTime], &Lack::Unmeasured(why.into()));
                }
                Err(why) => lacks(values, &[BackToBack, BufferTime], &why?),
            }
        }
        if wanted(Recovery) && rate > 0.0 {
            match recovery(session, &setup, rate, &profile.recovery).map_err(lack) {
                Ok(found) => {
                    let value = 1e3 * found.seconds.average;
                    let value = (found.not_recovered == 0).then_some(value);
                    let why = "frames were lost to the end of the time after the overload";
                    values.insert(Recovery, or(value, why));
                }
                Err(why) => lacks(values, &[Recovery], &why?),
            }
        }
        Ok(())
    })
}

/// Frames lost at a share of the highest rate.
pub(super) fn frame_loss(
    at: &Measured<'_>,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let setup = setup(at, point, trial)?;
    let share = point.and_then(|point| point.at(Axis::Share)).unwrap_or(100);
    let rate = setup.maximum.rate * share as f64 / 100.0;
    trial.offered = Some(rate);
    let seconds = at.rfc.frame_loss_rate.seconds;
    let (loss, short) = measured(at, &setup, at.profile.sender, "loss", point, trial, |session| {
        let load = Load::Constant { rate, seconds };
        let order = session.order(&setup.traffic, load, Record::Counts);
        let found = session.run(&order)?;
        Ok((found.loss_ratio(), found.is_short()))
    })?;
    if short {
        trial.flags.push(
            "the rate was not offered; frames that were not sent in time count as lost".into(),
        );
    }
    values.insert(Metric::FrameLoss, Ok(100.0 * loss));
    Ok(())
}

/// The throughput of many network flows against that of one: all of them start at once, or one after the other.
pub(super) fn overload(
    at: &Measured<'_>,
    incremental: bool,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let (label, metric) = match incremental {
        true => ("incremental", Metric::DegradationIncremental),
        false => ("overload", Metric::Degradation),
    };
    if incremental && connections(at.kind).is_some() {
        let why = "flows of a stateful mechanism are connections, which are open before the test";
        values.insert(metric, Err(Lack::Unmeasured(why.into())));
        return Ok(());
    }
    let setup = setup(at, None, trial)?;
    let flows = point.and_then(|point| point.at(Axis::Pairs)).unwrap_or(1) as u32;
    let profile = at.rfc;
    // The program can't send what starts bit by bit, and both numbers are to come from one sender.
    let sender = if incremental { Sender::Socket } else { at.profile.sender };
    let found = measured(at, &setup, sender, label, point, trial, |session| {
        let start = match incremental {
            true => Start::Incremental(at.profile.flow_start_s),
            false => Start::Simultaneous,
        };
        let one = Traffic { flows: Flows::ONE, ..setup.traffic };
        overload::overload(session, &one, flows, start, |session, traffic| {
            let setup = Setup { traffic: *traffic, ..setup };
            let found = throughput(session, &setup, &profile.throughput)?;
            let (dimension, value) = (Dimension::Throughput, found.rate.median);
            Ok(vec![Score { dimension, value }])
        })
    })?;
    // With intermediary points, all flows come last.
    let percent = found.degradations.last().and_then(|found| found.percent);
    values.insert(metric, or(percent, "not even one flow is forwarded"));
    Ok(())
}
