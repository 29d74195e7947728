//! What a proxy counts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::reason::{MEANINGS, REASONS, Reason};
use fordway_serve::{Counter, counters};

counters! {
    /// Numbers since the proxy started, of all threads together.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub struct Stats;
    /// The counters of one thread.
    #[derive(Debug, Default)]
    pub(crate) struct Counters of Counter {
        responses: [Counter; 4],
        refused: [Counter; REASONS],
        pub(crate) tunnels_closed: Counter,
        pub(crate) pooled: Counter,
        pub(crate) unpooled: Counter,
    }
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStats {
    /// Host and port.
    pub server: String,
    /// Whether requests go to it.
    pub alive: bool,
    /// Requests that it was asked.
    pub requests: u64,
    /// How often it could not be reached.
    pub failures: u64,
}

impl Counters {
    /// A final response goes out.
    pub(super) fn response(&self, status: u16) {
        if let Some(counter) =
            usize::from(status / 100).checked_sub(2).and_then(|it| self.responses.get(it))
        {
            counter.add(1);
        }
    }

    /// The proxy refuses a request.
    pub(super) fn refused(&self, reason: Reason) {
        self.refused[reason as usize].add(1);
        self.response(reason.status());
    }

    /// A connection to a server was made.
    pub(super) fn server(&self, address: IpAddr) {
        if address.is_ipv4() { &self.servers_v4 } else { &self.servers_v6 }.add(1);
    }

    /// Adds the numbers of this thread.
    pub(super) fn add_to(&self, stats: &mut Stats) {
        for (sum, counter) in stats.responses.iter_mut().zip(&self.responses) {
            *sum += counter.get();
        }
        for (told, counter) in MEANINGS.iter().zip(&self.refused) {
            *stats.refused.entry(told.label.to_owned()).or_default() += counter.get();
        }
        self.add_counted_to(stats);
        stats.tunnels_open += self.tunnels.get().saturating_sub(self.tunnels_closed.get());
        stats.idle += self.pooled.get().saturating_sub(self.unpooled.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_up() {
        let (one, other) = (Counters::default(), Counters::default());
        one.response(204);
        other.refused(Reason::Framing);
        other.refused(Reason::Framing);
        one.server("192.0.2.1".parse().unwrap());
        one.tunnels.add(3);
        one.tunnels_closed.add(1);
        let mut stats = Stats::default();
        one.add_to(&mut stats);
        other.add_to(&mut stats);
        assert_eq!(stats.responses, [1, 0, 2, 0]);
        assert_eq!(stats.refused["framing"], 2);
        assert_eq!(stats.refused.len(), REASONS);
        assert_eq!((stats.servers_v4, stats.servers_v6, stats.tunnels_open), (1, 0, 2));
    }
}
