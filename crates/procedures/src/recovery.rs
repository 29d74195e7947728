//! System recovery (RFC 8219 section 7.6, RFC 2544 section 26.5).

use serde::{Deserialize, Serialize};

use crate::error::Ended;
use crate::session::{Result, Session};
use crate::summary::Repeated;
use crate::tester::{Load, Record, Tester};
use crate::traffic::Point;

/// Overload, as a share of the throughput.
pub const OVERLOAD: f64 = 1.1;
/// Rate after Timestamp A, as a share of the overload.
pub const RELIEF: f64 = 0.5;

/// How recovery is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of overload.
    pub overload_s: f64,
    /// Seconds in which the device may recover.
    pub relief_s: f64,
    /// Trials.
    pub repetitions: u32,
}

/// System recovery at one point: a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Traffic and maximum rate.
    pub point: Point,
    /// Throughput rate.
    pub throughput: f64,
    /// Rate of the overload: 110 % of the throughput or the maximum, whichever is lower.
    pub overload: f64,
    /// Seconds from the change of the rate to the last lost frame; the average is reported.
    pub seconds: Repeated,
    /// Trials in which frames were still lost in the last tenth of the time given, so that the device had not recovered.
    pub not_recovered: u32,
}

/// Overloads the device, halves the rate, and finds how long frames are still lost.
pub fn recovery<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    throughput: f64,
    parameters: &Parameters,
) -> Result<Recovery, T> {
    let overload = (OVERLOAD * throughput).min(point.maximum.rate);
    let load = Load::Step {
        first: overload,
        seconds: parameters.overload_s,
        then: RELIEF * overload,
        rest: parameters.relief_s,
    };
    let order = session.order(&point.traffic, load, Record::Losses);
    let change = point.traffic.flows.ramp_s() + parameters.overload_s;
    let (mut seconds, mut not_recovered) = (Vec::new(), 0);
    for _ in 0..parameters.repetitions.max(1) {
        let outcome = session.measure(&order)?;
        if outcome.streams.iter().any(|it| it.received < it.sent && it.losses.is_none()) {
            return Err(Ended::Missing("times of losses"));
        }
        let losses = outcome.streams.iter().filter_map(|stream| stream.losses);
        let last = losses.map(|losses| losses.last).fold(0.0, f64::max);
        let after = (last - change).max(0.0);
        not_recovered += u32::from(after > 0.9 * parameters.relief_s);
        seconds.push(after);
    }
    let seconds = Repeated::of(seconds).expect("at least one trial");
    Ok(Recovery { point: *point, throughput, overload, seconds, not_recovered })
}
