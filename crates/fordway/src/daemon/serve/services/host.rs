//! What routers need of the host: that it forwards what comes in on the links where it advertises itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use fordway_config::{Advertise, Config};
use fordway_net::privilege::{self, Capability};
use fordway_net::{Change, Netlink, SysctlKey, View};
use tracing::{info, warn};

use crate::daemon::apply::upkeep::{Upkeep, earlier};
use crate::daemon::plan::resolve;
use crate::failure::Failure;

/// In front of a device's name: the owner of its changes in the ledger. Too long to be a translator's.
const OWNER: &str = "router-advertisements.";

/// The changes for each device that advertises, none as long as it is not there. What is dropped without [`Host::restore`] stays, for the next
/// start to take over.
#[derive(Default)]
pub(super) struct Host(BTreeMap<String, Upkeep>);

impl Host {
    /// Whether there is nothing that could have to be taken back.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the changes for each device of the configuration that is there. Devices that are not in it any
    /// more keep theirs until [`Host::settle`].
    ///
    /// On an error, devices that were not there before are given back.
    pub(super) fn bring(&mut self, config: &Config, run_dir: &Path) -> Result<(), Failure> {
        let wanted: Vec<&Advertise> = config.advertise.iter().filter(|it| wants(it)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        privilege::require(&[Capability::CAP_NET_ADMIN])?;
        let mut netlink = Netlink::open()?;
        let mut fresh = Vec::new();
        for advertise in wanted {
            let device = advertise.device.as_str();
            let made = self.bring_one(config, device, run_dir, &mut netlink, &mut fresh);
            if let Err(failure) = made {
                for device in fresh {
                    self.give_back(&device);
                }
                return Err(failure.prefix(&format!("[[advertise]] {device}: ")));
            }
        }
        Ok(())
    }

    fn bring_one(
        &mut self,
        config: &Config,
        device: &str,
        run_dir: &Path,
        netlink: &mut Netlink,
        fresh: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if !self.0.contains_key(device) {
            let upkeep = Upkeep::open(run_dir, &owner(device), device)?;
            self.0.insert(device.to_owned(), upkeep);
            fresh.push(device.to_owned());
        }
        let there = netlink.find_link(device)?.is_some();
        let Some(upkeep) = self.0.get_mut(device).filter(|_| there) else { return Ok(()) };
        upkeep.want(changes(config, device, netlink)?)?;
        upkeep.settle("left by an earlier run: ");
        Ok(())
    }

    /// Takes back what was made for devices that the configuration has no more.
    pub(super) fn settle(&mut self, config: &Config) {
        let gone = |device: &String| {
            !config.advertise.iter().any(|it| it.device.as_str() == device && wants(it))
        };
        let gone: Vec<String> = self.0.keys().filter(|device| gone(device)).cloned().collect();
        for device in gone {
            self.give_back(&device);
        }
    }

    /// Makes the changes for devices that have come since, if any, and keeps up those of the others.
    pub(super) fn follow(
        &mut self,
        config: &Config,
        view: &mut View<'_>,
        now: Instant,
    ) -> Option<Instant> {
        let mut again = None;
        for (device, upkeep) in &mut self.0 {
            if !upkeep.wanted().is_empty() {
                again = earlier(again, upkeep.follow(view, now));
            } else if matches!(view.find_link(device), Ok(Some(_))) {
                let wanted = changes(config, device, view.netlink());
                match wanted.and_then(|wanted| upkeep.want(wanted)) {
                    Ok(()) => info!("{device}: it is there, and forwards"),
                    Err(failure) => warn!("{device}: {}", failure.line()),
                }
            }
        }
        again
    }

    /// Takes everything back.
    pub(super) fn restore(&mut self) {
        let devices: Vec<String> = self.0.keys().cloned().collect();
        for device in devices {
            self.give_back(&device);
        }
    }

    fn give_back(&mut self, device: &str) {
        if let Some(upkeep) = self.0.remove(device) {
            upkeep.take_back();
        }
    }
}

/// A default router has to forward (RFC 4861 section 6.2.2); whoever only tells prefixes does not.
fn wants(advertise: &Advertise) -> bool {
    advertise.manage && !advertise.lifetime().is_zero()
}

fn owner(device: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let device = device.chars().map(|c| if plain(c) { c } else { '_' });
    OWNER.chars().chain(device).collect()
}

/// Forwarding, and before it what keeps other devices' routes: a host that becomes a router would lose those
/// that it was told by router advertisements.
fn changes(config: &Config, device: &str, netlink: &mut Netlink) -> Result<Vec<Change>, Failure> {
    let advertises = |name: &String| config.advertise.iter().any(|it| it.device.as_str() == name);
    let mut changes = Vec::new();
    for other in resolve::ra_devices(netlink, None, None)?.into_iter().filter(|it| !advertises(it))
    {
        changes.push(Change::sysctl(SysctlKey::conf_v6(&other, "accept_ra")?, "2"));
    }
    changes.push(Change::sysctl(SysctlKey::forwarding_v6(), "1"));
    changes.push(Change::sysctl(SysctlKey::conf_v6(device, "forwarding")?, "1"));
    Ok(changes)
}
