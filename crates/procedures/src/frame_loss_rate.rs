//! Frame loss rate (RFC 8219 section 7.4, RFC 2544 section 26.3).

use serde::{Deserialize, Serialize};

use crate::session::{Result, Session};
use crate::tester::{Load, Record, Tester};
use crate::traffic::Point;

/// How the curve is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Seconds of each trial.
    pub seconds: f64,
    /// Distance of trials in per cent of the maximum rate: 10 at most.
    pub step: u8,
}

/// The curve of one point: offered rate and loss, both in per cent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameLossRate {
    /// Traffic and 100 %.
    pub point: Point,
    /// Trials in the order in which they were run, from the highest rate down.
    pub curve: Vec<Loss>,
}

/// One trial of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Offered rate, per cent of the maximum.
    pub offered: u8,
    /// Frames/s in each direction.
    pub rate: f64,
    /// Frames lost, per cent of those sent.
    pub loss: f64,
    /// Whether the generator did not offer the rate; frames that it did not send count as lost.
    pub is_short: bool,
}

/// Measures at 100 % of the maximum rate and in steps below, until two successive trials lose nothing.
pub fn frame_loss_rate<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    parameters: &Parameters,
) -> Result<FrameLossRate, T> {
    let mut curve: Vec<Loss> = Vec::new();
    for offered in (1..=100).rev().step_by(usize::from(parameters.step.clamp(1, 10))) {
        let rate = point.maximum.rate * f64::from(offered) / 100.0;
        let load = Load::Constant { rate, seconds: parameters.seconds };
        let order = session.order(&point.traffic, load, Record::Counts);
        let trial = session.run(&order)?;
        let loss = 100.0 * trial.loss_ratio();
        curve.push(Loss { offered, rate, loss, is_short: trial.is_short() });
        if let [.., before, last] = curve[..]
            && before.loss == 0.0
            && last.loss == 0.0
        {
            break;
        }
    }
    Ok(FrameLossRate { point: *point, curve })
}
