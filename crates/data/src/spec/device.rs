//! Another machine as the device under test.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Another machine as the device under test, cabled to two network devices of this one. Commands run on this machine, without
/// a shell: `["ssh", "root@router", ...]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// This machine's network device towards the clients' side of the device under test; up, and with no other use.
    #[schemars(length(min = 1, max = 15))]
    pub client: String,
    /// The same towards the server's side.
    #[schemars(length(min = 1, max = 15))]
    pub server: String,
    /// Whether both are moved into the lab's namespaces for each deployment, and back: only so their drivers' own XDP, and
    /// memory without a copy, are used. They may have no addresses. By default macvlan devices on top of them are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take: bool,
    /// What it is, for the record: product, release, settings.
    pub version: String,
    /// Commands before each deployment, one after the other: they start it, or empty its tables. Each has 60 s to end, with
    /// success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub up: Vec<Vec<String>>,
    /// Commands after each deployment: they end it, or empty its tables. Their time is that of the tear-down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub down: Vec<Vec<String>>,
    /// Where its interfaces' counters are read; none: nothing is compared with what the Tester counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<DeviceCounters>,
}

/// Counters of the device under test: by a command, or by SNMP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceCounters {
    /// Name of its interface towards the clients, as it gives it.
    pub client: String,
    /// Name of its interface towards the server.
    pub server: String,
    /// Begins the command that shows the kernel's counters (`cat` of proc's `net/dev`) of a Linux machine: `["ssh", "root@router"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// An SNMP agent, HOST or HOST:PORT: version 2c, with the community in FORDWAY_SNMP_COMMUNITY, or `public`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snmp: Option<String>,
}
