//! Profiles: how long and how often a plan measures, and where that departs from the RFCs.

use serde::{Deserialize, Serialize};

use crate::frame::SIZES;
use crate::mlrsearch::Goal;
use crate::tester::Waits;
use crate::traffic::{Limit, MIXES, NETWORKS};
use crate::{
    back_to_back, frame_loss_rate, latency, recovery, reset, stateful, throughput, variation,
};

/// Durations, repetitions and traffic setups of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Frame sizes.
    pub sizes: Vec<u16>,
    /// Per cent of translated traffic in each mix.
    pub mixes: Vec<u8>,
    /// Numbers of networks.
    pub networks: Vec<u16>,
    /// Waits around every trial.
    pub waits: Waits,
    /// Throughput.
    pub throughput: throughput::Parameters,
    /// Goals of MLRsearch.
    pub goals: Vec<Goal>,
    /// Latency.
    pub latency: latency::Parameters,
    /// PDV and IPDV.
    pub variation: variation::Parameters,
    /// Frame loss rate.
    pub frame_loss_rate: frame_loss_rate::Parameters,
    /// Back-to-back frames.
    pub back_to_back: back_to_back::Parameters,
    /// System recovery.
    pub recovery: recovery::Parameters,
    /// Reset.
    pub reset: reset::Parameters,
    /// Tests of RFC 9693.
    pub stateful: stateful::Parameters,
    /// Flows of overload scalability; no more than one: not measured.
    pub flows: u32,
}

/// Where a plan departs from an RFC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// RFC and section.
    pub section: String,
    /// What is done otherwise.
    pub text: String,
}

impl Profile {
    /// Durations and repetitions of the RFCs, all frame sizes and traffic setups: days.
    pub fn strict() -> Self {
        Self {
            name: "strict".into(),
            sizes: SIZES.to_vec(),
            mixes: MIXES.to_vec(),
            networks: NETWORKS.to_vec(),
            waits: Waits::RFC2544,
            throughput: throughput::Parameters {
                short_s: 5.0,
                full_s: 60.0,
                precision: 0.005,
                least: 1e-3,
                repetitions: 20,
            },
            goals: vec![Goal::rfc2544(60.0, 1.0, 0.005), Goal::partial(0.005, 60.0, 1.0, 0.005)],
            latency: latency::Parameters {
                seconds: 120.0,
                tags_after_s: 60.0,
                tags: 10_000,
                repetitions: 20,
            },
            variation: variation::Parameters { seconds: 60.0, repetitions: 20 },
            frame_loss_rate: frame_loss_rate::Parameters { seconds: 60.0, step: 10 },
            back_to_back: back_to_back::Parameters {
                limit_s: 2.0,
                step: 16,
                verifications: 0,
                repetitions: 50,
            },
            recovery: recovery::Parameters { overload_s: 60.0, relief_s: 60.0, repetitions: 20 },
            reset: reset::Parameters {
                before_s: reset::BEFORE_S,
                after_s: 15.0,
                longest_s: 240.0,
                repetitions: 10,
            },
            stateful: stateful::Parameters {
                rate_error: 1000,
                alpha: 0.5,
                fill: 0.5,
                beta: 0.1,
                gamma: 0.5,
                capacity_error: 1000,
                repetitions: 10,
                gap_s: 60.0,
            },
            flows: 256,
        }
    }

    /// Shorter trials and fewer of them, all frame sizes, one pair of addresses: hours.
    pub fn standard() -> Self {
        let strict = Self::strict();
        Self {
            name: "standard".into(),
            mixes: vec![100, 50],
            networks: vec![1],
            waits: Waits { learning: 0.5, residual: 2.0, settle: 1.0 },
            throughput: throughput::Parameters {
                short_s: 1.0,
                full_s: 10.0,
                precision: 0.01,
                least: 1e-2,
                repetitions: 3,
            },
            goals: vec![Goal::rfc2544(10.0, 1.0, 0.01), Goal::partial(0.005, 10.0, 1.0, 0.01)],
            latency: latency::Parameters {
                seconds: 20.0,
                tags_after_s: 5.0,
                repetitions: 5,
                ..strict.latency
            },
            variation: variation::Parameters { seconds: 10.0, repetitions: 5 },
            frame_loss_rate: frame_loss_rate::Parameters { seconds: 10.0, step: 10 },
            back_to_back: back_to_back::Parameters { repetitions: 10, ..strict.back_to_back },
            recovery: recovery::Parameters { overload_s: 10.0, relief_s: 10.0, repetitions: 5 },
            reset: reset::Parameters {
                after_s: 5.0,
                longest_s: 80.0,
                repetitions: 3,
                ..strict.reset
            },
            stateful: stateful::Parameters { repetitions: 5, ..strict.stateful },
            flows: 16,
            ..strict
        }
    }

    /// A few seconds for each value: minutes. Its values show that a set-up works and what order they have.
    pub fn quick() -> Self {
        let standard = Self::standard();
        Self {
            name: "quick".into(),
            sizes: vec![64, 512, 1518],
            mixes: vec![100],
            waits: Waits { learning: 0.1, residual: 0.5, settle: 0.1 },
            throughput: throughput::Parameters {
                short_s: 0.3,
                full_s: 2.0,
                precision: 0.03,
                least: 0.005,
                repetitions: 1,
            },
            goals: vec![Goal::rfc2544(2.0, 0.5, 0.03), Goal::partial(0.005, 2.0, 0.5, 0.03)],
            latency: latency::Parameters {
                seconds: 3.0,
                tags_after_s: 1.0,
                repetitions: 3,
                ..standard.latency
            },
            variation: variation::Parameters { seconds: 2.0, repetitions: 3 },
            frame_loss_rate: frame_loss_rate::Parameters { seconds: 1.0, step: 10 },
            back_to_back: back_to_back::Parameters {
                limit_s: 0.5,
                step: 64,
                repetitions: 2,
                ..standard.back_to_back
            },
            recovery: recovery::Parameters { overload_s: 2.0, relief_s: 2.0, repetitions: 2 },
            reset: reset::Parameters {
                before_s: 2.0,
                after_s: 4.0,
                longest_s: 32.0,
                repetitions: 1,
            },
            stateful: stateful::Parameters {
                rate_error: 10_000,
                beta: 0.3,
                capacity_error: 20_000,
                repetitions: 1,
                gap_s: 10.0,
                ..standard.stateful
            },
            flows: 1,
            ..standard
        }
    }

    /// The profile of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::quick(), Self::standard(), Self::strict()].into_iter().find(|it| it.name == name)
    }

    /// Every departure of durations, repetitions and traffic setups from the RFCs; `limit` says where 100 % comes from.
    pub fn departures(&self, limit: Limit) -> Vec<Departure> {
        let mut all = Vec::new();
        let mut unless = |holds: bool, section: &str, text: String| {
            if !holds {
                all.push(Departure { section: section.into(), text });
            }
        };
        let rfc = Self::strict();
        unless(
            limit == Limit::Theoretical,
            "RFC 8219 appendix A",
            "the medium has no line rate: 100 % is the generator's calibrated ceiling".into(),
        );
        unless(
            rfc.sizes.iter().all(|size| self.sizes.contains(size)),
            "RFC 8219 section 5.1.1",
            format!("frame sizes are {:?} only", self.sizes),
        );
        unless(
            rfc.mixes.iter().all(|mix| self.mixes.contains(mix)),
            "RFC 8219 section 5.3",
            format!("translated traffic is {:?} per cent only", self.mixes),
        );
        unless(
            rfc.networks.iter().all(|networks| self.networks.contains(networks)),
            "RFC 2544 section 12",
            format!("destination networks are {:?} only", self.networks),
        );
        let (ours, theirs) = (&self.waits, &rfc.waits);
        unless(
            ours.learning >= theirs.learning
                && ours.residual >= theirs.residual
                && ours.settle >= theirs.settle,
            "RFC 2544 section 23",
            format!(
                "waits are {} s after learning frames, {} s for residual frames and {} s to restabilise",
                ours.learning, ours.residual, ours.settle
            ),
        );
        let mut seconds = |have: f64, wanted: f64, section: &str, what: &str| {
            let text = format!("{what} last {have} s instead of {wanted} s");
            unless(have >= wanted, section, text);
        };
        let p = self;
        seconds(p.throughput.full_s, 60.0, "RFC 2544 section 24", "throughput trials that count");
        seconds(p.frame_loss_rate.seconds, 60.0, "RFC 2544 section 24", "frame loss rate trials");
        let shortest = p.goals.iter().map(|goal| goal.final_s).fold(f64::INFINITY, f64::min);
        seconds(shortest, 60.0, "RFC 2544 section 24", "final trials of MLRsearch");
        seconds(p.latency.seconds, 120.0, "RFC 8219 section 7.2", "latency streams");
        seconds(p.variation.seconds, 60.0, "RFC 8219 section 7.3", "streams of PDV and IPDV");
        seconds(p.recovery.overload_s, 60.0, "RFC 2544 section 26.5", "overloads");
        let before = p.reset.before_s;
        seconds(before, reset::BEFORE_S, "RFC 6201 section 4", "forwarding periods before a reset");
        unless(
            p.latency.tags_after_s >= 60.0 && p.latency.tags >= 500,
            "RFC 8219 section 7.2",
            format!("{} frames are tagged after {} s", p.latency.tags, p.latency.tags_after_s),
        );
        let mut times = |have: u32, wanted: u32, section: &str, what: &str| {
            let text = format!("{what}: {have} instead of {wanted} repetitions");
            unless(have >= wanted, section, text);
        };
        times(p.latency.repetitions, 20, "RFC 8219 section 7.2", "latency");
        times(p.variation.repetitions, 20, "RFC 8219 section 7.3", "PDV and IPDV");
        times(p.back_to_back.repetitions, 50, "RFC 2544 section 26.4", "back-to-back frames");
        unless(
            p.throughput.repetitions > 1,
            "RFC 8219 section 12",
            "throughput is searched for once".into(),
        );
        unless(
            p.recovery.repetitions > 1 && p.reset.repetitions > 1,
            "RFC 2544 section 26.5, RFC 6201 section 1.4",
            "recovery or reset is measured once".into(),
        );
        unless(
            p.stateful.repetitions > 1,
            "RFC 9693 section 6",
            "each test of a stateful gateway is run once".into(),
        );
        unless(p.flows > 1, "RFC 8219 section 10", "overload scalability is not measured".into());
        all
    }
}
