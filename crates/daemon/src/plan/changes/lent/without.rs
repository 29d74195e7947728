//! DSTM left out (feature `dstm`): no address is lent.

use fordway_config::SoftwireClient;
use fordway_net::Change;

pub(super) fn lent(_device: &str, _client: &SoftwireClient) -> Vec<Change> {
    Vec::new()
}
