//! Packet Delay Variation and Inter Packet Delay Variation (RFC 8219 section 7.3, RFC 5481). Both come from the delays of all
//! frames of the same streams.

use serde::{Deserialize, Serialize};

use crate::error::Ended;
use crate::session::{Result, Session};
use crate::summary::Repeated;
use crate::tester::{Load, Record, Stream, Tester};
use crate::traffic::{Direction, Traffic};

/// Percentile from which PDV is counted.
const WORST: f64 = 0.999;
/// ns in a ms.
const MS: f64 = 1e6;

/// How delay variation is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of the stream.
    pub seconds: f64,
    /// Streams.
    pub repetitions: u32,
}

/// Delay variation at one point: a row of either table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variation {
    /// Traffic.
    pub traffic: Traffic,
    /// Frames/s at which it was measured: the throughput.
    pub rate: f64,
    /// Each direction.
    pub directions: Vec<OneWay>,
}

/// Delay variation in one direction, ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWay {
    /// Direction.
    pub direction: Direction,
    /// PDV: 99.9th percentile of the one-way delay less its minimum (section 7.3.1).
    pub pdv_ms: Repeated,
    /// IPDV: of the differences D(i) - D(i-1) (section 7.3.2).
    pub ipdv_ms: Ipdv,
}

/// The three values of IPDV; the median of each is reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ipdv {
    /// Dmin.
    pub min: Repeated,
    /// Dmed.
    pub median: Repeated,
    /// Dmax.
    pub max: Repeated,
}

/// Sends streams at the throughput rate and summarises the delays of all their frames.
pub fn variation<T: Tester>(
    session: &mut Session<'_, T>,
    traffic: &Traffic,
    rate: f64,
    parameters: &Parameters,
) -> Result<Variation, T> {
    let load = Load::Constant { rate, seconds: parameters.seconds };
    let order = session.order(traffic, load, Record::Every);
    let mut outcomes = Vec::new();
    for _ in 0..parameters.repetitions.max(1) {
        outcomes.push(session.measure(&order)?);
    }
    let directions = traffic.directions().iter().map(|direction| {
        let streams = outcomes.iter().flat_map(|it| &it.streams);
        let values: Vec<[f64; 4]> = streams
            .filter(|stream| stream.direction == *direction)
            .map(|stream| of_stream(stream).ok_or(Ended::Missing("delays of all frames")))
            .collect::<Result<_, T>>()?;
        let column = |at: usize| {
            let all = values.iter().map(|row| row[at]).collect();
            Repeated::of(all).ok_or(Ended::Missing("a stream"))
        };
        let ipdv_ms = Ipdv { min: column(1)?, median: column(2)?, max: column(3)? };
        Ok(OneWay { direction: *direction, pdv_ms: column(0)?, ipdv_ms })
    });
    let directions = directions.collect::<Result<_, T>>()?;
    Ok(Variation { traffic: *traffic, rate, directions })
}

/// PDV, then least, median and greatest IPDV of a stream, ms.
fn of_stream(stream: &Stream) -> Option<[f64; 4]> {
    let (delays, ipdv) = (stream.delays.as_ref()?, stream.variations.as_ref()?);
    let pdv = delays.percentile(WORST)? - delays.min()?;
    Some([pdv as f64, ipdv.min()? as f64, ipdv.median()?, ipdv.max()? as f64].map(|ns| ns / MS))
}
