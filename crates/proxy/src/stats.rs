//! What a proxy counts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::reason::{REASONS, Reason, TOLD};
use fordway_serve::Counter;

/// Numbers since the proxy started, of all threads together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The proxy's name.
    pub name: String,
    /// Requests by HTTP/1.0 and HTTP/1.1.
    pub requests_http1: u64,
    /// Requests by HTTP/2.
    pub requests_http2: u64,
    /// Final responses, of servers and of the proxy's own, by the first digit of their status: 2, 3, 4, 5.
    pub responses: [u64; 4],
    /// Answers of the proxy's own to what it does not serve, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Tunnels that were made, by CONNECT or Upgrade.
    pub tunnels: u64,
    /// Tunnels open now.
    pub tunnels_open: u64,
    /// Connections of clients accepted.
    pub connections_accepted: u64,
    /// Connections of clients that were too many.
    pub connections_refused: u64,
    /// Connections of clients open now.
    pub connections: u64,
    /// Connections made to servers over IPv4.
    pub servers_v4: u64,
    /// Connections made to servers over IPv6.
    pub servers_v6: u64,
    /// Of these, those to the family that RFC 8305 had second.
    pub fell_back: u64,
    /// Requests on connections to servers that had served before.
    pub reused: u64,
    /// Requests sent again, because a connection that had served before was gone.
    pub retried: u64,
    /// Requests whose client had gone before there was an answer.
    pub abandoned: u64,
    /// Connections to servers that wait for a request now.
    pub idle: u64,
    /// Octets from clients to servers, without header sections of HTTP/2.
    pub octets_in: u64,
    /// Octets from servers to clients.
    pub octets_out: u64,
    /// Lines that the access log could not take.
    pub log_lost: u64,
    /// The servers of a site, in reverse mode.
    pub servers: Vec<ServerStats>,
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

/// The counters of one thread.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests_http1: Counter,
    pub(super) requests_http2: Counter,
    responses: [Counter; 4],
    refused: [Counter; REASONS],
    pub(super) tunnels: Counter,
    pub(super) tunnels_closed: Counter,
    pub(super) connections_accepted: Counter,
    pub(super) connections_refused: Counter,
    servers_v4: Counter,
    servers_v6: Counter,
    pub(super) fell_back: Counter,
    pub(super) reused: Counter,
    pub(super) retried: Counter,
    pub(super) abandoned: Counter,
    pub(super) pooled: Counter,
    pub(super) unpooled: Counter,
    pub(super) octets_in: Counter,
    pub(super) octets_out: Counter,
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

    /// The proxy answers itself.
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
        for told in TOLD {
            let count = self.refused[told.reason as usize].get();
            *stats.refused.entry(told.label.to_owned()).or_default() += count;
        }
        for (sum, counter) in [
            (&mut stats.requests_http1, &self.requests_http1),
            (&mut stats.requests_http2, &self.requests_http2),
            (&mut stats.tunnels, &self.tunnels),
            (&mut stats.connections_accepted, &self.connections_accepted),
            (&mut stats.connections_refused, &self.connections_refused),
            (&mut stats.servers_v4, &self.servers_v4),
            (&mut stats.servers_v6, &self.servers_v6),
            (&mut stats.fell_back, &self.fell_back),
            (&mut stats.reused, &self.reused),
            (&mut stats.retried, &self.retried),
            (&mut stats.abandoned, &self.abandoned),
            (&mut stats.octets_in, &self.octets_in),
            (&mut stats.octets_out, &self.octets_out),
        ] {
            *sum += counter.get();
        }
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
