//! The control protocol: what the daemon is asked over its socket and what it answers, and a client.
//!
//! Each line on the socket is a JSON object: a [`Request`] of a client, a [`Reply`] of the daemon. Both bear the version
//! of the protocol, [`PROTOCOL`]; a message of another version is refused.
//!
//! ```text
//! {"protocol_version":1,"command":"status"}
//! {"protocol_version":1,"status":{"version":...}}
//! ```
//!
//! A connection may carry several requests. A request that is malformed or of another version gets
//! `{"protocol_version":1,"error":"..."}`; one that is too long or too slow also ends the connection. After `trace` the daemon
//! sends a line per packet until the client closes the connection, and after `watch` one per change; after `list` it sends
//! lines of entries, and one that ends them. Behind the line of `apply` come the octets of a document.

#![forbid(unsafe_code)]

mod auto;
mod cache;
mod clash;
mod client;
mod cluster;
mod desired;
mod dstm;
mod entries;
mod error;
mod forwarding;
mod message;
mod nat64;
mod packet;
mod plan;
mod proxy;
mod schema;
mod services;
mod stats;
mod status;
mod trace;
mod trt;

pub use auto::*;
pub use cache::CacheRow;
pub use clash::Clash;
pub use client::{Answer, Client, is_read_socket, read_socket};
pub use cluster::*;
pub use desired::*;
pub use dstm::*;
pub use entries::*;
pub use error::Error;
pub use forwarding::*;
pub use message::{MAX_REQUEST, PROTOCOL, ParseError, Reply, Request, from_line, to_line};
pub use nat64::*;
pub use packet::Glimpse;
pub use plan::{PlannedAction, PlannedChange, ReloadPlan};
pub use proxy::ProxyStatus;
pub use schema::schema;
pub use services::*;
pub use stats::*;
pub use status::*;
pub use trace::*;
pub use trt::*;
