//! Back-to-back frames (RFC 8219 section 7.5, RFC 2544 section 26.4 as RFC 9004 updates it).

use serde::{Deserialize, Serialize};

use crate::bisect::{Bisected, Bisection};
use crate::session::{Result, Session};
use crate::summary::Repeated;
use crate::tester::{Load, Record, Tester, Waits};
use crate::traffic::Point;

/// The upper search limit can be raised to this many seconds of sending (RFC 9004 section 6.2).
pub const LONGEST_S: f64 = 30.0;
/// Time after each burst in which buffers deplete, seconds (RFC 9004 section 6.2).
pub const DEPLETION_S: f64 = 2.0;
/// A result from this share of the search limit on is near it, and the test is repeated with a higher limit.
const NEAR: f64 = 0.95;

/// How the longest burst is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// First upper limit of the time to send a burst, seconds.
    pub limit_s: f64,
    /// Step size: the search ends when bounds differ by this many frames.
    pub step: u64,
    /// Further trials with a burst that lost frames: 0 is the binary search of TST 009, more is its binary search with loss
    /// verification.
    pub verifications: u32,
    /// Tests, each with a search of its own.
    pub repetitions: u32,
}

/// Back-to-back frames of one frame size: a row of table 1 in RFC 9004.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackToBack {
    /// Traffic, and the rate of bursts.
    pub point: Point,
    /// Throughput of the frame size that buffer times are corrected by.
    pub throughput: f64,
    /// Longest burst without loss in frames: average (the benchmark), least, greatest, standard deviation, N.
    pub frames: Repeated,
    /// Average burst in seconds at the maximum rate.
    pub implied_buffer_s: f64,
    /// The former without frames that the device forwarded while the burst was sent.
    pub corrected_buffer_s: f64,
    /// Search of each test.
    pub searches: Vec<Bisected>,
    /// Upper limit of the time to send a burst in the last test, seconds.
    pub limit_s: f64,
    /// Whether a result lies near the longest limit, so that the value is likely invalid.
    pub near_limit: bool,
    /// Parameters, which have to be reported.
    pub parameters: Parameters,
}

impl BackToBack {
    /// Buffer time at a rate of interest below the throughput (RFC 9004 section 7).
    pub fn actual_buffer_s(&self, rate: f64) -> f64 {
        self.corrected_buffer_s * self.point.maximum.rate / rate
    }
}

/// Finds the longest burst that the device takes without loss. `None`: its throughput is the maximum rate, so that no burst
/// fills a buffer (RFC 9004 section 6.1).
pub fn back_to_back<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    throughput: f64,
    parameters: &Parameters,
) -> Result<Option<BackToBack>, T> {
    if throughput >= point.maximum.rate {
        return Ok(None);
    }
    let mut limit_s = parameters.limit_s.min(LONGEST_S);
    let mut searches = Vec::new();
    let mut near_limit = false;
    while searches.len() < parameters.repetitions.max(1) as usize {
        let most = (limit_s * point.maximum.rate) as u64;
        let found = longest_burst(session, point, most, parameters)?;
        let near = found.value as f64 >= NEAR * most as f64;
        if near && limit_s < LONGEST_S {
            limit_s = (2.0 * limit_s).min(LONGEST_S);
            continue;
        }
        near_limit |= near;
        searches.push(found);
    }
    let values = searches.iter().map(|found| found.value as f64).collect();
    let frames = Repeated::of(values).expect("at least one search");
    let implied = frames.average / point.maximum.rate;
    Ok(Some(BackToBack {
        point: *point,
        throughput,
        frames,
        implied_buffer_s: implied,
        corrected_buffer_s: implied - implied * throughput / point.maximum.rate,
        searches,
        limit_s,
        near_limit,
        parameters: *parameters,
    }))
}

fn longest_burst<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    most: u64,
    parameters: &Parameters,
) -> Result<Bisected, T> {
    let search = Bisection { most, error: parameters.step, finest: parameters.step, floor: 0 };
    search.run(|frames| {
        let load = Load::Burst { frames, rate: point.maximum.rate };
        let mut order = session.order(&point.traffic, load, Record::Counts);
        order.waits = waits(order.waits, order.seconds());
        for _ in 0..=parameters.verifications {
            if session.run(&order)?.is_lossless() {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Waits after a burst: two seconds at least, and more if sending took longer.
fn waits(waits: Waits, sending: f64) -> Waits {
    Waits { residual: waits.residual.max(DEPLETION_S).max(sending), ..waits }
}
