//! The `nat64` table of a sequence.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_xlat::nat64::{
    Allocation, Filtering, Lifetimes, Pool, Protocol, Quotas, Range, Settings, Sizes, StaticBib,
};
use fordway_xlat::reassembly::Limits;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Deserialize;
use toml::Value;

use super::time::Time;

/// What a stateful translator is told. What is not set has the core's default, but for tables of 256
/// entries, so that a file says what matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nat64Spec {
    /// One pool, of `ADDR`, `ADDR/LEN`, `ADDR-ADDR`, each with `:LOW-HIGH` behind it or not.
    pub pool4: Vec<String>,
    /// Pools with more to say.
    pub pool: Vec<PoolSpec>,
    /// `endpoint` or `address`.
    pub filtering: Option<FilteringSpec>,
    /// IPv4 hosts may open TCP connections.
    pub accept_v4_syn: Option<bool>,
    /// Packets from IPv4 refresh sessions of UDP and ICMP.
    pub refresh_from_v4: Option<bool>,
    /// Lifetimes.
    pub lifetimes: LifetimesSpec,
    /// Bits that name a subscriber.
    pub subscriber_len: Option<u8>,
    /// Limits of a subscriber.
    pub quotas: QuotasSpec,
    /// Static BIB entries: protocol, IPv6 and IPv4 transport address.
    pub bib: Vec<Value>,
    /// Sizes of the tables.
    pub sizes: SizesSpec,
    /// How fragments wait for each other.
    pub fragments: FragmentsSpec,
}

/// A pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSpec {
    /// Addresses and ports, as in `pool4`.
    pub addresses: Vec<String>,
    /// Prefixes of the hosts that get them.
    pub clients: Vec<String>,
    /// Packets with this mark only.
    pub mark: Option<u32>,
    /// Blocks of ports: size, and how many a subscriber can have.
    pub blocks: Option<[u16; 2]>,
    /// Computed blocks of this size (RFC 7422).
    pub deterministic: Option<u16>,
}

/// Which packets from IPv4 pass.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilteringSpec {
    /// From everywhere.
    Endpoint,
    /// From addresses to which the host has sent.
    Address,
}

/// Lifetimes that differ from the default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifetimesSpec {
    /// UDP_DEFAULT.
    pub udp: Option<Time>,
    /// ICMP_DEFAULT.
    pub icmp: Option<Time>,
    /// TCP_EST.
    pub tcp_est: Option<Time>,
    /// TCP_TRANS.
    pub tcp_trans: Option<Time>,
    /// TCP_INCOMING_SYN.
    pub tcp_incoming_syn: Option<Time>,
    /// How long ports rest.
    pub port_rest: Option<Time>,
    /// How many may rest.
    pub rest_most: Option<u32>,
    /// How long a subscriber without BIB entries keeps its ports.
    pub subscriber: Option<Time>,
}

/// Limits of a subscriber.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotasSpec {
    /// BIB entries of TCP.
    pub tcp: u32,
    /// BIB entries of UDP.
    pub udp: u32,
    /// BIB entries of ICMP.
    pub icmp: u32,
    /// Sessions.
    pub sessions: u32,
    /// New sessions in a second.
    pub new_per_second: u32,
}

/// How fragments wait for each other.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FragmentsSpec {
    /// Packets in the making.
    pub datagrams: Option<usize>,
    /// Octets in all.
    pub octets: Option<usize>,
    /// Octets of one source.
    pub octets_per_source: Option<usize>,
    /// Fragments of one packet.
    pub fragments: Option<usize>,
    /// How long they wait.
    pub interval: Option<Time>,
}

impl FragmentsSpec {
    /// Whether anything is not as the core has it.
    pub fn is_set(&self) -> bool {
        self.limits() != Limits::default()
    }

    /// The core's limits.
    pub(super) fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            datagrams: self.datagrams.unwrap_or(default.datagrams),
            octets: self.octets.unwrap_or(default.octets),
            octets_per_source: self.octets_per_source.unwrap_or(default.octets_per_source),
            fragments: self.fragments.unwrap_or(default.fragments),
            source_len: default.source_len,
            interval: self.interval.map_or(default.interval, |Time(interval)| interval),
        }
    }
}

/// Sizes of the tables.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SizesSpec {
    /// BIB entries.
    pub bibs: u32,
    /// Sessions.
    pub sessions: u32,
    /// Subscribers.
    pub subscribers: u32,
}

impl Default for SizesSpec {
    fn default() -> SizesSpec {
        SizesSpec { bibs: 256, sessions: 256, subscribers: 64 }
    }
}

/// A `nat64` table that makes no settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Addresses and ports.
    #[error("`{0}` is neither ADDR, ADDR/LEN nor ADDR-ADDR, with or without :LOW-HIGH")]
    Range(String),
    /// The prefix of clients.
    #[error("`{0}` is no IPv6 prefix")]
    Client(String),
    /// A static BIB entry.
    #[error("a BIB entry is [protocol, [IPv6 address, port], [IPv4 address, port]]: {0}")]
    Bib(String),
}

impl Nat64Spec {
    /// The core's settings.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let default = Settings::default();
        let plain = PoolSpec { addresses: self.pool4.clone(), ..PoolSpec::default() };
        let plain = (!self.pool4.is_empty()).then_some(&plain);
        let pools = plain.into_iter().chain(&self.pool).map(PoolSpec::pool);
        let QuotasSpec { tcp, udp, icmp, sessions, new_per_second } = self.quotas;
        let SizesSpec { bibs, sessions: most_sessions, subscribers } = self.sizes;
        Ok(Settings {
            pools: pools.collect::<Result<_, _>>()?,
            filtering: match self.filtering {
                None => default.filtering,
                Some(FilteringSpec::Endpoint) => Filtering::EndpointIndependent,
                Some(FilteringSpec::Address) => Filtering::AddressDependent,
            },
            accept_v4_syn: self.accept_v4_syn.unwrap_or(default.accept_v4_syn),
            refresh_from_v4: self.refresh_from_v4.unwrap_or(default.refresh_from_v4),
            lifetimes: self.lifetimes.lifetimes(default.lifetimes),
            subscriber_len: self.subscriber_len.unwrap_or(default.subscriber_len),
            quotas: Quotas { ports: [tcp, udp, icmp], sessions, new_per_second },
            bib: self.bib.iter().map(static_bib).collect::<Result<_, _>>()?,
            sizes: Sizes { bibs, sessions: most_sessions, subscribers },
            ..default
        })
    }
}

impl LifetimesSpec {
    fn lifetimes(&self, default: Lifetimes) -> Lifetimes {
        let or = |time: Option<Time>, default: Duration| time.map_or(default, |Time(time)| time);
        Lifetimes {
            udp: or(self.udp, default.udp),
            icmp: or(self.icmp, default.icmp),
            tcp_est: or(self.tcp_est, default.tcp_est),
            tcp_trans: or(self.tcp_trans, default.tcp_trans),
            tcp_incoming_syn: or(self.tcp_incoming_syn, default.tcp_incoming_syn),
            hold_down: or(self.port_rest, default.hold_down),
            hold_down_most: self.rest_most.unwrap_or(default.hold_down_most),
            subscriber: or(self.subscriber, default.subscriber),
            ..default
        }
    }
}

impl PoolSpec {
    fn pool(&self) -> Result<Pool, SettingsError> {
        Ok(Pool {
            ranges: self.addresses.iter().map(|text| range(text)).collect::<Result<_, _>>()?,
            clients: self.clients.iter().map(|text| client(text)).collect::<Result<_, _>>()?,
            mark: self.mark,
            allocation: match (self.blocks, self.deterministic) {
                (Some([size, most]), _) => Allocation::Blocks { size, most: most as u8 },
                (None, Some(size)) => Allocation::Deterministic { size },
                (None, None) => Allocation::Shared,
            },
        })
    }
}

fn client(text: &str) -> Result<Ipv6Net, SettingsError> {
    text.parse().map_err(|_| SettingsError::Client(text.to_owned()))
}

fn range(text: &str) -> Result<Range, SettingsError> {
    read_range(text).ok_or_else(|| SettingsError::Range(text.to_owned()))
}

fn read_range(text: &str) -> Option<Range> {
    let (addresses, ports) = match text.split_once(':') {
        Some((addresses, ports)) => (addresses, ports.split_once('-')?),
        None => (text, ("1024", "65535")),
    };
    let (first, last) = if let Some((first, last)) = addresses.split_once('-') {
        (first.parse().ok()?, last.parse().ok()?)
    } else if addresses.contains('/') {
        let net: Ipv4Net = addresses.parse().ok()?;
        (net.network(), net.broadcast())
    } else {
        let addr: Ipv4Addr = addresses.parse().ok()?;
        (addr, addr)
    };
    Some(Range { first, last, low: ports.0.parse().ok()?, high: ports.1.parse().ok()? })
}

/// A static BIB entry: `["udp", ["2001:db8:1::1", 53], ["203.0.113.1", 53]]`.
pub(super) fn static_bib(value: &Value) -> Result<StaticBib, SettingsError> {
    type Row = (String, (Ipv6Addr, u16), (Ipv4Addr, u16));
    let wrong = || SettingsError::Bib(value.to_string());
    let (name, v6, v4): Row = value.clone().try_into().map_err(|_| wrong())?;
    Ok(StaticBib { protocol: protocol(&name).ok_or_else(wrong)?, v6, v4 })
}

/// A protocol by its name.
pub(super) fn protocol(name: &str) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|protocol| protocol.label() == name)
}
