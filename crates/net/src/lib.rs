//! What a translator needs of the host it runs on.
//!
//! - [`Netlink`]: links, addresses, routes, policy rules, neighbour proxies and traffic filters of one network
//!   namespace, one call per request;
//! - [`sysctl`]: reading and writing kernel settings;
//! - [`Manager`]: the same changes with a ledger, so that exactly what was changed is undone at the end, or by
//!   the next start after a crash;
//! - [`Divert`]: packets to addresses of the host that are a translator's, too; [`bound_sockets`]: the ports that the
//!   host itself uses;
//! - [`Intercept`]: packets to a prefix that sockets of this host take, as if its addresses were the host's;
//! - [`Nat44`]: translation of IPv4 addresses by the kernel;
//! - [`NeighbourSocket`]: duplicate address detection for addresses of others;
//! - [`ProcessLock`], [`BriefLock`]: what one process has to itself;
//! - [`RecvBatch`], [`SendBatch`]: many datagrams with one system call;
//! - [`ChangeWatch`]: hearing of changes of the network; [`RoutingWatch`]: of those that concern forwarded packets;
//! - [`NetNs`]: network namespaces; [`privilege`]: capabilities; [`Host`]: what the host offers.
//!
//! Everything is synchronous. Interfaces are given by name, prefixes as [`ipnet`] types. Errors name operation and
//! object ([`Error`]), and [`Error::hint`] the way out.
#![deny(unsafe_code)]

mod address;
mod changes;
mod default_route;
mod divert;
mod error;
mod folder;
mod host;
mod intercept;
mod link;
mod lock;
mod manager;
mod namespace;
mod nat44;
mod neighbour;
mod neighbour_socket;
mod netfilter;
mod netlink;
pub mod privilege;
mod route;
mod routing_watch;
mod rule;
mod socket;
#[allow(unsafe_code)]
mod sys;
pub mod sysctl;
mod traffic_filter;

pub use address::{Address, AddressV6};
pub use changes::{ChangeWatch, Changes, Topic};
pub use default_route::DefaultRoute;
pub use divert::{Divert, DivertedPort, DivertedPorts};
pub use error::Error;
pub use host::{Host, Ipv6State};
pub use intercept::Intercept;
pub use link::{Link, Tun, device_driver, device_feature, renames_while_up};
pub use lock::{BriefLock, ProcessLock};
pub use manager::{
    Applied, Change, Manager, Reconciled, Report, View, kept_by, owners, reclaim_dead,
    rules_for_forwarded,
};
pub use namespace::{NamespaceId, NetNs};
pub use nat44::{Counted, Nat44, Nat44Choice, Nat44Forward, Nat44Pool};
pub use neighbour::NeighbourProxy;
pub use neighbour_socket::{Heard, NeighbourReceiver, NeighbourSocket};
pub use netlink::Netlink;
pub use route::{NextHop, Route, RouteFilter, RouteKind, table};
pub use routing_watch::RoutingWatch;
pub use rule::Rule;
pub use socket::{BoundSocket, Transport, bound_sockets};
pub use sys::datagrams::{Datagram, Peer, RecvBatch, SendBatch, Told};
pub use sys::stream::{
    at_urgent_mark, keep_syn, syn_traffic_class, tell_fragmented, unacknowledged,
};
pub use sysctl::SysctlKey;
pub use traffic_filter::TrafficFilter;

pub use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Routing protocol number under which routes, rules, addresses and neighbour proxies are made, so that they can be
/// told from everybody else's.
///
/// Any number from 5 on that iproute2's `rt_protos` does not assign is free for use; the kernel only hands
/// it back.
pub const PROTOCOL: u8 = 246;

/// Directory for state unless the caller names another.
pub const DEFAULT_RUN_DIR: &str = "/run/fordway";

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
