//! What is probed of a mechanism, and how it came out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One probe's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// What was probed; the row of the matrix.
    pub name: String,
    /// Whether the mechanism passed.
    pub ok: bool,
    /// What was seen.
    pub detail: String,
}

impl Check {
    /// A check that passed, or failed with the reason.
    pub fn of(name: &str, outcome: Result<String, String>) -> Self {
        let ok = outcome.is_ok();
        let detail = outcome.unwrap_or_else(|why| why);
        Self { name: name.to_owned(), ok, detail }
    }
}

/// Names of the checks of the full gate, in the order of the matrix.
pub(crate) const GATE: &[&str] = &[
    "ping small",
    "ping large",
    "tcp payload",
    "tcp checksum",
    "udp checksum",
    "udp fragments",
    "icmp port unreachable",
    "icmp time exceeded",
    "path mtu",
];

/// Names of the checks, in the order of the matrix.
pub const NAMES: &[&str] =
    &["dns synthesis", "dns native", "dns absence", "dns over tcp", "dns reverse"];

/// The cells, in their order.
pub const WAYS: [&str; 13] = [
    "to server: TCP",
    "to server: UDP",
    "to server: ICMP",
    "from server: TCP",
    "from server: UDP",
    "from server: ICMP",
    "IPv4 literal",
    "name",
    "FTP active",
    "FTP passive",
    "fragments",
    "path MTU",
    "ICMP errors",
];
