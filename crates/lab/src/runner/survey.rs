//! What can be measured here, found out before a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fordway_data::spec::{Experiment, Group, Kind, Load, MechanismSpec, Metric, Transact};
use fordway_load::frames;

use super::Runner;
use crate::error::Result;
use crate::hosts::orders::Surveyed;
use crate::load::{perf, to_install};
use crate::mechanism;
use crate::process::find_program;
use crate::topology::{Network, Shape};

/// Mechanisms of a run.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Versions of those that can run.
    pub(crate) versions: BTreeMap<String, String>,
    /// Why the others can't.
    pub(crate) skipped: BTreeMap<String, String>,
}

/// Looks for the programs of the wanted mechanisms. With `rehearse`, each arm that asks for an engine
/// which not every host has is started once, on a network of its own, and asked what it runs.
pub(crate) fn survey(
    experiment: &Experiment,
    wanted: &[String],
    fordway: Option<&Path>,
    rehearse: bool,
) -> Result<Found> {
    let mut found = Found::default();
    for arm in experiment.mechanisms.iter().filter(|m| wanted.contains(&m.name)) {
        match available(arm, fordway)? {
            Ok(version) => drop(found.versions.insert(arm.name.clone(), version)),
            Err(hint) => drop(found.skipped.insert(arm.name.clone(), hint)),
        }
    }
    if rehearse {
        let choosy = |name: &String| {
            let arm = experiment.mechanism(name).ok()?;
            (arm.engine.as_deref() == Some("kernel")).then(|| arm.name.clone())
        };
        let arms: Vec<String> = found.versions.keys().filter_map(choosy).collect();
        for (name, why) in Runner::rehearse(experiment, &arms, fordway)? {
            found.versions.remove(&name);
            found.skipped.insert(name, why);
        }
    }
    Ok(found)
}

/// The same with what can't be measured.
pub(crate) fn surveyed(
    experiment: &Experiment,
    wanted: &[String],
    fordway: Option<&Path>,
    rehearse: bool,
) -> Result<Surveyed> {
    let Found { versions, skipped } = survey(experiment, wanted, fordway, rehearse)?;
    Ok(Surveyed { versions, skipped, unmeasured: unmeasured(experiment) })
}

/// The version of an arm with all that belongs to it, or what is missing.
fn available(
    arm: &MechanismSpec,
    fordway: Option<&Path>,
) -> Result<std::result::Result<String, String>> {
    let version = match mechanism::of_arm(arm, fordway)?.availability(arm.kind) {
        mechanism::Availability::Ready { version, .. } => version,
        mechanism::Availability::Missing { hint } => return Ok(Err(hint)),
    };
    let Some(server) = mechanism::as_resolver(arm) else { return Ok(Ok(version)) };
    Ok(match mechanism::of(&server.implementation, fordway)?.availability(Kind::Dns64) {
        mechanism::Availability::Ready { version: names, .. } => {
            Ok(format!("{version}; name server {names}"))
        }
        // A path without a translator is worth measuring without names, too: see `unmeasured`.
        mechanism::Availability::Missing { .. } if arm.kind == Kind::Native => Ok(version),
        mechanism::Availability::Missing { hint } => Err(hint),
    })
}

/// Whether the kernel's connection tracking holds an arm's sessions, which `conntrack` deletes.
fn is_tracked(arm: &MechanismSpec) -> bool {
    let shape = Shape::of(arm, true);
    let network = Network::described("", shape, Some(arm)).ok();
    let mechanism = mechanism::of_arm(arm, None).ok();
    mechanism.zip(network).is_some_and(|(it, network)| it.tracks_at(arm, &network).is_some())
}

/// Metrics of the experiment that can't be measured here, by name, and why.
pub(crate) fn unmeasured(experiment: &Experiment) -> BTreeMap<String, String> {
    let mut missing = BTreeMap::new();
    let mut check = |of: &dyn Fn(Metric) -> bool, why: &dyn Fn() -> Option<String>| {
        let metrics: Vec<Metric> = experiment.metrics.iter().copied().filter(|m| of(*m)).collect();
        // Asking costs time: only for what the experiment wants.
        if let Some(why) = metrics.first().and_then(|_| why()) {
            missing.extend(metrics.iter().map(|m| (m.name().to_owned(), why.clone())));
        }
    };
    let datagrams = |m: Metric| {
        let load = m.load();
        matches!(load, Some(Load::Datagrams(_) | Load::Paced(_) | Load::Simplex | Load::Duplex))
    };
    check(&datagrams, &|| to_install(&[("nft", "nftables")]));
    check(&|m| m.load() == Some(Load::Ab), &crate::load::ab::missing);
    check(&|m| matches!(m.load(), Some(Load::Fetch(_))), &crate::load::fetch::missing);
    for held in [false, true] {
        let of = |m: Metric| match m.load() {
            Some(Load::Transactions(what)) => (what == Transact::Held) == held,
            _ => false,
        };
        check(&of, &|| crate::load::transactions::missing(held));
    }
    check(&|m| matches!(m.load(), Some(Load::Exchange(_))), &|| {
        to_install(&[("nginx", "nginx-light")])
    });
    let tracked = experiment.mechanisms.iter().any(is_tracked);
    check(&|m| tracked && m == Metric::TearDownRate, &|| to_install(&[("conntrack", "conntrack")]));
    check(&|m| m.load() == Some(Load::Initiation), &|| to_install(&[("tcpdump", "tcpdump")]));
    check(&|m| matches!(m.load(), Some(Load::Dnsperf(_))), &|| {
        to_install(&[("dnsperf", "dnsperf")])
    });
    for load in &experiment.loads {
        let own = |m: Metric| matches!(m.load(), Some(Load::Own(own)) if own.spec() == load);
        check(&own, &|| {
            let missing = |program: &&String| find_program(program).is_none();
            let missing: Vec<&str> =
                load.requires.iter().filter(missing).map(String::as_str).collect();
            let how = load.install.as_deref().map(|how| format!(": {how}")).unwrap_or_default();
            (!missing.is_empty()).then(|| format!("not installed: {}{how}", missing.join(", ")))
        });
    }
    let servers: BTreeSet<&str> = experiment
        .mechanisms
        .iter()
        .filter(|m| m.kind == Kind::Native)
        .filter_map(|m| m.resolver.as_deref())
        .collect();
    check(&Metric::needs_names, &|| {
        servers.iter().find_map(|name| {
            // The gateway's own program is looked for elsewhere.
            let server = mechanism::of(name, None).ok().filter(|_| *name != "fordway")?;
            match server.availability(Kind::Dns64) {
                mechanism::Availability::Missing { hint } => {
                    Some(format!("{name}, the name server of paths without a translator: {hint}"))
                }
                mechanism::Availability::Ready { .. } => None,
            }
        })
    });
    check(&|m| matches!(m, Metric::CyclesPerPacketUp | Metric::CyclesPerPacketDown), &|| {
        perf::available().err()
    });
    // Only root may ask; a plan without root leaves it open.
    if crate::state::is_root() {
        let frame = |m: Metric| {
            let load = m.load();
            let flows = matches!(load, Some(Load::NewFlows(_) | Load::Recycled | Load::Hold));
            flows || matches!(load, Some(Load::Frames(_) | Load::Pairs(_) | Load::Imix(_)))
        };
        check(&frame, &|| frames::supported().err());
    }
    debug_assert!(missing.keys().all(|name| {
        experiment.metrics.iter().any(|m| m.name() == name && m.group() != Some(Group::Flow))
    }));
    missing
}
