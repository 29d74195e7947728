//! Parameters of the tests of RFC 9693.

use serde::{Deserialize, Serialize};

/// What a result of RFC 9693 is reported with (its section 6).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stateful {
    /// Connections; of a capacity those that the table surely holds.
    pub connections: u64,
    /// Connections beyond which the search for the capacity does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_connections: Option<u64>,
    /// Addresses of the Initiator.
    pub source_addresses: u32,
    /// Its ports, the first and the last one; of a capacity those of the most connections.
    pub source_ports: [u32; 2],
    /// Addresses of the Responder.
    pub destination_addresses: u32,
    /// Its ports, the first and the last one; of a capacity those of the most connections.
    pub destination_ports: [u32; 2],
    /// Octets of a frame with its check sequence, at the Initiator and at the Responder.
    pub frame_octets: [u16; 2],
    /// Connections/s up to which the maximum connection establishment rate is searched for.
    pub maximum_rate: u64,
    /// Error of that search, connections/s; below eight times this an eighth of the rate, down to an eighth of this.
    pub rate_error: u64,
    /// Rate of the validation as a share of the rate of test phase 1.
    pub alpha: f64,
    /// Rate that fills the table in front of test phase 2 and a deletion, as a share of the maximum connection establishment rate.
    pub fill: f64,
    /// A rate below this share of the last one ends the exponential search for the capacity.
    pub beta: f64,
    /// A rate below this share of the last one takes the lower half in the final search.
    pub gamma: f64,
    /// Error of the capacity, connections.
    pub capacity_error: u64,
    /// Sessions to which the device's table is limited, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_limit: Option<u64>,
    /// Buckets of the kernel's connection tracking, where that is the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_buckets: Option<u64>,
}
