//! Making changes and undoing them.

use std::fs;

use super::change::Change;
use super::ledger::{Entry, Undo};
use super::view::View;
use super::{early, others};
use crate::netfilter::Policy;
use crate::{Address, Error, Netlink, PROTOCOL, Result, SysctlKey, sysctl};

/// Index of the interface that `change` vanishes with, if there is such.
pub(super) fn ifindex(view: &mut View<'_>, change: &Change) -> Result<Option<u32>> {
    match change.device() {
        Some(device) => view.link_index(device).map(Some),
        None => Ok(None),
    }
}

/// How `change` will be undone; none if it is in force already.
pub(super) fn prepare(view: &mut View<'_>, change: &Change) -> Result<Option<Undo>> {
    Ok(match change {
        Change::Sysctl { key, value } => {
            let before = sysctl::read(key)?;
            if before == *value {
                return Ok(None);
            }
            let forwards = others::who_forward(key)?;
            Some(Undo::Sysctl { value: before, overwritten: overwritten_by(key), forwards })
        }
        Change::Up { device } => (!view.link(device)?.up).then_some(Undo::Down),
        Change::Interface { .. } => Some(Undo::Delete),
        Change::Mtu { device, mtu } => {
            let before = view.link(device)?.mtu;
            (before != *mtu).then_some(Undo::Mtu { mtu: before })
        }
        Change::QueueLength { device, length } => {
            let before = view.link(device)?.queue_length;
            (before != *length).then_some(Undo::QueueLength { length: before })
        }
        Change::Group { device, group } => {
            let before = view.link(device)?.group;
            (before != *group).then_some(Undo::Group { group: before })
        }
        Change::NoMulticast { device } => view.link(device)?.multicast.then_some(Undo::Multicast),
        Change::Address(address) => absent(view.address(address)?),
        Change::Route(route) => {
            let found = view.route(route)?;
            absent(found.filter(|found| found.same_effect(route)).as_ref())
        }
        Change::Rule(rule) => absent(view.rule(rule)?),
        Change::EarlyRule(rule) => early::prepare(view.rules()?, rule),
        Change::Divert(policy) => prepare_table(policy)?,
        Change::Intercept(policy) => prepare_table(policy)?,
        Change::Nat44(policy) => prepare_table(policy)?,
        Change::NeighbourProxy(proxy) => absent(view.proxy(proxy)?),
    })
}

/// As [`prepare`] of a change that is not in force, as far as is known without looking.
pub(super) fn suppose(view: &mut View<'_>, change: &Change) -> Result<Option<Undo>> {
    match change {
        Change::Address(_) => Ok(Some(Undo::Delete)),
        other => prepare(view, other),
    }
}

fn prepare_table(policy: &dyn Policy) -> Result<Option<Undo>> {
    Ok(absent(policy.find()?.filter(|found| found.current).as_ref()))
}

/// Whether `change` is in force; `None` if it can't be, because the interface that it is about is not there, or is
/// down.
pub(super) fn in_force(view: &mut View<'_>, change: &Change) -> Result<Option<bool>> {
    if let Some(device) = change.device() {
        match view.find_link(device)? {
            None => return Ok(None),
            Some(link) if !link.up && matches!(change, Change::Route(_)) => return Ok(None),
            Some(_) => {}
        }
    }
    Ok(Some(match change {
        Change::Sysctl { key, value } => sysctl::read(key)? == *value,
        Change::Interface { .. } => true,
        other => prepare(view, other)?.is_none(),
    }))
}

/// Makes a change that [`prepare`] found not to be in force.
pub(super) fn make(netlink: &mut Netlink, change: &Change) -> Result<()> {
    match change {
        Change::Sysctl { key, value } => sysctl::write(key, value),
        Change::Up { device } => netlink.set_up(device, true),
        // It is there; the ledger is to know whose it is.
        Change::Interface { .. } => Ok(()),
        Change::Mtu { device, mtu } => netlink.set_mtu(device, *mtu),
        Change::QueueLength { device, length } => netlink.set_queue_length(device, *length),
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

/// Makes a change, if need be in the place of one of this program with the same key and other values.
pub(super) fn remake(netlink: &mut Netlink, change: &Change) -> Result<()> {
    match change {
        // In the place of ours there may be another program's by now, which makes adding fail.
        Change::Route(route) if View::new(netlink).has_own_route(route)? => {
            netlink.replace_route(route)
        }
        Change::Address(address) => {
            let maker = View::new(netlink).address(address)?.map(|it| it.protocol);
            // Linux before 5.18 does not tell.
            if matches!(maker, Some(None | Some(PROTOCOL))) {
                netlink.delete_address(address)?;
            }
            netlink.add_address(address)
        }
        other => make(netlink, other),
    }
}

/// Undoes a change if it still is as this program left it; else says what was found instead.
pub(super) fn unmake(view: &mut View<'_>, entry: &Entry) -> Result<Option<String>> {
    let undone = try_unmake(view, entry);
    match &undone {
        // The kernel removed it while others were undone: with an interface's last address it removes its routes.
        Err(error) if error.errno().is_some_and(|errno| GONE.contains(&errno)) => gone(),
        _ => undone,
    }
}

/// What the kernel says when there is nothing to delete.
const GONE: [i32; 3] = [libc::ESRCH, libc::ENOENT, libc::EADDRNOTAVAIL];

fn try_unmake(view: &mut View<'_>, entry: &Entry) -> Result<Option<String>> {
    if let Some(found) = interface_gone(view, entry)? {
        return Ok(Some(found));
    }
    match (&entry.change, &entry.undo) {
        (Change::Sysctl { key, .. }, Undo::Sysctl { value: before, overwritten, forwards }) => {
            let now = match sysctl::read(key) {
                Err(error) if error.errno() == Some(libc::ENOENT) => return gone(),
                result => result?,
            };
            let ours = |it: &Change| matches!(it, Change::Sysctl { value, .. } if *value == now);
            if !entry.left().any(ours) {
                return Ok(Some(format!("it is {now} now")));
            }
            if let Some(who) = others::who_needs(key, before, forwards)? {
                return Ok(Some(format!("{who} needs it now")));
            }
            sysctl::write(key, before)?;
            restore_overwritten(overwritten)?;
        }
        (Change::Up { device }, Undo::Down) => {
            if !view.link(device)?.up {
                return Ok(Some("it is down".to_owned()));
            }
            view.netlink().set_up(device, false)?;
        }
        (Change::Interface { device }, Undo::Delete) => view.netlink().delete_link(device)?,
        (Change::Mtu { device, .. }, Undo::Mtu { mtu: before }) => {
            let now = view.link(device)?.mtu;
            if !entry.left().any(|it| matches!(it, Change::Mtu { mtu, .. } if *mtu == now)) {
                return Ok(Some(format!("it is {now} now")));
            }
            view.netlink().set_mtu(device, *before)?;
        }
        (Change::QueueLength { device, .. }, Undo::QueueLength { length: before }) => {
            let now = view.link(device)?.queue_length;
            let ours =
                |it: &Change| matches!(it, Change::QueueLength { length, .. } if *length == now);
            if !entry.left().any(ours) {
                return Ok(Some(format!("it is {now} now")));
            }
            view.netlink().set_queue_length(device, *before)?;
        }
        (Change::Group { device, .. }, Undo::Group { group: before }) => {
            let now = view.link(device)?.group;
            if !entry.left().any(|it| matches!(it, Change::Group { group, .. } if *group == now)) {
                return Ok(Some(format!("it is {now} now")));
            }
            view.netlink().set_group(device, *before)?;
        }
        (Change::NoMulticast { device }, Undo::Multicast) => {
            if view.link(device)?.multicast {
                return Ok(Some("it takes part".to_owned()));
            }
            view.netlink().set_multicast(device, true)?;
        }
        (Change::Address(address), _) => match view.address(address)? {
            None => return gone(),
            // Kernels before 5.18 do not keep who made an address.
            Some(Address { protocol: Some(other), .. }) if *other != PROTOCOL => return replaced(),
            Some(_) => view.netlink().delete_address(address)?,
        },
        (Change::Route(route), _) => match view.route(route)? {
            None => return gone(),
            Some(found) if found.protocol != PROTOCOL => return replaced(),
            Some(_) => view.netlink().delete_route(route)?,
        },
        (Change::Rule(rule), _) => match view.rule(rule)? {
            None => return gone(),
            Some(found) if found.protocol != PROTOCOL => return replaced(),
            Some(_) => view.netlink().delete_rule(rule)?,
        },
        (Change::EarlyRule(rule), Undo::EarlyRule { local }) => {
            return early::unmake(view.netlink(), rule, *local);
        }
        (Change::Divert(policy), _) => return unmake_table(policy),
        (Change::Intercept(policy), _) => return unmake_table(policy),
        (Change::Nat44(policy), _) => return unmake_table(policy),
        (Change::NeighbourProxy(proxy), _) => match view.proxy(proxy)? {
            None => return gone(),
            Some(found) if found.protocol != Some(PROTOCOL) => return replaced(),
            Some(_) => view.netlink().delete_neighbour_proxy(proxy)?,
        },
        (change, _) => {
            return Ok(Some(format!("the ledger does not say how to undo: {change}")));
        }
    }
    Ok(None)
}

fn unmake_table(policy: &dyn Policy) -> Result<Option<String>> {
    match policy.find()? {
        None => gone(),
        Some(found) if !found.ours => replaced(),
        Some(_) => policy.delete().map(|()| None),
    }
}

/// Whether the interface that a change vanishes with is not the same any more.
fn interface_gone(view: &mut View<'_>, entry: &Entry) -> Result<Option<String>> {
    let (Some(device), Some(index)) = (entry.change.device(), entry.ifindex) else {
        return Ok(None);
    };
    Ok(match view.find_link(device)? {
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
    Ok(Some("another program has put another there".to_owned()))
}

fn absent<T>(found: Option<&T>) -> Option<Undo> {
    match found {
        Some(_) => None,
        None => Some(Undo::Delete),
    }
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
