//! How long a plan takes, told before it begins.

use serde::{Deserialize, Serialize};

use crate::back_to_back::{DEPLETION_S, LONGEST_S};
use crate::bisect::Bisection;
use crate::overload::flow_counts;
use crate::profile::Profile;
use crate::suite::{Benchmark, MAX_TRIALS};
use crate::traffic::{Flows, Start};

/// Trials and wall time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Trials.
    pub trials: u64,
    /// Seconds.
    pub seconds: f64,
    /// What both are.
    pub kind: Kind,
}

/// What a cost is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No device makes it longer, if the generator offers every rate.
    UpperBound,
    /// Usual; a device can make it longer or shorter.
    Estimate,
}

impl Cost {
    const NOTHING: Self = Self { trials: 0, seconds: 0.0, kind: Kind::UpperBound };

    fn bound(trials: u64, seconds_each: f64) -> Self {
        Self { trials, seconds: trials as f64 * seconds_each, kind: Kind::UpperBound }
    }

    /// One after the other.
    pub fn and(self, other: Self) -> Self {
        let both = self.kind == Kind::UpperBound && other.kind == Kind::UpperBound;
        Self {
            trials: self.trials + other.trials,
            seconds: self.seconds + other.seconds,
            kind: if both { Kind::UpperBound } else { Kind::Estimate },
        }
    }

    /// Several times.
    pub fn times(self, n: u64) -> Self {
        Self { trials: self.trials * n, seconds: self.seconds * n as f64, ..self }
    }
}

/// One benchmark at one point with this maximum rate, frames/s. The throughput that the others need is not in theirs.
pub fn benchmark(profile: &Profile, benchmark: Benchmark, maximum: f64) -> Cost {
    let waits = profile.waits.total();
    match benchmark {
        Benchmark::Throughput => {
            let p = &profile.throughput;
            let bound = p.search(maximum, maximum).bound();
            let bound = bound.expect("the maximum is finite and the least rate positive");
            Cost::bound(bound.short.into(), p.short_s + waits)
                .and(Cost::bound(bound.full.into(), p.full_s + waits))
                .times(p.repetitions.max(1).into())
        }
        Benchmark::Mlrsearch => mlrsearch(profile),
        Benchmark::Latency => {
            let p = &profile.latency;
            Cost::bound(p.repetitions.max(1).into(), p.seconds + waits)
        }
        Benchmark::Variation => {
            let p = &profile.variation;
            Cost::bound(p.repetitions.max(1).into(), p.seconds + waits)
        }
        Benchmark::FrameLossRate => {
            let p = &profile.frame_loss_rate;
            Cost::bound(100u64.div_ceil(p.step.clamp(1, 10).into()), p.seconds + waits)
        }
        Benchmark::BackToBack => back_to_back(profile, maximum),
        Benchmark::Recovery => {
            let p = &profile.recovery;
            Cost::bound(p.repetitions.max(1).into(), p.overload_s + p.relief_s + waits)
        }
        Benchmark::Reset => {
            let p = &profile.reset;
            // Usually the device is back in the first trial's time.
            let one = Cost::bound(p.repetitions.max(1).into(), p.before_s + p.after_s + waits);
            Cost { kind: Kind::Estimate, ..one }
        }
    }
}

/// A quiet device takes about one trial per halving in each phase of each goal; a noisy one ends at [`MAX_TRIALS`].
fn mlrsearch(profile: &Profile) -> Cost {
    let waits = profile.waits.total();
    let of = |goal: &crate::mlrsearch::Goal| {
        let trials = 4 + (goal.sum_s / goal.final_s).ceil() as u64 * 2;
        let short = Cost::bound(8, goal.initial_s + waits);
        Cost { kind: Kind::Estimate, ..Cost::bound(trials, goal.final_s + waits).and(short) }
    };
    let all = profile.goals.iter().map(of).fold(Cost::NOTHING, Cost::and);
    Cost { trials: all.trials.min(MAX_TRIALS.into()), ..all }
}

/// The search ends before its limit is raised, unless buffers are large.
fn back_to_back(profile: &Profile, maximum: f64) -> Cost {
    let p = &profile.back_to_back;
    let limit = p.limit_s.min(LONGEST_S);
    let most = (limit * maximum) as u64;
    let bound = Bisection { most, error: p.step, finest: p.step, floor: 0 }.bound();
    let trials =
        u64::from(bound) * u64::from(p.verifications + 1) * u64::from(p.repetitions.max(1));
    let waits = profile.waits;
    let depletion = waits.residual.max(DEPLETION_S).max(limit);
    let one = Cost::bound(trials, limit + waits.learning + depletion + waits.settle);
    Cost { kind: Kind::Estimate, ..one }
}

/// Benchmarks at several points, given by their maximum rates, with the throughput that precedes them at each.
pub fn points(profile: &Profile, chosen: &[Benchmark], maxima: &[f64]) -> Cost {
    let point = |maximum: &f64| {
        let others = chosen.iter().filter(|it| **it != Benchmark::Throughput);
        let first = benchmark(profile, Benchmark::Throughput, *maximum);
        others.map(|it| benchmark(profile, *it, *maximum)).fold(first, Cost::and)
    };
    maxima.iter().map(point).fold(Cost::NOTHING, Cost::and)
}

/// Overload scalability at one point: the benchmarks for one flow, and for each number of flows with the time to start them.
pub fn overload(
    profile: &Profile,
    chosen: &[Benchmark],
    maximum: f64,
    n: u32,
    start: Start,
) -> Cost {
    let each = points(profile, chosen, &[maximum]);
    let with = |count: u32| {
        let ramp = Flows { count, start }.ramp_s();
        Cost { seconds: each.seconds + each.trials as f64 * ramp, ..each }
    };
    flow_counts(n, start).into_iter().map(with).fold(each, Cost::and)
}

/// Benchmarks over a table that is filled with `connections` at `rate` before each of their trials.
pub fn over_filled_table(benchmarks: Cost, profile: &Profile, connections: u64, rate: f64) -> Cost {
    let phase_1 = connections as f64 / rate + profile.waits.residual;
    Cost { seconds: benchmarks.seconds + benchmarks.trials as f64 * phase_1, ..benchmarks }
}

/// Connection tear-down rate of a number of connections that are loaded at `rate`; the time of deletion is not in it.
pub fn tear_down(profile: &Profile, connections: u64, rate: f64) -> Cost {
    let fill = connections as f64 / rate + profile.waits.residual;
    let cost = Cost::bound(profile.stateful.repetitions.max(1).into(), fill);
    Cost { kind: Kind::Estimate, ..cost }
}

/// Maximum connection establishment rate of a number of connections, for a device that is expected to have `rate`.
pub fn establishment(profile: &Profile, connections: u64, maximum: u64, rate: f64) -> Cost {
    let p = &profile.stateful;
    let finest = p.rate_error.min(p.finest_rate_error().max(rate as u64 / 8));
    let steps = Bisection { most: maximum, error: p.rate_error, finest, floor: 0 }.bound();
    let n = connections as f64;
    // Most steps are near the rate that is found; each has two phases.
    let one = n / rate + n / (p.alpha * rate) + 2.0 * profile.waits.residual;
    let cost = Cost::bound(u64::from(steps), one).times(p.repetitions.max(1).into());
    Cost { kind: Kind::Estimate, ..cost }
}

/// Capacity of a table that is expected to hold `expected` connections at `rate`, from `safe` ones on.
pub fn capacity(profile: &Profile, safe: u64, expected: u64, maximum: u64, rate: f64) -> Cost {
    let once = Profile {
        stateful: crate::stateful::Parameters { repetitions: 1, ..profile.stateful },
        ..profile.clone()
    };
    let doubled = std::iter::successors(Some(safe.max(1)), |n| n.checked_mul(2));
    let doubled: Vec<u64> = doubled.take_while(|n| *n < 2 * expected.max(safe)).collect();
    let last = doubled.last().copied().unwrap_or(safe);
    let halvings = (last as f64 / profile.stateful.capacity_error.max(1) as f64).max(1.0).log2();
    let search = |n: u64| establishment(&once, n, maximum, rate);
    let first = doubled.into_iter().map(search).fold(Cost::NOTHING, Cost::and);
    let last = search(expected).times(halvings.ceil() as u64);
    // About half of them are beyond the capacity, where a search ends at once.
    first.and(Cost { trials: last.trials.div_ceil(2), seconds: last.seconds / 2.0, ..last })
}
