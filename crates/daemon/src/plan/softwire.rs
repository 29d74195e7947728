//! Softwires: what the host decides, and the core with its bindings.

use std::net::Ipv6Addr;
use std::sync::Arc;

use fordway_config::{SoftwireClient, SoftwireEnd, Translator};
use fordway_engine::Core;
use fordway_net::{Address, Link, Netlink};
use fordway_softwire::{Bindings, Softwire};

use super::clat_address;
use super::resolve::{Facts, Uplink, find_uplink, is_on_link, refuse_hosts_own};
use crate::failure::Failure;

/// Hint for an address of the tunnel that the host has itself.
const OWN_ADDRESS: &str =
    "give the tunnel an address of its own: local (--local ADDR), and take it off the device";

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
                refuse_hosts_own(config, ("the tunnel's address", local), OWN_ADDRESS, addresses)?;
            }
            let link = on_link(netlink, *local, addresses)?;
            Own {
                v6: *local,
                uplink: link.map(|link| Uplink::new(&link, *local, addresses)).transpose()?,
            }
        }
        SoftwireEnd::Client(client) => {
            let (uplink, own) = (client.uplink.as_ref(), config.name.as_str());
            let link = find_uplink(netlink, uplink, Some(client.remote), own)?;
            let v6 = client_address(config, client, link.as_ref(), addresses)?;
            refuse_hosts_own(config, ("the tunnel's address", v6), OWN_ADDRESS, addresses)?;
            Own { v6, uplink: link.map(|link| Uplink::new(&link, v6, addresses)).transpose()? }
        }
    };
    Ok(Some(own))
}

/// The link in whose network an address lies.
fn on_link(
    netlink: &mut Netlink,
    v6: Ipv6Addr,
    addresses: &[Address],
) -> Result<Option<Link>, Failure> {
    match addresses.iter().find(|it| is_on_link(it, v6)) {
        Some(address) => Ok(netlink.find_link(&address.device)?),
        None => Ok(None),
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
