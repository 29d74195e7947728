//! Latency (RFC 8219 section 7.2).

use serde::{Deserialize, Serialize};

use crate::error::Ended;
use crate::session::{Result, Session};
use crate::summary::Repeated;
use crate::tester::{Load, Record, Tester};
use crate::traffic::{Direction, Traffic};

/// Percentile of the worst-case latency.
const WORST: f64 = 0.999;
/// ns in a ms.
const MS: f64 = 1e6;

/// How latency is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of the stream.
    pub seconds: f64,
    /// Seconds after which tags begin.
    pub tags_after_s: f64,
    /// Tagged frames in each direction. With 500 the 99.9th percentile is the maximum; 10,000 leave ten beyond it.
    pub tags: u64,
    /// Streams.
    pub repetitions: u32,
}

/// Which definition of RFC 1242 a Tester's time stamps follow; every report must state it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Definition {
    /// Last bit in to first bit out (RFC 1242 section 3.8).
    StoreAndForward,
    /// First bit in to first bit out.
    BitForwarding,
}

/// Latency at one point: a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Traffic.
    pub traffic: Traffic,
    /// Frames/s at which it was measured: the throughput.
    pub rate: f64,
    /// Definition of latency.
    pub definition: Definition,
    /// Each direction.
    pub directions: Vec<OneWay>,
}

/// Latency in one direction, ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWay {
    /// Direction.
    pub direction: Direction,
    /// Typical latency TL: the median of the stream's tagged frames.
    pub typical_ms: Repeated,
    /// Worst-case latency WCL: their 99.9th percentile.
    pub worst_case_ms: Repeated,
    /// Fewest tagged frames that a stream received.
    pub tags: u64,
    /// Histogram of the last stream: latency in ns, frames.
    pub histogram: Vec<(i64, u64)>,
}

/// Sends streams at the throughput rate and summarises the latencies of tagged frames.
pub fn latency<T: Tester>(
    session: &mut Session<'_, T>,
    traffic: &Traffic,
    rate: f64,
    definition: Definition,
    parameters: &Parameters,
) -> Result<Latency, T> {
    let load = Load::Constant { rate, seconds: parameters.seconds };
    // Flows that start one after the other have all started when tags begin.
    let after = parameters.tags_after_s + traffic.flows.ramp_s();
    let order = session.order(traffic, load, Record::Tags { after, frames: parameters.tags });
    let mut outcomes = Vec::new();
    for _ in 0..parameters.repetitions.max(1) {
        outcomes.push(session.measure(&order)?);
    }
    let directions = traffic.directions().iter().map(|direction| {
        let mut one = (Vec::new(), Vec::new(), u64::MAX, Vec::new());
        for stream in outcomes.iter().flat_map(|it| &it.streams) {
            if stream.direction == *direction {
                let delays = stream.delays.as_ref().ok_or(Ended::Missing("delays of tags"))?;
                let median = delays.median().ok_or(Ended::Missing("any tagged frame"))?;
                let worst = delays.percentile(WORST).ok_or(Ended::Missing("any tagged frame"))?;
                one.0.push(median / MS);
                one.1.push(worst as f64 / MS);
                one.2 = one.2.min(delays.count());
                one.3 = delays.bins().to_vec();
            }
        }
        Ok(OneWay {
            direction: *direction,
            typical_ms: Repeated::of(one.0).ok_or(Ended::Missing("a stream"))?,
            worst_case_ms: Repeated::of(one.1).ok_or(Ended::Missing("a stream"))?,
            tags: one.2,
            histogram: one.3,
        })
    });
    let directions = directions.collect::<Result<_, T>>()?;
    Ok(Latency { traffic: *traffic, rate, definition, directions })
}
