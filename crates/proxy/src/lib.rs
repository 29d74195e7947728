//! The HTTP proxy: for clients (forward), and in front of a site (reverse).
//!
//! The way of a request: a thread accepts the connection from a listener of its own (`server`, `session`), reads the
//! header section (`head`), and makes the request for the server (`request`, `fields`); a connection to the server
//! comes from the idle ones (`worker`, `pool`), from the servers of the site (`site`), or from names and addresses
//! (`names`, `order`, `eyeballs`) as far as `rules` and `address` allow; request and response are forwarded
//! (`exchange`, `relay`, `chunked`, `response`), for clients with HTTP/1.x (`http1`) and, by hyper, with HTTP/2
//! (`http2`). CONNECT and Upgrade lead to a `tunnel`, and so do TLS connections that pass unread (`passthrough`). Both ends
//! of a connection may be told by the PROXY protocol (`ends`). Servers are checked (`check`). A refusal has a `reason`;
//! requests are logged (`access`) and counted (`stats`).
//!
//! HTTP/1.x is read with httparse, the parser that hyper has inside, and framed here: an intermediary must see both
//! lengths of a message that has two, forward interim responses, and answer what it refuses, which hyper's interface
//! does not allow.
#![forbid(unsafe_code)]

mod access;
mod address;
mod authority;
mod check;
mod chunked;
mod conn;
mod ends;
mod error;
mod exchange;
mod eyeballs;
mod fields;
mod head;
mod health;
mod hello;
mod http1;
mod http2;
mod names;
mod order;
mod passthrough;
mod pool;
mod reason;
mod rehearsal;
mod relay;
mod request;
mod response;
mod routes;
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
pub use error::Error;
pub use fordway_certificates::Files;
pub use fordway_counters::proxy::{ServerStats, Stats};
pub use head::MOST_FIELDS;
pub use rehearsal::{OWN, Rehearsed, rehearse, rehearse_response};
pub use rules::{Destination, Ports, Rule, Rules};
pub use server::{Bound, Server};
pub use settings::{
    Backend, Check, CheckKind, Eyeballs, Forward, Forwarded, Limits, Log, LogFormat, LogTarget,
    Mode, Passthrough, Reverse, Route, SendProxy, Settings,
};
