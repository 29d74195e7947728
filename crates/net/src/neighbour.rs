//! Neighbour proxies: answering for addresses of other hosts on a link.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::route::RouteProtocol;
use serde::{Deserialize, Serialize};

use crate::address::family;
use crate::link::LinkNames;
use crate::{Netlink, PROTOCOL, Result};

/// An address that the host answers for on a link (RFC 4861 section 7.2.8).
///
/// For IPv6 the sysctl `net.ipv6.conf.DEVICE.proxy_ndp` must be 1 too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourProxy {
    /// The interface's name.
    pub device: String,
    /// The address.
    pub address: IpAddr,
    /// Who made it ([`PROTOCOL`]: this program). Adding always sets [`PROTOCOL`].
    #[serde(skip)]
    pub protocol: Option<u8>,
}

impl NeighbourProxy {
    /// Answer for `address` on `device`.
    #[must_use]
    pub fn new(device: &str, address: IpAddr) -> Self {
        Self { device: device.to_owned(), address, protocol: None }
    }

    /// Whether both are the same address on the same interface.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        self.device == other.device && self.address == other.address
    }
}

impl fmt::Display for NeighbourProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.address, self.device)
    }
}

impl Netlink {
    /// Lists the neighbour proxies of both IP versions.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], [`crate::Error::Answer`].
    pub fn neighbour_proxies(&mut self) -> Result<Vec<NeighbourProxy>> {
        let names = self.link_names()?;
        self.neighbour_proxies_among(&names)
    }

    /// As [`Netlink::neighbour_proxies`], of interfaces that are known.
    pub(crate) fn neighbour_proxies_among(
        &mut self,
        names: &LinkNames,
    ) -> Result<Vec<NeighbourProxy>> {
        let request = |family| {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            message.header.flags = NeighbourFlags::Proxy;
            RouteNetlinkMessage::GetNeighbour(message)
        };
        let answers = self.dump_both(request, "list neighbour proxies")?.into_iter();
        let proxies = answers.filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => {
                from_message(&message, names.get(&message.header.ifindex)?)
            }
            _ => None,
        });
        Ok(proxies.collect())
    }

    /// Adds a neighbour proxy.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`]; [`crate::Error::Netlink`]. The kernel takes one that exists without complaint.
    pub fn add_neighbour_proxy(&mut self, proxy: &NeighbourProxy) -> Result<()> {
        let message = self.proxy_message(proxy)?;
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add neighbour proxy {proxy}")
        })
        .map(drop)
    }

    /// Deletes a neighbour proxy.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NoDevice`]; [`crate::Error::Netlink`], with `ENOENT` if there is none.
    pub fn delete_neighbour_proxy(&mut self, proxy: &NeighbourProxy) -> Result<()> {
        let message = self.proxy_message(proxy)?;
        self.request(RouteNetlinkMessage::DelNeighbour(message), 0, || {
            format!("delete neighbour proxy {proxy}")
        })
        .map(drop)
    }

    fn proxy_message(&mut self, proxy: &NeighbourProxy) -> Result<NeighbourMessage> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(proxy.address);
        message.header.ifindex = self.link_index(&proxy.device)?;
        message.header.flags = NeighbourFlags::Proxy;
        message.attributes = vec![
            NeighbourAttribute::Destination(proxy.address.into()),
            NeighbourAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
        ];
        Ok(message)
    }
}

fn from_message(message: &NeighbourMessage, device: &str) -> Option<NeighbourProxy> {
    let mut address = None;
    let mut protocol = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => {
                address = Some(IpAddr::V4(*ip));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => {
                address = Some(IpAddr::V6(*ip));
            }
            NeighbourAttribute::Protocol(number) => protocol = Some(u8::from(*number)),
            _ => {}
        }
    }
    Some(NeighbourProxy {
        device: device.to_owned(),
        address: address?,
        protocol: protocol.filter(|number| *number != 0),
    })
}
