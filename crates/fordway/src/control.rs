//! The control socket: one JSON object per line, a request and its reply.
//!
//! ```text
//! {"command":"status"}
//! {"status":{"version":...}}
//! ```
//!
//! A connection may carry several requests. What is malformed, too long or too slow gets
//! `{"error":"..."}` and the connection ends; the daemon goes on. After `trace` the daemon sends a line
//! per packet until the client closes the connection; after `list` lines of entries, and one that ends them.

mod client;
mod server;
mod socket;

pub(crate) use client::{
    Answer, ask, ask_leases, ask_reverse, ask_stats, ask_status, is_absent, leave, list, trace,
};
pub(crate) use server::serve;
pub(crate) use socket::{Guard, listen};

use std::net::{SocketAddrV4, SocketAddrV6};

use fordway_dstmd::LeaseView;
use serde::{Deserialize, Serialize};

use crate::report::{Entries, EntryFilter, ReverseReport, Stats, Status, Table};
use crate::trace::TraceLine;

/// Octets that a request may have, its newline included.
const MAX_REQUEST: usize = 4096;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// What runs.
    Status {},
    /// What has been carried.
    Stats {},
    /// Read the configuration again.
    Reload {},
    /// Take one translator down.
    Down {
        /// Its name.
        name: String,
    },
    /// End, and leave kernel engines running.
    Leave {},
    /// Show entries of stateful translators.
    List {
        /// Which table.
        table: Table,
        /// The translator; all of them if none is named.
        #[serde(default)]
        name: Option<String>,
        /// Which entries.
        #[serde(default)]
        filter: EntryFilter,
        /// How many at most.
        #[serde(default)]
        limit: Option<u64>,
        /// Only how many there are.
        #[serde(default)]
        count: bool,
    },
    /// Make a BIB entry.
    BibAdd {
        /// The translator; the only stateful one if none is named.
        #[serde(default)]
        name: Option<String>,
        /// The protocol.
        protocol: String,
        /// (T,t).
        v4: SocketAddrV4,
        /// (X',x).
        v6: SocketAddrV6,
    },
    /// Take a BIB entry away.
    BibDel {
        /// The translator; the only stateful one if none is named.
        #[serde(default)]
        name: Option<String>,
        /// The protocol.
        protocol: String,
        /// (T,t).
        v4: SocketAddrV4,
    },
    /// Whose a transport address is.
    Reverse {
        /// The translator; all of them if none is named.
        #[serde(default)]
        name: Option<String>,
        /// The transport address.
        v4: SocketAddrV4,
    },
    /// Make no new sessions, or make them again.
    Drain {
        /// The translator.
        name: String,
        /// Whether none are made.
        drains: bool,
    },
    /// Show the leases of the DSTM server.
    Leases {},
    /// End a lease of the DSTM server.
    Revoke {
        /// The client: its name, or its address.
        client: String,
    },
    /// Tell of packets.
    Trace {
        /// The translator.
        name: String,
        /// Which packets; empty: all of them.
        #[serde(default)]
        filter: String,
    },
}

/// Leases that one reply tells at most.
const MAX_LEASES: usize = 100_000;

/// What is lent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Leases {
    /// Leases, by address.
    pub(crate) leases: Vec<LeaseView>,
    /// How many there are beyond those.
    pub(crate) more: u64,
}

impl Leases {
    fn of(mut leases: Vec<LeaseView>) -> Leases {
        let more = leases.len().saturating_sub(MAX_LEASES) as u64;
        leases.truncate(MAX_LEASES);
        Leases { leases, more }
    }
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// To `status`.
    Status(Box<Status>),
    /// To `stats`.
    Stats(Box<Stats>),
    /// It has been done, or begun: a sentence.
    Done(String),
    /// There is no translator of this name.
    Unknown(String),
    /// It was understood and could not be done.
    Failed {
        /// A sentence, or a report of several lines.
        text: String,
        /// What to do about it.
        hint: Option<String>,
        /// The configuration is at fault.
        config: bool,
    },
    /// After `list`: some entries.
    Entries(Entries),
    /// The end of `list`.
    Listed {
        /// How many have been shown, or counted.
        matched: u64,
        /// There are more.
        more: bool,
    },
    /// To `reverse`.
    Reverse(ReverseReport),
    /// To `leases`.
    Leases(Leases),
    /// After `trace`: a packet.
    Trace(Box<TraceLine>),
    /// The request was not understood: a sentence.
    Error(String),
}
