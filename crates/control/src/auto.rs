//! CLATs that set themselves up.

use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A CLAT that sets itself up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AutoStatus {
    /// Its name.
    pub name: String,
    /// `active`, `waiting` or `aside`.
    pub state: String,
    /// Why it does not translate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds since it is in this state.
    pub since_seconds: u64,
    /// How often state, prefix, uplink or address have changed.
    pub changes: u64,
    /// The prefix in use.
    pub pref64: Option<String>,
    /// Name of the uplink, if there is one.
    pub uplink: Option<String>,
    /// The CLAT's IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// What is known of others with the same address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<String>,
    /// What the network tells, the best first.
    pub prefixes: Vec<FoundStatus>,
    /// What an earlier daemon has left goes on translating.
    pub left: bool,
    /// Why the host could not be set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds until that is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<u64>,
}

/// A prefix that was discovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundStatus {
    /// The prefix.
    pub prefix: String,
    /// `router advertisement`, `dns` or `configured`.
    pub source: String,
    /// Who has told it.
    pub from: String,
    /// Seconds until it ends unless it is told again.
    pub valid_seconds: Option<u64>,
    /// Its time is over, but no resolver answers.
    pub stale: bool,
}
