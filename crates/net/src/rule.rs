//! Policy rules: which routing table a packet is looked up in.

use std::fmt;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{RouteHeader, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};

use crate::{Netlink, PROTOCOL, Result};

/// A policy rule that sends packets to a routing table, or refuses them.
///
/// Everything that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// For IPv6 packets; else for IPv4 packets.
    pub v6: bool,
    /// Place in the order of rules; the lower, the earlier.
    pub priority: u32,
    /// The table that the packet is looked up in; [`Rule::REFUSE`] refuses the packet with "no route to destination"
    /// instead.
    pub table: u32,
    /// Pass over routes of that table that lead out of an interface of this group, as if they were not there.
    #[serde(default)]
    pub suppress_group: Option<u32>,
    /// Source prefix.
    pub from: Option<IpNet>,
    /// Destination prefix.
    pub to: Option<IpNet>,
    /// Firewall mark and the mask applied to the packet's mark before comparing.
    pub mark: Option<(u32, u32)>,
    /// Interface it arrived on; `lo` for the host's own packets.
    pub iif: Option<String>,
    /// Transport protocol.
    pub ip_protocol: Option<u8>,
    /// Destination ports, first and last; the kernel refuses a range that contains 0 or 65,535.
    pub destination_ports: Option<(u16, u16)>,
    /// Who made it ([`PROTOCOL`]: this program). Adding always sets [`PROTOCOL`].
    #[serde(skip, default = "ours")]
    pub protocol: u8,
}

impl Rule {
    /// In the place of a table: refuse the packet.
    pub const REFUSE: u32 = 0;

    /// A rule that sends all packets of an IP version to `table`.
    #[must_use]
    pub fn new(v6: bool, priority: u32, table: u32) -> Self {
        Self { v6, priority, table, protocol: PROTOCOL, ..Self::default() }
    }

    /// Whether both do the same; their makers may differ.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.protocol = self.protocol;
        *self == other
    }
}

fn ours() -> u8 {
    PROTOCOL
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.v6 { "IPv6" } else { "IPv4" };
        write!(f, "{version} priority {}", self.priority)?;
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some((mark, mask)) = self.mark {
            write!(f, " mark {mark:#x}/{mask:#x}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        if let Some(protocol) = self.ip_protocol {
            write!(f, " protocol {protocol}")?;
        }
        if let Some((first, last)) = self.destination_ports {
            write!(f, " ports {first}-{last}")?;
        }
        if self.table == Self::REFUSE {
            return f.write_str(" unreachable");
        }
        write!(f, " to table {}", self.table)?;
        match self.suppress_group {
            Some(group) => write!(f, " without interfaces of group {group}"),
            None => Ok(()),
        }
    }
}

impl Netlink {
    /// Lists the rules of both IP versions that lead to a table or refuse.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], [`crate::Error::Answer`].
    pub fn rules(&mut self) -> Result<Vec<Rule>> {
        let request = |family| {
            let mut message = RuleMessage::default();
            message.header.family = family;
            RouteNetlinkMessage::GetRule(message)
        };
        let answers = self.dump_both(request, "list rules")?.into_iter();
        let rules = answers.filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRule(message) => from_message(&message),
            _ => None,
        });
        Ok(rules.collect())
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], with `EEXIST` if there is one just like it.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<()> {
        self.put_rule(&Rule { protocol: PROTOCOL, ..rule.clone() })
    }

    /// Deletes a rule that this program made.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netlink`], with `ENOENT` if there is none.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<()> {
        self.take_rule(&Rule { protocol: PROTOCOL, ..rule.clone() })
    }

    /// Adds a rule behind those of its priority, with the maker that it names.
    pub(crate) fn put_rule(&mut self, rule: &Rule) -> Result<()> {
        let message = RouteNetlinkMessage::NewRule(to_message(rule));
        self.request(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add rule {rule}")).map(drop)
    }

    /// Deletes a rule of the maker that it names.
    pub(crate) fn take_rule(&mut self, rule: &Rule) -> Result<()> {
        let message = RouteNetlinkMessage::DelRule(to_message(rule));
        self.request(message, 0, || format!("delete rule {rule}")).map(drop)
    }
}

fn to_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.table = u8::try_from(rule.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.header.action =
        if rule.table == Rule::REFUSE { RuleAction::Unreachable } else { RuleAction::ToTable };
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority));
    if rule.table != Rule::REFUSE {
        attributes.push(RuleAttribute::Table(rule.table));
    }
    if let Some(group) = rule.suppress_group {
        attributes.push(RuleAttribute::SuppressIfGroup(group));
    }
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(rule.protocol)));
    if let Some(from) = rule.from {
        message.header.src_len = from.prefix_len();
        attributes.push(RuleAttribute::Source(from.network()));
    }
    if let Some(to) = rule.to {
        message.header.dst_len = to.prefix_len();
        attributes.push(RuleAttribute::Destination(to.network()));
    }
    if let Some((mark, mask)) = rule.mark {
        attributes.push(RuleAttribute::FwMark(mark));
        attributes.push(RuleAttribute::FwMask(mask));
    }
    if let Some(iif) = &rule.iif {
        attributes.push(RuleAttribute::Iifname(iif.clone()));
    }
    if let Some(protocol) = rule.ip_protocol {
        attributes.push(RuleAttribute::IpProtocol(IpProtocol::from(protocol)));
    }
    if let Some((start, end)) = rule.destination_ports {
        attributes.push(RuleAttribute::DestinationPortRange(RulePortRange { start, end }));
    }
    message
}

fn from_message(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let table = match header.action {
        RuleAction::ToTable => u32::from(header.table),
        RuleAction::Unreachable => Rule::REFUSE,
        _ => return None,
    };
    let mut rule = Rule::new(header.family == AddressFamily::Inet6, 0, table);
    rule.protocol = 0;
    let (mut mark, mut mask) = (None, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            // What the kernel says for "no group".
            RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            RuleAttribute::SuppressIfGroup(group) => rule.suppress_group = Some(*group),
            RuleAttribute::Protocol(protocol) => rule.protocol = u8::from(*protocol),
            RuleAttribute::Source(ip) => rule.from = IpNet::new(*ip, header.src_len).ok(),
            RuleAttribute::Destination(ip) => rule.to = IpNet::new(*ip, header.dst_len).ok(),
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Iifname(name) => rule.iif = Some(name.clone()),
            RuleAttribute::IpProtocol(protocol) => rule.ip_protocol = Some(u8::from(*protocol)),
            RuleAttribute::DestinationPortRange(range) => {
                rule.destination_ports = Some((range.start, range.end));
            }
            _ => {}
        }
    }
    rule.mark = mark.map(|mark| (mark, mask));
    Some(rule)
}
