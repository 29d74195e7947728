//! HTTP proxies, as text.

use std::fmt::Write;

use fordway_control::ProxyStatus;
use fordway_daemon::metrics::counters::{PROXY, row, table, warn};
use fordway_daemon::output::group;
use fordway_daemon::output::{GOOD, STRONG, WARNING};
use fordway_proxy::Stats;

use super::Render;

impl Render for ProxyStatus {
    fn render(&self) -> String {
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
            let state = match (server.alive, &server.check_failure) {
                (true, _) => format!("{} requests", server.requests),
                (false, Some(why)) => format!("{WARNING}fails its checks: {why}{WARNING:#}"),
                (false, None) => format!("{WARNING}can't be reached{WARNING:#}"),
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
    text.push_str(&table(PROXY, stats));
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
