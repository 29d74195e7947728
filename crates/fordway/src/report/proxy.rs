//! HTTP proxies, as text.

use std::fmt::Write;
use std::net::SocketAddr;

use fordway_proxy::{Mode, ServerStats, Settings, Stats};
use serde::{Deserialize, Serialize};

use super::services::table::{row, warn};
use super::table::group;
use crate::output::{GOOD, STRONG, WARNING};

/// A proxy that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProxyStatus {
    /// Its name.
    pub(crate) name: String,
    /// `forward` or `reverse`.
    pub(crate) mode: String,
    /// Where it listens.
    pub(crate) listen: Vec<SocketAddr>,
    /// Its threads.
    pub(crate) threads: usize,
    /// Clients speak TLS.
    pub(crate) tls: bool,
    /// Connections of clients that are open.
    pub(crate) connections: u64,
    /// Tunnels that are open.
    pub(crate) tunnels: u64,
    /// The servers of a site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) servers: Vec<ServerStats>,
}

impl ProxyStatus {
    pub(crate) fn of(settings: &Settings, stats: &Stats) -> ProxyStatus {
        ProxyStatus {
            name: settings.name.clone(),
            mode: match settings.mode {
                Mode::Forward(_) => "forward",
                Mode::Reverse(_) => "reverse",
            }
            .to_owned(),
            listen: settings.listen.clone(),
            threads: settings.threads.get(),
            tls: settings.tls.is_some(),
            connections: stats.connections,
            tunnels: stats.tunnels_open,
            servers: stats.servers.clone(),
        }
    }

    /// As text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "{GOOD}{}{GOOD:#} {STRONG}HTTP proxy{STRONG:#}, {}{}\n",
            self.name,
            self.mode,
            if self.tls { ", TLS" } else { "" }
        );
        let listen: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  {:<13} {}", "listening", listen.join(", "));
        let _ = writeln!(text, "  {:<13} {}", "threads", self.threads);
        let (connections, tunnels) = (self.connections, self.tunnels);
        let _ =
            writeln!(text, "  {:<13} {connections} of clients, {tunnels} tunnels", "connections");
        for server in &self.servers {
            let state = match server.alive {
                true => format!("{} requests", server.requests),
                false => format!("{WARNING}can't be reached{WARNING:#}"),
            };
            let _ = writeln!(text, "  {:<13} {} ({state})", "server", server.server);
        }
        text
    }
}

/// What a proxy has counted.
pub(crate) fn proxy_table(stats: &Stats) -> String {
    let mut text = String::new();
    let requests = stats.requests_http1.wrapping_add(stats.requests_http2);
    let http2 = format!("{} of them by HTTP/2", group(stats.requests_http2));
    row(&mut text, "requests", requests, &http2);
    let [success, redirection, client, server] = stats.responses;
    for (label, count, what) in [
        ("2xx", success, "successful"),
        ("3xx", redirection, "redirections"),
        ("4xx", client, "errors of clients"),
        ("5xx", server, "errors of servers"),
        ("tunnels", stats.tunnels, "by CONNECT or Upgrade"),
        ("connections", stats.connections_accepted, "of clients"),
        ("to IPv4", stats.servers_v4, "connections to servers"),
        ("to IPv6", stats.servers_v6, "connections to servers"),
        ("reused", stats.reused, "requests on connections that had served before"),
        ("octets in", stats.octets_in, "from clients to servers"),
        ("octets out", stats.octets_out, "from servers to clients"),
    ] {
        row(&mut text, label, count, what);
    }
    let trouble = [
        ("fell back", stats.fell_back, "to the other family (RFC 8305)"),
        ("retried", stats.retried, "on another connection"),
        ("abandoned", stats.abandoned, "the client had gone before there was an answer"),
        ("too many", stats.connections_refused, "connections of clients"),
        ("log lines lost", stats.log_lost, "the access log was held up"),
    ];
    for (label, count, what) in trouble.into_iter().filter(|(_, count, _)| *count > 0) {
        warn(&mut text, label, count, what);
    }
    for (reason, count) in stats.refused.iter().filter(|(_, count)| **count > 0) {
        warn(&mut text, reason, *count, "answered here");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let mut stats = Stats { requests_http1: 1200, requests_http2: 34, ..Stats::default() };
        stats.refused.insert("framing".to_owned(), 0);
        let quiet = proxy_table(&stats);
        assert!(quiet.contains("1,234") && quiet.contains("34 of them by HTTP/2"), "{quiet}");
        assert!(!quiet.contains("framing") && !quiet.contains("fell back"), "{quiet}");
        stats.refused.insert("framing".to_owned(), 3);
        assert!(proxy_table(&stats).contains("framing"));
    }
}
