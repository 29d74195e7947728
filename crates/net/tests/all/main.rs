//! What the crate does to a host, in network namespaces of the tests' own. Most of it needs root.

mod changes;
mod common;
mod divert;
mod early_rule;
mod host;
mod intercept;
mod kept;
mod ledger;
mod lists;
mod manager;
#[cfg(feature = "nat44")]
mod nat44;
mod neighbour_socket;
mod netlink;
mod routing_watch;
mod socket;
