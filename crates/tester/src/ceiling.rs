//! What the tester itself can do, and how exact it is: its loop without a device under test.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::{Fault, Histogram, Outcome, Pace, Result, Tester, Trial};

/// The highest rates over a loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Frames per second that left in a burst.
    pub out: f64,
    /// Of them, frames that arrived, per second of the burst.
    pub arrived: f64,
    /// Frames that left, and arrived, in a second of processor time: what a machine with nothing else to do would reach.
    pub by_processor: f64,
    /// Frames of the burst.
    pub sent: u64,
    /// Those that did not arrive.
    pub lost: u64,
    /// Highest steady rate of all tried, in frames per second, whose trial was valid and lost nothing; 0: there was none.
    pub lossless: f64,
}

/// Delays over a loop at a steady rate: the tester's own error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Jitter {
    /// Frames per second.
    pub rate: f64,
    /// Least delay, ns.
    pub min_ns: Option<u64>,
    /// Median.
    pub median_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// Frames without a delay.
    pub lost: u64,
    /// How much later than due frames left.
    pub lateness: Histogram,
    /// Why the trial does not count.
    pub invalid: Vec<Fault>,
}

/// Finds the highest rate of `trial` over a loop without a device under test, in one direction: that of a burst of `frames`, and
/// by bisection in `steps` trials the highest steady one without loss, each with as many frames as would leave in
/// `seconds`.
pub fn ceiling(
    tester: &mut Tester,
    trial: &Trial,
    frames: u64,
    steps: u32,
    seconds: f64,
    stop: &AtomicBool,
) -> Result<Ceiling> {
    let burst = Trial { forward: Pace::Burst(frames), reverse: Pace::Silent, ..trial.clone() };
    let outcome = tester.run(&burst, stop)?;
    let sender = &outcome.forward.sender;
    let (sent, lost) = (sender.sent, lost(&outcome));
    let out = sent as f64 / sender.seconds.max(1e-9);
    let arrived = (sent - lost) as f64 / sender.seconds.max(1e-9);
    let by_processor = (sent - lost) as f64 / outcome.processor_s.max(1e-9);
    let (mut least, mut most) = (0.0, out);
    for _ in 0..steps {
        let rate = (least + most) / 2.0;
        let steady =
            Trial { forward: Pace::steady(rate, seconds), reverse: Pace::Silent, ..trial.clone() };
        let outcome = tester.run(&steady, stop)?;
        if outcome.is_valid() && self::lost(&outcome) == 0 {
            least = rate;
        } else {
            most = rate;
        }
    }
    Ok(Ceiling { out, arrived, by_processor, sent, lost, lossless: least })
}

/// Measures the delays of `trial` over a loop without a device under test at a steady rate.
pub fn jitter(
    tester: &mut Tester,
    trial: &Trial,
    rate: f64,
    seconds: f64,
    stop: &AtomicBool,
) -> Result<Jitter> {
    let steady =
        Trial { forward: Pace::steady(rate, seconds), reverse: Pace::Silent, ..trial.clone() };
    let outcome = tester.run(&steady, stop)?;
    let delays = &outcome.forward.translated.delays;
    Ok(Jitter {
        rate,
        min_ns: delays.quantile(0.0),
        median_ns: delays.quantile(0.5),
        p99_ns: delays.quantile(0.99),
        p999_ns: delays.quantile(0.999),
        lost: lost(&outcome),
        lateness: outcome.forward.sender.lateness,
        invalid: outcome.invalid,
    })
}

fn lost(outcome: &Outcome) -> u64 {
    outcome.forward.translated.lost + outcome.forward.native.lost
}
