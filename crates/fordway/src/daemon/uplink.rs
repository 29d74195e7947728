//! The way of a CLAT's IPv4 packets when the kernel engine waits at the uplink: not through the interface,
//! but straight to the IPv6 router, so that the frame is addressed to it before the programs turn its
//! packet into IPv6.

use std::net::{IpAddr, Ipv6Addr};

use fordway_config::Translator;
use fordway_net::{Netlink, PROTOCOL, RouteFilter};

use super::resolve::{Facts, PROBE_V4};
use crate::failure::Failure;

/// The way to the PLAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The uplink.
    pub(crate) device: String,
    /// Its index.
    pub(crate) ifindex: u32,
    /// The router; `None` on a link between two, which needs no link-layer address.
    pub(crate) gateway: Option<Ipv6Addr>,
}

/// Finds the way. The inner error is the reason why there is none, as a clause.
pub(crate) fn find(
    netlink: &mut Netlink,
    config: &Translator,
    facts: &Facts,
) -> Result<Result<Way, String>, Failure> {
    let Some(clat) = config.clat() else {
        return Ok(Err("only a CLAT has an uplink".to_owned()));
    };
    let Some(pref64) = clat.pref64.fixed() else {
        return Ok(Err("no prefix is known".to_owned()));
    };
    let Some(uplink) = &facts.uplink else {
        return Ok(Err("no uplink is known".to_owned()));
    };
    let Some(hop) = netlink.next_hop(pref64.embed(PROBE_V4).into())? else {
        return Ok(Err(format!("there is no route to {pref64}")));
    };
    if hop.device != uplink.name {
        return Ok(Err(format!(
            "the route to {pref64} leads out of {}, not of {}",
            hop.device, uplink.name
        )));
    }
    let gateway = match hop.gateway {
        Some(IpAddr::V6(gateway)) => Some(gateway),
        _ if netlink.link(&hop.device)?.hardware_address.is_empty() => None,
        _ => {
            return Ok(Err(format!(
                "the route to {pref64} names no router whose link-layer address IPv4 frames could carry"
            )));
        }
    };
    Ok(Ok(Way { device: hop.device, ifindex: hop.index, gateway }))
}

/// Whether fewer than `wanted` of our IPv4 routes lead out of the uplink: the kernel takes them away when it
/// goes down.
pub(crate) fn routes_are_missing(
    netlink: &mut Netlink,
    way: &Way,
    wanted: usize,
) -> Result<bool, Failure> {
    let filter = RouteFilter {
        protocol: Some(PROTOCOL),
        index: Some(way.ifindex),
        ..RouteFilter::default()
    };
    let routes = netlink.routes(filter)?;
    let ours = routes.iter().filter(|route| route.destination.addr().is_ipv4()).count();
    Ok(ours < wanted)
}
