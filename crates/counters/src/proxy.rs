//! A proxy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter::counters;

counters! {
    /// Numbers since the proxy started, of all threads together.
    pub struct Stats;
    /// The numbers of one thread.
    pub struct Counted of Counter;
    /// The proxy's name.
    name: String,
    /// Requests by HTTP/1.0 and HTTP/1.1.
    requests_http1,
    /// Requests by HTTP/2.
    requests_http2,
    /// Final responses, of servers and of the proxy's own, by the first digit of their status: 2, 3, 4, 5.
    responses: [u64; 4],
    /// Answers of the proxy's own to what it does not serve, by reason.
    refused: BTreeMap<String, u64>,
    /// Tunnels that were made, by CONNECT or Upgrade.
    tunnels,
    /// Tunnels open now.
    tunnels_open: u64,
    /// Connections of clients accepted.
    connections_accepted,
    /// Connections of clients that were too many.
    connections_refused,
    /// Connections of proxies in front that did not tell the client by the PROXY protocol.
    proxy_headers_refused,
    /// Certificates that were read again because their files had changed.
    certificates_reloaded: u64,
    /// Changed files of certificates that were of no use.
    certificates_failed: u64,
    /// Connections of clients open now.
    connections: u64,
    /// Connections made to servers over IPv4.
    servers_v4,
    /// Connections made to servers over IPv6.
    servers_v6,
    /// Of these, those to the family that RFC 8305 had second.
    fell_back,
    /// Requests on connections to servers that had served before.
    reused,
    /// Requests sent again, because a connection that had served before was gone.
    retried,
    /// Requests whose client had gone before there was an answer.
    abandoned,
    /// Connections to servers that wait for a request now.
    idle: u64,
    /// Octets from clients to servers, without header sections of HTTP/2.
    octets_in,
    /// Octets from servers to clients.
    octets_out,
    /// Lines that the access log could not take.
    log_lost: u64,
    /// The servers of a site, in reverse mode.
    servers: Vec<ServerStats>,
}

/// A server of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerStats {
    /// Host and port.
    pub server: String,
    /// Whether requests go to it.
    pub alive: bool,
    /// Requests that it was asked.
    pub requests: u64,
    /// How often it could not be reached.
    pub failures: u64,
    /// Active checks.
    #[serde(default)]
    pub checks: u64,
    /// Of these, those that failed.
    #[serde(default)]
    pub checks_failed: u64,
    /// Why the last check failed; none if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_failure: Option<String>,
}
