//! Overload scalability (RFC 8219 section 10): what several flows cost.

use serde::{Deserialize, Serialize};

use crate::session::{Result, Session};
use crate::tester::Tester;
use crate::traffic::{Flows, Start, Traffic};

/// A dimension of section 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dimension {
    /// Throughput, frames/s.
    Throughput,
    /// Typical latency, ms.
    TypicalLatency,
    /// Worst-case latency, ms.
    WorstCaseLatency,
    /// PDV, ms.
    Pdv,
    /// Least IPDV, ms.
    IpdvMin,
    /// Median IPDV, ms.
    IpdvMedian,
    /// Greatest IPDV, ms.
    IpdvMax,
    /// Frame loss at 100 % of the maximum rate, per cent.
    FrameLoss,
    /// Back-to-back frames.
    BackToBack,
    /// System recovery, s.
    Recovery,
    /// Reset time, ms.
    Reset,
}

impl Dimension {
    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::Throughput | Self::BackToBack)
    }
}

/// Result of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Dimension.
    pub dimension: Dimension,
    /// Value in its unit.
    pub value: f64,
}

/// Performance degradation of one dimension at a number of flows: a cell of the table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Degradation {
    /// Dimension.
    pub dimension: Dimension,
    /// Flows n.
    pub flows: u32,
    /// Result for one flow, X1.
    pub one: f64,
    /// Result for n flows, Xn.
    pub many: f64,
    /// Xpd, per cent; `None` where X1 is 0.
    pub percent: Option<f64>,
}

/// Degradation of a traffic setup by flows (sections 10.2.1 and 10.2.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Traffic with one flow.
    pub traffic: Traffic,
    /// How flows started; seconds T between them where one after the other.
    pub start: Start,
    /// Every dimension at every number of flows.
    pub degradations: Vec<Degradation>,
}

/// Xpd: how much worse n flows are than one, per cent; `None` where one flow's result is 0.
pub fn degradation(dimension: Dimension, one: f64, many: f64) -> Option<f64> {
    let worse = if dimension.higher_is_better() { one - many } else { many - one };
    (one != 0.0).then(|| 100.0 * worse / one)
}

/// Numbers of flows: n, and with incremental load a quarter, half and three quarters of it.
pub fn flow_counts(n: u32, start: Start) -> Vec<u32> {
    let mut counts = match start {
        Start::Simultaneous => vec![n],
        Start::Incremental(_) => [1, 2, 3, 4].map(|part| (n * part).div_ceil(4)).to_vec(),
    };
    counts.dedup();
    counts.retain(|count| *count > 1);
    counts
}

/// Runs the benchmarks for one flow, then for n flows. A dimension that only one of them has is left out.
pub fn overload<T: Tester>(
    session: &mut Session<'_, T>,
    traffic: &Traffic,
    n: u32,
    start: Start,
    mut benchmarks: impl FnMut(&mut Session<'_, T>, &Traffic) -> Result<Vec<Score>, T>,
) -> Result<Overload, T> {
    let single = Traffic { flows: Flows::ONE, ..*traffic };
    let ones = benchmarks(session, &single)?;
    let mut degradations = Vec::new();
    for count in flow_counts(n, start) {
        let flows = Flows { count, start };
        let many = benchmarks(session, &Traffic { flows, ..*traffic })?;
        for one in &ones {
            if let Some(many) = many.iter().find(|score| score.dimension == one.dimension) {
                let percent = degradation(one.dimension, one.value, many.value);
                degradations.push(Degradation {
                    dimension: one.dimension,
                    flows: count,
                    one: one.value,
                    many: many.value,
                    percent,
                });
            }
        }
    }
    Ok(Overload { traffic: single, start, degradations })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degradation_is_worse_performance_whichever_way_is_better() {
        assert_eq!(degradation(Dimension::Throughput, 200.0, 150.0), Some(25.0));
        assert_eq!(degradation(Dimension::TypicalLatency, 200.0, 150.0), Some(-25.0));
        assert_eq!(degradation(Dimension::Pdv, 0.0, 150.0), None);
    }

    #[test]
    fn incremental_load_has_intermediary_points() {
        assert_eq!(flow_counts(8, Start::Incremental(1.0)), [2, 4, 6, 8]);
        assert_eq!(flow_counts(3, Start::Incremental(1.0)), [2, 3]);
        assert_eq!(flow_counts(8, Start::Simultaneous), [8]);
        assert_eq!(flow_counts(1, Start::Simultaneous), [0u32; 0]);
    }
}
