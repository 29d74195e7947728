//! DSTM left out (feature `dstm`): neither a server nor the agent of a tunnel end point.

use fordway_config::Feature;
use fordway_control::{Stats, Status};
use fordway_counters::dstm::LeaseView;

use super::Services;
use super::servers::Group;
use crate::failure::Failure;

/// No servers.
#[derive(Default)]
pub(super) struct Dstm;

impl Dstm {
    pub(super) fn groups(&mut self) -> [&mut dyn Group; 0] {
        []
    }

    pub(super) fn add_status(&self, _status: &mut Status) {}

    pub(super) fn add_stats(&self, _stats: &mut Stats) {}
}

impl Services {
    pub(crate) fn leases(&self) -> Result<Vec<LeaseView>, Failure> {
        Err(Feature::Dstm.into())
    }

    pub(crate) fn revoke(&self, _client: &str) -> Result<String, Failure> {
        Err(Feature::Dstm.into())
    }
}
