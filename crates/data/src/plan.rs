//! What a run will do, in which order, and how long it takes.

mod standards;
mod transactions;

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::spec::{
    Axis, Experiment, Family, Group, Kind, Load, MechanismSpec, Metric, Point, Profile, RunSpec,
    Transact,
};
use crate::trial::{Condition, Shares, calibrates, calibration, hash};

/// Seconds to make a network, start a mechanism, probe it shortly, and take it down.
const DEPLOY_S: f64 = 0.5;
/// Seconds around a load: starting tools, reading counters.
const AROUND_S: f64 = 0.15;
/// Seconds in which frames settle before they are counted, and their programs come and go.
const FRAMES_S: f64 = 0.5;
/// Seconds of the full correctness gate of one mechanism.
const GATE_S: f64 = 1.2;
/// Seconds that the matrix waits in vain behind what lets nothing in, or no names and files through.
const WAITED_S: f64 = 7.0;
/// Seconds of one measurement of the start time, on its own network.
const START_S: f64 = 0.4;
/// Seconds of connections before and after the death of a gateway.
const FAILOVER_S: f64 = 20.0;
/// New flows per second that a plan counts on, and sessions per second that are opened, asked and
/// forgotten again.
const FLOWS_PER_S: f64 = 150_000.0;
/// See [`FLOWS_PER_S`].
const HELD_PER_S: f64 = 70_000.0;
/// Seconds in which a server is made to know names, and its programs come and go.
const DNS_S: f64 = 0.45;
/// Seconds of one session, and of one page.
const SESSION_S: f64 = 0.0006;
/// See [`SESSION_S`].
const PAGE_S: f64 = 0.006;
/// Seconds in which the server of objects, and what fetches them, come and go.
const FETCH_S: f64 = 0.3;
/// Seconds of one request by HTTP when there are many.
const REQUEST_S: f64 = 0.000_025;
/// Seconds in which captures of first packets come and go, and of one connection.
const BEGIN_S: f64 = 0.5;
/// See [`BEGIN_S`].
const BEGUN_S: f64 = 0.002;
/// Seconds of one page of study B.
const AB_S: f64 = 0.001;
/// Seconds around a flow beside background traffic.
const BESIDE_S: f64 = 1.6;
/// Octets per second of a TCP flow that a plan counts on.
const OCTETS_PER_S: f64 = 250e6;
/// Seconds in which the tester of flows comes and goes.
const TESTER_S: f64 = 0.6;
/// Rounds over a table that is recycled, and seconds between two of them.
const RECYCLED_ROUNDS: f64 = 8.0;
/// See [`RECYCLED_ROUNDS`].
const RECYCLED_S: f64 = 3.0;
/// The same for a larger table, for each of its entries.
const RECYCLED_EACH_S: f64 = 1e-6;
/// Seconds of reading the machine's environment and drawing the report.
const FIXED_S: f64 = 3.0;

/// One deployment: a mechanism, or a calibration of the generator, in a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deployment {
    /// Factor setting.
    pub condition: Condition,
    /// Block, from 1.
    pub block: u32,
    /// Place in the block, from 1.
    pub order: u32,
    /// Arm, or the name of a calibration.
    pub mechanism: String,
}

/// Everything a run will do.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Factor settings, in order.
    pub conditions: Vec<Condition>,
    /// Block after block. In each, conditions in an order of its own, and in each condition all arms and calibrations in
    /// one.
    pub deployments: Vec<Deployment>,
    /// Trials that will be recorded, without gate and calibration.
    pub trials: usize,
    /// Wall time expected.
    pub seconds: f64,
}

/// Lays a run out. The same seed gives the same order. Conditions alternate inside a block: otherwise whatever changes
/// with time would be taken for their effect. Arms of one condition stay together, as they are compared with each other.
pub fn lay_out(experiment: &Experiment, run: &RunSpec, own_clocksource: &str) -> Plan {
    let profile = &experiment.profile[&run.profile];
    let conditions = conditions(run, profile, own_clocksource);
    let arms: Vec<&MechanismSpec> =
        experiment.mechanisms.iter().filter(|m| run.mechanisms.contains(&m.name)).collect();
    let families = families(experiment, &run.unmeasured, &arms);
    let mut deployments = Vec::new();
    let mut seconds = FIXED_S + arms.iter().map(|arm| gate_seconds(experiment, arm)).sum::<f64>();
    let mut trials = 0;
    for block in 1..=run.blocks {
        // Each block has its own stream, so that --blocks 10 begins as --blocks 5 does.
        let mut rng = ChaCha8Rng::seed_from_u64(run.seed);
        rng.set_stream(block.into());
        let mut order: Vec<&Condition> = conditions.iter().collect();
        order.shuffle(&mut rng);
        let mut place = 0;
        for condition in order {
            let names = arms.iter().map(|arm| arm.name.clone());
            let mut names: Vec<String> =
                names.chain(families.keys().map(|family| calibration(*family))).collect();
            names.shuffle(&mut rng);
            for mechanism in names {
                place += 1;
                let condition = condition.clone();
                deployments.push(Deployment { condition, block, order: place, mechanism });
            }
            for arm in &arms {
                let metrics = metrics_of(experiment, &run.unmeasured, arm);
                seconds += deployment_seconds(profile, &metrics, condition.duration_s);
                let points = |load: Load| points(load, profile).len();
                trials += metrics.iter().filter_map(|m| m.load()).map(points).sum::<usize>();
            }
            for metrics in families.values() {
                seconds += calibration_seconds(profile, metrics, condition.duration_s);
            }
        }
    }
    Plan { conditions, deployments, trials, seconds }
}

/// The order of loads, and of their points, on a deployment: another one on each. It does not depend on which of them
/// are left to do.
pub fn order_of_loads(
    seed: u64,
    d: &Deployment,
    mut all: Vec<(Load, Option<Point>)>,
) -> Vec<(Load, Option<Point>)> {
    let (mechanism, condition, block) = (&d.mechanism, d.condition.label(), d.block);
    all.sort_by_cached_key(|(load, point)| {
        let point = point.as_ref().map(Point::label).unwrap_or_default();
        hash(format!("{seed}\n{block}\n{condition}\n{mechanism}\n{load:?}\n{point}").as_bytes())
    });
    all
}

/// Families of the arms, each with what its calibration measures; none without anything.
fn families(
    experiment: &Experiment,
    unmeasured: &BTreeMap<String, String>,
    arms: &[&MechanismSpec],
) -> BTreeMap<Family, Vec<Metric>> {
    let of = |family: Family| {
        let own: BTreeSet<Metric> = arms
            .iter()
            .filter(|arm| arm.family == family)
            .flat_map(|arm| metrics_of(experiment, unmeasured, arm))
            .filter(|metric| metric.has_ceiling() || metric.includes_the_tester())
            .collect();
        (family, own.into_iter().collect::<Vec<Metric>>())
    };
    [Family::V4, Family::V6]
        .map(of)
        .into_iter()
        .filter(|(_, metrics)| !metrics.is_empty())
        .collect()
}

/// What is measured by the calibration of this name: what the generator limits, and what contains its processor time, on
/// the arms of its family.
pub fn calibrated(experiment: &Experiment, run: &RunSpec, name: &str) -> Vec<Metric> {
    let arms = experiment.mechanisms.iter().filter(|m| run.mechanisms.contains(&m.name));
    let all = families(experiment, &run.unmeasured, &arms.collect::<Vec<_>>());
    let own = calibrates(name).flatten().and_then(|family| all.get(&family).cloned());
    own.unwrap_or_default()
}

/// What is measured on a mechanism: what it names itself or everything, without what can't be measured
/// here; the start time only where one command starts everything.
pub fn metrics_of(
    experiment: &Experiment,
    unmeasured: &BTreeMap<String, String>,
    arm: &MechanismSpec,
) -> Vec<Metric> {
    let starts = arm.implementation == "fordway";
    let own = |m: &Metric| arm.metrics.is_empty() || arm.metrics.contains(m);
    let all = experiment.metrics.iter().copied().filter(own);
    // Sessions and pages are those of a whole network, with its name server.
    let waits = |m: &Metric| m.group() != Some(Group::Waiting) || arm.resolver.is_some();
    all.filter(|m| *m != Metric::StartTime || starts)
        .filter(waits)
        .filter(|m| !unmeasured.contains_key(m.name()))
        .collect()
}

/// As many blocks as the profile's time allows for these mechanisms.
pub fn blocks_for(
    experiment: &Experiment,
    profile: &Profile,
    mechanisms: &[String],
    unmeasured: &BTreeMap<String, String>,
    durations: &[u64],
    conditions: usize,
) -> u32 {
    let Some(budget) = profile.budget_s else { return profile.blocks_max };
    let arms: Vec<&MechanismSpec> =
        experiment.mechanisms.iter().filter(|m| mechanisms.contains(&m.name)).collect();
    let families = families(experiment, unmeasured, &arms);
    let each = |duration: &u64| {
        let arms = arms.iter().map(|arm| {
            deployment_seconds(profile, &metrics_of(experiment, unmeasured, arm), *duration)
        });
        let own = families.values().map(|own| calibration_seconds(profile, own, *duration));
        arms.chain(own).sum::<f64>()
    };
    let per_block = durations.iter().map(each).sum::<f64>() * conditions.max(1) as f64;
    let gates: f64 = arms.iter().map(|arm| gate_seconds(experiment, arm)).sum();
    let left = budget as f64 - FIXED_S - gates;
    let fit = (left / per_block.max(0.1)).floor().max(0.0) as u32;
    fit.clamp(profile.blocks_min, profile.blocks_max)
}

/// Wall time of one deployment.
pub fn deployment_seconds(profile: &Profile, metrics: &[Metric], duration_s: u64) -> f64 {
    // Several metrics come from one load.
    let loads: BTreeSet<Load> = metrics.iter().filter_map(|m| m.load()).collect();
    let each = loads.into_iter().map(|load| match load {
        Load::Flow(_) => flow_seconds(profile, duration_s) + AROUND_S,
        Load::Ping => f64::from(profile.ping_count) * profile.ping_interval_s + AROUND_S,
        Load::Probe => profile.probe_s + AROUND_S,
        Load::Datagrams(_) | Load::Paced(_) => profile.packets_s + 2.0 * AROUND_S,
        Load::Frames(_) | Load::Imix(_) => profile.packets_s + FRAMES_S,
        Load::Pairs(_) => profile.host_pairs.len() as f64 * (profile.packets_s + FRAMES_S),
        Load::NewFlows(_) => f64::from(profile.new_flows) / FLOWS_PER_S + TESTER_S,
        Load::Recycled => {
            // Each round opens UDP flows and TCP connections, and closes these; nine tenths are held once.
            let flows = 4.0 * f64::from(profile.table_entries) / FLOWS_PER_S;
            let gone = RECYCLED_S.max(f64::from(profile.table_entries) * RECYCLED_EACH_S);
            DEPLOY_S + 2.0 * TESTER_S + flows + RECYCLED_ROUNDS * gone
        }
        Load::Hold => {
            let sessions = f64::from(profile.held_sessions) / HELD_PER_S;
            DEPLOY_S + TESTER_S + sessions + flow_seconds(profile, duration_s) + AROUND_S
        }
        Load::Search => search_seconds(profile),
        Load::Questions(_) | Load::Dnsperf(_) => profile.dns_s + DNS_S,
        Load::Sessions(_) => f64::from(profile.sessions) * SESSION_S + AROUND_S,
        Load::Pages(_) => f64::from(profile.pages) * PAGE_S + AROUND_S,
        Load::Fetch(_) => profile.http_s.ceil() + FETCH_S,
        Load::Transactions(what) => transactions::seconds(what, profile),
        Load::Exchange(_) => {
            let each = |n: &u64| FETCH_S + *n as f64 * f64::from(profile.http_requests) * REQUEST_S;
            profile.http_connections.iter().map(each).sum()
        }
        Load::Ab => {
            let requests: u64 = profile.ab_requests.iter().sum();
            let points = profile.ab_connections.len() as f64;
            points * (requests as f64 * AB_S + profile.ab_requests.len() as f64 * FETCH_S)
        }
        Load::Simplex => profile.simplex_rates.len() as f64 * (duration_s as f64 + BESIDE_S),
        Load::Duplex => profile.duplex_flows.len() as f64 * (duration_s as f64 + BESIDE_S),
        Load::Streams => profile.tcp_streams.len() as f64 * (duration_s as f64 + AROUND_S),
        Load::Rrul => profile.tcp_streams.len() as f64 * (duration_s as f64 + BESIDE_S),
        Load::Forwarding
        | Load::Disturbance
        | Load::Reset
        | Load::FrameLoss
        | Load::Overload
        | Load::Incremental
        | Load::Connections
        | Load::Capacity => standards::seconds(load, profile),
        Load::Initiation => BEGIN_S + f64::from(profile.begun) * BEGUN_S,
        Load::Start => START_S,
        Load::Failover => DEPLOY_S + FAILOVER_S,
        Load::Own(load) => {
            let each = load.spec().takes_s.unwrap_or(duration_s as f64) + 2.0 * AROUND_S;
            points(Load::Own(load), profile).len() as f64 * each
        }
    });
    DEPLOY_S + each.sum::<f64>()
}

/// Wall time of a TCP flow.
fn flow_seconds(profile: &Profile, duration_s: u64) -> f64 {
    profile.flow_octets.map_or(duration_s as f64, |octets| octets as f64 / OCTETS_PER_S)
}

/// Points of a load; `None` for a load that has no settings.
pub fn points(load: Load, profile: &Profile) -> Vec<Option<Point>> {
    let axis = match load {
        Load::Ab => {
            let requests = (Axis::Requests, profile.ab_requests.clone());
            let connections = (Axis::Connections, profile.ab_connections.clone());
            return Point::grid(&[requests, connections]).into_iter().map(Some).collect();
        }
        Load::Own(load) => match &load.spec().scan {
            Some(scan) => (scan.axis, scan.values.clone()),
            None => return vec![None],
        },
        Load::Exchange(_) => (Axis::Connections, profile.http_connections.clone()),
        Load::Transactions(Transact::Single) => (Axis::Octets, profile.single_objects.clone()),
        Load::Transactions(Transact::Kept) => (Axis::Octets, profile.kept_objects.clone()),
        Load::Pairs(_) => (Axis::Pairs, profile.host_pairs.clone()),
        Load::Simplex => (Axis::Background, profile.simplex_rates.clone()),
        Load::Duplex => (Axis::Flows, profile.duplex_flows.clone()),
        Load::Streams | Load::Rrul => (Axis::Streams, profile.tcp_streams.clone()),
        Load::Connections => (Axis::Connections, profile.table_connections.clone()),
        Load::Disturbance | Load::Reset => (Axis::Octets, profile.disturbed_sizes.clone()),
        Load::Overload | Load::Incremental => (Axis::Pairs, profile.overload_flows.clone()),
        Load::Forwarding => return grid(&forwarding(profile)),
        Load::FrameLoss => {
            return grid(
                &[forwarding(profile), vec![(Axis::Share, profile.loss_shares.clone())]].concat(),
            );
        }
        _ => return vec![None],
    };
    Point::grid(&[axis]).into_iter().map(Some).collect()
}

/// All points of these axes.
fn grid(axes: &[(Axis, Vec<u64>)]) -> Vec<Option<Point>> {
    Point::grid(axes).into_iter().map(Some).collect()
}

/// Frames of RFC 8219: sizes, shares of native IPv6, networks. What has one value alone, its default, is no axis.
fn forwarding(profile: &Profile) -> Vec<(Axis, Vec<u64>)> {
    let mut axes = vec![(Axis::Octets, profile.frame_sizes.clone())];
    if profile.native_shares != [0] {
        axes.push((Axis::Native, profile.native_shares.clone()));
    }
    if profile.networks != [1] {
        axes.push((Axis::Networks, profile.networks.clone()));
    }
    axes
}

/// Wall time of a search for a rate without loss: a bracket and bisections, then the long trials.
fn search_seconds(profile: &Profile) -> f64 {
    let halvings = (0.3 / profile.dns_precision).log2().max(1.0).ceil();
    DNS_S + profile.dns_search_s * (3.0 + halvings) + 1.5 * profile.dns_trial_s
}

/// Wall time of a calibration of these metrics.
pub fn calibration_seconds(profile: &Profile, metrics: &[Metric], duration_s: u64) -> f64 {
    deployment_seconds(profile, metrics, calibration_flow(duration_s))
}

/// Length of a calibration's TCP flow, s. It only has to find a ceiling, and that in every block.
pub fn calibration_flow(duration_s: u64) -> u64 {
    duration_s.min(2)
}

/// Seconds of the full gate of a mechanism, with the matrix where the experiment asks for it.
pub fn gate_seconds(experiment: &Experiment, arm: &MechanismSpec) -> f64 {
    let waits = experiment.matrix && matches!(arm.kind, Kind::Nat64 | Kind::Trt | Kind::Proxy);
    GATE_S + if waits { WAITED_S } else { 0.0 }
}

fn conditions(run: &RunSpec, profile: &Profile, own: &str) -> Vec<Condition> {
    let own = [own.to_owned()];
    let clocks: &[String] = if run.clocksources.is_empty() { &own } else { &run.clocksources };
    let mut all = Vec::new();
    for clock in clocks {
        for duration in &run.durations_s {
            all.extend(shares(&run.cached, &run.native).into_iter().map(|shares| Condition {
                clocksource: clock.clone(),
                duration_s: *duration,
                flow_octets: profile.flow_octets,
                offloads: run.offloads,
                shares,
            }));
        }
    }
    all
}

/// All combinations of the shares of names; where all names are known, it makes no difference which
/// records they have (RFC 8219 section 9.2).
pub fn shares(cached: &[u8], native: &[u8]) -> Vec<Option<Shares>> {
    if cached.is_empty() && native.is_empty() {
        return vec![None];
    }
    let levels = |own: &[u8]| if own.is_empty() { vec![0] } else { own.to_vec() };
    let mut all = Vec::new();
    for cached in levels(cached) {
        for native in levels(native) {
            all.push(Some(Shares { cached, native }));
            if cached == 100 {
                break;
            }
        }
    }
    all
}

/// What `n` blocks can and cannot show; said before the run.
pub fn power_notes(blocks: u32, comparisons: usize, alpha: f64) -> Vec<String> {
    let mut notes = Vec::new();
    if blocks < 3 {
        notes.push(format!(
            "{blocks} block(s): too few for any verdict; every comparison will be unresolved. \
             Three is the least, seven or more is better."
        ));
        return notes;
    }
    // The least two-sided p of the exact signed-rank test is 2 / 2^n.
    let least = 2.0 / 2f64.powi(blocks.min(60) as i32);
    let holm = alpha / comparisons.max(1) as f64;
    if least > alpha {
        notes.push(format!(
            "{blocks} blocks: the Wilcoxon signed-rank test cannot go below p = {least:.3}, so \
             verdicts rest on the paired t test alone."
        ));
    } else if least > holm {
        notes.push(format!(
            "{blocks} blocks: the Wilcoxon signed-rank test reaches p = {least:.4}, but not \
             {holm:.4}, which Holm's rule asks of the first of {comparisons} comparisons."
        ));
    }
    if blocks < 6 {
        notes.push(
            "Below six blocks the interval of a median holds less often than 95 %: the least and the greatest of five \
             values hold it 93.8 %, of three 75 %."
                .into(),
        );
    }
    if blocks < 7 {
        notes.push(
            "With so few blocks only large differences can be told from noise; small ones will \
             come out as unresolved."
                .into(),
        );
    }
    notes
}

/// Seconds in words.
pub fn in_words(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests;
