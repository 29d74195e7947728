//! Hearing of what may change the way of packets that the host forwards.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::netlink::next;
use crate::{Error, Netlink, Result};

/// All that the kernel looks at when it routes a packet.
const GROUPS: [u32; 11] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
    libc::RTNLGRP_NEXTHOP,
];

/// The most neighbours that are remembered. With more, some that have not changed are told of.
const NEIGHBOURS: usize = 65_536;

/// The most longer prefixes that are told.
const FINE: usize = 65_536;

/// By what routes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// It has to be asked ([`RoutingWatch::look`]).
    Unknown,
    /// By destination, arriving interface, mark and Type of Service alone.
    ByDestination,
    /// By source, protocol or ports as well; or a packet takes one of several paths.
    ByMore,
}

/// Hears of all changes of links, addresses, neighbours, routes, next hops, rules and forwarding, of both IP versions, in the
/// network namespace of the thread that opened it; and knows whether packets to one destination all go the same way.
///
/// The kernel says nothing of path MTUs that it has learnt, nor of a link-layer address that is confirmed.
#[derive(Debug)]
pub struct RoutingWatch {
    socket: Socket,
    /// The link-layer address of each neighbour that can be reached, by interface and address.
    neighbours: HashMap<(u32, IpAddr), Vec<u8>>,
    /// `neighbours` has all of them: one that is not there is no loss.
    has_all: bool,
    choice: Choice,
    /// Of each IP version the longest prefix that is not kept in `fine`.
    cells: [u8; 2],
    /// Addresses of longer prefixes that are routed, were so at the last look, or are in a rule; `None`: too many.
    fine: Option<HashSet<IpAddr>>,
    has_other_fine: bool,
}

impl RoutingWatch {
    /// Begins to listen. `cells`: of each IP version up to which length prefixes are not told one by one.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`].
    pub fn open(cells: [u8; 2]) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let failed = |source| Error::netlink("listen for changes of routing", source);
        let socket = open().map_err(failed)?;
        Ok(Self {
            socket,
            neighbours: HashMap::new(),
            has_all: false,
            choice: Choice::Unknown,
            cells,
            fine: None,
            has_other_fine: true,
        })
    }

    /// Whether something may have changed since the last call. What is no change is not told: a neighbour whose known address is
    /// confirmed, or found again.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`]; the watch is of no use then.
    pub fn take(&mut self) -> Result<bool> {
        let mut changed = false;
        let mut octets = Vec::with_capacity(32 * 1024);
        loop {
            octets.clear();
            match self.socket.recv(&mut octets, 0) {
                Ok(_) => changed |= self.hear(&octets),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = self.lose(),
                Err(source) => return Err(Error::netlink("hear of changes of routing", source)),
            }
        }
    }

    /// Whether all packets that arrive by one interface with one mark and Type of Service for one destination go the same way,
    /// as far as is known.
    #[must_use]
    pub fn is_by_destination(&self) -> bool {
        self.choice == Choice::ByDestination
    }

    /// If they are others than at the last call: addresses of all prefixes longer than `cells` that are routed or in a rule, and
    /// perhaps of some that were; `None` if they are too many, or not known.
    pub fn other_fine(&mut self) -> Option<Option<&HashSet<IpAddr>>> {
        std::mem::take(&mut self.has_other_fine).then_some(self.fine.as_ref())
    }

    /// Whether [`RoutingWatch::look`] may find out more.
    #[must_use]
    pub fn wants_look(&self) -> bool {
        self.choice == Choice::Unknown
    }

    /// Looks at all rules, routes and neighbours. Takes as long as the kernel needs to list them.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`]. It is not asked again then before something changes.
    pub fn look(&mut self, netlink: &mut Netlink) -> Result<()> {
        self.choice = Choice::ByMore;
        (self.fine, self.has_other_fine) = (Some(HashSet::new()), true);
        let mut by_destination = true;
        let rules = |family| {
            let mut message = RuleMessage::default();
            message.header.family = family;
            RouteNetlinkMessage::GetRule(message)
        };
        let routes = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            RouteNetlinkMessage::GetRoute(message)
        };
        let neighbours = |family| {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            RouteNetlinkMessage::GetNeighbour(message)
        };
        let mut look = |found| match found {
            RouteNetlinkMessage::NewRule(rule) => {
                by_destination &= !rule_asks_more(&rule);
                self.note_fine(rule_destination(&rule));
            }
            RouteNetlinkMessage::NewRoute(route) => {
                by_destination &= !route_asks_more(&route);
                self.note_fine(route_destination(&route));
            }
            _ => {}
        };
        netlink.look_at_both(rules, "list rules", &mut look)?;
        netlink.look_at_both(routes, "list routes", &mut look)?;
        self.has_all = true;
        netlink.look_at_both(neighbours, "list neighbours", |found| {
            if let RouteNetlinkMessage::NewNeighbour(neighbour) = found {
                self.note(&neighbour, true);
            }
        })?;
        if by_destination {
            self.choice = Choice::ByDestination;
        }
        Ok(())
    }

    /// Whether a datagram tells of a change.
    fn hear(&mut self, datagram: &[u8]) -> bool {
        let mut rest = datagram;
        let mut changed = false;
        while let Some(message) = next(&mut rest, false) {
            // Something that can't be understood: next hops among it.
            let Ok(message) = message else { return self.lose() };
            let NetlinkPayload::InnerMessage(message) = message.payload else { continue };
            changed |= match message {
                RouteNetlinkMessage::NewNeighbour(neighbour) => self.note(&neighbour, true),
                RouteNetlinkMessage::DelNeighbour(neighbour) => self.note(&neighbour, false),
                RouteNetlinkMessage::NewRule(rule) => {
                    self.note_fine(rule_destination(&rule));
                    self.chosen(rule_asks_more(&rule))
                }
                RouteNetlinkMessage::NewRoute(route) => {
                    self.note_fine(route_destination(&route));
                    self.chosen(route_asks_more(&route))
                }
                RouteNetlinkMessage::DelRule(_) | RouteNetlinkMessage::DelRoute(_) => {
                    self.chosen(false)
                }
                _ => true,
            };
        }
        changed
    }

    /// Messages were lost.
    fn lose(&mut self) -> bool {
        self.forget_neighbours();
        self.choice = Choice::Unknown;
        (self.fine, self.has_other_fine) = (None, true);
        true
    }

    /// There is a prefix of so many bits.
    fn note_fine(&mut self, destination: Option<(IpAddr, u8)>) {
        let Some((address, len)) = destination else { return };
        let Some(fine) = &mut self.fine else { return };
        if len <= self.cells[usize::from(address.is_ipv6())] {
            return;
        }
        self.has_other_fine |= fine.insert(address);
        if fine.len() > FINE {
            self.fine = None;
        }
    }

    fn forget_neighbours(&mut self) {
        self.neighbours.clear();
        self.has_all = false;
    }

    /// A route or a rule is new, or is gone.
    fn chosen(&mut self, asks_more: bool) -> bool {
        if asks_more {
            self.choice = Choice::ByMore;
        } else if self.choice == Choice::ByMore {
            self.choice = Choice::Unknown;
        }
        true
    }

    /// Whether a neighbour is reached in another way than before.
    fn note(&mut self, neighbour: &NeighbourMessage, is_there: bool) -> bool {
        let header = &neighbour.header;
        let mut ip = None;
        let mut link = Vec::new();
        for attribute in &neighbour.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(it)) => {
                    ip = Some(IpAddr::V4(*it));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(it)) => {
                    ip = Some(IpAddr::V6(*it));
                }
                NeighbourAttribute::LinkLayerAddress(address) => link.clone_from(address),
                _ => {}
            }
        }
        // What a bridge has learnt is of no interest to routing.
        let Some(ip) = ip else { return header.family != AddressFamily::Bridge };
        let key = (header.ifindex, ip);
        let is_known = matches!(
            header.state,
            NeighbourState::Reachable
                | NeighbourState::Stale
                | NeighbourState::Delay
                | NeighbourState::Probe
                | NeighbourState::Noarp
                | NeighbourState::Permanent
        );
        if !is_there || !is_known {
            return self.neighbours.remove(&key).is_some() || !self.has_all;
        }
        if self.neighbours.len() >= NEIGHBOURS && !self.neighbours.contains_key(&key) {
            self.forget_neighbours();
        }
        self.neighbours.insert(key, link.clone()) != Some(link)
    }
}

/// What a rule is for, if it is not for all.
fn rule_destination(rule: &RuleMessage) -> Option<(IpAddr, u8)> {
    let to = rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Destination(to) => Some(*to),
        _ => None,
    });
    Some((to?, rule.header.dst_len))
}

fn route_destination(route: &RouteMessage) -> Option<(IpAddr, u8)> {
    let to = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(to)) => Some(IpAddr::V4(*to)),
        RouteAttribute::Destination(RouteAddress::Inet6(to)) => Some(IpAddr::V6(*to)),
        _ => None,
    });
    Some((to?, route.header.destination_prefix_length))
}

/// Whether a rule looks at more than destination, arriving interface, mark and Type of Service.
fn rule_asks_more(rule: &RuleMessage) -> bool {
    use RuleAttribute as A;
    let is_harmless = |attribute: &A| {
        matches!(
            attribute,
            A::Destination(_)
                | A::Iifname(_)
                | A::Goto(_)
                | A::Priority(_)
                | A::FwMark(_)
                | A::FwMask(_)
                | A::Realm(_)
                | A::SuppressIfGroup(_)
                | A::SuppressPrefixLen(_)
                | A::Table(_)
                | A::L3MDev(_)
                | A::Protocol(_)
        )
    };
    rule.header.src_len != 0 || !rule.attributes.iter().all(is_harmless)
}

/// Whether a route is for some sources alone, or has several next hops. Of a next hop by number nothing is known, if the
/// kernel does not say what it stands for.
fn route_asks_more(route: &RouteMessage) -> bool {
    use RouteAttribute as A;
    let has = |kind: fn(&A) -> bool| route.attributes.iter().any(kind);
    route.header.source_prefix_length != 0
        || has(|it| matches!(it, A::MultiPath(_)))
        || (has(|it| matches!(it, A::NhId(_))) && !has(|it| matches!(it, A::Oif(_))))
}

impl AsRawFd for RoutingWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for RoutingWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn neighbour(number: u32, state: NeighbourState) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 1;
        message.header.state = state;
        let ip = NeighbourAddress::Inet(Ipv4Addr::from_bits(number));
        message.attributes = vec![
            NeighbourAttribute::Destination(ip),
            NeighbourAttribute::LinkLayerAddress(vec![2; 6]),
        ];
        message
    }

    #[test]
    fn hosts_that_are_looked_for_in_vain_are_no_change() {
        let mut watch = RoutingWatch::open([24, 96]).unwrap();
        // It may have been reachable before anybody listened.
        assert!(watch.note(&neighbour(1, NeighbourState::Failed), true));
        watch.has_all = true;
        for state in [NeighbourState::Incomplete, NeighbourState::Failed, NeighbourState::None] {
            assert!(!watch.note(&neighbour(1, state), true));
            assert!(watch.note(&neighbour(2, NeighbourState::Reachable), true));
            assert!(watch.note(&neighbour(2, state), true));
        }
        assert!(!watch.note(&neighbour(1, NeighbourState::Reachable), false));
    }

    #[test]
    fn more_neighbours_than_are_remembered_make_changes_of_no_changes() {
        let mut watch = RoutingWatch::open([24, 96]).unwrap();
        watch.has_all = true;
        for number in 0..NEIGHBOURS as u32 {
            assert!(watch.note(&neighbour(number, NeighbourState::Stale), true));
        }
        assert!(!watch.note(&neighbour(7, NeighbourState::Reachable), true));
        assert!(watch.note(&neighbour(NEIGHBOURS as u32, NeighbourState::Stale), true));
        // It is forgotten, and its end is told nevertheless.
        assert!(watch.note(&neighbour(7, NeighbourState::Failed), true));
        assert!(watch.neighbours.len() <= NEIGHBOURS);
    }
}
