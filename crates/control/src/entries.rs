//! Entries of a stateful translator's tables, and which of them are wanted.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::CacheRow;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Table {
    /// Binding information base.
    Bib,
    /// Sessions.
    Sessions,
    /// Subscribers.
    Subscribers,
    /// What the DNS64 server has cached of upstream servers' answers.
    Dns64Cache,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EntryFilter {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: Option<String>,
    /// The IPv6 host, or the subscriber.
    #[schemars(with = "Option<String>")]
    pub v6: Option<Ipv6Net>,
    /// The IPv4 address and port that it has.
    pub v4: Option<Transport4>,
    /// The IPv4 host at the other end.
    pub remote: Option<Transport4>,
    /// The state of a TCP session.
    pub state: Option<String>,
    /// Only BIB entries that the operator has made.
    pub only_static: bool,
    /// A name of the DNS.
    pub dns_name: Option<String>,
    /// All names below `dns_name` as well.
    pub subtree: bool,
}

/// An IPv4 network, and a port: `192.0.2.0/24`, `192.0.2.1:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Transport4 {
    /// The network.
    #[schemars(with = "String")]
    pub net: Ipv4Net,
    /// The port; none: every port.
    pub port: Option<u16>,
}

impl Transport4 {
    /// Whether an address with a port is meant.
    pub fn matches(&self, (address, port): (Ipv4Addr, u16)) -> bool {
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Entries {
    /// Binding information base.
    Bib(Vec<BibRow>),
    /// Sessions.
    Sessions(Vec<SessionRow>),
    /// Subscribers.
    Subscribers(Vec<SubscriberRow>),
    /// Answers of upstream servers.
    Dns64Cache(Vec<CacheRow>),
}

/// A BIB entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BibRow {
    /// Name of the translator.
    pub translator: String,
    /// `all`: a dynamic 1:1 mapping.
    pub protocol: String,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Port, or ICMP identifier, on the IPv6 side.
    pub v6_port: u16,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// Port, or ICMP identifier, on the IPv4 side.
    pub v4_port: u16,
    /// The operator has made it.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// It is unused, and in hold-down before another host gets it.
    pub resting: bool,
    /// Asked for by name, and not used yet (NAT-PT).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Number of its sessions.
    pub sessions: u32,
    /// Seconds since it was made.
    pub age_seconds: u64,
    /// Of dynamic 1:1 mappings, seconds since the last packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRow {
    /// Name of the translator.
    pub translator: String,
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Port, or ICMP identifier, on the IPv6 side.
    pub v6_port: u16,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// Port, or ICMP identifier, on the IPv4 side.
    pub v4_port: u16,
    /// Address of the IPv4 host at the other end.
    pub remote: Ipv4Addr,
    /// Port of that host.
    pub remote_port: u16,
    /// Of TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Seconds that are left of its lifetime.
    pub remaining_seconds: u64,
    /// Packets from the IPv4 side.
    pub packets_from_v4: u64,
    /// Octets of IP packets from the IPv4 side.
    pub octets_from_v4: u64,
    /// Packets from the IPv6 side.
    pub packets_from_v6: u64,
    /// Octets of IP packets from the IPv6 side.
    pub octets_from_v6: u64,
}

/// A subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubscriberRow {
    /// Name of the translator.
    pub translator: String,
    /// The IPv6 prefix that makes a subscriber.
    #[schemars(with = "String")]
    pub subscriber: Ipv6Net,
    /// Packet mark that selects the pool; 0: none.
    pub mark: u32,
    /// The number of its pool.
    pub pool: u16,
    /// Port blocks that it has.
    pub blocks: Vec<BlockRow>,
    /// TCP ports in use.
    pub tcp_ports: u32,
    /// UDP ports in use.
    pub udp_ports: u32,
    /// ICMP identifiers in use.
    pub icmp_ids: u32,
    /// Number of its sessions.
    pub sessions: u32,
    /// Seconds since its last new session.
    pub idle_seconds: u64,
}

/// Ports of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockRow {
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// First port.
    pub low: u16,
    /// Last port.
    pub high: u16,
}

impl fmt::Display for BlockRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}-{}", self.v4, self.low, self.high)
    }
}

/// Whose a transport address is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReverseReport {
    /// IPv4 address.
    pub v4: SocketAddrV4,
    /// Whose it is by computation, in a deterministic pool (RFC 7422).
    pub deterministic: Vec<DeterministicRow>,
    /// Who has the port in a block now.
    pub subscribers: Vec<SubscriberRow>,
    /// What is bound to it now.
    pub bib: Vec<BibRow>,
}

/// A subscriber of a deterministic pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeterministicRow {
    /// Name of the translator.
    pub translator: String,
    /// The IPv6 prefix that makes a subscriber.
    #[schemars(with = "String")]
    pub subscriber: Ipv6Net,
    /// Its ports.
    pub block: BlockRow,
}

impl ReverseReport {
    /// Nothing known yet.
    #[must_use]
    pub fn of(v4: SocketAddrV4) -> ReverseReport {
        let (deterministic, subscribers, bib) = (Vec::new(), Vec::new(), Vec::new());
        ReverseReport { v4, deterministic, subscribers, bib }
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
