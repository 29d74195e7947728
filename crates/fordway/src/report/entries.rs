//! Entries of a stateful translator's tables, and which of them are wanted.

use std::fmt;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::output::{FAINT, STRONG};

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Table {
    Bib,
    Sessions,
    Subscribers,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EntryFilter {
    /// `tcp`, `udp` or `icmp`.
    pub(crate) protocol: Option<String>,
    /// The IPv6 host, or the subscriber.
    pub(crate) v6: Option<Ipv6Net>,
    /// The IPv4 address and port that it has.
    pub(crate) v4: Option<Transport4>,
    /// The IPv4 host at the other end.
    pub(crate) remote: Option<Transport4>,
    /// The state of a TCP session.
    pub(crate) state: Option<String>,
    /// Only BIB entries that the operator has made.
    pub(crate) only_static: bool,
}

/// An IPv4 network, and a port: `192.0.2.0/24`, `192.0.2.1:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Transport4 {
    pub(crate) net: Ipv4Net,
    pub(crate) port: Option<u16>,
}

impl Transport4 {
    /// Whether an address with a port is meant.
    pub(crate) fn matches(&self, (address, port): (Ipv4Addr, u16)) -> bool {
        self.net.contains(&address) && self.port.is_none_or(|wanted| wanted == port)
    }
}

impl FromStr for Transport4 {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport4, String> {
        let wrong = || format!("\"{text}\" is no IPv4 address or network, with or without :PORT");
        let (net, port) = match text.split_once(':') {
            Some((net, port)) => (net, Some(port.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let net = net.parse().or_else(|_| net.parse::<Ipv4Addr>().map(Ipv4Net::from));
        Ok(Transport4 { net: net.map_err(|_| wrong())?, port })
    }
}

impl TryFrom<String> for Transport4 {
    type Error = String;

    fn try_from(text: String) -> Result<Transport4, String> {
        text.parse()
    }
}

impl From<Transport4> for String {
    fn from(it: Transport4) -> String {
        it.to_string()
    }
}

impl fmt::Display for Transport4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.net),
            None => write!(f, "{}", self.net),
        }
    }
}

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entries {
    Bib(Vec<BibRow>),
    Sessions(Vec<SessionRow>),
    Subscribers(Vec<SubscriberRow>),
}

/// A BIB entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BibRow {
    pub(crate) translator: String,
    /// `all`: a dynamic 1:1 mapping.
    pub(crate) protocol: String,
    pub(crate) v6: Ipv6Addr,
    pub(crate) v6_port: u16,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v4_port: u16,
    #[serde(rename = "static")]
    pub(crate) is_static: bool,
    /// Nobody has it, and nobody gets it yet.
    pub(crate) resting: bool,
    /// Asked for by name, and not used yet (NAT-PT).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) held: bool,
    pub(crate) sessions: u32,
    /// Seconds since it was made.
    pub(crate) age_seconds: u64,
    /// Of dynamic 1:1 mappings, seconds since the last packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle_seconds: Option<u64>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRow {
    pub(crate) translator: String,
    pub(crate) protocol: String,
    pub(crate) v6: Ipv6Addr,
    pub(crate) v6_port: u16,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v4_port: u16,
    pub(crate) remote: Ipv4Addr,
    pub(crate) remote_port: u16,
    /// Of TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Seconds that are left of its lifetime.
    pub(crate) remaining_seconds: u64,
    pub(crate) packets_from_v4: u64,
    pub(crate) octets_from_v4: u64,
    pub(crate) packets_from_v6: u64,
    pub(crate) octets_from_v6: u64,
}

/// A subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubscriberRow {
    pub(crate) translator: String,
    pub(crate) subscriber: Ipv6Net,
    pub(crate) mark: u32,
    /// The number of its pool.
    pub(crate) pool: u16,
    pub(crate) blocks: Vec<BlockRow>,
    pub(crate) tcp_ports: u32,
    pub(crate) udp_ports: u32,
    pub(crate) icmp_ids: u32,
    pub(crate) sessions: u32,
    /// Seconds since its last new session.
    pub(crate) idle_seconds: u64,
}

/// Ports of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockRow {
    pub(crate) v4: Ipv4Addr,
    pub(crate) low: u16,
    pub(crate) high: u16,
}

impl fmt::Display for BlockRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}-{}", self.v4, self.low, self.high)
    }
}

/// Whose a transport address is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReverseReport {
    pub(crate) v4: SocketAddrV4,
    /// Whose it is by computation, in a deterministic pool (RFC 7422).
    pub(crate) deterministic: Vec<DeterministicRow>,
    /// Who has the port in a block now.
    pub(crate) subscribers: Vec<SubscriberRow>,
    /// What is bound to it now.
    pub(crate) bib: Vec<BibRow>,
}

/// A subscriber of a deterministic pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeterministicRow {
    pub(crate) translator: String,
    pub(crate) subscriber: Ipv6Net,
    pub(crate) block: BlockRow,
}

impl Table {
    /// The heading of a table for people.
    pub(crate) fn heading(self) -> String {
        let text = match self {
            Table::Bib => format!(
                "{:<5} {:<47} {:<21} {:>8} {:>10}  ",
                "proto", "IPv6 host", "IPv4", "sessions", "age"
            ),
            Table::Sessions => format!(
                "{:<5} {:<47} {:<21} {:<21} {:<18} {:>9} {:>12} {:>12}",
                "proto",
                "IPv6 host",
                "IPv4",
                "remote",
                "state",
                "remaining",
                "from IPv6",
                "from IPv4"
            ),
            Table::Subscribers => format!(
                "{:<43} {:>4} {:>7} {:>7} {:>7} {:>8} {:>9}  {}",
                "subscriber", "pool", "tcp", "udp", "icmp", "sessions", "idle", "blocks"
            ),
        };
        format!("{STRONG}{}{STRONG:#}\n", text.trim_end())
    }
}

impl Entries {
    /// The entries as lines for people.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        match self {
            Entries::Bib(rows) => rows.iter().for_each(|row| row.render(&mut text)),
            Entries::Sessions(rows) => rows.iter().for_each(|row| row.render(&mut text)),
            Entries::Subscribers(rows) => rows.iter().for_each(|row| row.render(&mut text)),
        }
        text
    }

    /// The entries as one JSON object per line.
    pub(crate) fn json_lines(&self) -> Result<Vec<String>, serde_json::Error> {
        match self {
            Entries::Bib(rows) => rows.iter().map(serde_json::to_string).collect(),
            Entries::Sessions(rows) => rows.iter().map(serde_json::to_string).collect(),
            Entries::Subscribers(rows) => rows.iter().map(serde_json::to_string).collect(),
        }
    }
}

fn seconds(seconds: u64) -> String {
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    // Two units say enough.
    text.split(' ').take(2).collect::<Vec<_>>().join("")
}

impl BibRow {
    fn render(&self, text: &mut String) {
        let note = match (self.is_static, self.resting) {
            (true, _) => "static",
            (_, true) => "resting",
            _ if self.held => "held",
            _ => "",
        };
        let (v6, v4) = match self.protocol.as_str() {
            "all" => (self.v6.to_string(), self.v4.to_string()),
            _ => (
                SocketAddrV6::new(self.v6, self.v6_port, 0, 0).to_string(),
                SocketAddrV4::new(self.v4, self.v4_port).to_string(),
            ),
        };
        let line = format!(
            "{:<5} {v6:<47} {v4:<21} {:>8} {:>10}  {FAINT}{note}{FAINT:#}",
            self.protocol,
            self.sessions,
            seconds(self.age_seconds),
        );
        let _ = writeln!(text, "{line}");
    }
}

impl SessionRow {
    fn render(&self, text: &mut String) {
        let remote = match self.protocol.as_str() {
            "icmp" => self.remote.to_string(),
            _ => SocketAddrV4::new(self.remote, self.remote_port).to_string(),
        };
        let _ = writeln!(
            text,
            "{:<5} {:<47} {:<21} {remote:<21} {:<18} {:>9} {:>12} {:>12}",
            self.protocol,
            SocketAddrV6::new(self.v6, self.v6_port, 0, 0).to_string(),
            SocketAddrV4::new(self.v4, self.v4_port).to_string(),
            self.state.as_deref().unwrap_or("-"),
            seconds(self.remaining_seconds),
            self.packets_from_v6,
            self.packets_from_v4,
        );
    }
}

impl SubscriberRow {
    pub(crate) fn render(&self, text: &mut String) {
        let blocks: Vec<String> = self.blocks.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "{:<43} {:>4} {:>7} {:>7} {:>7} {:>8} {:>9}  {}",
            self.subscriber.to_string(),
            self.pool,
            self.tcp_ports,
            self.udp_ports,
            self.icmp_ids,
            self.sessions,
            seconds(self.idle_seconds),
            blocks.join(" ")
        );
    }
}

impl ReverseReport {
    /// Nothing known yet.
    pub(crate) fn of(v4: SocketAddrV4) -> ReverseReport {
        let (deterministic, subscribers, bib) = (Vec::new(), Vec::new(), Vec::new());
        ReverseReport { v4, deterministic, subscribers, bib }
    }

    /// The report as lines for people.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for row in &self.deterministic {
            let _ = writeln!(
                text,
                "{} is {STRONG}{}{STRONG:#}: {} of {}, by computation (RFC 7422)",
                self.v4, row.subscriber, row.block, row.translator
            );
        }
        let named = |it: &SubscriberRow| {
            let same = |row: &DeterministicRow| row.subscriber == it.subscriber;
            self.deterministic.iter().any(same)
        };
        for row in self.subscribers.iter().filter(|row| !named(row)) {
            let port = self.v4.port();
            let holds = |block: &&BlockRow| {
                block.v4 == *self.v4.ip() && (block.low..=block.high).contains(&port)
            };
            let block = row.blocks.iter().find(holds);
            let block = block.map_or_else(String::new, ToString::to_string);
            let _ = writeln!(
                text,
                "{} is {STRONG}{}{STRONG:#} now: {block} of {}",
                self.v4, row.subscriber, row.translator
            );
        }
        for row in &self.bib {
            let _ = writeln!(
                text,
                "{} is bound to {STRONG}[{}]:{}{STRONG:#} now ({}, {} sessions)",
                self.v4, row.v6, row.v6_port, row.protocol, row.sessions
            );
        }
        if text.is_empty() {
            let _ = writeln!(text, "{} is nobody's, as far as is known here", self.v4);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_addresses_are_read_as_they_are_written() {
        for (text, written) in [
            ("192.0.2.1", "192.0.2.1/32"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.1:80", "192.0.2.1/32:80"),
            ("192.0.2.0/24:80", "192.0.2.0/24:80"),
        ] {
            let parsed: Transport4 = text.parse().unwrap();
            assert_eq!(parsed.to_string(), written);
            assert_eq!(written.parse(), Ok(parsed));
        }
        for text in ["", "192.0.2.1:", "192.0.2.1:65536", "2001:db8::1", "192.0.2.0/33"] {
            assert!(text.parse::<Transport4>().is_err(), "{text}");
        }
        let filter: Transport4 = "192.0.2.0/24:80".parse().unwrap();
        assert!(filter.matches(("192.0.2.9".parse().unwrap(), 80)));
        assert!(!filter.matches(("192.0.2.9".parse().unwrap(), 81)));
        assert!(!filter.matches(("198.51.100.9".parse().unwrap(), 80)));
    }
}
