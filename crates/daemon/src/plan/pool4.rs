//! Addresses of pool4 that this host has itself.
//!
//! Packets to such an address are the translator's if their port is in the pool ([`Divert`]); others stay the host's. The
//! kernel must also accept what the translator sends with an address of the host as its source ([`believe`]).

mod clash;

use std::net::Ipv4Addr;

use fordway_config::Translator;
use fordway_net::{
    Address, Change, Divert, DivertedPort, DivertedPorts, Ipv4Net, Route, Rule, SysctlKey, sysctl,
};
use fordway_xlat::nat64::Settings;

use super::resolve::{self, Facts};
use crate::failure::Failure;

pub(crate) use clash::clashes;

/// Base of the marks, and of the numbers of routing tables; the interface's index is added. Marks are
/// compared as a whole, so single bits that other programs set do not match.
const BASE: u32 = 0x464f_0000;

/// Octets by which a header grows: 40 of IPv6 instead of 20 of IPv4.
const GROWTH: u32 = 20;

/// The interface's own address, for this host's eyes only (scope "host"): where the kernel filters by
/// reverse path, an interface without any address may not bring sources that are the host's.
const OF_INTERFACE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 64);

/// What has to be changed beside routes and interface, for pool addresses that are the host's; empty if
/// there are none. `settings`: with the BIB entries that were added by hand.
pub(crate) fn changes(
    config: &Translator,
    facts: &Facts,
    settings: &Settings,
    ifindex: u32,
) -> fordway_net::Result<Vec<Change>> {
    let mut changes = Vec::new();
    let Some(nat64) = config.nat64() else { return Ok(changes) };
    let device = config.name.as_str();
    let own = Own::find(facts, settings);
    if facts.own_icmp_source4 {
        // The interface's own changes have it.
    } else if !own.is_empty() {
        changes.extend(believe(device, facts)?);
    } else if !nat64.interfaces().is_empty() {
        // It stays when a device's last address goes: the kernel drops an interface's routes with its last one.
        changes.extend(address(device, facts));
    }
    if own.is_empty() {
        return Ok(changes);
    }
    let number = BASE.wrapping_add(ifindex);
    for address in own.addresses() {
        let mut route = Route::new(Ipv4Net::from(address).into(), device);
        route.table = number;
        route.mtu = Some(facts.resolved.mtu6 - GROWTH);
        changes.push(Change::Route(route));
    }
    let mut rule = Rule::new(false, 0, number);
    rule.mark = Some((number, u32::MAX));
    changes.push(Change::EarlyRule(rule));
    changes.push(Change::Divert(Divert {
        device: device.to_owned(),
        ifindex,
        mark: number,
        ports: own.ports,
        forwards: own.forwards,
    }));
    Ok(changes)
}

/// Lets the interface bring packets whose source is an address of the host.
pub(super) fn believe(device: &str, facts: &Facts) -> fordway_net::Result<Vec<Change>> {
    let accept_local = Change::sysctl(SysctlKey::conf_v4(device, "accept_local")?, "1");
    Ok(address(device, facts).into_iter().chain([accept_local]).collect())
}

/// Refuses an `icmp_source4` that is the host's own with `manage = false`, if the kernel would drop each ICMP error. `addresses`: those of the interface.
pub(crate) fn check_believed(config: &Translator, addresses: &[Address]) -> Result<(), Failure> {
    let Some(source) = config.icmp_source4 else { return Ok(()) };
    let device = config.name.as_str();
    let accepts = |name: &str| -> fordway_net::Result<bool> {
        Ok(sysctl::read(&SysctlKey::conf_v4(name, "accept_local")?)? != "0")
    };
    let has_address = addresses.iter().any(|it| it.address.addr().is_ipv4());
    let hint = if !(accepts("all")? || accepts(device)?) {
        format!("sysctl -w net.ipv4.conf.{device}.accept_local=1")
    } else if resolve::filters(device)? && !has_address {
        format!("ip address add {OF_INTERFACE}/32 dev {device} scope host")
    } else {
        return Ok(());
    };
    let text = format!(
        "{device}: icmp_source4: {source} is an address of this host, and the kernel drops what arrives from \
         {device} with it as its source"
    );
    Err(Failure::failed(text).hint(format!("{hint}; or manage = true, or another icmp_source4")))
}

fn address(device: &str, facts: &Facts) -> Option<Change> {
    let address = Ipv4Net::from(OF_INTERFACE);
    let address = Address { host_scope: true, ..Address::new(device, address.into()) };
    (!facts.rp_filter_off).then_some(Change::Address(address))
}

/// What the translator has of the host's own addresses.
#[derive(Debug, Default)]
struct Own {
    ports: Vec<DivertedPorts>,
    forwards: Vec<DivertedPort>,
}

impl Own {
    fn find(facts: &Facts, settings: &Settings) -> Own {
        let ranges = settings.pools.iter().flat_map(|pool| &pool.ranges);
        let ports = ranges.flat_map(|range| {
            let here = facts.own_v4.iter().filter(|address| range.contains(**address));
            here.map(|address| DivertedPorts {
                address: *address,
                first: range.low,
                last: range.high,
            })
        });
        let forwards = settings.bib.iter().filter(|entry| facts.own_v4.contains(&entry.v4.0));
        let forwards = forwards.map(|entry| DivertedPort {
            address: entry.v4.0,
            protocol: entry.protocol.number(),
            port: entry.v4.1,
        });
        Own { ports: ports.collect(), forwards: forwards.collect() }
    }

    fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.forwards.is_empty()
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        let ports = self.ports.iter().map(|it| it.address);
        let mut all: Vec<_> = ports.chain(self.forwards.iter().map(|it| it.address)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests;
