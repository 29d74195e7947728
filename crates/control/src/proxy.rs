//! HTTP proxies.

use std::net::SocketAddr;

use fordway_counters::proxy::ServerStats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A proxy that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProxyStatus {
    /// Its name.
    pub name: String,
    /// `forward`, `reverse` or `passthrough`.
    pub mode: String,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Its threads.
    pub threads: usize,
    /// Clients speak TLS.
    pub tls: bool,
    /// Connections of clients that are open.
    pub connections: u64,
    /// Tunnels that are open.
    pub tunnels: u64,
    /// The servers of a site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerStats>,
}
