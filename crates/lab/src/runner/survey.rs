//! What can be measured here, found out before a run.

use std::collections::BTreeMap;
use std::path::Path;

use super::Runner;
use crate::error::Result;
use crate::load::perf;
use crate::mechanism;
use crate::process::find_program;
use crate::spec::{Experiment, Group, Load, Metric};
use crate::tester::frames;

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
        match mechanism::of(&arm.implementation, fordway)?.availability(arm.kind) {
            mechanism::Availability::Ready { version, .. } => {
                found.versions.insert(arm.name.clone(), version);
            }
            mechanism::Availability::Missing { hint } => {
                found.skipped.insert(arm.name.clone(), hint);
            }
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
    let datagrams = |m: Metric| matches!(m.load(), Some(Load::Datagrams(_)));
    check(&datagrams, &|| {
        find_program("nft")
            .is_none()
            .then(|| "nft is not installed: apt-get install nftables".into())
    });
    check(&|m| matches!(m, Metric::CyclesPerPacketUp | Metric::CyclesPerPacketDown), &|| {
        perf::available().err()
    });
    // Only root may ask; a plan without root leaves it open.
    if crate::state::is_root() {
        let frame =
            |m: Metric| matches!(m.load(), Some(Load::Frames(_) | Load::NewFlows(_) | Load::Hold));
        check(&frame, &|| frames::supported().err());
    }
    debug_assert!(missing.keys().all(|name| {
        Metric::ALL.iter().any(|m| m.name() == name && m.group() != Some(Group::Flow))
    }));
    missing
}
