//! Hearing that interfaces, addresses or routes have changed, and which interfaces were down meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_sys::{
    Socket, SocketAddr,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};

use crate::netlink::next;
use crate::{Error, Netlink, Result};

/// What to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Interfaces that come, go, or change.
    Links,
    /// IPv4 addresses.
    Addresses4,
    /// IPv6 addresses, the end of their duplicate address detection included.
    Addresses6,
    /// IPv4 routes.
    Routes4,
    /// IPv6 routes.
    Routes6,
    /// Policy rules of both IP versions.
    Rules,
    /// Kernel settings of interfaces and of all of them, as far as the kernel tells: forwarding, reverse path
    /// filters, neighbour proxies.
    Settings,
}

impl Topic {
    fn groups(self) -> &'static [u32] {
        match self {
            Topic::Links => &[libc::RTNLGRP_LINK],
            Topic::Addresses4 => &[libc::RTNLGRP_IPV4_IFADDR],
            Topic::Addresses6 => &[libc::RTNLGRP_IPV6_IFADDR],
            Topic::Routes4 => &[libc::RTNLGRP_IPV4_ROUTE],
            Topic::Routes6 => &[libc::RTNLGRP_IPV6_ROUTE],
            Topic::Rules => &[libc::RTNLGRP_IPV4_RULE, libc::RTNLGRP_IPV6_RULE],
            Topic::Settings => &[libc::RTNLGRP_IPV4_NETCONF, libc::RTNLGRP_IPV6_NETCONF],
        }
    }
}

/// That something has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Indices of interfaces that could not pass packets at some moment since the last look, also if they can again.
    /// Needs [`Topic::Links`].
    pub down: BTreeSet<u32>,
    /// Whether so much has changed that some of it was lost: `down` may lack some.
    pub lost: bool,
}

/// Hears of changes in the network namespace of the thread that opened it.
///
/// The descriptor is readable when something has changed. Only interfaces that were down are named; all else the
/// caller has to ask for, so that nothing depends on the arrival of every message.
#[derive(Debug)]
pub struct ChangeWatch {
    socket: Socket,
    tells_links: bool,
}

/// `NFNLGRP_NFTABLES`: changes of nftables.
const NFTABLES: u32 = 7;

impl ChangeWatch {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`].
    pub fn open(topics: &[Topic]) -> Result<Self> {
        let groups: Vec<u32> = topics.iter().flat_map(|it| it.groups()).copied().collect();
        Self::listen(NETLINK_ROUTE, &groups, topics.contains(&Topic::Links))
    }

    /// Begins to listen for changes of nftables: tables, chains, rules. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`].
    pub fn open_nftables() -> Result<Self> {
        Self::listen(NETLINK_NETFILTER, &[NFTABLES], false)
    }

    fn listen(protocol: isize, groups: &[u32], tells_links: bool) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(protocol)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in groups {
                socket.add_membership(*group)?;
            }
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let failed = |source| Error::netlink("listen for changes of the network", source);
        Ok(Self { socket: open().map_err(failed)?, tells_links })
    }

    /// What has changed since the last call; `None` if nothing has.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`]; the watch is of no use then.
    pub fn take(&mut self) -> Result<Option<Changes>> {
        let mut changes: Option<Changes> = None;
        let mut octets = Vec::with_capacity(32 * 1024);
        loop {
            octets.clear();
            match self.socket.recv(&mut octets, 0) {
                Ok(_) => {
                    let down = &mut changes.get_or_insert_default().down;
                    if self.tells_links {
                        note_down(&octets, down);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changes.get_or_insert_default().lost = true;
                }
                Err(source) => {
                    return Err(Error::netlink("hear of changes of the network", source));
                }
            }
        }
    }
}

impl Netlink {
    /// How often each interface has lost its carrier, by index. Unlike messages about it, the count also tells a loss
    /// that was so short that the kernel did not say it.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn carrier_losses(&mut self) -> Result<BTreeMap<u32, u32>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(&request, "list interfaces")?;
        let losses = answers.into_iter().filter_map(|answer| {
            let RouteNetlinkMessage::NewLink(link) = answer else { return None };
            let count = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::CarrierDownCount(count) => Some(*count),
                _ => None,
            });
            Some((link.header.index, count?))
        });
        Ok(losses.collect())
    }
}

/// The interfaces that messages of a datagram say can't pass packets.
fn note_down(datagram: &[u8], down: &mut BTreeSet<u32>) {
    let mut rest = datagram;
    // What can't be understood says no more than that something has changed.
    while let Some(Ok(message)) = next(&mut rest, false) {
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))
                if !link.header.flags.contains(LinkFlags::Up | LinkFlags::Running) =>
            {
                down.insert(link.header.index);
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                down.insert(link.header.index);
            }
            _ => {}
        }
    }
}

impl AsFd for ChangeWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for ChangeWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
