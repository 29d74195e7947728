//! Router advertisements: what a server counts, and the state of its devices.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a server has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// One per device, in the order of the settings.
    pub devices: Vec<DeviceStats>,
}

/// The state of a device, and what was counted there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceStats {
    /// Name of the interface.
    pub device: String,
    /// Whether it advertises.
    pub state: State,
    /// Whether the host forwards IPv6 packets that come in here; if it does not, it is advertised as
    /// no default router (RFC 4861 section 6.2.5).
    pub forwarding: bool,
    /// Source of the advertisements.
    pub link_local: Option<Ipv6Addr>,
    /// Prefixes of the link that are advertised, without deprecated ones.
    #[schemars(with = "Vec<String>")]
    pub prefixes: Vec<Ipv6Net>,
    /// Prefixes that are advertised as deprecated.
    #[schemars(with = "Vec<String>")]
    pub deprecated: Vec<Ipv6Net>,
    /// DNS servers that are advertised.
    pub rdnss: Vec<Ipv6Addr>,
    /// NAT64 prefixes that are advertised.
    #[schemars(with = "Vec<String>")]
    pub pref64: Vec<Ipv6Net>,
    /// Names of the encrypted DNS resolvers that are advertised.
    pub dnr: Vec<String>,
    /// URI of the captive portal that is advertised.
    pub captive_portal: Option<String>,
    /// Advertisements to all nodes.
    pub sent: u64,
    /// Advertisements to a single host.
    pub sent_unicast: u64,
    /// Advertisements that could not be sent.
    pub unsent: u64,
    /// Valid solicitations.
    pub solicitations: u64,
    /// Valid advertisements of other routers.
    pub advertisements: u64,
    /// Of these, those that contradict this router's (RFC 4861 section 6.2.7).
    pub inconsistent: u64,
    /// Messages that are not valid (RFC 4861 section 6.1), and were ignored.
    pub invalid: u64,
    /// INFORMATION-REQUESTs that were answered.
    pub dhcpv6_replies: u64,
    /// DHCPv6 messages that were ignored: not valid, not an INFORMATION-REQUEST, for another server.
    pub dhcpv6_ignored: u64,
    /// INFORMATION-REQUESTs over the rate, which got no answer.
    pub dhcpv6_limited: u64,
}

/// Whether a device advertises (RFC 4861 section 6.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There is no such interface.
    #[default]
    Absent,
    /// It can't pass packets.
    Down,
    /// It has no link-local address that can be used yet.
    NoLinkLocal,
    /// It advertises.
    Advertising,
}
