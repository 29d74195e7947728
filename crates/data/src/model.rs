//! From measurements and a user's network to what three networks need: a model, with its inputs, formulas, intervals, and
//! what more processors than those of the machine that was measured would carry.

pub mod check;
pub mod inputs;
pub mod options;
mod uncertain;

use fordway_stats::interval::{FEWEST, Interval};
use fordway_stats::queues::{Card, Service};
use serde::Serialize;

use check::Checked;
use inputs::{Named, Quantity, Source, Sources, User, find};
use options::{BreakEven, Need, Network, Values, break_even, need};
use uncertain::{interval, medians};

/// Flows that a network card tells apart at most.
const MOST_FLOWS: f64 = 65_536.0;
/// Spread of the flows' rates: sigma of a log-normal distribution; a sixth of the flows then carries more than 2.7 times
/// what the middle one does.
const SKEW: f64 = 1.0;
/// Places of a queue of a network card.
const PLACES: usize = 512;
/// Share of the packets whose loss is borne.
const BEARABLE: f64 = 1e-4;

/// Everything that the decision page says.
#[derive(Debug, Clone, Serialize)]
pub struct Decision {
    /// What this is: no measurement.
    pub label: &'static str,
    /// What is to be known of the runs.
    pub warnings: Vec<String>,
    /// The user's network.
    pub inputs: User,
    /// Where each quantity comes from.
    pub sources: Vec<Input>,
    /// Quantities that no run has.
    pub not_measured: Vec<Quantity>,
    /// What each network needs.
    pub needs: Vec<Needed>,
    /// At which share of native IPv6 both need as many processors; absent when a quantity is missing.
    pub break_even: Option<BreakEven>,
    /// Its interval, as a share; 0: dual stack at every share, 1: IPv6-only at every share.
    pub break_even_interval: Option<Interval>,
    /// The quantity that is missing for it.
    pub break_even_missing: Option<Quantity>,
    /// What machines with more processors carry, calculated.
    pub scaling: Vec<Scaled>,
    /// The formulas held against what was measured.
    pub checks: Vec<Checked>,
}

/// A quantity with its origin.
#[derive(Debug, Clone, Serialize)]
pub struct Input {
    /// Origin.
    #[serde(flatten)]
    pub source: Source,
    /// Median, in the model's unit.
    pub median: f64,
    /// Its interval; absent below three deployments.
    pub interval: Option<Interval>,
}

/// One need of one network.
#[derive(Debug, Clone, Serialize)]
pub struct Needed {
    /// The network.
    pub network: Network,
    /// What it needs.
    pub need: Need,
    /// How much; absent when a quantity is missing.
    pub value: Option<f64>,
    /// Interval over the blocks, with its level; absent below three blocks that have all quantities.
    pub interval: Option<Interval>,
    /// The quantity that is missing.
    pub missing: Option<Quantity>,
}

/// What a machine with that many processors carries.
#[derive(Debug, Clone, Serialize)]
pub struct Scaled {
    /// NAT44's or NAT64's traffic.
    pub quantity: Quantity,
    /// Processors, each with a queue of the network card.
    pub cores: usize,
    /// Gbit/s with at most one packet in ten thousand lost.
    pub gbit_s: f64,
    /// The same as a share of so many times one processor.
    pub efficiency: f64,
    /// Waiting at the utilisation that is borne, P99, µs: with packets that all take as long as was measured.
    pub wait_us: f64,
    /// The same with packets whose times spread exponentially.
    pub wait_spread_us: f64,
}

/// Makes the decision page's numbers.
pub fn decide(runs: &[Named<'_>], wanted: &[String], user: &User) -> Decision {
    let sources = find(runs, wanted, user);
    let values = medians(&sources);
    let even = break_even(user, &values);
    let share = |v: &Values| {
        break_even(user, v).ok().map(|even| match even {
            BreakEven::At(share) => share,
            BreakEven::DualStackAlways => 0.0,
            BreakEven::Ipv6OnlyAlways => 1.0,
        })
    };
    let mut needs = Vec::new();
    for network in Network::ALL {
        for what in Need::ALL {
            let found = need(what, network, user, &values);
            let of = |v: &Values| need(what, network, user, v).ok();
            needs.push(Needed {
                network,
                need: what,
                value: found.ok(),
                interval: interval(&sources, of),
                missing: found.err(),
            });
        }
    }
    Decision {
        label: "A model from measurements, not a measurement",
        warnings: warnings(runs),
        inputs: *user,
        not_measured: Quantity::ALL.into_iter().filter(|q| !sources.contains_key(q)).collect(),
        needs,
        break_even: even.ok(),
        break_even_interval: interval(&sources, share),
        break_even_missing: even.err(),
        scaling: scaling(&sources, user),
        checks: check::check(runs),
        sources: sources
            .iter()
            .map(|(quantity, source)| Input {
                source: source.clone(),
                median: values[quantity],
                interval: interval(&sources, |v| v.get(quantity).copied()),
            })
            .collect(),
    }
}

/// Whether these runs can say what one of the networks needs of this.
pub fn says(runs: &[Named<'_>], user: &User, what: Need) -> bool {
    let values = medians(&find(runs, &[], user));
    Network::ALL.into_iter().any(|network| need(what, network, user, &values).is_ok())
}

/// Warnings of the runs, each with its folder.
fn warnings(runs: &[Named<'_>]) -> Vec<String> {
    let of = |named: &Named<'_>| {
        let folder = named.folder.to_owned();
        named.run.results.warnings.iter().map(move |w| format!("{folder}: {w}")).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of).collect()
}

/// Numbers of processors to calculate for: powers of two up to the user's, and the user's.
fn sizes(cores: u32) -> Vec<usize> {
    let most = cores.clamp(1, 256) as usize;
    let mut all: Vec<usize> = (0..9).map(|n| 1 << n).filter(|n| *n < most).collect();
    all.push(most);
    all
}

fn scaling(sources: &Sources, user: &User) -> Vec<Scaled> {
    let mut all = Vec::new();
    for quantity in [Quantity::Nat44Traffic, Quantity::Nat64Traffic] {
        let Some(source) = sources.get(&quantity) else { continue };
        // A cost that the measurement could not tell from the tester's own is no time of service.
        let costs = source.values.iter().filter(|v| v.1 > 0.0);
        let per_packet: Vec<f64> = costs.map(|v| v.1 / user.packets_per_gbit()).collect();
        if per_packet.is_empty() {
            continue;
        }
        let mut one = None;
        for cores in sizes(user.cores) {
            let card = |exponential| Card {
                flows: user.sessions().clamp(1.0, MOST_FLOWS) as usize,
                skew: SKEW,
                cores,
                places: PLACES,
                service: Service::measured(&per_packet, exponential),
            };
            let carried = card(false).capacity(BEARABLE);
            let of_one = *one.get_or_insert(carried);
            let wait = |exponential| {
                let card = card(exponential);
                1e6 * card.wait(user.utilisation * cores as f64 / card.service.mean, 0.99)
            };
            all.push(Scaled {
                quantity,
                cores,
                gbit_s: carried / user.packets_per_gbit(),
                efficiency: carried / (of_one * cores as f64),
                wait_us: wait(false),
                wait_spread_us: wait(true),
            });
        }
    }
    all
}

/// Why a result has no interval.
pub(crate) fn no_interval() -> String {
    format!("no interval: fewer than {FEWEST} blocks have all quantities")
}

#[cfg(test)]
mod tests;
