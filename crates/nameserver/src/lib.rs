//! The DNS64 server.
//!
//! The way of a query: a thread takes it from one of its own sockets (`datagram`, `stream`); access list, rate, and the
//! cache of ready answers (`worker`); what that can't answer waits in a task for `fordway_dns64` and the upstream
//! servers (`resolve`), is written down once (`ready`), kept, and sent.
#![forbid(unsafe_code)]

mod brief;
mod cache;
mod cookie;
mod datagram;
mod due;
mod error;
mod extras;
mod https;
mod query;
mod rate;
mod ready;
mod renew;
mod resolve;
mod server;
mod settings;
mod shared;
mod sockets;
mod stats;
mod stream;
mod tls;
mod unread;
mod worker;

pub use error::Error;
pub use fordway_certificates::Files;
pub use fordway_counters::dns64::{Dropped, Rcodes, Stats};
pub use server::{Bound, Caches, Server};
pub use settings::{Cookies, Limits, Rate, Settings};
