//! DSTM's clients left out (feature `dstm`): no configuration has one.

use fordway_config::{Config, DstmClient};
use fordway_control::DstmClientStats;
use fordway_net::privilege::Capability;

use super::handle::Handle;
use crate::failure::Failure;

/// Adds nothing.
pub(crate) fn expand(_config: &mut Config) {}

/// None.
pub(crate) fn capabilities(_dstm_clients: &[Opened]) -> Vec<Capability> {
    Vec::new()
}

/// No client.
pub(crate) enum Opened {}

/// Opens none.
pub(crate) fn open<'a>(
    _clients: impl IntoIterator<Item = &'a DstmClient>,
) -> Result<Vec<Opened>, Failure> {
    Ok(Vec::new())
}

/// No client.
pub(crate) enum ClientTask {}

impl ClientTask {
    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn told(&self) -> DstmClientStats {
        match *self {}
    }

    pub(crate) fn end(&self) {
        match *self {}
    }
}

impl Handle {
    pub(crate) fn start_dstm_clients(&self, _dstm_clients: Vec<Opened>) {}

    pub(crate) async fn end_all_dstm_clients(&self, _give_back: bool) {}
}
