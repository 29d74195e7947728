//! What a DSTM client wants beside what every softwire wants.

use fordway_config::SoftwireClient;
use fordway_net::{Address, Change, IpNet, Nat44};

/// The early address of a DSTM client, and its translation to the leased address by the kernel: connections that began
/// before the lease are translated to it, and all of them where the address is shared, within its ports.
pub(super) fn lent(device: &str, client: &SoftwireClient) -> Vec<Change> {
    let Some(early) = client.early else { return Vec::new() };
    let mut address = Address::new(device, IpNet::V4(early.into()));
    // The kernel must not choose it when it looks for one to translate to.
    address.host_scope = true;
    let range = client.ports.and_then(|ports| ports.ranges().next());
    // No pools: with the interface's own address the kernel forgets connections when it goes.
    let nat44 = Nat44 {
        name: device.to_owned(),
        clients: vec![early.into()],
        uplinks: vec![device.to_owned()],
        ports: range.map(|range| (*range.start(), *range.end())),
        own: true,
        waits: client.v4.is_none(),
        ..Nat44::default()
    };
    vec![Change::Address(address), Change::Nat44(nat44)]
}
