//! The `config` table of a vector: the keys of the gateway's own configuration file where it has them.

use std::net::{Ipv4Addr, Ipv6Addr};

use fordway_xlat::addr::{Eam, EamError, EamTable, Pool6, Pool6Error};
use fordway_xlat::{Config, IcmpErrors, TrafficClass, UdpChecksumZero};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Deserialize;

/// A translator's configuration. What is not set has the core's default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigSpec {
    /// Translation prefixes.
    pub pool6: Vec<String>,
    /// Explicit address mappings: IPv4 prefix, IPv6 prefix.
    pub eam: Vec<[String; 2]>,
    /// Source of ICMPv4 errors; `"none"`: none.
    pub icmp_source4: Option<String>,
    /// Node Identification Objects in translated errors.
    pub icmp_node_id: Option<bool>,
    /// Source of ICMPv6 errors.
    pub icmp_source6: Option<Ipv6Addr>,
    /// MTU of the IPv4 next hop.
    pub mtu4: Option<u32>,
    /// MTU of the IPv6 next hop.
    pub mtu6: Option<u32>,
    /// Longest IPv6 packet made of a packet without DF.
    pub lowest_ipv6_mtu: Option<u32>,
    /// Whether the translator counts as a hop.
    pub decrement_hop_limit: Option<bool>,
    /// Write this Type of Service or Traffic Class instead of copying.
    pub traffic_class: Option<u8>,
    /// `compute`, `drop` or `pass`.
    pub udp_checksum_zero: Option<UdpZero>,
    /// Let the Well-Known Prefix carry non-global addresses.
    pub allow_private: Option<bool>,
    /// Whether IPv6 hosts are numbered from `pool6`.
    pub ipv4_translatable: Option<bool>,
    /// Hairpinning between explicitly mapped hosts.
    pub hairpin: Option<bool>,
    /// Lower the MSS of SYNs.
    pub mss_clamp: Option<bool>,
    /// Whether ICMP errors are sent.
    pub icmp_errors: Option<Errors>,
    /// Pass packets to unmapped destinations.
    pub pass_unmatched: Option<bool>,
}

/// What to do with UDP without checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpZero {
    /// Compute it.
    Compute,
    /// Drop the datagram.
    Drop,
    /// Forward it as it is.
    Pass,
}

/// Whether ICMP errors are sent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Errors {
    /// Never.
    Off,
    /// Always.
    Unlimited,
    /// Limited.
    Limited {
        /// Errors per second on average.
        per_second: u32,
        /// Errors at once.
        burst: u32,
    },
}

/// A `config` table that makes no configuration.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ConfigSpecError {
    /// A translation prefix.
    #[error("pool6 `{0}`: {1}")]
    Pool6(String, Pool6Error),
    /// An address or prefix.
    #[error("`{0}` is neither an address nor a prefix")]
    Prefix(String),
    /// A mapping.
    #[error("{0}")]
    Eam(EamError),
}

impl ConfigSpec {
    /// The core's configuration.
    pub fn config(&self) -> Result<Config, ConfigSpecError> {
        let default = Config::default();
        let pool6 = self.pool6.iter().map(|text| {
            text.parse::<Pool6>().map_err(|error| ConfigSpecError::Pool6(text.clone(), error))
        });
        let eam = self
            .eam
            .iter()
            .map(|[v4, v6]| Eam::new(prefix4(v4)?, prefix6(v6)?).map_err(ConfigSpecError::Eam));
        let eam = eam.collect::<Result<Vec<_>, _>>()?;
        Ok(Config {
            pool6: pool6.collect::<Result<_, _>>()?,
            eam: EamTable::new(eam).map_err(ConfigSpecError::Eam)?,
            icmp_source4: match self.icmp_source4.as_deref() {
                None => default.icmp_source4,
                Some("none") => None,
                Some(text) => Some(address4(text)?),
            },
            icmp_node_id: self.icmp_node_id.unwrap_or(default.icmp_node_id),
            icmp_source6: self.icmp_source6.or(default.icmp_source6),
            mtu4: self.mtu4.unwrap_or(default.mtu4),
            mtu6: self.mtu6.unwrap_or(default.mtu6),
            lowest_ipv6_mtu: self.lowest_ipv6_mtu.unwrap_or(default.lowest_ipv6_mtu),
            decrement_hop_limit: self
                .decrement_hop_limit
                .map_or(default.decrement_hop_limit, Into::into),
            traffic_class: self.traffic_class.map_or(default.traffic_class, TrafficClass::Set),
            udp_checksum_zero: match self.udp_checksum_zero {
                None => default.udp_checksum_zero,
                Some(UdpZero::Compute) => UdpChecksumZero::Compute,
                Some(UdpZero::Drop) => UdpChecksumZero::Drop,
                Some(UdpZero::Pass) => UdpChecksumZero::Pass,
            },
            allow_private: self.allow_private.unwrap_or(default.allow_private),
            ipv4_translatable: self.ipv4_translatable.unwrap_or(default.ipv4_translatable),
            hairpin: self.hairpin.unwrap_or(default.hairpin),
            mss_clamp: self.mss_clamp.unwrap_or(default.mss_clamp),
            icmp_errors: self.icmp_errors.map_or(default.icmp_errors, icmp_errors),
            pass_unmatched: self.pass_unmatched.unwrap_or(default.pass_unmatched),
        })
    }
}

pub(super) fn icmp_errors(errors: Errors) -> IcmpErrors {
    match errors {
        Errors::Off => IcmpErrors::Off,
        Errors::Unlimited => IcmpErrors::Unlimited,
        Errors::Limited { per_second, burst } => IcmpErrors::Limited { per_second, burst },
    }
}

fn address4(text: &str) -> Result<Ipv4Addr, ConfigSpecError> {
    text.parse().map_err(|_| ConfigSpecError::Prefix(text.to_owned()))
}

/// RFC 7757 section 3.2: without a length it is the longest.
fn prefix4(text: &str) -> Result<Ipv4Net, ConfigSpecError> {
    let addr = text.parse::<Ipv4Addr>().map(Ipv4Net::from);
    addr.or_else(|_| text.parse()).map_err(|_| ConfigSpecError::Prefix(text.to_owned()))
}

fn prefix6(text: &str) -> Result<Ipv6Net, ConfigSpecError> {
    let addr = text.parse::<Ipv6Addr>().map(Ipv6Net::from);
    addr.or_else(|_| text.parse()).map_err(|_| ConfigSpecError::Prefix(text.to_owned()))
}
