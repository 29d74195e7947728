//! What runs beside the translators: the DNS64 server and the router advertisements.

use std::net::{Ipv6Addr, SocketAddr};

use fordway_counters::router::{DeviceStats, State};
use ipnet::{IpNet, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A DNS64 server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dns64Status {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where it listens for DNS over TLS.
    #[serde(default)]
    pub listen_tls: Vec<SocketAddr>,
    /// Where it listens for DNS over HTTPS.
    #[serde(default)]
    pub listen_https: Vec<SocketAddr>,
    /// Its threads.
    pub threads: usize,
    /// Prefixes of synthesised addresses, where no policy says otherwise; empty: none are synthesised.
    pub pool6: Vec<String>,
    /// Policies of some clients.
    pub policies: usize,
    /// Whose questions are answered.
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNet>,
    /// Answers of upstream servers are validated.
    pub validate: bool,
    /// The servers that it asks, those of domains among them.
    pub upstream: Vec<UpstreamStatus>,
    /// Names that have servers of their own.
    #[serde(default)]
    pub forward: Vec<ForwardStatus>,
}

/// Names that have servers of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardStatus {
    /// The names, each with all below it.
    pub domains: Vec<String>,
    /// The servers.
    pub upstream: Vec<String>,
    /// Whether addresses are synthesised for them; none: as for other names.
    pub synthesise: Option<bool>,
    /// Answers are validated.
    pub validate: bool,
}

/// A server that a DNS64 server asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// As configured.
    pub server: String,
    /// Whether it answers.
    pub alive: bool,
    /// Its round-trip time in microseconds; none as long as it has not answered.
    pub rtt_us: Option<u32>,
}

/// A device with router advertisements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdvertiseStatus {
    /// Its name.
    pub device: String,
    /// Whether it advertises.
    #[schemars(with = "String")]
    pub state: State,
    /// Packets that come in there are forwarded.
    pub forwarding: bool,
    /// Source of the advertisements.
    pub link_local: Option<Ipv6Addr>,
    /// Prefixes that are advertised.
    #[schemars(with = "Vec<String>")]
    pub prefixes: Vec<Ipv6Net>,
    /// Prefixes that are advertised as going away.
    #[schemars(with = "Vec<String>")]
    pub deprecated: Vec<Ipv6Net>,
    /// DNS servers that are advertised.
    pub rdnss: Vec<Ipv6Addr>,
    /// Translation prefixes that are advertised.
    #[schemars(with = "Vec<String>")]
    pub pref64: Vec<Ipv6Net>,
    /// Names of the encrypted DNS resolvers that are advertised.
    #[serde(default)]
    pub dnr: Vec<String>,
    /// URI of the captive portal that is advertised.
    #[serde(default)]
    pub captive_portal: Option<String>,
    /// Advertisements of other routers that contradict these.
    pub inconsistent: u64,
}

impl From<&DeviceStats> for AdvertiseStatus {
    fn from(stats: &DeviceStats) -> AdvertiseStatus {
        AdvertiseStatus {
            device: stats.device.clone(),
            state: stats.state,
            forwarding: stats.forwarding,
            link_local: stats.link_local,
            prefixes: stats.prefixes.clone(),
            deprecated: stats.deprecated.clone(),
            rdnss: stats.rdnss.clone(),
            pref64: stats.pref64.clone(),
            dnr: stats.dnr.clone(),
            captive_portal: stats.captive_portal.clone(),
            inconsistent: stats.inconsistent,
        }
    }
}
