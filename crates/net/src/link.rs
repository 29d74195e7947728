//! Network interfaces.

use std::collections::HashMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use crate::{Error, Netlink, Result};

/// A network interface as it was when asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index; never 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Kind as the kernel names it, such as `veth` or `tun`; none for hardware
    /// and loopback.
    pub kind: Option<String>,
    /// MTU, in octets.
    pub mtu: u32,
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
    /// Link-layer address; empty for a TUN device.
    pub hardware_address: Vec<u8>,
    /// Index of the interface this one belongs to (bridge, VRF, bond).
    pub controller: Option<u32>,
}

impl Netlink {
    /// Lists all interfaces.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
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
    /// [`Error::NoDevice`] if there is none; [`Error::Netlink`],
    /// [`Error::Answer`].
    pub fn link(&mut self, name: &str) -> Result<Link> {
        self.find_link(name)?.ok_or_else(|| Error::NoDevice { name: name.to_owned() })
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
    /// [`Error::NoDevice`]; [`Error::Netlink`], with `EINVAL` outside the
    /// device's limits.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.set_link(name, message, || format!("set the MTU of interface {name} to {mtu}"))
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

    /// Lets an interface take part in multicast, or not: without, the kernel
    /// joins no groups on it and sends no reports about them.
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
        message.header.index = self.link(name)?.index;
        let operation = || format!("delete interface {name}");
        self.request(RouteNetlinkMessage::DelLink(message), 0, operation)?;
        Ok(())
    }

    /// Index to name, of all interfaces.
    pub(crate) fn link_names(&mut self) -> Result<HashMap<u32, String>> {
        let links = self.links()?.into_iter();
        Ok(links.map(|link| (link.index, link.name)).collect())
    }

    fn set_link(
        &mut self,
        name: &str,
        mut message: LinkMessage,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        message.header.index = self.link(name)?.index;
        self.request(RouteNetlinkMessage::SetLink(message), 0, operation)?;
        Ok(())
    }

    fn get_link(&mut self, message: LinkMessage, object: &str) -> Result<Option<Link>> {
        let operation = || format!("look up interface {object}");
        match self.request(RouteNetlinkMessage::GetLink(message), 0, operation) {
            Ok(answers) => Ok(answers.into_iter().find_map(into_link)),
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
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
        name: String::new(),
        kind: None,
        mtu: 0,
        group: 0,
        multicast: flags.contains(LinkFlags::Multicast),
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Running),
        loopback: flags.contains(LinkFlags::Loopback),
        hardware_address: Vec::new(),
        controller: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Group(group) => link.group = group,
            LinkAttribute::Address(address) => link.hardware_address = address,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(link)
}
