//! MLRsearch (RFC 9971): rates for several loss ratios from one search.
//!
//! [`classify`] holds what the RFC specifies, [`search`] chooses loads and durations, which it leaves open: durations grow
//! from the initial to the final one, intervals are halved as ratios, smaller goals come first.

mod classify;
mod control;

use serde::{Deserialize, Serialize};

pub use classify::{Class, Measured, conditional_throughput, load_class};
pub use control::{Control, search};

use crate::session::{Result, Session};
use crate::tester::{Load, Record, Tester};
use crate::traffic::Point;

/// A Search Goal (RFC 9971 section 4.6.7).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Goal Loss Ratio: from 0 to less than 1.
    pub loss_ratio: f64,
    /// Goal Exceed Ratio: share of the time in which trials may lose more.
    pub exceed_ratio: f64,
    /// Goal Final Trial Duration, seconds.
    pub final_s: f64,
    /// Goal Duration Sum, seconds.
    pub sum_s: f64,
    /// Goal Initial Trial Duration, seconds.
    pub initial_s: f64,
    /// Goal Width: relative difference of both bounds, (upper - lower) / upper.
    pub width: f64,
}

impl Goal {
    /// The goal whose result is RFC 2544 throughput (RFC 9971 section 4.10.2), with trials of a length.
    pub fn rfc2544(final_s: f64, initial_s: f64, width: f64) -> Self {
        let (loss_ratio, exceed_ratio) = (0.0, 0.0);
        Self { loss_ratio, exceed_ratio, final_s, sum_s: final_s, initial_s, width }
    }

    /// A goal that bears with some loss, and with a rare bad trial: of two trials one may lose more.
    pub fn partial(loss_ratio: f64, final_s: f64, initial_s: f64, width: f64) -> Self {
        let (exceed_ratio, sum_s) = (0.5, 2.0 * final_s);
        Self { loss_ratio, exceed_ratio, final_s, sum_s, initial_s, width }
    }
}

/// A Goal Result (RFC 9971 section 4.8.4). It is regular if both bounds are there within the Goal Width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// Relevant Lower Bound, frames/s in each direction. Without an upper bound it is the greatest lower bound.
    pub lower: Option<f64>,
    /// Relevant Upper Bound.
    pub upper: Option<f64>,
    /// Conditional Throughput at the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Whether both bounds meet the Goal Width. A result that does not must be marked as irregular in reports.
    pub is_regular: bool,
}

/// What a search returns (RFC 9971 section 4.8.6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// One result per goal, in the order of goals.
    pub goals: Vec<GoalResult>,
    /// Trials.
    pub trials: u32,
    /// Seconds in which these sent frames.
    pub seconds: f64,
}

/// MLRsearch at one point: several throughputs, conditional on loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MultipleLossRatios {
    /// Traffic and maximum rate: Traffic Profile and Max Load.
    pub point: Point,
    /// Results.
    pub result: SearchResult,
}

/// Searches rates of a device up to the maximum of a point. Loads are those of one direction; loss is that of all directions.
pub fn mlrsearch<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    goals: &[Goal],
    control: &Control,
) -> Result<MultipleLossRatios, T> {
    let result = search(goals, control, |load, seconds| {
        let load = Load::Constant { rate: load, seconds };
        let order = session.order(&point.traffic, load, Record::Counts);
        Ok(session.run(&order)?.loss_ratio())
    })?;
    Ok(MultipleLossRatios { point: *point, result })
}
