//! The next hop of IPv4 packets of a CLAT, or of a softwire's client, when programs are attached at the uplink: the IPv6
//! router, so that the frame has its link-layer address before the programs translate the packet.

use std::net::{IpAddr, Ipv6Addr};

use fordway_config::{SoftwireEnd, Translator};
use fordway_net::Netlink;

use super::resolve::{Facts, PROBE_V4};
use crate::failure::Failure;

/// The way to the PLAT, or to the tunnel end point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The uplink.
    pub(crate) device: String,
    /// Its index.
    pub(crate) ifindex: u32,
    /// The router; `None` on a link between two, which needs no link-layer address.
    pub(crate) gateway: Option<Ipv6Addr>,
}

/// Where its packets go: as people call it, and an address there. The error is a clause.
fn target(config: &Translator) -> Result<(String, Ipv6Addr), &'static str> {
    if let Some(clat) = config.clat() {
        let pref64 = clat.pref64.fixed().ok_or("no prefix is known")?;
        return Ok((pref64.to_string(), pref64.embed(PROBE_V4)));
    }
    match config.softwire().map(|softwire| &softwire.end) {
        // Its packets wait in the interface, and the kernel translates some as they leave there.
        Some(SoftwireEnd::Client(client)) if client.early.is_some() => {
            Err("a borrowed address is used at the interface")
        }
        Some(SoftwireEnd::Client(client)) => Ok((client.remote.to_string(), client.remote)),
        Some(SoftwireEnd::Tep { .. }) => Err("a tunnel end point takes what is routed to it"),
        None => Err("only a CLAT and a softwire's client have an uplink"),
    }
}

/// Finds the way. The inner error is the reason why there is none, as a clause.
pub(crate) fn find(
    netlink: &mut Netlink,
    config: &Translator,
    facts: &Facts,
) -> Result<Result<Way, String>, Failure> {
    let (target, to) = match target(config) {
        Ok(target) => target,
        Err(why) => return Ok(Err(why.to_owned())),
    };
    let Some(uplink) = &facts.uplink else {
        return Ok(Err("no uplink is known".to_owned()));
    };
    let Some(hop) = netlink.next_hop(to.into())? else {
        return Ok(Err(format!("there is no route to {target}")));
    };
    if hop.device != uplink.name {
        return Ok(Err(format!(
            "the route to {target} leads out of {}, not of {}",
            hop.device, uplink.name
        )));
    }
    let gateway = match hop.gateway {
        Some(IpAddr::V6(gateway)) => Some(gateway),
        _ if netlink.link(&hop.device)?.hardware_address.is_empty() => None,
        _ => {
            return Ok(Err(format!(
                "the route to {target} names no router whose link-layer address IPv4 frames could carry"
            )));
        }
    };
    Ok(Ok(Way { device: hop.device, ifindex: hop.index, gateway }))
}
