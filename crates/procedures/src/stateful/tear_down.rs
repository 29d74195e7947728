//! Connection tear-down rate (RFC 9693 section 4.8).

use serde::{Deserialize, Serialize};

use super::{Filling, StatefulTester, Tuples};
use crate::error::Ended;
use crate::session::{Result, Session};
use crate::summary::Repeated;

/// Connection tear-down rate for a number of connections: a column of table 2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TearDown {
    /// Ranges of addresses and ports.
    pub tuples: Tuples,
    /// Connections N.
    pub connections: u64,
    /// Seconds from Timestamp A to Timestamp B.
    pub seconds: Repeated,
    /// N through the seconds, connections/s.
    pub rate: Repeated,
}

/// Fills the table and has the device delete everything, `repetitions` times.
pub fn tear_down<T: StatefulTester>(
    session: &mut Session<'_, T>,
    filling: &Filling,
    gap_s: f64,
    repetitions: u32,
) -> Result<TearDown, T> {
    let n = filling.connections;
    session.require_timeout(n as f64 / filling.rate + gap_s)?;
    let mut times = Vec::new();
    for _ in 0..repetitions.max(1) {
        session.refill_whole(filling)?;
        let seconds = session.operate(0.0, T::delete_all)?;
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(Ended::Missing("the time of a deletion"));
        }
        times.push(seconds);
    }
    let rates = times.iter().map(|seconds| n as f64 / seconds).collect();
    Ok(TearDown {
        tuples: filling.tuples,
        connections: n,
        rate: Repeated::of(rates).expect("at least one deletion"),
        seconds: Repeated::of(times).expect("at least one deletion"),
    })
}
