//! DSTM, the Dual Stack Transition Mechanism: hosts of an IPv6-only network lease an IPv4 address when they need one,
//! and send IPv4 through a tunnel (RFC 2473) to the tunnel end point (TEP).
//!
//! This crate is pure: octets and time in; octets, bindings and lines of a lease file out.
//!
//! | module | content |
//! |---|---|
//! | `message` | messages of the control protocol, and their authenticator |
//! | `cookie` | proof that a client receives at the address that it sends from |
//! | `pool` | addresses, or addresses with port sets: free, leased, or in hold-down |
//! | `lease` | leases: client, address and ports; their lines in the lease file |
//! | `server` | requests to answers, leases and bindings |
//! | `client` | the client: request, renewal, release |
//! | `link`, `tep` | both ends of the protocol by which a server tells bindings to a TEP on another host |
//!
//! `docs/dstm.md` has the protocol.
#![forbid(unsafe_code)]

mod client;
mod cookie;
mod lease;
mod link;
mod message;
mod pool;
mod random;
mod server;
mod tep;

pub use client::{Client, ClientSettings, Effect, Grant, Phase};
pub use fordway_softwire::{Binding, PortSet};
pub use lease::{BadLine, Identity, Lease, Record, Slot};
pub use link::{Link, LinkSettings};
pub use message::{
    Body, Change, ClientId, Key, LONGEST, Malformed, Message, Reason, WrongClientId, WrongKey,
};
pub use pool::{Pool, WrongPool};
pub use server::{ClientKey, PrefixKey, Reply, Server, ServerSettings, Step, WrongSettings};
pub use tep::{Tep, TepStep};
