//! Router advertisements on one device (RFC 4861), as configured: `[[advertise]]`.

pub(crate) mod check;
pub(crate) mod emit;
pub(crate) mod read;

use std::net::Ipv6Addr;
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use crate::name::InterfaceName;

/// One `[[advertise]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// The device to whose link it is.
    pub device: InterfaceName,
    /// The link's prefixes; `None`: the /64s of the device's global addresses.
    pub prefixes: Option<Vec<Ipv6Net>>,
    /// Hosts reach each other directly in these prefixes.
    pub on_link: bool,
    /// Hosts make addresses in them (RFC 4862).
    pub autonomous: bool,
    /// Valid lifetime of these addresses.
    pub valid: Duration,
    /// Preferred lifetime of these addresses, at most the valid one.
    pub preferred: Duration,
    /// DNS servers (RFC 8106); `None`: where `[dns64]` listens on the device.
    pub rdnss: Option<Vec<Ipv6Addr>>,
    /// Domains in which hosts look for names (RFC 8106).
    pub dnssl: Vec<Name>,
    /// Lifetime of both; `None`: three intervals.
    pub dns_lifetime: Option<Duration>,
    /// Translation prefixes (RFC 8781); `None`: those of the translators and of `[dns64]`.
    pub pref64: Option<Vec<Pool6>>,
    /// Their lifetime; `None`: three intervals.
    pub pref64_lifetime: Option<Duration>,
    /// Routes through this router, beside the default one (RFC 4191).
    pub routes: Vec<AdvertisedRoute>,
    /// The link's MTU in octets; `None`: not told.
    pub mtu: Option<u32>,
    /// How long this router is a default router; zero: it is none; `None`: three intervals.
    pub lifetime: Option<Duration>,
    /// Longest time between advertisements that nobody asked for.
    pub interval: Duration,
    /// Shortest time between them; `None`: a third of the longest.
    pub min_interval: Option<Duration>,
    /// Preference among default routers (RFC 4191).
    pub preference: Preference,
    /// Hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Hosts get other configuration by DHCPv6; always with `dhcpv6`; `None`: only with it.
    pub other: Option<bool>,
    /// Hop limit that hosts begin with; zero: not told.
    pub hop_limit: u8,
    /// How long a neighbour counts as reachable; zero: not told.
    pub reachable: Duration,
    /// Time between neighbour solicitations; zero: not told.
    pub retrans: Duration,
    /// The router's link-layer address goes with it.
    pub source_link_layer: bool,
    /// INFORMATION-REQUESTs are answered: stateless DHCPv6 (RFC 8415 section 18.3.6).
    pub dhcpv6: bool,
    /// Settings of the device are set up and taken down.
    pub manage: bool,
}

/// `[[advertise.route]]`: a route through this router (RFC 4191 section 2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedRoute {
    /// Where to.
    pub prefix: Ipv6Net,
    /// Preference among routes to the same prefix.
    pub preference: Preference,
    /// Its lifetime; `None`: three intervals.
    pub lifetime: Option<Duration>,
}

impl Advertise {
    /// How long this router is a default router.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime.unwrap_or(self.interval * 3)
    }

    /// Lifetime of DNS servers and domains.
    #[must_use]
    pub fn dns_lifetime(&self) -> Duration {
        self.dns_lifetime.unwrap_or(self.interval * 3)
    }

    /// Lifetime of translation prefixes.
    #[must_use]
    pub fn pref64_lifetime(&self) -> Duration {
        self.pref64_lifetime.unwrap_or(self.interval * 3)
    }

    /// Shortest time between advertisements that nobody asked for (RFC 4861 section 6.2.1).
    #[must_use]
    pub fn min_interval(&self) -> Duration {
        let third = self.interval / 3;
        self.min_interval.unwrap_or(third.max(read::MIN_INTERVAL))
    }

    /// Whether hosts get other configuration by DHCPv6.
    #[must_use]
    pub fn other(&self) -> bool {
        self.dhcpv6 || self.other == Some(true)
    }
}

/// Preference among default routers (RFC 4191 section 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// Others are preferred.
    Low,
    /// As routers without a preference.
    #[default]
    Medium,
    /// Preferred to others.
    High,
}
