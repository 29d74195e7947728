//! The interfaces that can lead to a network, as they are now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use fordway_dns64::discovery::{Device, Link};
use fordway_net::Netlink;

/// How often each interface has lost its carrier.
pub(super) type Losses = BTreeMap<u32, u32>;

/// Lists all interfaces but the loopback. `down` could not pass packets at some moment; nor could those
/// that have lost their carrier more often than `losses` says, which is brought up to date.
pub(super) fn list(
    netlink: &mut Netlink,
    down: &BTreeSet<u32>,
    losses: &mut Losses,
) -> Result<Vec<Link>, fordway_net::Error> {
    // Before the links: a loss in between is then told the next time.
    let before = std::mem::replace(losses, netlink.carrier_losses()?);
    let lost = |index: u32| match (before.get(&index), losses.get(&index)) {
        (Some(before), Some(now)) => before != now,
        _ => false,
    };
    let links = netlink.links()?;
    let addressed: BTreeSet<String> = netlink
        .addresses(None)?
        .into_iter()
        .filter(|address| !address.host_scope && reaches_out(address.address.addr()))
        .map(|address| address.device)
        .collect();
    let mut routes: HashMap<u32, u32> = HashMap::new();
    for route in netlink.default_routes6()? {
        let metric = routes.entry(route.index).or_insert(route.metric);
        *metric = route.metric.min(*metric);
    }
    let link = |link: fordway_net::Link| Link {
        up: link.up && link.running,
        was_down: down.contains(&link.index) || lost(link.index),
        multicast: link.multicast,
        addressed: addressed.contains(&link.name),
        default_route: routes.get(&link.index).copied(),
        device: Device { index: link.index, name: link.name },
    };
    Ok(links.into_iter().filter(|one| !one.loopback).map(link).collect())
}

fn reaches_out(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if !address.is_unicast_link_local())
}
