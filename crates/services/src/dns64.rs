//! The DNS64 server.
//!
//! The way of a query: a thread takes it from one of its own sockets (`datagram`, `stream`); access list, rate, and the
//! cache of ready answers (`worker`); what that can't answer waits in a task for `fordway_dns64` and the upstream
//! servers (`resolve`), is written down once (`ready`), kept, and sent.

mod acl;
mod brief;
mod cache;
mod datagram;
mod network;
mod query;
mod rate;
mod ready;
mod resolve;
mod server;
mod settings;
mod shared;
mod shares;
mod sockets;
mod stats;
mod stream;
pub mod upstream;
mod worker;

pub use acl::Acl;
pub use network::ClientLen;
pub(crate) use network::{Network, Tally, Ticket};
pub use server::{Bound, Error, Server, bind};
pub use settings::{Limits, Rate, Settings};
pub(crate) use stats::Counter;
pub use stats::{Dropped, Rcodes, Stats};
