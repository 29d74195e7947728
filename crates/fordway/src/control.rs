//! The control socket: one JSON object per line, a request and its reply.
//!
//! ```text
//! {"command":"status"}
//! {"status":{"version":...}}
//! ```
//!
//! A connection may carry several requests. What is malformed, too long or too slow gets
//! `{"error":"..."}` and the connection ends; the daemon goes on.

mod client;
mod server;
mod socket;

pub(crate) use client::{ask_stats, ask_status};
pub(crate) use server::serve;
pub(crate) use socket::{Guard, listen};

use serde::{Deserialize, Serialize};

use crate::report::{Stats, Status};

/// Octets that a request may have, its newline included.
const MAX_REQUEST: usize = 4096;

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    command: Command,
}

/// What a client may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    /// What runs.
    Status,
    /// What has been carried.
    Stats,
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// To `status`.
    Status(Status),
    /// To `stats`.
    Stats(Stats),
    /// A sentence.
    Error(String),
}
