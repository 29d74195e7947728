//! Addresses of pool4 that this host has itself.
//!
//! Which packets to such an address are the translator's is told by their ports ([`Divert`]); the rest is
//! the host's as before. What the translator sends with a source of the host has to be believed, too.

mod clash;

use std::net::Ipv4Addr;

use fordway_config::Translator;
use fordway_net::{
    Address, Change, Divert, DivertedPort, DivertedPorts, Ipv4Net, Route, Rule, SysctlKey,
};
use fordway_xlat::nat64::Settings;

use super::resolve::Facts;

pub(crate) use clash::{Clash, clashes, sentences};

/// Base of the marks, and of the numbers of routing tables; the interface's index is added. Marks are
/// compared whole, so nobody's single bits get in the way.
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
    // It stays when a device's last address goes: the kernel drops an interface's routes with its last one.
    let may_own = !own.is_empty() || !nat64.interfaces().is_empty();
    if may_own && !facts.rp_filter_off {
        let address = Ipv4Net::from(OF_INTERFACE);
        let address = Address { host_scope: true, ..Address::new(device, address.into()) };
        changes.push(Change::Address(address));
    }
    if own.is_empty() {
        return Ok(changes);
    }
    changes.push(Change::sysctl(SysctlKey::conf_v4(device, "accept_local")?, "1"));
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
