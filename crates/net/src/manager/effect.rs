//! Making changes and taking them back.

use std::fs;

use super::change::Change;
use super::early;
use super::ledger::{Entry, Undo};
use crate::{
    Address, Error, NeighbourProxy, Netlink, PROTOCOL, Result, Route, RouteFilter, Rule, SysctlKey,
    sysctl,
};

/// Index of the interface that `change` vanishes with, if there is such.
pub(super) fn ifindex(netlink: &mut Netlink, change: &Change) -> Result<Option<u32>> {
    match change.device() {
        Some(device) => Ok(Some(netlink.link(device)?.index)),
        None => Ok(None),
    }
}

/// How `change` will be taken back; none if it is in force already.
pub(super) fn prepare(netlink: &mut Netlink, change: &Change) -> Result<Option<Undo>> {
    Ok(match change {
        Change::Sysctl { key, value } => {
            let before = sysctl::read(key)?;
            if before == *value {
                return Ok(None);
            }
            Some(Undo::Sysctl { value: before, overwritten: overwritten_by(key) })
        }
        Change::Up { device } => (!netlink.link(device)?.up).then_some(Undo::Down),
        Change::Interface { .. } => Some(Undo::Delete),
        Change::Mtu { device, mtu } => {
            let before = netlink.link(device)?.mtu;
            (before != *mtu).then_some(Undo::Mtu { mtu: before })
        }
        Change::Group { device, group } => {
            let before = netlink.link(device)?.group;
            (before != *group).then_some(Undo::Group { group: before })
        }
        Change::NoMulticast { device } => {
            netlink.link(device)?.multicast.then_some(Undo::Multicast)
        }
        Change::Address(address) => absent(find_address(netlink, address)?.as_ref()),
        Change::Route(route) => {
            let found = find_route(netlink, route)?;
            absent(found.filter(|found| found.same_effect(route)).as_ref())
        }
        Change::Rule(rule) => absent(find_rule(netlink, rule)?.as_ref()),
        Change::EarlyRule(rule) => early::prepare(netlink, rule)?,
        Change::Divert(divert) => {
            let found = divert.find()?;
            absent(found.filter(|found| found.is(divert)).as_ref())
        }
        Change::Intercept(it) => absent(it.find()?.filter(|found| found.is(it)).as_ref()),
        Change::Nat44(nat44) => absent(nat44.find()?.filter(|found| found.is(nat44)).as_ref()),
        Change::NeighbourProxy(proxy) => absent(find_proxy(netlink, proxy)?.as_ref()),
    })
}

/// Makes a change that [`prepare`] found not to be in force.
pub(super) fn make(netlink: &mut Netlink, change: &Change) -> Result<()> {
    match change {
        Change::Sysctl { key, value } => sysctl::write(key, value),
        Change::Up { device } => netlink.set_up(device, true),
        // It is there; the ledger is to know whose it is.
        Change::Interface { .. } => Ok(()),
        Change::Mtu { device, mtu } => netlink.set_mtu(device, *mtu),
        Change::Group { device, group } => netlink.set_group(device, *group),
        Change::NoMulticast { device } => netlink.set_multicast(device, false),
        Change::Address(address) => netlink.add_address(address),
        Change::Route(route) => netlink.add_route(route),
        Change::Rule(rule) => netlink.add_rule(rule),
        Change::EarlyRule(rule) => early::make(netlink, rule),
        Change::Divert(divert) => divert.make(),
        Change::Intercept(intercept) => intercept.make(),
        Change::Nat44(nat44) => nat44.make(),
        Change::NeighbourProxy(proxy) => netlink.add_neighbour_proxy(proxy),
    }
}

/// Makes a change in the place of an earlier one of this program with the same
/// key and other values.
pub(super) fn remake(netlink: &mut Netlink, change: &Change) -> Result<()> {
    match change {
        Change::Route(route) => netlink.replace_route(route),
        Change::Address(address) => {
            if find_address(netlink, address)?.is_some() {
                netlink.delete_address(address)?;
            }
            netlink.add_address(address)
        }
        other => make(netlink, other),
    }
}

/// Takes a change back if it still is as this program left it; else says what
/// was found instead.
pub(super) fn unmake(netlink: &mut Netlink, entry: &Entry) -> Result<Option<String>> {
    if let Some(found) = interface_gone(netlink, entry)? {
        return Ok(Some(found));
    }
    match (&entry.change, &entry.undo) {
        (Change::Sysctl { key, .. }, Undo::Sysctl { value: before, overwritten }) => {
            let now = match sysctl::read(key) {
                Err(error) if error.errno() == Some(libc::ENOENT) => return gone(),
                result => result?,
            };
            let ours = |it: &Change| matches!(it, Change::Sysctl { value, .. } if *value == now);
            if !entry.left().any(ours) {
                return Ok(Some(format!("it is {now} now")));
            }
            sysctl::write(key, before)?;
            restore_overwritten(overwritten)?;
        }
        (Change::Up { device }, Undo::Down) => {
            if !netlink.link(device)?.up {
                return Ok(Some("it is down".to_owned()));
            }
            netlink.set_up(device, false)?;
        }
        (Change::Interface { device }, Undo::Delete) => netlink.delete_link(device)?,
        (Change::Mtu { device, .. }, Undo::Mtu { mtu: before }) => {
            let now = netlink.link(device)?.mtu;
            if !entry.left().any(|it| matches!(it, Change::Mtu { mtu, .. } if *mtu == now)) {
                return Ok(Some(format!("it is {now} now")));
            }
            netlink.set_mtu(device, *before)?;
        }
        (Change::Group { device, .. }, Undo::Group { group: before }) => {
            let now = netlink.link(device)?.group;
            if !entry.left().any(|it| matches!(it, Change::Group { group, .. } if *group == now)) {
                return Ok(Some(format!("it is {now} now")));
            }
            netlink.set_group(device, *before)?;
        }
        (Change::NoMulticast { device }, Undo::Multicast) => {
            if netlink.link(device)?.multicast {
                return Ok(Some("it takes part".to_owned()));
            }
            netlink.set_multicast(device, true)?;
        }
        (Change::Address(address), _) => match find_address(netlink, address)? {
            None => return gone(),
            // Kernels before 5.18 do not keep who made an address.
            Some(Address { protocol: Some(other), .. }) if other != PROTOCOL => return replaced(),
            Some(_) => netlink.delete_address(address)?,
        },
        (Change::Route(route), _) => match find_route(netlink, route)? {
            None => return gone(),
            Some(found) if found.protocol != PROTOCOL => return replaced(),
            Some(_) => netlink.delete_route(route)?,
        },
        (Change::Rule(rule), _) => match find_rule(netlink, rule)? {
            None => return gone(),
            Some(found) if found.protocol != PROTOCOL => return replaced(),
            Some(_) => netlink.delete_rule(rule)?,
        },
        (Change::EarlyRule(rule), Undo::EarlyRule { local }) => {
            return early::unmake(netlink, rule, *local);
        }
        (Change::Divert(divert), _) => match divert.find()? {
            None => return gone(),
            Some(found) if !found.ours => return replaced(),
            Some(_) => divert.delete()?,
        },
        (Change::Intercept(intercept), _) => match intercept.find()? {
            None => return gone(),
            Some(found) if !found.ours => return replaced(),
            Some(_) => intercept.delete()?,
        },
        (Change::Nat44(nat44), _) => match nat44.find()? {
            None => return gone(),
            Some(found) if !found.ours => return replaced(),
            Some(_) => nat44.delete()?,
        },
        (Change::NeighbourProxy(proxy), _) => match find_proxy(netlink, proxy)? {
            None => return gone(),
            Some(found) if found.protocol != Some(PROTOCOL) => return replaced(),
            Some(_) => netlink.delete_neighbour_proxy(proxy)?,
        },
        (change, _) => {
            return Ok(Some(format!("the ledger does not say how to undo: {change}")));
        }
    }
    Ok(None)
}

/// Whether the interface that a change vanishes with is not the same any more.
fn interface_gone(netlink: &mut Netlink, entry: &Entry) -> Result<Option<String>> {
    let (Some(device), Some(index)) = (entry.change.device(), entry.ifindex) else {
        return Ok(None);
    };
    Ok(match netlink.find_link(device)? {
        Some(link) if link.index == index => None,
        Some(_) => Some(format!("{device} is another interface now")),
        None => Some(format!("{device} is gone")),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "saves each caller a wrapping")]
pub(super) fn gone() -> Result<Option<String>> {
    Ok(Some("it is gone".to_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "saves each caller a wrapping")]
pub(super) fn replaced() -> Result<Option<String>> {
    Ok(Some("somebody else has put another there".to_owned()))
}

fn absent<T>(found: Option<&T>) -> Option<Undo> {
    match found {
        Some(_) => None,
        None => Some(Undo::Delete),
    }
}

fn find_address(netlink: &mut Netlink, wanted: &Address) -> Result<Option<Address>> {
    let addresses = netlink.addresses(Some(&wanted.device))?;
    Ok(addresses.into_iter().find(|it| it.same_object(wanted)))
}

/// The route at the place of `wanted`; among several the one that does the
/// same, else the one that is ours.
fn find_route(netlink: &mut Netlink, wanted: &Route) -> Result<Option<Route>> {
    // Other interfaces' routes at the same place make adding fail by themselves.
    let index = match &wanted.device {
        Some(device) => Some(netlink.link(device)?.index),
        None => None,
    };
    let mut routes =
        netlink.routes(RouteFilter { table: Some(wanted.table), protocol: None, index })?;
    routes.retain(|route| route.same_object(wanted));
    routes.sort_by_key(|route| (!route.same_effect(wanted), route.protocol != PROTOCOL));
    Ok(routes.into_iter().next())
}

fn find_rule(netlink: &mut Netlink, wanted: &Rule) -> Result<Option<Rule>> {
    let rules = netlink.rules()?;
    Ok(rules.into_iter().find(|it| it.same_object(wanted)))
}

fn find_proxy(netlink: &mut Netlink, wanted: &NeighbourProxy) -> Result<Option<NeighbourProxy>> {
    let proxies = netlink.neighbour_proxies()?;
    Ok(proxies.into_iter().find(|it| it.same_object(wanted)))
}

/// The settings that writing `key` overwrites, with their values.
fn overwritten_by(key: &SysctlKey) -> Vec<(SysctlKey, String)> {
    let Some((folder, field)) = key.overwrites() else {
        return Vec::new();
    };
    let Ok(devices) = fs::read_dir(format!("/proc/sys/net/{folder}")) else {
        return Vec::new();
    };
    let names = devices.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut keys: Vec<_> = names
        .filter(|name| name != "all")
        .map(|name| format!("net/{folder}/{name}/{field}"))
        .collect();
    if folder == "ipv4/conf" {
        // Switching forwarding off lets all interfaces accept redirects.
        keys.push("net/ipv4/conf/all/accept_redirects".to_owned());
    }
    let settings = keys.into_iter().filter_map(|key| {
        let key: SysctlKey = key.parse().ok()?;
        // One that vanishes meanwhile has nothing to restore.
        let value = sysctl::read(&key).ok()?;
        Some((key, value))
    });
    settings.collect()
}

fn restore_overwritten(settings: &[(SysctlKey, String)]) -> Result<()> {
    for (key, before) in settings {
        match sysctl::read(key) {
            Ok(now) if now == *before => {}
            Ok(_) => sysctl::write(key, before)?,
            Err(Error::Sysctl { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
