//! DSTM: server, tunnel end point, clients.

use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddrV6};

use fordway_dstmd::{AgentStats, ClientStats, LeaseView, Stats};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::services::table::{row, warn};
use super::services::{join, line};
use super::table::group;
use crate::output::{FAINT, GOOD, STRONG, WARNING};

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DstmServerStatus {
    pub(crate) listen: Vec<SocketAddrV6>,
    pub(crate) pool: Vec<Ipv4Net>,
    /// Ports of each client, where addresses are shared.
    pub(crate) ports_per_client: Option<u32>,
    /// The tunnel end point's address.
    pub(crate) tep: Ipv6Addr,
    /// It has been told everything.
    pub(crate) tep_up: bool,
    pub(crate) leases: u64,
    /// How many more there can be.
    pub(crate) free: u64,
}

/// A tunnel end point that hears of a server on another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DstmTepStatus {
    pub(crate) listen: SocketAddrV6,
    pub(crate) bindings: u64,
    pub(crate) max_bindings: u64,
}

/// Where a client is, and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DstmClientStats {
    /// Its name and its interface's.
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) stats: ClientStats,
}

impl DstmServerStatus {
    /// As text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("{GOOD}dstm-server{GOOD:#} {STRONG}DSTM server{STRONG:#}\n");
        line(&mut text, "listening", &join(&self.listen));
        let ports = self.ports_per_client;
        let ports = ports.map_or(String::new(), |ports| format!(", {ports} ports for each client"));
        line(&mut text, "lends", &format!("{}{ports}", join(&self.pool)));
        line(
            &mut text,
            "leases",
            &format!("{}, {} more can be", group(self.leases), group(self.free)),
        );
        line(&mut text, "end point", &self.tep.to_string());
        if !self.tep_up {
            let _ = writeln!(
                text,
                "  {WARNING}the tunnel end point does not answer: nothing new is lent{WARNING:#}"
            );
        }
        text
    }
}

impl DstmTepStatus {
    /// As text with styles.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("{GOOD}dstm-tep{GOOD:#} {STRONG}DSTM tunnel end point{STRONG:#}\n");
        line(&mut text, "listening", &self.listen.to_string());
        let bindings = format!("{} of {}", group(self.bindings), group(self.max_bindings));
        line(&mut text, "bindings", &bindings);
        text
    }
}

impl DstmClientStats {
    /// As text with styles.
    pub(crate) fn render(&self) -> String {
        let ClientStats { state, v4, ports, tep, own, seconds, refused, .. } = &self.stats;
        let mut text =
            format!("{GOOD}{}{GOOD:#} {STRONG}DSTM client{STRONG:#}, {state}\n", self.name);
        if let Some(v4) = v4 {
            let ports = ports.map_or(String::new(), |(low, high)| format!(", ports {low}-{high}"));
            let seconds = seconds.unwrap_or_default();
            line(&mut text, "address", &format!("{v4}{ports}, for {seconds} s"));
        }
        if let (Some(own), Some(tep)) = (own, tep) {
            line(&mut text, "tunnel", &format!("{own} to {tep}"));
        }
        if let Some(refused) = refused {
            let _ = writeln!(text, "  {WARNING}no address: {refused}{WARNING:#}");
        }
        text
    }
}

/// Trouble, which is shown if there was any.
fn trouble(text: &mut String, rows: &[(&str, u64, &str)]) {
    for (label, count, what) in rows.iter().filter(|(_, count, _)| *count > 0) {
        warn(text, label, *count, what);
    }
}

/// What a server has counted.
pub(crate) fn dstm_server_table(it: &Stats) -> String {
    let mut text = String::new();
    for (label, count, what) in [
        ("leases", it.leases, "now"),
        ("granted", it.granted, "leases"),
        ("renewed", it.renewed, "leases"),
        ("released", it.released, "given back by clients"),
        ("expired", it.expired, "not renewed"),
    ] {
        row(&mut text, label, count, what);
    }
    let rows = [
        ("exhausted", it.exhausted, "refused: all addresses are lent"),
        ("refused", it.refused, "for other reasons"),
        ("failed", it.failed, "the disk or the tunnel end point did not do its part"),
        ("unknown", it.unknown, "clients that no key is known for"),
        ("forged", it.forged, "messages with a wrong authenticator: is the key the same?"),
        ("malformed", it.malformed, "messages"),
        ("unexpected", it.unexpected, "messages of kinds that clients don't send"),
        ("stale", it.stale, "messages with numbers of the past"),
        ("limited", it.limited, "more messages than a client may send"),
        ("unsent", it.unsent, "answers"),
    ];
    trouble(&mut text, &rows);
    text
}

/// What a tunnel end point has heard.
pub(crate) fn dstm_tep_table(it: &AgentStats) -> String {
    let mut text = String::new();
    for (label, count, what) in [
        ("bindings", it.bindings, "now"),
        ("sessions", it.sessions, "of the server"),
        ("bound", it.bound, "bindings that came"),
        ("unbound", it.unbound, "bindings that the server took back"),
        ("expired", it.expired, "bindings that ended by themselves"),
    ] {
        row(&mut text, label, count, what);
    }
    let rows = [
        ("full", it.full, "bindings for which there was no room"),
        ("failed", it.failed, "bindings that were not taken"),
        ("forged", it.forged, "messages with a wrong authenticator: is the key the same?"),
        ("malformed", it.malformed, "messages"),
        ("stale", it.stale, "messages of the past"),
    ];
    trouble(&mut text, &rows);
    text
}

/// What a client has counted.
pub(crate) fn dstm_client_table(it: &ClientStats) -> String {
    let mut text = String::new();
    for (label, count, what) in [
        ("granted", it.granted, "leases"),
        ("renewed", it.renewed, "leases"),
        ("released", it.released, "given back"),
        ("waited", it.waited, "packets, for an address"),
        ("sent", it.sent, "of these when there was one"),
    ] {
        row(&mut text, label, count, what);
    }
    let rows = [
        ("dropped", it.dropped, "packets that have waited in vain"),
        ("refusals", it.refusals, "requests that were refused"),
        ("lost", it.lost, "leases that ended early or were not renewed"),
        ("foreign", it.foreign, "messages that were not the server's"),
    ];
    trouble(&mut text, &rows);
    text
}

/// Leases, a line each.
pub(crate) fn leases_table(leases: &[LeaseView]) -> String {
    let mut text = String::new();
    for LeaseView { client, v4, ports, remote, seconds, .. } in leases {
        let what = match ports {
            Some((low, high)) => format!("{v4}:{low}-{high}"),
            None => v4.to_string(),
        };
        let _ = writeln!(
            text,
            "{STRONG}{what:<27}{STRONG:#} {client:<24} {FAINT}at{FAINT:#} {remote}, {} s left",
            group(*seconds)
        );
    }
    if leases.is_empty() {
        text.push_str("nothing is lent\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let text = dstm_server_table(&Stats { granted: 1234, forged: 2, ..Stats::default() });
        assert!(text.contains("1,234") && text.contains("is the key the same?"), "{text}");
        assert!(!text.contains("exhausted"), "{text}");
    }

    #[test]
    fn a_lease_is_a_line() {
        let lease = LeaseView {
            client: "laptop".to_owned(),
            v4: [192, 0, 2, 1].into(),
            ports: Some((4096, 8191)),
            remote: "2001:db8::1".parse().unwrap(),
            tep: "2001:db8:f::1".parse().unwrap(),
            seconds: 3600,
        };
        let text = anstream::adapter::strip_str(&leases_table(&[lease])).to_string();
        assert_eq!(
            text,
            "192.0.2.1:4096-8191         laptop                   at 2001:db8::1, 3,600 s left\n"
        );
        assert_eq!(leases_table(&[]), "nothing is lent\n");
    }
}
