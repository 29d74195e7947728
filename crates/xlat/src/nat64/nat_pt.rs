//! NAT-PT (RFC 2766): hosts with IPv4 addresses of their own, and DNS messages in the path of packets.
//!
//! Both are off unless [`Settings::addresses`](super::Settings::addresses) or [`Settings::dns`](super::Settings::dns)
//! is set. `address` binds addresses, for filtering and for new BIB entries; `dns` shows translated messages to an ALG.
//!
//! Without the feature `nat-pt`, `without.rs` stands in its place: the settings have no values, and hooks do nothing.

mod address;
pub mod dns;

pub use address::{Addresses, Bound};
