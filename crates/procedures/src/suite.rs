//! All benchmarks of RFC 8219 section 7 at one point, in the order in which they need each other.

use serde::{Deserialize, Serialize};

use crate::back_to_back::{BackToBack, back_to_back};
use crate::frame_loss_rate::{FrameLossRate, frame_loss_rate};
use crate::latency::{Definition, Latency, latency};
use crate::mlrsearch::{Control, MultipleLossRatios, mlrsearch};
use crate::overload::{Dimension, Score};
use crate::profile::Profile;
use crate::recovery::{Recovery, recovery};
use crate::reset::{Reset, reset};
use crate::session::{Result, Session};
use crate::tester::Tester;
use crate::throughput::{Throughput, throughput};
use crate::traffic::Point;
use crate::variation::{Variation, variation};

/// Durations of MLRsearch grow by no more than this.
pub const GROWTH: f64 = 4.0;
/// Trials after which MLRsearch ends without regular results.
pub const MAX_TRIALS: u32 = 500;

/// A benchmark of RFC 8219 section 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Benchmark {
    /// Throughput, which always comes first as the others need it.
    Throughput,
    /// Throughput with and without loss from one search.
    Mlrsearch,
    /// Latency.
    Latency,
    /// PDV and IPDV.
    Variation,
    /// Frame loss rate.
    FrameLossRate,
    /// Back-to-back frames.
    BackToBack,
    /// System recovery.
    Recovery,
    /// Reset.
    Reset,
}

impl Benchmark {
    /// All of them in the order of the RFC.
    pub const ALL: [Self; 8] = [
        Self::Throughput,
        Self::Mlrsearch,
        Self::Latency,
        Self::Variation,
        Self::FrameLossRate,
        Self::BackToBack,
        Self::Recovery,
        Self::Reset,
    ];
}

/// Results of one point. What was not chosen, or has no sense at a throughput of 0, is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Throughput.
    pub throughput: Throughput,
    /// MLRsearch.
    pub mlrsearch: Option<MultipleLossRatios>,
    /// Latency.
    pub latency: Option<Latency>,
    /// PDV and IPDV.
    pub variation: Option<Variation>,
    /// Frame loss rate.
    pub frame_loss_rate: Option<FrameLossRate>,
    /// Back-to-back frames; also absent where the throughput is the maximum rate.
    pub back_to_back: Option<BackToBack>,
    /// System recovery.
    pub recovery: Option<Recovery>,
    /// Reset.
    pub reset: Option<Reset>,
}

/// MLRsearch's bounds at a point under a profile.
pub fn control(profile: &Profile, point: &Point) -> Control {
    Control {
        min_load: point.maximum.rate * profile.throughput.least,
        max_load: point.maximum.rate,
        growth: GROWTH,
        max_trials: MAX_TRIALS,
    }
}

/// Runs the chosen benchmarks. Reset should be chosen at the minimum frame size alone (RFC 6201 section 4).
pub fn measure<T: Tester>(
    session: &mut Session<'_, T>,
    point: &Point,
    profile: &Profile,
    definition: Definition,
    chosen: &[Benchmark],
) -> Result<Results, T> {
    let throughput = throughput(session, point, &profile.throughput)?;
    let rate = throughput.rate.median;
    let (is, traffic) = (|benchmark| chosen.contains(&benchmark), &point.traffic);
    let at_rate = |benchmark| is(benchmark) && rate > 0.0;
    let mut results = Results {
        throughput,
        mlrsearch: None,
        latency: None,
        variation: None,
        frame_loss_rate: None,
        back_to_back: None,
        recovery: None,
        reset: None,
    };
    if is(Benchmark::Mlrsearch) {
        let control = control(profile, point);
        results.mlrsearch = Some(mlrsearch(session, point, &profile.goals, &control)?);
    }
    if at_rate(Benchmark::Latency) {
        let parameters = &profile.latency;
        results.latency = Some(latency(session, traffic, rate, definition, parameters)?);
    }
    if at_rate(Benchmark::Variation) {
        results.variation = Some(variation(session, traffic, rate, &profile.variation)?);
    }
    if is(Benchmark::FrameLossRate) {
        let parameters = &profile.frame_loss_rate;
        results.frame_loss_rate = Some(frame_loss_rate(session, point, parameters)?);
    }
    if is(Benchmark::BackToBack) {
        results.back_to_back = back_to_back(session, point, rate, &profile.back_to_back)?;
    }
    if at_rate(Benchmark::Recovery) {
        results.recovery = Some(recovery(session, point, rate, &profile.recovery)?);
    }
    if at_rate(Benchmark::Reset) {
        results.reset = Some(reset(session, traffic, rate, &profile.reset)?);
    }
    Ok(results)
}

impl Results {
    /// One value per dimension, for overload scalability: of two directions the worse one.
    pub fn scores(&self) -> Vec<Score> {
        let worst = |values: Vec<f64>| values.into_iter().reduce(f64::max);
        let latency = |of: fn(&crate::latency::OneWay) -> f64| {
            worst(self.latency.iter().flat_map(|it| &it.directions).map(of).collect())
        };
        let variation = |of: fn(&crate::variation::OneWay) -> f64| {
            worst(self.variation.iter().flat_map(|it| &it.directions).map(of).collect())
        };
        let reset = self.reset.iter().flat_map(|it| &it.directions);
        let full = self.frame_loss_rate.as_ref().and_then(|it| it.curve.first());
        let all = [
            (Dimension::Throughput, Some(self.throughput.rate.median)),
            (Dimension::TypicalLatency, latency(|it| it.typical_ms.median)),
            (Dimension::WorstCaseLatency, latency(|it| it.worst_case_ms.median)),
            (Dimension::Pdv, variation(|it| it.pdv_ms.median)),
            (Dimension::IpdvMin, variation(|it| it.ipdv_ms.min.median)),
            (Dimension::IpdvMedian, variation(|it| it.ipdv_ms.median.median)),
            (Dimension::IpdvMax, variation(|it| it.ipdv_ms.max.median)),
            (Dimension::FrameLoss, full.map(|it| it.loss)),
            (Dimension::BackToBack, self.back_to_back.as_ref().map(|it| it.frames.average)),
            (Dimension::Recovery, self.recovery.as_ref().map(|it| it.seconds.average)),
            (Dimension::Reset, worst(reset.map(|it| it.reset_ms.average).collect())),
        ];
        let score = |(dimension, value): (Dimension, Option<f64>)| {
            value.map(|value| Score { dimension, value })
        };
        all.into_iter().filter_map(score).collect()
    }
}
