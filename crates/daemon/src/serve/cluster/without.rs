//! The cluster left out (feature `cluster`): there is no seat.

use fordway_config::Feature;
use fordway_control::{ClusterChange, ClusterStatus};

use crate::apply::cluster::Part;
use crate::apply::running::Running;
use crate::failure::Failure;

/// None can be had.
#[derive(Clone)]
pub(crate) enum Seat {}

/// There is no part to take.
pub(super) fn start(part: &Part, _running: &[Running]) -> Result<Option<Seat>, Failure> {
    match *part {}
}

impl Seat {
    pub(in crate::serve) fn failed(&self) -> bool {
        match *self {}
    }

    pub(super) async fn leave(&self) {
        match *self {}
    }

    pub(super) async fn status(&self) -> Result<ClusterStatus, Failure> {
        match *self {}
    }

    pub(super) async fn change(&self, _change: &ClusterChange) -> Result<String, Failure> {
        match *self {}
    }
}

/// Why there is none.
pub(super) fn missing() -> Failure {
    Feature::Cluster.into()
}
