//! DSTM, the Dual Stack Transition Mechanism: hosts of an IPv6-only network borrow an IPv4 address when
//! they need one, and IPv4 goes through a tunnel (RFC 2473) to the tunnel end point.
//!
//! All here is pure: octets and time in; octets, bindings and lines of a lease file out.
//!
//! | part | what it holds |
//! |---|---|
//! | `message` | messages of the control protocol, and their authenticator |
//! | `cookie` | proof that a client receives at the address that it sends from |
//! | `pool` | addresses, or addresses with port sets, that are free, lent, or rest |
//! | `lease` | what has been lent, and the line that keeps it on disk |
//! | `server` | requests to answers, leases and bindings |
//! | `client` | from "a packet waits" to a lease, its renewals and its end |
//! | `link`, `tep` | the server's and the other end of what is told to a tunnel end point on another host |
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
pub use lease::{BadLine, Identity, Lease, Record};
pub use link::{Link, LinkSettings};
pub use message::{
    Body, Change, ClientId, Key, LONGEST, Malformed, Message, Reason, WrongClientId, WrongKey,
};
pub use pool::{Pool, Slot, WrongPool};
pub use server::{
    ClientKey, PrefixKey, Reply, Server, ServerSettings, ServerStats, Step, WrongSettings,
};
pub use tep::{Tep, TepStats, TepStep};
