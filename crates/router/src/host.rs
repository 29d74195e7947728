//! The state of the host's devices, from netlink.

use std::collections::BTreeMap;
use std::time::Instant;

use fordway_net::{Link, Netlink, SysctlKey, sysctl};

use super::content::{Facts, is_global};

/// The state of all devices at one moment.
#[derive(Debug)]
pub(super) struct Host {
    links: BTreeMap<String, Link>,
    addresses: Vec<fordway_net::AddressV6>,
    at: Instant,
}

impl Host {
    pub(super) fn read(netlink: &mut Netlink) -> fordway_net::Result<Host> {
        let links = netlink.links()?.into_iter().map(|link| (link.name.clone(), link));
        let links = links.collect();
        let addresses = netlink.addresses_v6()?;
        Ok(Host { links, addresses, at: Instant::now() })
    }

    /// The state of the device `name`; `None` if there is no such interface.
    pub(super) fn facts(&self, name: &str) -> Option<Facts> {
        let link = self.links.get(name)?;
        let (own, others): (Vec<_>, Vec<_>) =
            self.addresses.iter().copied().partition(|it| it.index == link.index);
        let elsewhere = others.iter().filter(|it| !it.duplicate).map(|it| it.address.addr());
        Some(Facts {
            index: link.index,
            running: link.up && link.running,
            mtu: link.mtu,
            hardware_address: link.hardware_address.clone(),
            forwarding: forwards(name),
            addresses: own,
            elsewhere: elsewhere.filter(|it| is_global(*it)).collect(),
            at: self.at,
        })
    }

    /// A link-layer address that identifies the host: universally administered rather than local, of the device with
    /// the lowest index.
    pub(super) fn hardware_address(&self) -> Option<[u8; 6]> {
        let of = |link: &Link| <[u8; 6]>::try_from(link.hardware_address.as_slice()).ok();
        let candidates = self.links.values().filter(|link| !link.loopback);
        candidates
            .filter_map(|link| Some((of(link)?, link.index)))
            .filter(|(address, _)| *address != [0; 6])
            .min_by_key(|(address, index)| (address[0] & 2 != 0, *index))
            .map(|(address, _)| address)
    }
}

/// Whether IPv6 packets that come in at `device` are forwarded, and neighbour advertisements say that this is a router.
pub(super) fn forwards(device: &str) -> bool {
    let on = |key: SysctlKey| sysctl::read(&key).is_ok_and(|value| value != "0");
    on(SysctlKey::forwarding_v6()) && SysctlKey::conf_v6(device, "forwarding").is_ok_and(on)
}
