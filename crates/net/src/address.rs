//! Addresses of interfaces.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol,
    AddressScope, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};

use crate::link::LinkNames;
use crate::{Netlink, PROTOCOL, Result};

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The interface's name.
    pub device: String,
    /// The address with the length of its prefix; host bits kept.
    pub address: IpNet,
    /// IPv6: use at once, without duplicate address detection.
    #[serde(default)]
    pub no_dad: bool,
    /// Make no route to the address's prefix.
    #[serde(default)]
    pub no_prefix_route: bool,
    /// Scope "host": never chosen as a source of packets that leave the host.
    #[serde(default)]
    pub host_scope: bool,
    /// Preferred lifetime 0: accept packets, but never choose as a source.
    #[serde(default)]
    pub deprecated: bool,
    /// Who made it ([`PROTOCOL`]: this program); told by Linux 5.18 and later. Adding ignores it and always sets
    /// [`PROTOCOL`].
    #[serde(skip)]
    pub protocol: Option<u8>,
}

impl Address {
    /// `address` on `device` without any option.
    #[must_use]
    pub fn new(device: &str, address: IpNet) -> Self {
        Self {
            device: device.to_owned(),
            address,
            no_dad: false,
            no_prefix_route: false,
            host_scope: false,
            deprecated: false,
            protocol: None,
        }
    }

    /// Whether both are the same address on the same interface, whatever their options.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        self.device == other.device && self.address == other.address
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.address, self.device)
    }
}

/// An IPv6 address of an interface, as it was when asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressV6 {
    /// The interface's index.
    pub index: u32,
    /// The address with the length of its prefix; host bits kept.
    pub address: Ipv6Net,
    /// Seconds for which it is preferred still; `None` without end.
    pub preferred: Option<u32>,
    /// Seconds for which it is valid still; `None` without end.
    pub valid: Option<u32>,
    /// Duplicate address detection has not ended: it can't be a source yet.
    pub tentative: bool,
    /// Another host has it.
    pub duplicate: bool,
    /// A temporary one (RFC 8981).
    pub temporary: bool,
}

impl AddressV6 {
    /// Whether packets can have it as their source.
    #[must_use]
    pub fn usable(&self) -> bool {
        !self.tentative && !self.duplicate
    }

    /// Whether it is link-local.
    #[must_use]
    pub fn link_local(&self) -> bool {
        self.address.addr().is_unicast_link_local()
    }

    /// Whether it is past its preferred lifetime.
    #[must_use]
    pub fn deprecated(&self) -> bool {
        self.preferred == Some(0)
    }
}

impl Netlink {
    /// Lists the addresses of `device`, or of all interfaces.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`]; [`crate::Error::Netlink`], [`crate::Error::Answer`].
    pub fn addresses(&mut self, device: Option<&str>) -> Result<Vec<Address>> {
        let names = self.link_names()?;
        self.addresses_among(&names, device)
    }

    /// As [`Netlink::addresses`], of interfaces that are known.
    pub(crate) fn addresses_among(
        &mut self,
        names: &LinkNames,
        device: Option<&str>,
    ) -> Result<Vec<Address>> {
        let mut message = AddressMessage::default();
        if let Some(device) = device {
            message.header.index = self.link_index(device)?;
        }
        let request = RouteNetlinkMessage::GetAddress(message);
        let answers = self.dump(&request, "list addresses")?;
        Ok(answers.into_iter().filter_map(|answer| into_address(&answer, names)).collect())
    }

    /// Lists the IPv6 addresses of all interfaces.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], [`crate::Error::Answer`].
    pub fn addresses_v6(&mut self) -> Result<Vec<AddressV6>> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet6;
        let request = RouteNetlinkMessage::GetAddress(message);
        let answers = self.dump(&request, "list IPv6 addresses")?;
        Ok(answers.iter().filter_map(into_v6).collect())
    }

    /// Adds an address.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`]; [`crate::Error::Netlink`], with `EEXIST` if the interface has it, `EOPNOTSUPP` or
    /// `EACCES` if IPv6 is disabled there.
    pub fn add_address(&mut self, address: &Address) -> Result<()> {
        let message = self.address_message(address)?;
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add address {address}")
        })
        .map(drop)
    }

    /// Deletes an address; its options are of no account.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`]; [`crate::Error::Netlink`], with `EADDRNOTAVAIL` if the interface does not have it.
    pub fn delete_address(&mut self, address: &Address) -> Result<()> {
        let message = self.address_message(address)?;
        self.request(RouteNetlinkMessage::DelAddress(message), 0, || {
            format!("delete address {address}")
        })
        .map(drop)
    }

    fn address_message(&mut self, address: &Address) -> Result<AddressMessage> {
        let ip = address.address.addr();
        let mut flags = AddressFlags::empty();
        flags.set(AddressFlags::Nodad, address.no_dad && ip.is_ipv6());
        flags.set(AddressFlags::Noprefixroute, address.no_prefix_route);
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.prefix_len = address.address.prefix_len();
        message.header.flags = AddressHeaderFlags::from_bits_retain(flags.bits() as u8);
        message.header.scope =
            if address.host_scope { AddressScope::Host } else { AddressScope::Universe };
        message.header.index = self.link_index(&address.device)?;
        message.attributes = vec![
            AddressAttribute::Local(ip),
            AddressAttribute::Address(ip),
            AddressAttribute::Flags(flags),
            AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL)),
        ];
        if address.deprecated {
            let mut lifetimes = CacheInfo::default();
            lifetimes.ifa_preferred = 0;
            lifetimes.ifa_valid = u32::MAX;
            message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
        }
        Ok(message)
    }
}

/// The netlink family of an address.
pub(crate) fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// An address message's attributes that matter here.
struct Parsed<'a> {
    message: &'a AddressMessage,
    address: IpNet,
    flags: AddressFlags,
    /// Lifetimes in seconds; the greatest number: without end.
    preferred: u32,
    valid: u32,
    protocol: u8,
}

impl<'a> Parsed<'a> {
    fn of(answer: &'a RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        let (mut local, mut plain, mut protocol) = (None, None, 0);
        let (mut preferred, mut valid) = (u32::MAX, u32::MAX);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => plain = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                AddressAttribute::CacheInfo(info) => {
                    (preferred, valid) = (info.ifa_preferred, info.ifa_valid);
                }
                AddressAttribute::Protocol(number) => protocol = u8::from(*number),
                _ => {}
            }
        }
        // With a peer, the local address is our end; IPv6 without one has no local.
        let address = IpNet::new(local.or(plain)?, message.header.prefix_len).ok()?;
        Some(Self { message, address, flags, preferred, valid, protocol })
    }
}

fn into_address(answer: &RouteNetlinkMessage, names: &HashMap<u32, String>) -> Option<Address> {
    let Parsed { message, address, flags, preferred, protocol, .. } = Parsed::of(answer)?;
    Some(Address {
        device: names.get(&message.header.index)?.clone(),
        address,
        no_dad: flags.contains(AddressFlags::Nodad),
        no_prefix_route: flags.contains(AddressFlags::Noprefixroute),
        host_scope: message.header.scope == AddressScope::Host,
        deprecated: preferred == 0,
        protocol: Some(protocol).filter(|number| *number != 0),
    })
}

fn into_v6(answer: &RouteNetlinkMessage) -> Option<AddressV6> {
    let Parsed { message, address, flags, preferred, valid, .. } = Parsed::of(answer)?;
    let IpNet::V6(address) = address else { return None };
    let end = |seconds: u32| (seconds != u32::MAX).then_some(seconds);
    Some(AddressV6 {
        index: message.header.index,
        address,
        preferred: end(preferred),
        valid: end(valid),
        // The kernel uses an optimistic one although it is tentative (RFC 4429).
        tentative: flags.contains(AddressFlags::Tentative)
            && !flags.contains(AddressFlags::Optimistic),
        duplicate: flags.contains(AddressFlags::Dadfailed),
        // For IPv6 the flag "secondary" means a temporary address.
        temporary: flags.contains(AddressFlags::Secondary),
    })
}
