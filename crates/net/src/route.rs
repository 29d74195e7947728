//! Routes, and the question which way a packet would go.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};

use crate::address::family;
use crate::link::LinkNames;
use crate::sysctl::{self, SysctlKey};
use crate::{Error, Netlink, PROTOCOL, Result};

/// How often a next hop is looked up whose interface the kernel is removing, and the time between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Numbers of the kernel's routing tables.
pub mod table {
    /// Where ordinary routes are.
    pub const MAIN: u32 = 254;
    /// The host's own addresses.
    pub const LOCAL: u32 = 255;
}

/// What a route does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// Sends it out.
    #[default]
    Unicast,
    /// Delivers it to the host.
    Local,
    /// Drops it.
    Blackhole,
    /// Drops it and answers "no route to destination".
    Unreachable,
    /// Drops it and answers "administratively prohibited".
    Prohibit,
    /// Anything else the kernel has, such as multicast.
    Other,
}

/// A route with at most one next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Which destinations; host bits zero.
    pub destination: IpNet,
    /// What it does.
    #[serde(default)]
    pub kind: RouteKind,
    /// Name of the interface it leads out of.
    pub device: Option<String>,
    /// The next hop, of either IP version; none on a connected network.
    pub gateway: Option<IpAddr>,
    /// Source address the host's own packets get.
    pub source: Option<IpAddr>,
    /// Routing table ([`table::MAIN`] by default).
    pub table: u32,
    /// Metric, the lower the better; 0 takes the kernel's default (IPv4 0, IPv6 1024).
    #[serde(default)]
    pub metric: u32,
    /// Path MTU, in octets.
    pub mtu: Option<u32>,
    /// MSS that the host's own TCP connections announce, in octets.
    pub advmss: Option<u32>,
    /// Who made it ([`PROTOCOL`]: this program). Adding always sets [`PROTOCOL`].
    #[serde(skip, default = "ours")]
    pub protocol: u8,
}

impl Route {
    /// A route to `destination` out of `device`.
    #[must_use]
    pub fn new(destination: IpNet, device: &str) -> Self {
        Self {
            destination: destination.trunc(),
            kind: RouteKind::Unicast,
            device: Some(device.to_owned()),
            gateway: None,
            source: None,
            table: table::MAIN,
            metric: 0,
            mtu: None,
            advmss: None,
            protocol: PROTOCOL,
        }
    }

    /// The metric that the kernel files the route under.
    #[must_use]
    pub fn effective_metric(&self) -> u32 {
        match (self.destination, self.metric) {
            (IpNet::V6(_), 0) => 1024,
            (_, metric) => metric,
        }
    }

    /// Whether both stand at the same place of the same table: one of them would replace the other.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        self.destination == other.destination
            && self.table == other.table
            && self.effective_metric() == other.effective_metric()
    }

    /// Whether both do the same to a packet; their makers may differ.
    #[must_use]
    pub fn same_effect(&self, other: &Self) -> bool {
        self.same_object(other)
            && self.kind == other.kind
            && self.device == other.device
            && self.gateway == other.gateway
            && self.source == other.source
            && self.mtu == other.mtu
            && self.advmss == other.advmss
    }
}

fn ours() -> u8 {
    PROTOCOL
}

/// The MTU of an interface for IPv6, which a router may have made smaller than the device's (RFC 4861 section 4.6.4).
/// A route that the kernel has cached does not tell it.
fn advertised_mtu(device: &str) -> Option<u32> {
    let key = SysctlKey::conf_v6(device, "mtu").ok()?;
    sysctl::read(&key).ok()?.parse().ok()
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(device) = &self.device {
            write!(f, " dev {device}")?;
        }
        if self.table != table::MAIN {
            write!(f, " table {}", self.table)?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        Ok(())
    }
}

/// Which routes to list; the kernel filters. The default is all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouteFilter {
    /// Of this table only.
    pub table: Option<u32>,
    /// Made by this protocol only, for instance [`PROTOCOL`].
    pub protocol: Option<u8>,
    /// Out of the interface with this index only.
    pub index: Option<u32>,
}

/// Which way a packet would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// What the route does.
    pub kind: RouteKind,
    /// Name of the interface.
    pub device: String,
    /// Index of the interface.
    pub index: u32,
    /// The next hop's address; none if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address the kernel would choose.
    pub source: Option<IpAddr>,
    /// MTU towards the destination, in octets: the route's or a learned path MTU, else the interface's for this
    /// version of IP.
    pub mtu: u32,
}

impl Netlink {
    /// Asks which way a packet of the host to `destination` would go.
    ///
    /// None: there is no route, or one that says unreachable. It waits for up to a second where the interface of the route is being
    /// removed.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn next_hop(&mut self, destination: IpAddr) -> Result<Option<NextHop>> {
        for _ in 0..TRIES {
            match self.hop(destination) {
                // A route that the kernel removes with its interface: another one may lead there.
                Err(Error::NoDevice(_)) => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
        Ok(None)
    }

    fn hop(&mut self, destination: IpAddr) -> Result<Option<NextHop>> {
        let operation = || format!("look up the route to {destination}");
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = IpNet::from(destination).prefix_len();
        message.attributes.push(RouteAttribute::Destination(destination.into()));
        let answers = match self.request(RouteNetlinkMessage::GetRoute(message), 0, operation) {
            Ok(answers) => answers,
            Err(error) if error.errno().is_some_and(says_no_route) => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        });
        let message = message.ok_or_else(|| Error::Answer {
            operation: operation(),
            reason: "no route in it".to_owned(),
        })?;
        let parsed = Parsed::from(message);
        let Some(index) = parsed.index else {
            return Ok(None);
        };
        let link = self.find_link_by_index(index)?;
        let link = link.ok_or_else(|| Error::NoDevice(format!("of number {index}")))?;
        let mtu = parsed.mtu.unwrap_or_else(|| match destination {
            IpAddr::V4(_) => link.mtu,
            IpAddr::V6(_) => advertised_mtu(&link.name).map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        });
        Ok(Some(NextHop {
            kind: kind_of(message.header.kind),
            device: link.name,
            index,
            gateway: parsed.gateway,
            source: parsed.source,
            mtu,
        }))
    }

    /// Lists routes of both IP versions.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`], [`Error::Answer`].
    pub fn routes(&mut self, filter: RouteFilter) -> Result<Vec<Route>> {
        let names = self.link_names()?;
        self.routes_among(&names, filter)
    }

    /// As [`Netlink::routes`], of interfaces that are known.
    pub(crate) fn routes_among(
        &mut self,
        names: &LinkNames,
        filter: RouteFilter,
    ) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            if let Some(protocol) = filter.protocol {
                message.header.protocol = RouteProtocol::from(protocol);
            }
            if let Some(table) = filter.table {
                message.attributes.push(RouteAttribute::Table(table));
            }
            if let Some(index) = filter.index {
                message.attributes.push(RouteAttribute::Oif(index));
            }
            let answers = match self.dump(&RouteNetlinkMessage::GetRoute(message), "list routes") {
                Ok(answers) => answers,
                // A table that does not exist (yet) has no routes.
                Err(error) if filter.table.is_some() && error.errno() == Some(libc::ENOENT) => {
                    continue;
                }
                Err(error) if error.is_unsupported() => continue,
                Err(error) => return Err(error),
            };
            for answer in answers {
                if let RouteNetlinkMessage::NewRoute(message) = answer {
                    routes.extend(from_message(&message, names));
                }
            }
        }
        Ok(routes)
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`], with `EEXIST` if the table has one to that destination with that
    /// metric, `ENETUNREACH` if the gateway cannot be reached.
    pub fn add_route(&mut self, route: &Route) -> Result<()> {
        self.new_route(route, NLM_F_CREATE | NLM_F_EXCL, "add")
    }

    /// Adds a route, replacing one with the same destination, table and metric.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`].
    pub fn replace_route(&mut self, route: &Route) -> Result<()> {
        self.new_route(route, NLM_F_CREATE | NLM_F_REPLACE, "replace")
    }

    /// Deletes a route that this program made.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]; [`Error::Netlink`], with `ESRCH` if there is none.
    pub fn delete_route(&mut self, route: &Route) -> Result<()> {
        let message = self.route_message(route)?;
        self.request(RouteNetlinkMessage::DelRoute(message), 0, || format!("delete route {route}"))
            .map(drop)
    }

    fn new_route(&mut self, route: &Route, flags: u16, verb: &str) -> Result<()> {
        let message = self.route_message(route)?;
        self.request(RouteNetlinkMessage::NewRoute(message), flags, || {
            format!("{verb} route {route}")
        })
        .map(drop)
    }

    fn route_message(&mut self, route: &Route) -> Result<RouteMessage> {
        let mut message = RouteMessage::default();
        let destination = route.destination.trunc();
        let header = &mut message.header;
        header.address_family = family(destination.addr());
        header.destination_prefix_length = destination.prefix_len();
        // Tables above 255 are named by the attribute alone.
        header.table = u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        header.protocol = RouteProtocol::Other(PROTOCOL);
        (header.kind, header.scope) = match route.kind {
            RouteKind::Unicast if route.gateway.is_none() && destination.addr().is_ipv4() => {
                (RouteType::Unicast, RouteScope::Link)
            }
            RouteKind::Unicast | RouteKind::Other => (RouteType::Unicast, RouteScope::Universe),
            RouteKind::Local => (RouteType::Local, RouteScope::Host),
            RouteKind::Blackhole => (RouteType::BlackHole, RouteScope::Universe),
            RouteKind::Unreachable => (RouteType::Unreachable, RouteScope::Universe),
            RouteKind::Prohibit => (RouteType::Prohibit, RouteScope::Universe),
        };
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Table(route.table));
        attributes.push(RouteAttribute::Destination(destination.addr().into()));
        if let Some(device) = &route.device {
            attributes.push(RouteAttribute::Oif(self.link_index(device)?));
        }
        if let Some(gateway) = route.gateway {
            attributes.push(match (destination, gateway) {
                // IPv4 by way of an IPv6 neighbour (RFC 5549).
                (IpNet::V4(_), IpAddr::V6(gateway)) => {
                    RouteAttribute::Via(RouteVia::Inet6(gateway))
                }
                _ => RouteAttribute::Gateway(gateway.into()),
            });
        }
        if let Some(source) = route.source {
            attributes.push(RouteAttribute::PrefSource(source.into()));
        }
        if route.metric != 0 {
            attributes.push(RouteAttribute::Priority(route.metric));
        }
        let mtu = route.mtu.map(RouteMetric::Mtu);
        let metrics: Vec<_> =
            mtu.into_iter().chain(route.advmss.map(RouteMetric::Advmss)).collect();
        if !metrics.is_empty() {
            attributes.push(RouteAttribute::Metrics(metrics));
        }
        Ok(message)
    }
}

/// Error numbers of a lookup that mean: no such way.
fn says_no_route(errno: i32) -> bool {
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ESRCH, libc::EACCES, libc::EINVAL]
        .contains(&errno)
}

/// A route message's attributes that matter here.
#[derive(Default)]
struct Parsed {
    destination: Option<IpAddr>,
    index: Option<u32>,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    table: Option<u32>,
    metric: u32,
    mtu: Option<u32>,
    advmss: Option<u32>,
}

impl From<&RouteMessage> for Parsed {
    fn from(message: &RouteMessage) -> Self {
        let mut parsed = Self::default();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(ip) => parsed.destination = into_ip(ip),
                RouteAttribute::Oif(index) => parsed.index = Some(*index),
                RouteAttribute::Gateway(ip) => parsed.gateway = into_ip(ip),
                RouteAttribute::Via(RouteVia::Inet6(ip)) => parsed.gateway = Some((*ip).into()),
                RouteAttribute::Via(RouteVia::Inet(ip)) => parsed.gateway = Some((*ip).into()),
                RouteAttribute::PrefSource(ip) => parsed.source = into_ip(ip),
                RouteAttribute::Table(number) => parsed.table = Some(*number),
                RouteAttribute::Priority(metric) => parsed.metric = *metric,
                RouteAttribute::Metrics(metrics) => {
                    for metric in metrics {
                        match metric {
                            RouteMetric::Mtu(mtu) => parsed.mtu = Some(*mtu),
                            RouteMetric::Advmss(mss) => parsed.advmss = Some(*mss),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        parsed
    }
}

fn from_message(message: &RouteMessage, names: &HashMap<u32, String>) -> Option<Route> {
    let parsed = Parsed::from(message);
    let header = &message.header;
    let destination = parsed.destination.or(match header.address_family {
        AddressFamily::Inet => Some(IpAddr::from([0; 4])),
        AddressFamily::Inet6 => Some(IpAddr::from([0; 16])),
        _ => None,
    })?;
    let kind = kind_of(header.kind);
    // IPv6 files routes that lead nowhere under the loopback interface.
    let leads_out =
        !matches!(kind, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit);
    let index = parsed.index.filter(|_| leads_out);
    Some(Route {
        destination: IpNet::new(destination, header.destination_prefix_length).ok()?,
        kind,
        device: index.and_then(|index| names.get(&index).cloned()),
        gateway: parsed.gateway,
        source: parsed.source,
        table: parsed.table.unwrap_or(u32::from(header.table)),
        metric: parsed.metric,
        mtu: parsed.mtu,
        advmss: parsed.advmss,
        protocol: u8::from(header.protocol),
    })
}

fn kind_of(kind: RouteType) -> RouteKind {
    match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        _ => RouteKind::Other,
    }
}

fn into_ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
