//! One arm on a network of its own, for as long as it is held: not measured by a run.

use std::path::Path;

use fordway_data::spec::{Experiment, RunSpec};

use super::deploy::Live;
use super::room::FEW_SESSIONS;
use super::{Guard, Runner};
use crate::backend::Backend;
use crate::error::Result;
use crate::mechanism::Room;
use crate::topology::Network;

/// A deployed arm. Fields drop in this order: the network before what notes it.
pub(crate) struct Staged {
    live: Live,
    runner: Runner,
    /// The arm's name for people.
    pub(crate) label: String,
    _guard: Guard,
}

impl Staged {
    /// Deploys an arm of a built-in experiment.
    pub(crate) fn new(experiment: &str, arm: &str, fordway: Option<&Path>) -> Result<Self> {
        let mut experiment = Experiment::find(experiment)?;
        experiment.run = Some(RunSpec::bare());
        let arm = experiment.mechanism(arm)?.clone();
        let guard = Guard::new(Path::new("(monitor)"))?;
        let mut runner = Runner::new(experiment, &guard.folder(), fordway, None)?;
        let live = runner.deploy(&guard, &arm, Room::of(FEW_SESSIONS))?;
        Ok(Self { live, runner, label: arm.label, _guard: guard })
    }

    /// Where its programs run.
    pub(crate) fn backend(&self) -> &dyn Backend {
        &self.runner.backend
    }

    /// Its network.
    pub(crate) fn network(&self) -> &Network {
        &self.live.network
    }

    /// The processes of the mechanism.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.live.deployed.pids()
    }
}
