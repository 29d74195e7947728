//! What a translator needs of the host it runs on.
//!
//! - [`Netlink`]: links, addresses, routes, policy rules and neighbour proxies
//!   of one network namespace, one call per request;
//! - [`sysctl`]: reading and writing kernel settings;
//! - [`Manager`]: the same changes with a ledger, so that exactly what was
//!   changed is taken back at the end, or by the next start after a crash;
//! - [`NetNs`]: network namespaces; [`privilege`]: capabilities;
//!   [`Host`]: what the host offers.
//!
//! Everything is synchronous. Interfaces are given by name, prefixes as
//! [`ipnet`] types. Errors name operation and object ([`Error`]), and
//! [`Error::hint`] the way out.
#![deny(unsafe_code)]

mod address;
mod error;
mod host;
mod link;
mod lock;
mod manager;
mod namespace;
mod neighbour;
mod netlink;
pub mod privilege;
mod route;
mod rule;
#[allow(unsafe_code)]
mod sys;
pub mod sysctl;

pub use address::Address;
pub use error::Error;
pub use host::{Host, Ipv6State, KernelVersion};
pub use link::Link;
pub use manager::{Applied, Change, Manager, Report, reclaim_dead};
pub use namespace::{NamespaceId, NetNs};
pub use neighbour::NeighbourProxy;
pub use netlink::Netlink;
pub use route::{NextHop, Route, RouteFilter, RouteKind, table};
pub use rule::Rule;
pub use sysctl::SysctlKey;

pub use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Routing protocol number under which routes, rules, addresses and neighbour
/// proxies are made, so that they can be told from everybody else's.
///
/// Any number from 5 on that iproute2's `rt_protos` does not give to somebody
/// is free for use; the kernel only hands it back.
pub const PROTOCOL: u8 = 246;

/// Directory for state unless the caller names another.
pub const DEFAULT_RUN_DIR: &str = "/run/fordway";

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
