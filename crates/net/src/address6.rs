//! IPv6 addresses of interfaces with what the kernel knows of their lives.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Netlink, Result};

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
    /// Duplicate address detection has not ended: it is nobody's source yet.
    pub tentative: bool,
    /// Somebody else has it.
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
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => from_message(&message),
                _ => None,
            })
            .collect())
    }
}

fn from_message(message: &AddressMessage) -> Option<AddressV6> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut local, mut plain) = (None, None);
    let (mut preferred, mut valid) = (u32::MAX, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(IpAddr::V6(ip)) => local = Some(*ip),
            AddressAttribute::Address(IpAddr::V6(ip)) => plain = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            AddressAttribute::CacheInfo(info) => {
                (preferred, valid) = (info.ifa_preferred, info.ifa_valid);
            }
            _ => {}
        }
    }
    // With a peer, the local address is our end; without one there is no local.
    let ip = local.or(plain)?;
    let IpNet::V6(address) = IpNet::new(ip.into(), message.header.prefix_len).ok()? else {
        return None;
    };
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
