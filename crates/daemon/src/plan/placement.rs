//! Which engine carries the packets of a translator, and where its programs are attached.

use std::fmt;

use fordway_bpf::{Host, Unsupported};
use fordway_config::{Attach, Engine, InterfaceName, Translator};
use fordway_net::{Link, Netlink, View};
use tracing::warn;

use super::forwarding;
use super::resolve::Facts;
use super::uplink::{self, Way};
use crate::failure::Failure;

/// Hint for a kernel engine that cannot run, where nothing better is known.
pub(crate) const HINT: &str = "write engine = \"auto\", which takes the user engine then";

/// Which engine is to carry the packets.
#[derive(Clone, Debug)]
pub(crate) enum Intent {
    /// The kernel engine; the user engine takes what it leaves.
    Kernel,
    /// The user engine alone, for this reason.
    User(String),
}

impl Intent {
    /// What the configuration and the host say together.
    pub(crate) fn of(
        config: &Translator,
        host: &Result<Host, Unsupported>,
    ) -> Result<Intent, Failure> {
        match (config.engine, host) {
            (Engine::User, _) => Ok(Intent::User("configured".to_owned())),
            (Engine::Auto | Engine::Kernel, Ok(_)) => Ok(Intent::Kernel),
            (Engine::Auto, Err(why)) => Ok(Intent::User(format!("engine = \"auto\": {why}"))),
            (Engine::Kernel, Err(why)) => {
                let failure =
                    Failure::failed(format!("{}: engine = \"kernel\": {why}", config.name));
                Err(failure.hint(why.hint.clone().unwrap_or_else(|| HINT.to_owned())))
            }
        }
    }

    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Intent::Kernel)
    }
}

/// Where packets are to be taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// The attach point; never [`Attach::Auto`].
    pub(crate) attach: Attach,
    /// Why not the one that was asked for.
    pub(crate) reason: Option<String>,
    /// Placement the uplink: the way there.
    pub(crate) way: Option<Way>,
    /// In front of routing: the devices.
    pub(crate) devices: Devices,
}

impl Placement {
    /// The translator's interface, and why, where something else was asked for.
    pub(crate) fn interface(reason: Option<String>) -> Placement {
        Placement { attach: Attach::Interface, reason, ..Placement::default() }
    }
}

/// Devices in front of whose routing programs are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// Name, index, link-layer address.
    found: Vec<(String, u32, Vec<u8>)>,
    /// Link-layer addresses that they have beside their own.
    virtual_macs: Vec<(u32, [u8; 6])>,
}

impl Devices {
    /// Those of a configuration that are there.
    pub(crate) fn find(view: &mut View<'_>, config: &Translator) -> Devices {
        let find = |name: &InterfaceName| {
            let link = view.find_link(name.as_str()).ok()??;
            Some((link.name.clone(), link.index, link.hardware_address.clone()))
        };
        let found: Vec<_> = config.devices.iter().filter_map(find).collect();
        let at = |index: u32| found.iter().any(|(_, at, _)| *at == index);
        let virtual_mac = |link: &Link| {
            let beneath = link.beneath.filter(|beneath| at(*beneath))?;
            // VRRP has its addresses at such devices. Those of virtual machines (macvtap) are not for this host, and
            // one that is part of another, or down, does not receive for it either.
            let receives = link.kind.as_deref() == Some("macvlan") && link.up && !link.is_part;
            receives.then_some((beneath, link.hardware_address.as_slice().try_into().ok()?))
        };
        let mut virtual_macs: Vec<_> = match config.attach {
            Attach::Xdp => view.links().map(|it| it.filter_map(virtual_mac).collect()),
            _ => Ok(Vec::new()),
        }
        .unwrap_or_default();
        virtual_macs.sort_unstable();
        Devices { found, virtual_macs }
    }

    pub(crate) fn virtual_macs(&self) -> &[(u32, [u8; 6])] {
        &self.virtual_macs
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Their names, by index.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, String)> {
        self.found.iter().map(|(name, index, _)| (*index, name.clone()))
    }

    pub(crate) fn indices(&self) -> Vec<u32> {
        self.found.iter().map(|(_, index, _)| *index).collect()
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.found.iter().map(|(name, ..)| name.as_str()).collect();
        f.write_str(&names.join(", "))
    }
}

/// Where packets are to be taken.
pub(crate) fn find(
    netlink: &mut Netlink,
    config: &Translator,
    facts: &Facts,
    intent: &Intent,
) -> Result<Placement, Failure> {
    let attach = config.attach;
    if !intent.is_kernel() {
        let why = "it is the kernel engine's, which does not run";
        return Ok(Placement::interface(refused(attach, why)));
    }
    let configured = config.clat().is_some_and(|clat| clat.uplink.is_some());
    match attach {
        Attach::Uplink => {}
        Attach::Auto if configured => {}
        Attach::Auto | Attach::Interface => return Ok(Placement::interface(None)),
        Attach::Ingress | Attach::Xdp => {
            let mut view = View::new(netlink);
            config.devices.iter().try_for_each(|name| view.link(name.as_str()).map(drop))?;
            let devices = Devices::find(&mut view, config);
            forwarding::check(config)?;
            return Ok(Placement { attach, devices, ..Placement::default() });
        }
    }
    Ok(match uplink::find(netlink, config, facts)? {
        Ok(way) => Placement { attach: Attach::Uplink, way: Some(way), ..Placement::default() },
        Err(why) => {
            warn!("{}: not at the uplink: {why}", config.name);
            Placement::interface(Some(format!("not at the uplink: {why}")))
        }
    })
}

/// Why an attach point that was asked for is not taken.
pub(crate) fn refused(attach: Attach, why: &str) -> Option<String> {
    match attach {
        Attach::Auto | Attach::Interface => None,
        Attach::Uplink => Some(format!("not at the uplink: {why}")),
        Attach::Ingress => Some(format!("not at the ingress of the devices: {why}")),
        Attach::Xdp => Some(format!("not at XDP: {why}")),
    }
}
