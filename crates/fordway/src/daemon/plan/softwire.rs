//! Softwires: what the host decides, and the core with its bindings.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use fordway_config::{SoftwireClient, SoftwireEnd, Translator};
use fordway_engine::Core;
use fordway_net::{Address, IpNet, Link, Netlink};
use fordway_softwire::{Bindings, Softwire};

use super::clat_address;
use super::resolve::{Facts, Uplink, answers, filters};
use crate::failure::Failure;

/// This end's own address, and the link whose neighbours ask for it.
pub(crate) struct Own {
    pub(crate) v6: Ipv6Addr,
    pub(crate) uplink: Option<Uplink>,
}

/// Finds out what is this end's own; `None`: the translator is no softwire.
pub(crate) fn own(
    netlink: &mut Netlink,
    config: &Translator,
    addresses: &[Address],
) -> Result<Option<Own>, Failure> {
    let Some(softwire) = config.softwire() else { return Ok(None) };
    let own = match &softwire.end {
        SoftwireEnd::Tep { local, .. } => {
            for local in softwire.locals() {
                refuse_hosts_own(config, local, addresses)?;
            }
            let link = on_link(netlink, *local, addresses)?;
            Own {
                v6: *local,
                uplink: link.map(|link| uplink(&link, *local, addresses)).transpose()?,
            }
        }
        SoftwireEnd::Client(client) => {
            let link = way_to(netlink, client, config.name.as_str())?;
            let v6 = client_address(config, client, link.as_ref(), addresses)?;
            refuse_hosts_own(config, v6, addresses)?;
            Own { v6, uplink: link.map(|link| uplink(&link, v6, addresses)).transpose()? }
        }
    };
    Ok(Some(own))
}

fn uplink(link: &Link, v6: Ipv6Addr, addresses: &[Address]) -> Result<Uplink, Failure> {
    Ok(Uplink {
        answers: answers(link, v6, addresses),
        rp_filter: filters(&link.name)?,
        name: link.name.clone(),
    })
}

/// The link in whose network an address lies.
fn on_link(
    netlink: &mut Netlink,
    v6: Ipv6Addr,
    addresses: &[Address],
) -> Result<Option<Link>, Failure> {
    let net = |it: &&Address| matches!(it.address, IpNet::V6(net) if net.prefix_len() < 128 && net.contains(&v6));
    match addresses.iter().find(net) {
        Some(address) => Ok(netlink.find_link(&address.device)?),
        None => Ok(None),
    }
}

/// The configured uplink, or the device that the route to the tunnel end point leads out of.
fn way_to(
    netlink: &mut Netlink,
    client: &SoftwireClient,
    own: &str,
) -> Result<Option<Link>, Failure> {
    if let Some(name) = &client.uplink {
        return Ok(Some(netlink.link(name.as_str())?));
    }
    match netlink.next_hop(client.remote.into())? {
        Some(hop) if hop.device != own => Ok(netlink.find_link(&hop.device)?),
        _ => Ok(None),
    }
}

fn client_address(
    config: &Translator,
    client: &SoftwireClient,
    link: Option<&Link>,
    addresses: &[Address],
) -> Result<Ipv6Addr, Failure> {
    let name = &config.name;
    match (client.local, link) {
        (Some(local), _) => Ok(local),
        (None, None) => {
            let text = format!(
                "{name}: there is no route to {}, so no uplink whose network the client could take its IPv6 \
                 address from",
                client.remote
            );
            let hint = "bring the IPv6 network up first, or give local (--local ADDR), or uplink";
            Err(Failure::failed(text).hint(hint))
        }
        (None, Some(link)) => {
            clat_address::derive(name.as_str(), link, addresses, client.remote).ok_or_else(|| {
                let text = format!(
                    "{name}: {} has no global IPv6 address with a /64, so there is no network to take the \
                     client's IPv6 address from",
                    link.name
                );
                let hint = "wait for the address, or give local (--local ADDR) with one that is routed here";
                Failure::failed(text).hint(hint)
            })
        }
    }
}

/// The host would take the tunnel's packets for its own before routing sees them.
fn refuse_hosts_own(
    config: &Translator,
    v6: Ipv6Addr,
    addresses: &[Address],
) -> Result<(), Failure> {
    let Some(taken) = addresses.iter().find(|it| it.address.addr() == IpAddr::V6(v6)) else {
        return Ok(());
    };
    let text = format!(
        "{}: the tunnel's address {v6} is the host's own, on {}",
        config.name, taken.device
    );
    let hint =
        "give the tunnel an address of its own: local (--local ADDR), and take it off the device";
    Err(Failure::failed(text).hint(hint))
}

/// The core for the user engine. `before`: what runs, with the configuration that it has; the new one keeps its
/// flow labels and what it knows of paths.
pub(crate) fn core(
    config: &Translator,
    facts: &Facts,
    before: Option<&Softwire>,
) -> Result<Core, Failure> {
    let failed = |error: String| Failure::failed(format!("{}: {error}", config.name));
    let own = facts.resolved.clat_v6;
    let mut bindings = Bindings::default();
    for binding in config.softwire().into_iter().flat_map(|softwire| softwire.bindings(own)) {
        bindings.insert(binding).map_err(|error| failed(error.to_string()))?;
    }
    let secret = match before {
        Some(softwire) => {
            bindings.keep_paths(softwire.bindings());
            softwire.settings().flow_secret
        }
        None => [getrandom::u64()?, getrandom::u64()?],
    };
    let softwire = config
        .softwire_core(&facts.resolved, secret, bindings)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed("this is no softwire".to_owned()))?;
    Ok(Core::Softwire(Arc::new(softwire)))
}
