//! A translator that runs follows the host.

use std::time::{Duration, Instant};

use fordway_config::Attach;
use fordway_net::{Netlink, View};
use tracing::{debug, info, warn};

use crate::apply::running::Running;
use crate::failure::Failure;
use crate::output::joined_or;
use crate::plan::placement::Devices;
use crate::plan::{resolve, uplink};

/// Time until programs are looked at again, and until devices are tried again to which they could not be attached.
const PROGRAMS_RETRY: Duration = Duration::from_secs(10);

/// Time until addresses of pool4 are tried again that could not be applied.
const POOL4_RETRY: Duration = Duration::from_secs(60);

impl Running {
    /// Follows the host: the way out of the uplink, devices that are made anew, addresses of pool4; and puts back what is
    /// missing. When to look again, if something waits.
    pub(crate) fn follow(&mut self, view: &mut View<'_>, now: Instant) -> Option<Instant> {
        if self.config.manage
            && self.place.attach == Attach::Uplink
            && let Err(failure) = self.follow_uplink(view.netlink())
        {
            debug!("{}: {}", self.name(), failure.line());
        }
        self.follow_devices(view, now);
        self.follow_pool4(view);
        self.follow_icmp_source4(view);
        if self.looked_at_kernel.is_none_or(|at| now >= at + PROGRAMS_RETRY) {
            self.watch_kernel(now);
        }
        self.host.as_mut()?.follow(view, now)
    }

    /// At the uplink, follows another router, and an uplink that went and came back.
    fn follow_uplink(&mut self, netlink: &mut Netlink) -> Result<(), Failure> {
        // While there is no way, the last one stays: most likely it comes back.
        let Ok(way) = uplink::find(netlink, &self.config, &self.facts)? else { return Ok(()) };
        let Some(before) = &self.place.way else { return Ok(()) };
        // The uplink went and came back as another device: programs and set-up went with it.
        if way.ifindex != before.ifindex {
            self.refresh()?;
            info!("{}: {} is another device now; its programs are there", self.name(), way.device);
            return Ok(());
        }
        if way == *before {
            return Ok(());
        }
        let gateway = way.gateway.map_or("no router".to_owned(), |gateway| gateway.to_string());
        self.place.way = Some(way);
        self.renew()?;
        info!("{}: IPv4 goes by way of {gateway} now", self.name());
        Ok(())
    }

    /// With programs at devices, puts them at those that were made anew, and tells them other link-layer addresses. Those
    /// that are not there are waited for.
    fn follow_devices(&mut self, view: &mut View<'_>, now: Instant) {
        if self.place.devices.is_empty() || self.kernel.is_none() {
            return;
        }
        let devices = Devices::find(view, &self.config);
        if devices.is_empty() || devices == self.place.devices {
            self.refused_devices = None;
            return;
        }
        // What could not be attached a moment ago most likely can't now.
        let refused = self.refused_devices.as_ref();
        if refused.is_some_and(|(them, at)| *them == devices && now < *at + PROGRAMS_RETRY) {
            return;
        }
        let before = std::mem::replace(&mut self.place.devices, devices.clone());
        match self.change_engines(self.engine.core()) {
            Ok(()) => info!("{}: programs are at {devices} now", self.name()),
            Err(failure) => {
                self.place.devices = before;
                self.refused_devices = Some((devices, now));
                warn!("{}: cannot attach to its devices: {}", self.name(), failure.line());
            }
        }
    }

    /// Follows an `icmp_source4` that becomes an address of the host, or is none any more.
    fn follow_icmp_source4(&mut self, view: &mut View<'_>) {
        if !self.config.manage || self.config.icmp_source4.is_none() {
            return;
        }
        let Ok(addresses) = view.addresses() else { return };
        let own = resolve::own_icmp_source4(&self.config, addresses);
        if own == self.facts.own_icmp_source4 {
            return;
        }
        self.facts.own_icmp_source4 = own;
        match self.renew() {
            Ok(()) => {
                if let Some(host) = &mut self.host {
                    host.settle("needed no more: ");
                }
            }
            Err(failure) => warn!("{}: icmp_source4: {}", self.name(), failure.line()),
        }
    }

    /// Takes up other addresses of the host and of devices that are pools.
    fn follow_pool4(&mut self, view: &mut View<'_>) {
        if self.config.nat64().is_none() {
            return;
        }
        let Ok(addresses) = view.addresses() else { return };
        let devices = resolve::device_v4(&self.config, addresses);
        let own = resolve::hosts_v4(&self.config, addresses);
        if devices == self.facts.device_v4 && own == self.facts.own_v4 {
            return;
        }
        let seen = (devices, own);
        let refused = self.stateful.as_ref().and_then(|stateful| stateful.refused.as_ref());
        if refused.is_some_and(|(them, at)| *them == seen && at.elapsed() < POOL4_RETRY) {
            return;
        }
        let name = self.name().to_owned();
        let looked = self.refresh();
        if let Some(stateful) = &mut self.stateful {
            stateful.refused = looked.is_err().then(|| (seen, Instant::now()));
        }
        match looked {
            Ok(()) => {
                for (device, addresses) in &self.facts.device_v4 {
                    let list = joined_or(addresses, "none");
                    info!("{name}: addresses of {device}: {list}");
                }
            }
            Err(failure) => {
                warn!("{name}: this host's new addresses are not applied: {}", failure.line());
            }
        }
    }
}
