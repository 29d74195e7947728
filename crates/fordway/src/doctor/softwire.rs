//! Softwires: both ends of the tunnel, and what is routed into it.

use std::net::{IpAddr, Ipv4Addr};

use fordway_config::{Softwire, SoftwireEnd, Translator};
use fordway_daemon::failure::Failure;
use fordway_net::Netlink;

use super::finding::Findings;
use super::gateway::check_route;

/// Bindings that are looked at one by one.
const BINDINGS: usize = 8;

/// An IPv4 host somewhere (RFC 5737).
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// The routes of one end, whose interface is there.
pub(super) fn check(
    name: &str,
    translator: &Translator,
    softwire: &Softwire,
    netlink: &mut Netlink,
    findings: &mut Findings,
) -> Result<(), Failure> {
    match &softwire.end {
        SoftwireEnd::Tep { bindings, .. } => {
            for local in softwire.locals() {
                check_route(netlink, local.into(), &local.to_string(), name, findings)?;
            }
            for binding in bindings.iter().take(BINDINGS) {
                check_route(netlink, binding.v4.into(), &binding.v4.to_string(), name, findings)?;
                check_way(netlink, "a client", binding.remote.into(), name, findings)?;
            }
            if bindings.len() > BINDINGS {
                let more = bindings.len() - BINDINGS;
                findings.skipped("softwire", format!("{more} more bindings are not looked at"));
            }
        }
        SoftwireEnd::Client(client) => {
            check_way(netlink, "the tunnel end point", client.remote.into(), name, findings)?;
            let to = translator.routes4.first().map_or(SOMEBODY, fordway_net::Ipv4Net::addr);
            check_route(netlink, to.into(), "IPv4", name, findings)?;
        }
    }
    Ok(())
}

/// Tunnel packets must not go into the tunnel.
fn check_way(
    netlink: &mut Netlink,
    who: &str,
    to: IpAddr,
    name: &str,
    findings: &mut Findings,
) -> Result<(), Failure> {
    match netlink.next_hop(to)? {
        Some(hop) if hop.device == name => findings.bad(
            "softwire",
            format!("packets for {who} ({to}) would go into {name} itself"),
            format!("a route to it past {name} is missing: ip -6 route get {to}"),
        ),
        Some(hop) => findings.good("softwire", format!("{who}, {to}, is behind {}", hop.device)),
        None => findings.bad(
            "softwire",
            format!("there is no route to {who}, {to}"),
            "bring the IPv6 network up, or set a route: ip -6 route add default via ADDRESS dev DEVICE",
        ),
    }
    Ok(())
}
