//! Transport relays.

use std::fmt::Write;
use std::net::Ipv4Addr;

use fordway_relay as trt;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::services::{join, line};
use super::table::group;
use crate::output::{FAINT, GOOD, STRONG, WARNING};

/// A relay that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrtStatus {
    pub(crate) name: String,
    /// Its prefixes.
    pub(crate) pool6: Vec<String>,
    pub(crate) threads: usize,
    /// All of them run.
    pub(crate) whole: bool,
    pub(crate) tcp: bool,
    pub(crate) udp: bool,
    /// Whose connections are relayed.
    pub(crate) allow: Vec<IpNet>,
    /// Where connections to servers come from; empty: as routing chooses.
    pub(crate) source4: Vec<Ipv4Addr>,
    /// TCP connections now, and at most.
    pub(crate) connections: u64,
    pub(crate) max_connections: u64,
    /// UDP sessions now, and at most.
    pub(crate) sessions: u64,
    pub(crate) max_sessions: u64,
}

/// What a relay has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrtStats {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) counters: trt::Stats,
}

impl TrtStatus {
    /// As text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text =
            format!("{GOOD}{}{GOOD:#} {STRONG}transport relay (TRT){STRONG:#}\n", self.name);
        if !self.whole {
            let _ = writeln!(text, "  {WARNING}a thread has failed: restart it{WARNING:#}");
        }
        line(&mut text, "prefixes", &self.pool6.join(", "));
        let protocols = match (self.tcp, self.udp) {
            (true, true) => "TCP, UDP",
            (true, false) => "TCP",
            _ => "UDP",
        };
        line(&mut text, "protocols", protocols);
        line(&mut text, "threads", &self.threads.to_string());
        line(&mut text, "allowed", &join(&self.allow));
        let source = match self.source4.as_slice() {
            [] => "as routing chooses".to_owned(),
            addresses => join(addresses),
        };
        line(&mut text, "source", &source);
        let of = |now: u64, most: u64| format!("{} of {}", group(now), group(most));
        line(&mut text, "connections", &of(self.connections, self.max_connections));
        line(&mut text, "UDP sessions", &of(self.sessions, self.max_sessions));
        text
    }
}

/// A counter with its name, and what it means.
type Row = (&'static str, u64, &'static str);

/// Counters: what is always shown, and trouble, which is shown if there was any.
fn rows(it: &trt::Stats) -> ([Row; 12], [Row; 18]) {
    let always = [
        ("connections", it.tcp_accepted, "accepted from clients"),
        ("established", it.tcp_established, "taken by servers"),
        ("open", it.connections, "now"),
        ("finished", it.tcp_finished, "ended by both sides"),
        ("octets up", it.tcp_octets_up, "of TCP to servers"),
        ("octets down", it.tcp_octets_down, "of TCP to clients"),
        ("UDP sessions", it.udp_opened, "opened"),
        ("UDP open", it.sessions, "now"),
        ("datagrams up", it.udp_datagrams_up, "to servers"),
        ("datagrams down", it.udp_datagrams_down, "to clients"),
        ("UDP octets up", it.udp_octets_up, "in these to servers"),
        ("UDP octets down", it.udp_octets_down, "in these to clients"),
    ];
    let trouble = [
        ("reset by client", it.tcp_reset_client, "or the client was lost"),
        ("reset by server", it.tcp_reset_server, "or the server was lost"),
        ("abandoned", it.tcp_abandoned, "reset by clients before servers answered"),
        ("idle", it.tcp_idle, "without octets for too long"),
        ("client refused", it.refused_client, "may not use the relay"),
        ("no address", it.refused_address, "to no address of a server"),
        ("private", it.refused_private, "to addresses that are not global"),
        ("own address", it.refused_own, "to this host"),
        ("listed", it.refused_listed, "to destinations in refuse4"),
        ("over the limit", it.limited_total, "beyond the number of all"),
        ("client's limit", it.limited_client, "beyond the number of one client network"),
        ("server refused", it.failed_refused, "connection refused"),
        ("unreachable", it.failed_unreachable, "servers that can't be reached"),
        ("timeout", it.failed_timeout, "servers that did not answer"),
        ("no resources", it.failed_resources, "no port, descriptor or memory left here"),
        ("other failures", it.failed_other, "of connections to servers"),
        ("unsolicited", it.udp_unsolicited, "datagrams without a session"),
        ("unsent", it.udp_unsent, "datagrams that the system did not take"),
    ];
    (always, trouble)
}

/// What a relay has counted, as text with styles.
pub(crate) fn trt_table(stats: &trt::Stats) -> String {
    let mut text = String::new();
    let (always, trouble) = rows(stats);
    for (label, count, what) in always {
        let _ = writeln!(text, "  {label:<18}{:>16}  {FAINT}{what}{FAINT:#}", group(count));
    }
    let quiet = [
        ("urgent octets", stats.tcp_urgent, "of TCP"),
        ("sessions ended", stats.udp_idle, "without datagrams for too long"),
        ("too big", stats.udp_too_big, "datagrams for the way to a server"),
        ("ICMPv6 errors", stats.icmp_sent, "sent to clients"),
        ("ICMPv6 unsent", stats.icmp_limited, "beyond the rate"),
    ];
    for (label, count, what) in trouble.into_iter().chain(quiet).filter(|(_, count, _)| *count > 0)
    {
        let count = group(count);
        let _ =
            writeln!(text, "  {WARNING}{label:<18}{WARNING:#}{count:>16}  {FAINT}{what}{FAINT:#}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let stats = trt::Stats { tcp_accepted: 1234, failed_timeout: 7, ..trt::Stats::default() };
        let text = trt_table(&stats);
        assert!(text.contains("1,234") && text.contains("did not answer"), "{text}");
        assert!(!text.contains("own address"), "{text}");
    }
}
