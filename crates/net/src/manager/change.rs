//! What a manager can change.

use std::fmt;

use serde::{Deserialize, Serialize};

use ipnet::{IpNet, Ipv6Net};

use crate::netfilter::Policy;
use crate::{
    Address, Divert, Intercept, Nat44, NeighbourProxy, PROTOCOL, Route, RouteKind, Rule, SysctlKey,
};

/// A change to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Set a kernel setting; undone by restoring the value from before.
    ///
    /// Switching `net.ipv4.ip_forward` or `net.ipv6.conf.all.forwarding` overwrites each interface's own
    /// `forwarding`, and some others do alike; what is overwritten is restored too.
    Sysctl {
        /// The setting.
        key: SysctlKey,
        /// The value.
        value: String,
    },
    /// Set an interface up; undone by setting it down, at which the kernel drops all routes out of it and, by
    /// default, its IPv6 addresses.
    Up {
        /// The interface's name.
        device: String,
    },
    /// Leave an interface of this program's own, which outlives its process, to this owner; undone by deleting
    /// it. The code that made the interface has made it persistent.
    Interface {
        /// The interface's name.
        device: String,
    },
    /// Set an interface's MTU; undone by restoring the one from before.
    Mtu {
        /// The interface's name.
        device: String,
        /// The MTU, in octets.
        mtu: u32,
    },
    /// Set how many packets wait in an interface at most; undone by restoring the number from before.
    QueueLength {
        /// The interface's name.
        device: String,
        /// The number of packets; of a TUN device, of each queue.
        length: u32,
    },
    /// Take an interface out of multicast; undone by letting it take part.
    NoMulticast {
        /// The interface's name.
        device: String,
    },
    /// Put an interface into a group; undone by putting it back into the one from before.
    Group {
        /// The interface's name.
        device: String,
        /// The group.
        group: u32,
    },
    /// Add an address; undone by deleting it.
    Address(Address),
    /// Add a route; undone by deleting it. A route of another program at the same place is an error (`EEXIST`).
    Route(Route),
    /// Add a policy rule; undone by deleting it.
    Rule(Rule),
    /// Add an IPv4 policy rule of priority 0 before the kernel's own, which is the one for the local table, so that
    /// it comes before delivery to this host; undone by deleting it. The kernel's own rule stays as it was, at
    /// priority 0, behind the new one.
    EarlyRule(Rule),
    /// Mark packets to addresses of this host that belong to a translator; undone by deleting the nftables table.
    Divert(Divert),
    /// Hand packets to prefixes to sockets of this host; undone by deleting the nftables table.
    Intercept(Intercept),
    /// Have the kernel translate IPv4 addresses; undone by deleting the nftables table, with which translated
    /// connections end unless another table translates, too.
    Nat44(Nat44),
    /// Add a neighbour proxy; undone by deleting it.
    NeighbourProxy(NeighbourProxy),
}

impl Change {
    /// A change of a kernel setting.
    #[must_use]
    pub fn sysctl(key: SysctlKey, value: &str) -> Self {
        Self::Sysctl { key, value: value.to_owned() }
    }

    /// The change as the ledger keeps it: prefixes, metrics and makers in the one form that the kernel gives them, so
    /// that equal changes are equal.
    pub(crate) fn normalised(&self) -> Self {
        let mut change = self.clone();
        match &mut change {
            Self::Sysctl { value, .. } => *value = crate::sysctl::normal(value),
            Self::Up { .. }
            | Self::Interface { .. }
            | Self::Mtu { .. }
            | Self::QueueLength { .. }
            | Self::Group { .. }
            | Self::NoMulticast { .. } => {}
            Self::Address(address) => address.protocol = None,
            Self::Route(route) => {
                route.destination = route.destination.trunc();
                route.metric = route.effective_metric();
                route.protocol = PROTOCOL;
            }
            Self::Rule(rule) | Self::EarlyRule(rule) => {
                rule.from = rule.from.as_ref().map(IpNet::trunc);
                rule.to = rule.to.as_ref().map(IpNet::trunc);
                rule.protocol = PROTOCOL;
            }
            Self::Divert(divert) => divert.normalise(),
            Self::Intercept(intercept) => intercept.normalise(),
            Self::Nat44(_) => {}
            Self::NeighbourProxy(proxy) => proxy.protocol = None,
        }
        change
    }

    /// Whether both are about the same thing, of which only one can be in force unless they are equal.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// What the change is about: two changes with the same key cannot both be in force unless they are equal.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Sysctl { key, .. } => format!("sysctl {key}"),
            Self::Up { device } => format!("up {device}"),
            Self::Interface { device } => format!("interface {device}"),
            Self::Mtu { device, .. } => format!("mtu {device}"),
            Self::QueueLength { device, .. } => format!("queue length {device}"),
            Self::Group { device, .. } => format!("group {device}"),
            Self::NoMulticast { device } => format!("multicast {device}"),
            Self::Address(address) => format!("address {address}"),
            Self::Route(route) => format!(
                "route {} table {} metric {}",
                route.destination,
                route.table,
                route.effective_metric()
            ),
            Self::Rule(rule) | Self::EarlyRule(rule) => format!("rule {rule}"),
            Self::Divert(divert) => format!("divert {}", divert.table()),
            Self::Intercept(it) => format!("intercept {}", it.nft_table()),
            Self::Nat44(nat44) => format!("nat44 {}", nat44.table()),
            Self::NeighbourProxy(proxy) => format!("proxy {proxy}"),
        }
    }

    /// The same change on an interface of another name.
    pub(crate) fn on(&self, name: &str) -> Self {
        let mut change = self.clone();
        match &mut change {
            Self::Sysctl { key, .. } => *key = key.on(name),
            Self::Up { device }
            | Self::Interface { device }
            | Self::Mtu { device, .. }
            | Self::QueueLength { device, .. }
            | Self::Group { device, .. }
            | Self::NoMulticast { device } => name.clone_into(device),
            Self::Address(address) => name.clone_into(&mut address.device),
            Self::Route(route) => route.device = route.device.as_ref().map(|_| name.to_owned()),
            Self::NeighbourProxy(proxy) => name.clone_into(&mut proxy.device),
            Self::Rule(_)
            | Self::EarlyRule(_)
            | Self::Divert(_)
            | Self::Intercept(_)
            | Self::Nat44(_) => {}
        }
        change
    }

    /// The interface that the change vanishes with.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::Sysctl { key, .. } => key.device(),
            Self::Up { device }
            | Self::Interface { device }
            | Self::Mtu { device, .. }
            | Self::QueueLength { device, .. }
            | Self::Group { device, .. }
            | Self::NoMulticast { device } => Some(device),
            Self::Address(address) => Some(&address.device),
            Self::Route(route) => route.device.as_deref(),
            Self::Rule(_)
            | Self::EarlyRule(_)
            | Self::Divert(_)
            | Self::Intercept(_)
            | Self::Nat44(_) => None,
            Self::NeighbourProxy(proxy) => Some(&proxy.device),
        }
    }
}

/// Place of the policy rules of an [`Intercept`]: before an operator's own, which would lead packets away from the sockets.
const INTERCEPT_PRIORITY: u32 = 246;

impl Intercept {
    /// All changes that belong together, in the order in which they are made: the routes and rules that have the packets
    /// delivered come first.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let route = |prefix: &Ipv6Net| {
            let route = Route::new(IpNet::V6(*prefix), "lo");
            Change::Route(Route { kind: RouteKind::Local, table: self.table, ..route })
        };
        let mut changes: Vec<Change> = self.prefixes.iter().map(route).collect();
        let mut rule = Rule::new(true, INTERCEPT_PRIORITY, self.table);
        rule.mark = Some((self.mark, u32::MAX));
        changes.push(Change::Rule(rule));
        if self.own {
            for prefix in &self.prefixes {
                let mut rule = Rule::new(true, INTERCEPT_PRIORITY, self.table);
                rule.to = Some(IpNet::V6(*prefix));
                rule.iif = Some("lo".to_owned());
                changes.push(Change::Rule(rule));
            }
        }
        changes.push(Change::Intercept(self.clone()));
        changes
    }
}

impl fmt::Display for Change {
    /// Completes "cannot ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl { key, value } => write!(f, "set sysctl {key} to {value}"),
            Self::Up { device } => write!(f, "set interface {device} up"),
            Self::Interface { device } => write!(f, "keep interface {device}"),
            Self::Mtu { device, mtu } => {
                write!(f, "set the MTU of interface {device} to {mtu}")
            }
            Self::QueueLength { device, length } => {
                write!(f, "set the queue length of interface {device} to {length}")
            }
            Self::Group { device, group } => {
                write!(f, "put interface {device} into group {group}")
            }
            Self::NoMulticast { device } => write!(f, "forbid multicast on interface {device}"),
            Self::Address(address) => write!(f, "add address {address}"),
            Self::Route(route) => write!(f, "add route {route}"),
            Self::Rule(rule) => write!(f, "add rule {rule}"),
            Self::EarlyRule(rule) => write!(f, "add rule {rule} before the local table's"),
            Self::Divert(policy) => add_table(f, policy),
            Self::Intercept(policy) => add_table(f, policy),
            Self::Nat44(policy) => add_table(f, policy),
            Self::NeighbourProxy(proxy) => write!(f, "add neighbour proxy {proxy}"),
        }
    }
}

fn add_table(f: &mut fmt::Formatter<'_>, policy: &dyn Policy) -> fmt::Result {
    write!(f, "add nftables table {} {}", policy.ip(), policy.name())
}
