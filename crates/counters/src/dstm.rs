//! DSTM: the server, a tunnel end point that hears of a server on another host, clients.

use std::net::{Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State and counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ServerStats {
    /// Leases at this moment.
    pub leases: u64,
    /// Leases that can still be granted.
    pub free: u64,
    /// Whether the tunnel end point has all bindings. It and `unsent` are set by the owner of the sockets.
    pub tep_up: bool,
    pub granted: u64,
    pub renewed: u64,
    pub released: u64,
    pub expired: u64,
    pub offers: u64,
    /// Refused: no address is free.
    pub exhausted: u64,
    /// Refused: for any other reason.
    pub refused: u64,
    /// Steps that failed: the disk or the tunnel end point did not do its part.
    pub failed: u64,
    /// Messages that came again and got the same answer.
    pub repeated: u64,
    /// Numbers that are not higher than an earlier one's.
    pub stale: u64,
    pub malformed: u64,
    /// Clients that no key is known for.
    pub unknown: u64,
    /// Messages whose authenticator is wrong.
    pub forged: u64,
    /// Messages of kinds that clients don't send.
    pub unexpected: u64,
    /// More messages than a client may send.
    pub limited: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
}

/// State and counters of a tunnel end point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TepStats {
    /// Bindings at this moment.
    pub bindings: u64,
    pub sessions: u64,
    pub bound: u64,
    pub unbound: u64,
    /// Bindings whose lifetime has ended without a message of the server.
    pub expired: u64,
    /// Bindings that there was no room for.
    pub full: u64,
    pub malformed: u64,
    /// Wrong authenticator.
    pub forged: u64,
    /// For another life of this tunnel end point, of an earlier session, or out of its place.
    pub stale: u64,
    /// Bindings that the tunnel did not take; set by its owner.
    pub failed: u64,
}

/// A client's state and counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientStats {
    /// idle, asking, refused, bound, releasing.
    pub state: String,
    /// The address.
    pub v4: Option<Ipv4Addr>,
    /// Its first and last port, where it is shared.
    pub ports: Option<(u16, u16)>,
    /// The tunnel end point.
    pub tep: Option<Ipv6Addr>,
    /// This end of the tunnel.
    pub own: Option<Ipv6Addr>,
    /// How many seconds the lease lasts.
    pub seconds: Option<u64>,
    /// Why there was no address the last time.
    pub refused: Option<String>,
    /// Leases that were granted.
    pub granted: u64,
    /// Renewals.
    pub renewed: u64,
    /// Leases that ended because they were not renewed, or the server did not know them.
    pub lost: u64,
    /// Leases that were given back.
    pub released: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Packets that have waited for an address.
    pub waited: u64,
    /// Of these, those that were sent when there was one.
    pub sent: u64,
    /// Packets that there was no room for, or that waited until they were dropped.
    pub dropped: u64,
    /// Messages that did not come from the server.
    pub foreign: u64,
}

/// A lease, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseView {
    /// The client: its name, or its address if it has none.
    pub client: String,
    /// The address.
    pub v4: Ipv4Addr,
    /// Its first and last port, where it is shared.
    pub ports: Option<(u16, u16)>,
    /// The client's end of the tunnel.
    pub remote: Ipv6Addr,
    /// The tunnel end point.
    pub tep: Ipv6Addr,
    /// How many seconds it lasts.
    pub seconds: u64,
}
