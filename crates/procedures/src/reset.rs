//! Reset (RFC 8219 section 7.7, RFC 6201 section 4), by the frame-loss method.

use serde::{Deserialize, Serialize};

use crate::error::Ended;
use crate::session::{Result, Session};
use crate::summary::Repeated;
use crate::tester::{Load, Order, Record, Tester};
use crate::traffic::{Direction, Traffic};

/// Seconds of forwarding before the reset (RFC 6201 section 4.1.1.1).
pub const BEFORE_S: f64 = 15.0;

/// How the reset time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of forwarding before the reset.
    pub before_s: f64,
    /// Seconds after it in the first trial; twice as many in each further one, until the device forwards again.
    pub after_s: f64,
    /// Longest time after a reset that is waited for, seconds.
    pub longest_s: f64,
    /// Trials.
    pub repetitions: u32,
}

/// Reset of one kind: the statement of RFC 6201 section 1.4.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reset {
    /// Traffic: minimum frame size.
    pub traffic: Traffic,
    /// Offered rate: the throughput, frames/s in each direction.
    pub throughput: f64,
    /// Each direction.
    pub directions: Vec<OneWay>,
}

/// Reset time in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWay {
    /// Direction.
    pub direction: Direction,
    /// Frames lost; the average is reported.
    pub lost: Repeated,
    /// Reset time: frames lost through the offered rate, ms; the average is reported.
    pub reset_ms: Repeated,
    /// Trials at whose end the device did not forward again: their times are lower bounds.
    pub not_recovered: u32,
}

/// Resets the device while it forwards at the throughput rate, and divides what is lost by the rate.
pub fn reset<T: Tester>(
    session: &mut Session<'_, T>,
    traffic: &Traffic,
    throughput: f64,
    parameters: &Parameters,
) -> Result<Reset, T> {
    let all = traffic.directions();
    let mut rows = vec![(Vec::new(), Vec::new(), 0); all.len()];
    let mut after = parameters.after_s;
    for _ in 0..parameters.repetitions.max(1) {
        let (lost, end) = loop {
            let (lost, last) = one(session, traffic, throughput, parameters.before_s, after)?;
            // Frames lost in the last tenth of the time: the device was not back.
            let end = last.map(|last| last > 0.9 * after);
            if end == [false; 2] {
                break (lost, end);
            }
            session.restore()?;
            if after >= parameters.longest_s {
                break (lost, end);
            }
            after = (2.0 * after).min(parameters.longest_s);
        };
        for ((row, lost), end) in rows.iter_mut().zip(lost).zip(end) {
            row.0.push(lost);
            row.1.push(1e3 * lost / throughput);
            row.2 += u32::from(end);
        }
    }
    let directions = all.iter().zip(rows).map(|(direction, (lost, ms, not_recovered))| OneWay {
        direction: *direction,
        lost: Repeated::of(lost).expect("at least one trial"),
        reset_ms: Repeated::of(ms).expect("at least one trial"),
        not_recovered,
    });
    Ok(Reset { traffic: *traffic, throughput, directions: directions.collect() })
}

/// Frames lost in each direction, and how many seconds after the reset the last one was due; a direction that is not used
/// has none.
fn one<T: Tester>(
    session: &mut Session<'_, T>,
    traffic: &Traffic,
    rate: f64,
    before: f64,
    after: f64,
) -> Result<([f64; 2], [f64; 2]), T> {
    let load = Load::Constant { rate, seconds: before + after };
    let order = session.order(traffic, load, Record::Losses);
    let at_s = traffic.flows.ramp_s() + before;
    let outcome = session.measure(&Order { reset: Some(at_s), ..order })?;
    let (mut lost, mut last) = ([0.0; 2], [0.0; 2]);
    for (at, direction) in traffic.directions().iter().enumerate() {
        for stream in outcome.streams.iter().filter(|it| it.direction == *direction) {
            lost[at] = (stream.sent - stream.received) as f64;
            last[at] = match stream.losses {
                Some(losses) => (losses.last - at_s).max(0.0),
                None if stream.received < stream.sent => {
                    return Err(Ended::Missing("times of losses"));
                }
                None => 0.0,
            };
        }
    }
    Ok((lost, last))
}
