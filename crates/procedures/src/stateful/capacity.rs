//! Connection tracking table capacity (RFC 9693 section 4.9): the general case, whatever the device does with a full table.

use serde::{Deserialize, Serialize};

use super::establishment::search;
use super::{Filling, Parameters, StatefulTester, Tuples};
use crate::error::Ended;
use crate::session::{Result, Session};

/// One number of connections that was examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Connections.
    pub connections: u64,
    /// Their maximum establishment rate, connections/s; where a search ended early it is a lower bound of that.
    pub rate: u64,
    /// Whether the device collapsed.
    pub collapsed: bool,
    /// Whether it is beyond the capacity: the device collapsed, or the rate dropped unacceptably.
    pub is_beyond: bool,
}

/// Capacity of the connection tracking table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// C0: connections that the table surely holds.
    pub safe: u64,
    /// R0: their establishment rate.
    pub safe_rate: u64,
    /// CS: greatest number of connections that the table holds, within `error`.
    pub capacity: u64,
    /// CT: least number that is beyond it; `None` if the search ended at the most connections it may try.
    pub beyond: Option<u64>,
    /// Every number in the order of examination: exponential search, then binary search.
    pub steps: Vec<Step>,
    /// Parameters.
    pub parameters: Parameters,
}

/// Doubles the number of connections from `safe` until the device collapses or the rate drops below beta of the last one,
/// then halves the interval with gamma until it is no wider than the error. `most` bounds the connections that are tried.
pub fn capacity<T: StatefulTester>(
    session: &mut Session<'_, T>,
    safe: u64,
    most: u64,
    maximum_rate: u64,
    parameters: &Parameters,
    seed: u64,
) -> Result<Capacity, T> {
    let mut steps = Vec::new();
    let mut examine = |connections: u64, rate: u64, drop: f64| {
        let tuples = Tuples::at_least(connections)
            .ok_or(Ended::Precondition("ports do not suffice for so many connections"))?;
        let filling = Filling { tuples, connections, seed, rate: 0.0 };
        let least = (rate as f64 * drop).ceil() as u64;
        // Below the least acceptable rate trials are the longest, and nobody asks.
        let found = search(session, &filling, rate, least, parameters)?;
        let rate = found.map_or(0, |found| found.value);
        let collapsed = found.is_none();
        let is_beyond = collapsed || rate < least;
        steps.push(Step { connections, rate, collapsed, is_beyond });
        Ok((rate, is_beyond))
    };
    let (safe_rate, _) = examine(safe, maximum_rate, 0.0)?;
    if safe_rate == 0 {
        return Err(Ended::Precondition("the safe number of connections is not established"));
    }
    let (mut inside, mut rate) = (safe, safe_rate);
    let mut beyond = None;
    while beyond.is_none() && inside < most {
        let twice = (2 * inside).min(most);
        let (found, is_beyond) = examine(twice, rate, parameters.beta)?;
        if is_beyond { beyond = Some(twice) } else { (inside, rate) = (twice, found) }
    }
    while let Some(outside) = beyond.filter(|it| it - inside > parameters.capacity_error.max(1)) {
        let middle = inside + (outside - inside) / 2;
        let (found, is_beyond) = examine(middle, rate, parameters.gamma)?;
        if is_beyond { beyond = Some(middle) } else { (inside, rate) = (middle, found) }
    }
    Ok(Capacity { safe, safe_rate, capacity: inside, beyond, steps, parameters: *parameters })
}
