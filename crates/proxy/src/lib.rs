//! The HTTP proxy: for clients (forward), and in front of a site (reverse).
//!
//! The way of a request: a thread takes the connection from a listener of its own (`server`, `session`), reads the header
//! section (`head`), and makes the server's of it (`request`, `fields`); a connection to the server comes from those that
//! wait (`worker`, `pool`), from the servers of the site (`site`), or from names and addresses (`names`, `order`,
//! `eyeballs`) as far as `rules` and `address` allow; request and response pass each other (`exchange`, `relay`,
//! `chunked`, `response`); octets without meaning go through a `tunnel`. Clients with HTTP/2 are hyper's (`http2`). What
//! is not served has a `reason`; what was is written down (`access`) and counted (`stats`).
//!
//! HTTP/1.x is read with httparse, the parser that hyper has inside, and framed here: an intermediary must see both
//! lengths of a message that has two, pass interim responses on, and answer what it refuses, which hyper does not leave
//! to whoever uses it.
#![forbid(unsafe_code)]

mod access;
mod address;
mod authority;
mod chunked;
mod conn;
mod exchange;
mod eyeballs;
mod fields;
mod head;
mod http1;
mod http2;
mod names;
mod order;
mod pool;
mod reason;
mod rehearsal;
mod relay;
mod request;
mod response;
mod rules;
mod server;
mod session;
mod settings;
mod shared;
mod site;
mod stats;
mod tls;
mod tunnel;
mod worker;

pub use authority::{Authority, Host};
pub use head::MOST_FIELDS;
pub use rehearsal::{OWN, Rehearsed, rehearse, rehearse_response};
pub use rules::{Destination, Ports, Rule, Rules};
pub use server::{Bound, Error, Server, bind};
pub use settings::{
    Eyeballs, Forward, Forwarded, Limits, Log, LogFormat, LogTarget, Mode, Reverse, Settings, Tls,
};
pub use stats::{ServerStats, Stats};
