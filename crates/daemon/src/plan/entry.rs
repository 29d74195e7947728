//! The changes that an entry of the configuration means on this host, in the order in which they are made: modes nat44
//! and dual-stack, router advertisements, transport relays.

#[cfg(feature = "nat44")]
mod nat44;
#[cfg(not(feature = "nat44"))]
#[path = "entry/nat44/without.rs"]
mod nat44;

use std::collections::BTreeSet;
use std::time::Duration;

use fordway_config::{Advertise, Config, DualStack, InterfaceName, Nat44};
use fordway_net::{Address, Change, Intercept, Netlink, SysctlKey};

use super::changes::last_of_each;
use super::resolve;
use crate::failure::Failure;

/// An entry of the configuration that wants something of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Nat44(Nat44),
    DualStack(DualStack),
    /// A device where router advertisements are sent: what comes in there is forwarded.
    Router(InterfaceName),
    /// A transport relay, to whose sockets packets are led.
    Relay(Intercept),
}

/// In front of the names of devices and relays: the owners of their changes in the ledger. Too long to be translators'.
const ROUTER: &str = "router-advertisements.";
const RELAY: &str = "transport-relay.";

impl Entry {
    /// Those of a configuration, but for relays, which have sockets.
    pub(crate) fn all(config: &Config) -> Vec<Entry> {
        let router = config.advertise.iter().filter(|it| forwards_for(it));
        let router = router.map(|it| Entry::Router(it.device.clone()));
        let nat44 = config.nat44.iter().cloned().map(Entry::Nat44);
        let dual_stack = config.dual_stack.iter().cloned().map(Entry::DualStack);
        router.chain(nat44).chain(dual_stack).collect()
    }

    /// The owners of a configuration, relays among them.
    pub(crate) fn owners(config: &Config) -> BTreeSet<String> {
        let relays = config.trt.iter().map(|trt| format!("{RELAY}{}", trt.name));
        Entry::all(config).iter().map(Entry::owner).chain(relays).collect()
    }

    /// The owner of its changes in the ledger.
    pub(crate) fn owner(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match self {
            Entry::Nat44(_) | Entry::DualStack(_) => self.name().to_owned(),
            Entry::Router(device) => {
                let device = device.as_str().chars();
                ROUTER.chars().chain(device.map(|c| if plain(c) { c } else { '_' })).collect()
            }
            Entry::Relay(relay) => format!("{RELAY}{}", relay.name),
        }
    }

    /// Its name in the log.
    pub(crate) fn name(&self) -> &str {
        match self {
            Entry::Nat44(nat44) => nat44.name.as_str(),
            Entry::DualStack(dual_stack) => dual_stack.name.as_str(),
            Entry::Router(device) => device.as_str(),
            Entry::Relay(relay) => &relay.name,
        }
    }

    /// What stands in front of its errors.
    pub(crate) fn title(&self) -> String {
        let section = match self {
            Entry::Nat44(_) | Entry::DualStack(_) => "",
            Entry::Router(_) => "[[advertise]] ",
            Entry::Relay(_) => "[[trt]] ",
        };
        format!("{section}{}: ", self.name())
    }

    /// Whether its changes depend on the host at any time. Those of a router depend on it when its device appears; those
    /// of a relay do not.
    pub(crate) fn follows_host(&self) -> bool {
        matches!(self, Entry::Nat44(_) | Entry::DualStack(_))
    }
}

/// A default router has to forward (RFC 4861 section 6.2.2); one that only announces prefixes does not.
fn forwards_for(advertise: &Advertise) -> bool {
    advertise.manage && advertise.lifetime != Some(Duration::ZERO)
}

/// What an entry means.
pub(crate) struct Plan {
    pub(crate) changes: Vec<Change>,
    /// Devices of the entry that are not there.
    pub(crate) absent: Vec<String>,
}

/// Looks at the host, and changes nothing.
/// `earlier`: what is in force for it.
pub(crate) fn plan(
    config: &Config,
    entry: &Entry,
    earlier: &[Change],
    netlink: &mut Netlink,
) -> Result<Plan, Failure> {
    let plan = match entry {
        Entry::Nat44(entry) => nat44::plan(entry, netlink),
        Entry::DualStack(entry) => dual_stack(config, entry, earlier, netlink),
        Entry::Router(device) => router(config, device.as_str(), netlink),
        Entry::Relay(relay) => Ok(Plan { changes: relay.changes(), absent: Vec::new() }),
    }?;
    Ok(Plan { changes: last_of_each(plan.changes), ..plan })
}

/// Both families between the devices.
fn dual_stack(
    config: &Config,
    entry: &DualStack,
    earlier: &[Change],
    netlink: &mut Netlink,
) -> Result<Plan, Failure> {
    let (there, absent) = sort(entry.devices.iter(), netlink)?;
    let advertises = |name: &String| config.advertise.iter().any(|it| it.device.as_str() == name);
    let mut changes = Vec::new();
    for (device, net) in entry.addresses.iter().filter(|(it, _)| there.contains(&it.as_str())) {
        changes.push(Change::Address(Address::new(device.as_str(), *net)));
    }
    // A device that has no such route for a while is still one where routers tell them.
    let listens = |it: &&Change| {
        matches!(it, Change::Sysctl { key, .. }
            if key.device().is_some_and(|name| !advertises(&name.to_owned()))
                && key.to_string().ends_with(".accept_ra"))
    };
    changes.extend(earlier.iter().filter(listens).cloned());
    let listens = listening(config, netlink)?;
    changes.extend(listens.into_iter().filter(|it| !earlier.contains(it)));
    changes.push(Change::sysctl(SysctlKey::forwarding_v4(), "1"));
    changes.push(Change::sysctl(SysctlKey::forwarding_v6(), "1"));
    for device in there {
        changes.push(Change::sysctl(SysctlKey::conf_v4(device, "forwarding")?, "1"));
        changes.push(Change::sysctl(SysctlKey::conf_v6(device, "forwarding")?, "1"));
    }
    Ok(Plan { changes, absent })
}

/// Forwarding on a device, if it is there.
fn router(config: &Config, device: &str, netlink: &mut Netlink) -> Result<Plan, Failure> {
    let absent = Vec::new();
    if netlink.find_link(device)?.is_none() {
        return Ok(Plan { changes: Vec::new(), absent });
    }
    let mut changes = listening(config, netlink)?;
    changes.push(Change::sysctl(SysctlKey::forwarding_v6(), "1"));
    changes.push(Change::sysctl(SysctlKey::conf_v6(device, "forwarding")?, "1"));
    Ok(Plan { changes, absent })
}

/// What keeps the routes that other routers announce: a host that becomes a router would lose them.
fn listening(config: &Config, netlink: &mut Netlink) -> Result<Vec<Change>, Failure> {
    let advertises = |name: &String| config.advertise.iter().any(|it| it.device.as_str() == name);
    let devices = resolve::ra_devices(netlink, None, None)?;
    let others = devices.iter().filter(|it| !advertises(it));
    let listen =
        |device: &String| Ok(Change::sysctl(SysctlKey::conf_v6(device, "accept_ra")?, "2"));
    others.map(listen).collect()
}

/// Which of these devices are there, and which are not.
fn sort<'a>(
    devices: impl Iterator<Item = &'a InterfaceName>,
    netlink: &mut Netlink,
) -> Result<(Vec<&'a str>, Vec<String>), Failure> {
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for device in devices {
        match netlink.find_link(device.as_str())? {
            Some(_) => there.push(device.as_str()),
            None => absent.push(device.to_string()),
        }
    }
    Ok((there, absent))
}
