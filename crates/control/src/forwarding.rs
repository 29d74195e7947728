//! What the kernel does by itself: modes `nat44` and `dual-stack`.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An entry of mode nat44.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nat44Status {
    /// Its name.
    pub name: String,
    /// The nftables table, of family `ip`.
    pub table: String,
    /// Networks of the clients.
    #[schemars(with = "Vec<String>")]
    pub clients: Vec<Ipv4Net>,
    /// Empty: any.
    pub devices: Vec<String>,
    /// Names of the uplinks.
    pub uplinks: Vec<String>,
    /// Devices that are not there now.
    pub absent: Vec<String>,
    /// Empty: the uplink's address.
    pub pool4: Vec<String>,
    /// Networks that are mapped 1:1.
    pub netmap: Vec<String>,
    /// Forwarded ports.
    pub forwards: Vec<String>,
    /// Addresses that have been added to the host.
    pub addresses: Vec<String>,
    /// Kernel settings that have been changed.
    pub settings: Vec<String>,
}

/// An entry of mode dual-stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DualStackStatus {
    /// Its name.
    pub name: String,
    /// Names of the devices.
    pub devices: Vec<String>,
    /// Devices that are not there now.
    pub absent: Vec<String>,
    /// Addresses that have been added to the host.
    pub addresses: Vec<String>,
    /// Kernel settings that have been changed.
    pub settings: Vec<String>,
}

/// What an entry of mode nat44 has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nat44Stats {
    /// Its name.
    pub name: String,
    /// By name; see [`COUNTERS`].
    pub counters: BTreeMap<String, Nat44Count>,
    /// Connection tracking of the whole host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<ConntrackStats>,
}

/// A counter of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nat44Count {
    /// Packets.
    pub packets: u64,
    /// Octets of IP packets.
    pub octets: u64,
}

/// Connection tracking of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConntrackStats {
    /// Connections that are tracked.
    pub connections: u64,
    /// How many can be.
    pub most: u64,
}

/// What the host has forwarded between all of its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DualStackStats {
    /// Its name.
    pub name: String,
    /// IPv4 packets.
    pub v4: Option<u64>,
    /// IPv6 packets.
    pub v6: Option<u64>,
}

/// The counters: name, whether it counts what is dropped, and what it means.
pub const COUNTERS: [(&str, bool, &str); 10] = [
    ("out", false, "packets that left translated"),
    ("in", false, "packets that came back, or were forwarded"),
    ("sessions", false, "connections of clients"),
    ("forwarded", false, "connections to forwarded ports"),
    ("hairpin", false, "of these, those of clients"),
    ("mapped", false, "connections to mapped networks"),
    ("unsolicited", true, "unsolicited connections from outside"),
    ("invalid", true, "of no connection, so it would leave untranslated"),
    ("sessions_limit", true, "connections over a client's quota"),
    ("rate_limit", true, "connections over a client's rate"),
];
