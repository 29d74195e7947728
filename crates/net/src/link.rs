//! Network interfaces.

use std::collections::HashMap;

use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoTun, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};

use rustix::io::Errno;

use crate::{Error, Netlink, Result, sys};

/// Names of interfaces by their indices.
pub(crate) type LinkNames = HashMap<u32, String>;

/// A network interface as it was when asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index; never 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Kind as the kernel names it, such as `veth` or `tun`; none for hardware and loopback.
    pub kind: Option<String>,
    /// MTU, in octets.
    pub mtu: u32,
    /// Packets that wait in it at most (`txqueuelen`); of a TUN device, in each queue.
    pub queue_length: u32,
    /// Group, a number that rules and tools select interfaces by; 0 by default.
    pub group: u32,
    /// Whether it takes part in multicast (`IFF_MULTICAST`).
    pub multicast: bool,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it is up and can pass packets (`IFF_RUNNING`).
    pub running: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Kind of its link layer (`ARPHRD_*`).
    pub link_layer: u16,
    /// Link-layer address; empty for a TUN device.
    pub hardware_address: Vec<u8>,
    /// Index of the interface of this network namespace that it stands on, such as a macvlan's or a VLAN's.
    pub beneath: Option<u32>,
    /// Whether it is part of another, such as a bridge or a VRF.
    pub is_part: bool,
    /// Kind of the interface that it is part of, such as `bridge`, where the kernel tells.
    pub part_of: Option<String>,
    /// What it is beyond, if it is of the kind `tun`.
    pub tun: Option<Tun>,
}

/// A TUN or TAP device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tun {
    /// Whether it is a TAP device, with a link layer.
    pub tap: bool,
    /// Whether it can have more than one queue.
    pub multi_queue: bool,
    /// Queues that some process has open; not known (0) of a single-queue one.
    pub open_queues: u32,
}

/// Whether a feature of a device is on, named as by ethtool(8), such as `rx-gro-list`; `None`: kernel or device don't
/// tell.
#[must_use]
pub fn device_feature(device: &str, feature: &str) -> Option<bool> {
    sys::ethtool::feature(device, feature).ok().flatten()
}

/// The name of a device's driver, such as `virtio_net`; `None`: the kernel doesn't tell.
#[must_use]
pub fn device_driver(device: &str) -> Option<String> {
    sys::ethtool::driver(device).ok()
}

/// Whether the kernel renames interfaces that are up, as Linux does since 6.2.
#[must_use]
pub fn renames_while_up() -> bool {
    let kernel = rustix::system::uname();
    version(&kernel.release().to_string_lossy()).is_some_and(|it| it >= (6, 2))
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl Netlink {
    /// Lists all interfaces.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn links(&mut self) -> Result<Vec<Link>> {
        // Statistics would be most of the answer, and are not used.
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let message = RouteNetlinkMessage::GetLink(message);
        let answers = self.dump(&message, "list interfaces")?;
        Ok(answers.into_iter().filter_map(into_link).collect())
    }

    /// Finds an interface by name.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn find_link(&mut self, name: &str) -> Result<Option<Link>> {
        // Longer names cannot exist, but would be refused with ERANGE.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Ok(None);
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.get_link(message, name)
    }

    /// Finds an interface by index.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn find_link_by_index(&mut self, index: u32) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.get_link(message, &format!("with index {index}"))
    }

    /// The interface `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none; [`Error::Netlink`], [`Error::Answer`].
    pub fn link(&mut self, name: &str) -> Result<Link> {
        self.find_link(name)?.ok_or_else(|| Error::NoDevice(name.to_owned()))
    }

    /// The index of the interface `name`.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none; [`Error::Netlink`].
    pub fn link_index(&self, name: &str) -> Result<u32> {
        // A question of its own takes the kernel a hundredth of the time that an interface's description does.
        rustix::net::netdevice::name_to_index(self, name).map_err(|errno| match errno {
            Errno::NODEV => Error::NoDevice(name.to_owned()),
            errno => Error::netlink(format!("look up interface {name}"), errno.into()),
        })
    }

    /// Sets an interface up or down.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`].
    pub fn set_up(&mut self, name: &str, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.change_mask = LinkFlags::Up;
        if up {
            message.header.flags = LinkFlags::Up;
        }
        let state = if up { "up" } else { "down" };
        self.set_link(name, message, || format!("set interface {name} {state}"))
    }

    /// Sets the MTU of an interface, in octets.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`], with `EINVAL` outside the device's limits.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.set_link(name, message, || format!("set the MTU of interface {name} to {mtu}"))
    }

    /// Sets how many packets wait in an interface at most; of a TUN device, in each of its queues, also those that
    /// are open.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`], with `ENOMEM` if a device has no memory for them.
    pub fn set_queue_length(&mut self, name: &str, length: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::TxQueueLen(length));
        self.set_link(name, message, || {
            format!("set the queue length of interface {name} to {length}")
        })
    }

    /// Packets that an interface did not take, since it was made: of a TUN device those that were not read in time.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none; [`Error::Netlink`], [`Error::Answer`].
    pub fn tx_dropped(&mut self, name: &str) -> Result<u64> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let operation = || format!("read the counters of interface {name}");
        let answers = match self.request(RouteNetlinkMessage::GetLink(message), 0, operation) {
            Err(error) if error.errno() == Some(libc::ENODEV) => Vec::new(),
            answers => answers?,
        };
        let missing = || Error::NoDevice(name.to_owned());
        answers.into_iter().find_map(tx_dropped_in).ok_or_else(missing)
    }

    /// Gives the interface of an index another name. Addresses, routes and settings stay; policy rules that name the
    /// interface hold no more.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], with `EBUSY` if it is up and the kernel can't ([`renames_while_up`]), `EEXIST` if another
    /// one has the name, `ENODEV` if there is no such interface.
    pub fn rename_link(&mut self, index: u32, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let operation = || format!("rename interface {index} to {name}");
        self.request(RouteNetlinkMessage::SetLink(message), 0, operation).map(drop)
    }

    /// Puts an interface into a group.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`].
    pub fn set_group(&mut self, name: &str, group: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Group(group));
        self.set_link(name, message, || format!("put interface {name} into group {group}"))
    }

    /// Lets an interface take part in multicast, or not: without, the kernel joins no groups on it and sends no
    /// reports about them.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`].
    pub fn set_multicast(&mut self, name: &str, multicast: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.change_mask = LinkFlags::Multicast;
        if multicast {
            message.header.flags = LinkFlags::Multicast;
        }
        let verb = if multicast { "allow" } else { "forbid" };
        self.set_link(name, message, || format!("{verb} multicast on interface {name}"))
    }

    /// Deletes a virtual interface.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`], with `EOPNOTSUPP` for hardware.
    pub fn delete_link(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link_index(name)?;
        let operation = || format!("delete interface {name}");
        self.request(RouteNetlinkMessage::DelLink(message), 0, operation).map(drop)
    }

    /// The names of all interfaces.
    pub(crate) fn link_names(&mut self) -> Result<LinkNames> {
        let links = self.links()?.into_iter();
        Ok(links.map(|link| (link.index, link.name)).collect())
    }

    fn set_link(
        &mut self,
        name: &str,
        mut message: LinkMessage,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        message.header.index = self.link_index(name)?;
        self.request(RouteNetlinkMessage::SetLink(message), 0, operation).map(drop)
    }

    fn get_link(&mut self, message: LinkMessage, object: &str) -> Result<Option<Link>> {
        let operation = || format!("look up interface {object}");
        match self.request(RouteNetlinkMessage::GetLink(message), 0, operation) {
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            answers => Ok(answers?.into_iter().find_map(into_link)),
        }
    }
}

fn into_link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return None;
    };
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        multicast: flags.contains(LinkFlags::Multicast),
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Running),
        loopback: flags.contains(LinkFlags::Loopback),
        link_layer: message.header.link_layer_type.into(),
        ..Link::default()
    };
    let mut beneath_elsewhere = false;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::TxQueueLen(length) => link.queue_length = length,
            LinkAttribute::Group(group) => link.group = group,
            LinkAttribute::Address(address) => link.hardware_address = address,
            LinkAttribute::Link(index) => link.beneath = Some(index),
            LinkAttribute::LinkNetNsId(_) => beneath_elsewhere = true,
            LinkAttribute::Controller(index) => link.is_part = index != 0,
            LinkAttribute::LinkInfo(infos) => {
                for info in &infos {
                    match info {
                        LinkInfo::Kind(kind) => {
                            link.kind = Some(kind.to_string());
                            link.tun = (*kind == InfoKind::Tun).then(|| tun(&infos));
                        }
                        LinkInfo::PortKind(kind) => link.part_of = Some(kind.to_string()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    link.beneath = link.beneath.filter(|_| !beneath_elsewhere);
    Some(link)
}

fn tx_dropped_in(message: RouteNetlinkMessage) -> Option<u64> {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return None;
    };
    message.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::Stats64(stats) => Some(stats.tx_dropped),
        _ => None,
    })
}

/// Linux 4.18 and later report all of this. The defaults allow opening the device, which then tells.
fn tun(infos: &[LinkInfo]) -> Tun {
    const IFLA_TUN_TYPE: u16 = 3;
    const IFLA_TUN_MULTI_QUEUE: u16 = 7;
    const IFLA_TUN_NUM_QUEUES: u16 = 8;
    const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;
    const IFF_TAP: u32 = 2;
    let data = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Tun(data)) => Some(data.as_slice()),
        _ => None,
    });
    let number = |kind: u16| {
        data.unwrap_or_default().iter().find_map(|item| match item {
            InfoTun::Other(attribute) if attribute.kind() == kind => number_in(attribute),
            _ => None,
        })
    };
    Tun {
        tap: number(IFLA_TUN_TYPE) == Some(IFF_TAP),
        multi_queue: number(IFLA_TUN_MULTI_QUEUE) != Some(0),
        open_queues: number(IFLA_TUN_NUM_QUEUES).unwrap_or(0)
            + number(IFLA_TUN_NUM_DISABLED_QUEUES).unwrap_or(0),
    }
}

/// The value of an attribute of one or four octets in host byte order.
fn number_in(attribute: &DefaultNla) -> Option<u32> {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    match value.as_slice() {
        &[value] => Some(u32::from(value)),
        value => value.try_into().ok().map(u32::from_ne_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_two_numbers() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("six"), None);
    }
}
