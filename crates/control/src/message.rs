//! What goes over the socket.

use std::collections::BTreeMap;
use std::net::{SocketAddrV4, SocketAddrV6};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{
    Applied, ClusterChange, ClusterStatus, Entries, EntryFilter, Event, Leases, ReloadPlan,
    ReverseReport, Stats, Status, Table, TraceLine,
};

/// Version of the protocol: the number changes when programs that know the one before would misunderstand a message.
/// Fields may be added without that.
pub const PROTOCOL: u32 = 1;

/// Octets that a request may have, its newline included.
pub const MAX_REQUEST: usize = 4096;

/// A request or a reply with the version of the protocol. A message without one is of version 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Versioned<T> {
    /// Version of the protocol. Requests have a field `protocol` of their own, which names TCP or UDP.
    #[serde(default = "current")]
    protocol_version: u32,
    #[serde(flatten)]
    message: T,
}

fn current() -> u32 {
    PROTOCOL
}

/// Why a line is no message.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is of another version of the protocol.
    #[error("protocol {0} is not known here, only protocol {PROTOCOL}")]
    Protocol(u64),
    /// It is not the JSON of a message.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A message as a line, with its newline.
///
/// # Errors
/// If it can't be written as JSON.
pub fn to_line(message: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(&Versioned { protocol_version: PROTOCOL, message })?;
    line.push(b'\n');
    Ok(line)
}

/// The message of a line.
///
/// # Errors
/// If it is of another version, or no message.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, ParseError> {
    #[derive(Deserialize)]
    struct Version {
        protocol_version: u64,
    }
    // Another version may have messages of any form.
    match serde_json::from_slice(line) {
        Ok(Version { protocol_version }) if protocol_version != u64::from(PROTOCOL) => {
            Err(ParseError::Protocol(protocol_version))
        }
        _ => Ok(serde_json::from_slice::<Versioned<T>>(line)?.message),
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What runs.
    Status {},
    /// What has been carried.
    Stats {},
    /// Read the configuration again.
    Reload {
        /// Say what would be done, and do nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
    },
    /// Write log lines of another least severity, until another one is asked for or the daemon ends.
    LogLevel {
        /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
        level: String,
    },
    /// Measure the time that each packet of a translator takes in the kernel engine, or measure it no more, until a reload
    /// says otherwise.
    Measure {
        /// The translator.
        name: String,
        /// Whether to measure.
        on: bool,
    },
    /// Take one translator down.
    Down {
        /// Its name.
        name: String,
    },
    /// End, and leave kernel engines running.
    Leave {},
    /// Show entries of stateful translators, or of the DNS64 server's cache.
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
    /// Remove what the DNS64 server has cached.
    Dns64Flush {
        /// Of which name; of all if none is named.
        #[serde(default)]
        name: Option<String>,
        /// Of all names below it as well.
        #[serde(default)]
        subtree: bool,
    },
    /// Show the leases of the DSTM server.
    Leases {},
    /// End a lease of the DSTM server.
    Revoke {
        /// The client: its name, or its address.
        client: String,
    },
    /// Show the cluster, as this gateway sees it.
    Cluster {},
    /// Change something in the cluster.
    ClusterChange {
        /// What.
        change: ClusterChange,
    },
    /// Set keys of the configuration. Behind the line comes a JSON object of keys, such as `translator.nat64.bib`, and their
    /// values as the configuration file has them; null: the file's holds again.
    Apply {
        /// Its length.
        octets: u64,
        /// Keys that it does not have are set no more.
        #[serde(default)]
        replace: bool,
        /// Change nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Show values of keys in the configuration that is in use.
    Get {
        /// The keys; none: those that are set by `apply`.
        keys: Vec<String>,
    },
    /// Tell of changes.
    Watch {},
    /// Tell of packets.
    Trace {
        /// The translator.
        name: String,
        /// Which packets; empty: all of them.
        #[serde(default)]
        filter: String,
    },
}

impl Request {
    /// Whether it changes nothing, and tells no packets: the requests that the socket for reading takes.
    #[must_use]
    pub fn is_read(&self) -> bool {
        match self {
            Request::Status {}
            | Request::Stats {}
            | Request::List { .. }
            | Request::Reverse { .. }
            | Request::Leases {}
            | Request::Cluster {}
            | Request::Watch {} => true,
            // Values may be secrets of a site.
            Request::Get { .. } => false,
            // A trace replaces programs, and shows who talks to whom as it happens.
            Request::Reload { .. }
            | Request::LogLevel { .. }
            | Request::Measure { .. }
            | Request::Down { .. }
            | Request::Leave {}
            | Request::BibAdd { .. }
            | Request::BibDel { .. }
            | Request::Drain { .. }
            | Request::Revoke { .. }
            | Request::ClusterChange { .. }
            | Request::Apply { .. }
            | Request::Dns64Flush { .. }
            | Request::Trace { .. } => false,
        }
    }
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `status`.
    Status(Box<Status>),
    /// To `stats`.
    Stats(Box<Stats>),
    /// To `reload` with `dry_run`.
    Plan(ReloadPlan),
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
    /// To `cluster`.
    Cluster(Box<ClusterStatus>),
    /// To `apply`.
    Applied(Applied),
    /// To `get`: keys and their values; null: there is none.
    Values(BTreeMap<String, serde_json::Value>),
    /// After `watch`: a change.
    Event(Event),
    /// After `trace`: a packet.
    Trace(Box<TraceLine>),
    /// The request was not understood: a sentence.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_read_as_it_was_written() {
        let (v4, v6) = ("192.0.2.1:443".parse().unwrap(), "[2001:db8:1::5]:443".parse().unwrap());
        let name = || Some("nat64".to_owned());
        let protocol = || "tcp".to_owned();
        for request in [
            Request::Status {},
            Request::Stats {},
            Request::Reload { dry_run: false },
            Request::Reload { dry_run: true },
            Request::LogLevel { level: "debug".to_owned() },
            Request::Measure { name: "nat64".to_owned(), on: true },
            Request::Down { name: "nat64".to_owned() },
            Request::Leave {},
            Request::List {
                table: Table::Sessions,
                name: name(),
                filter: EntryFilter::default(),
                limit: Some(20),
                count: true,
            },
            Request::BibAdd { name: name(), protocol: protocol(), v4, v6 },
            Request::BibDel { name: None, protocol: protocol(), v4 },
            Request::Reverse { name: name(), v4 },
            Request::Drain { name: "nat64".to_owned(), drains: true },
            Request::Dns64Flush { name: Some("example.net".to_owned()), subtree: true },
            Request::Leases {},
            Request::Revoke { client: "host".to_owned() },
            Request::Cluster {},
            Request::ClusterChange { change: ClusterChange::Move { shard: 7, gateway: name() } },
            Request::ClusterChange { change: ClusterChange::Move { shard: 7, gateway: None } },
            Request::ClusterChange { change: ClusterChange::Drain },
            Request::ClusterChange { change: ClusterChange::Declare { gateway: "b".to_owned() } },
            Request::Apply { octets: 100, replace: true, dry_run: false },
            Request::Get { keys: vec!["log.level".to_owned()] },
            Request::Watch {},
            Request::Trace { name: "nat64".to_owned(), filter: "tcp".to_owned() },
        ] {
            let line = to_line(&request).unwrap();
            let read = from_line::<Request>(&line);
            assert_eq!(read.unwrap(), request, "{}", String::from_utf8_lossy(&line));
        }
    }
}
