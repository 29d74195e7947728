//! What to advertise.

use std::net::Ipv6Addr;
use std::time::Duration;

use fordway_dns64::ndp::{MAX_RTR_ADV_INTERVAL, Preference};
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use super::resolver::Resolver;

/// Longest URI of a captive portal, in octets: what the option of DHCPv4 holds, so that all say the same (RFC 8910
/// section 2).
const LONGEST_URI: usize = 255;

/// The devices on which to advertise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Each at most once.
    pub devices: Vec<Device>,
}

/// What to advertise on one device. Lifetimes are in seconds, `u32::MAX` never ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name of the interface; it need not exist yet.
    pub device: String,
    /// Prefixes of the link.
    pub prefixes: Prefixes,
    /// Hosts find addresses of these prefixes on the link (L).
    pub on_link: bool,
    /// Hosts make addresses of these prefixes (A).
    pub autonomous: bool,
    /// Valid lifetime of prefixes.
    pub valid: u32,
    /// Preferred lifetime of prefixes; at most `valid`.
    pub preferred: u32,
    /// DNS servers.
    pub rdnss: Rdnss,
    /// Their lifetime; by default three times `interval`.
    pub rdnss_lifetime: Option<u32>,
    /// DNS search list, with the lifetime of the DNS servers.
    pub dnssl: Vec<Name>,
    /// NAT64 prefixes, of 32, 40, 48, 56, 64 or 96 bits.
    pub pref64: Vec<Ipv6Net>,
    /// Their lifetime; by default three times `interval`. Rounded up to 8 seconds, at most 65528.
    pub pref64_lifetime: Option<u32>,
    /// Encrypted DNS resolvers; each name at most once.
    pub dnr: Vec<Resolver>,
    /// URI of a captive portal's API, or the name that says that there is none (RFC 8910 section 2).
    pub captive_portal: Option<String>,
    /// Routes through this router.
    pub routes: Vec<Route>,
    /// MTU of the link, if hosts are to be told.
    pub mtu: Option<u32>,
    /// How long this router is a default router, in seconds; 0 is never, by default three times `interval`.
    pub lifetime: Option<u16>,
    /// Longest time between advertisements, 4 seconds to 30 minutes (`MaxRtrAdvInterval`).
    pub interval: Duration,
    /// Shortest time between unsolicited advertisements, 3 seconds to three quarters of `interval`
    /// (`MinRtrAdvInterval`); by default a third of it.
    pub min_interval: Option<Duration>,
    /// Addresses by DHCPv6 (M).
    pub managed: bool,
    /// Other configuration by DHCPv6 (O); always set where `dhcpv6` is.
    pub other: bool,
    /// Preference as a default router.
    pub preference: Preference,
    /// Hop limit that hosts begin with; 0 says nothing.
    pub hop_limit: u8,
    /// Time for which a neighbour counts as reachable, in milliseconds, at most an hour; 0 says nothing.
    pub reachable: u32,
    /// Time between neighbour solicitations, in milliseconds; 0 says nothing.
    pub retrans: u32,
    /// Advertises the link-layer address, so that hosts need not ask for it.
    pub source_link_layer: bool,
    /// Answers INFORMATION-REQUEST with DNS servers and search list (RFC 8415, stateless).
    pub dhcpv6: bool,
}

/// Prefixes of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefixes {
    /// The global /64s of the device's own addresses, as they come and go; none lives longer than the address it is of.
    OfDevice,
    /// These.
    Listed(Vec<Ipv6Net>),
}

/// DNS servers for hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rdnss {
    /// These.
    Listed(Vec<Ipv6Addr>),
    /// A DNS server of this host that listens on these: those of them that the device has, or a global
    /// address of the device for `::`; if the device has none, those that others of the host's have.
    Serving(Vec<Ipv6Addr>),
}

/// A route through this router (RFC 4191).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub prefix: Ipv6Net,
    /// Preference among routes to the same prefix.
    pub preference: Preference,
    /// Lifetime; by default three times the interval.
    pub lifetime: Option<u32>,
}

/// A setting that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongSetting {
    /// Two entries for one device.
    #[error("there are two entries for device {0}")]
    Twice(String),
    /// `interval` or `min_interval` is outside what RFC 4861 section 6.2.1 allows.
    #[error(
        "the interval between advertisements must be 4 to 1800 s, the shortest one 3 s to three quarters of it"
    )]
    Interval,
    /// The router lifetime is neither 0 nor at least the interval (RFC 4861 section 6.2.1).
    #[error("the router lifetime must be 0, or at least the interval between advertisements")]
    Lifetime,
    /// The preferred lifetime is longer than the valid one.
    #[error("the preferred lifetime of prefixes is longer than the valid one")]
    Preferred,
    /// A link-local, multicast or unspecified prefix.
    #[error("{0} can't be a prefix of a link")]
    Prefix(Ipv6Net),
    /// No length of RFC 6052.
    #[error("{0} can't be a NAT64 prefix: its length is none of 32, 40, 48, 56, 64, 96")]
    Pref64(Ipv6Net),
    /// No unicast address.
    #[error("{0} can't be the address of a DNS server")]
    Rdnss(Ipv6Addr),
    /// The root, or too long.
    #[error("{0} can't be in a DNS search list")]
    Dnssl(Name),
    /// It has no name, no address that hosts can reach, or no protocol; or is there twice.
    #[error("{0} can't be told as an encrypted DNS resolver, or is told twice")]
    Dnr(Name),
    /// No URI of a length that all options hold.
    #[error("\"{0}\" can't be the URI of a captive portal")]
    CaptivePortal(String),
    /// The same route twice in one advertisement (RFC 4191 section 2.3).
    #[error("there are two routes to {0}")]
    Route(Ipv6Net),
    /// Below what IPv6 needs.
    #[error("an MTU of {0} is below 1280, the least that IPv6 works with")]
    Mtu(u32),
    /// Above an hour (RFC 4861 section 6.2.1).
    #[error("a reachable time of {0} ms is longer than an hour")]
    Reachable(u32),
}

impl Device {
    /// The defaults: prefixes of the device's own addresses, no DNS server, no NAT64 prefix.
    pub fn new(device: impl Into<String>) -> Device {
        Device {
            device: device.into(),
            prefixes: Prefixes::OfDevice,
            on_link: true,
            autonomous: true,
            valid: 86_400,
            preferred: 14_400,
            rdnss: Rdnss::Listed(Vec::new()),
            rdnss_lifetime: None,
            dnssl: Vec::new(),
            pref64: Vec::new(),
            pref64_lifetime: None,
            dnr: Vec::new(),
            captive_portal: None,
            routes: Vec::new(),
            mtu: None,
            lifetime: None,
            interval: Duration::from_secs(MAX_RTR_ADV_INTERVAL.into()),
            min_interval: None,
            managed: false,
            other: false,
            preference: Preference::Medium,
            hop_limit: 64,
            reachable: 0,
            retrans: 0,
            source_link_layer: true,
            dhcpv6: false,
        }
    }

    /// `AdvDefaultLifetime`, in seconds.
    pub fn router_lifetime(&self) -> u16 {
        self.lifetime.unwrap_or_else(|| self.three_intervals().try_into().unwrap_or(u16::MAX))
    }

    /// Lifetime of what has no better reason for one: three intervals (RFC 8106 section 5.1, RFC 8781
    /// section 4.1), and not shorter than the router's own, which it is used with.
    pub fn option_lifetime(&self, configured: Option<u32>) -> u32 {
        let fallback = || self.three_intervals().max(self.router_lifetime().into());
        configured.unwrap_or_else(fallback)
    }

    /// `MinRtrAdvInterval`. RFC 4861 section 6.2.1 has `interval` itself for intervals below 9 seconds,
    /// which its own limit, three quarters, forbids: that limit it is then.
    pub fn min_interval(&self) -> Duration {
        let nine = Duration::from_secs(9);
        let fallback = if self.interval >= nine {
            self.interval.mul_f64(0.33)
        } else {
            self.interval.mul_f64(0.75)
        };
        self.min_interval.unwrap_or(fallback.max(Duration::from_secs(3)))
    }

    fn three_intervals(&self) -> u32 {
        3 * self.interval.as_secs_f64().ceil() as u32
    }

    /// Whether this can be advertised.
    ///
    /// # Errors
    ///
    /// The first [`WrongSetting`].
    pub fn check(&self) -> Result<(), WrongSetting> {
        let seconds = Duration::from_secs;
        let shortest = self.min_interval();
        if !(seconds(4)..=seconds(1800)).contains(&self.interval)
            || shortest < seconds(3)
            || shortest > self.interval.mul_f64(0.75)
        {
            return Err(WrongSetting::Interval);
        }
        let lifetime = self.router_lifetime();
        if lifetime != 0 && seconds(lifetime.into()) < self.interval {
            return Err(WrongSetting::Lifetime);
        }
        if self.preferred > self.valid {
            return Err(WrongSetting::Preferred);
        }
        self.check_addresses()?;
        if let Some(name) = self.dnssl.iter().find(|name| name.is_root()) {
            return Err(WrongSetting::Dnssl(name.clone()));
        }
        let told = |(at, it): &(usize, &Resolver)| {
            !it.is_possible() || self.dnr[..*at].iter().any(|other| other.name == it.name)
        };
        if let Some((_, resolver)) = self.dnr.iter().enumerate().find(told) {
            return Err(WrongSetting::Dnr(resolver.name.clone()));
        }
        let is_uri = |it: &&String| {
            (1..=LONGEST_URI).contains(&it.len())
                && it.bytes().all(|octet| octet.is_ascii_graphic())
        };
        if let Some(uri) = self.captive_portal.as_ref().filter(|it| !is_uri(it)) {
            return Err(WrongSetting::CaptivePortal(uri.clone()));
        }
        match self.mtu {
            Some(mtu) if mtu < 1280 => Err(WrongSetting::Mtu(mtu)),
            _ if self.reachable > 3_600_000 => Err(WrongSetting::Reachable(self.reachable)),
            _ => Ok(()),
        }
    }

    fn check_addresses(&self) -> Result<(), WrongSetting> {
        if let Prefixes::Listed(prefixes) = &self.prefixes {
            // RFC 4861 section 4.6.2: no prefix option for the link-local prefix.
            let wrong =
                |it: &&Ipv6Net| it.addr().is_unicast_link_local() || it.addr().is_multicast();
            if let Some(prefix) = prefixes.iter().find(wrong) {
                return Err(WrongSetting::Prefix(*prefix));
            }
        }
        let lengths = [32, 40, 48, 56, 64, 96];
        if let Some(it) = self.pref64.iter().find(|it| !lengths.contains(&it.prefix_len())) {
            return Err(WrongSetting::Pref64(*it));
        }
        if let Rdnss::Listed(servers) = &self.rdnss
            && let Some(it) = servers.iter().find(|it| it.is_multicast() || it.is_unspecified())
        {
            return Err(WrongSetting::Rdnss(*it));
        }
        let twice = |(at, route): &(usize, &Route)| {
            self.routes[..*at].iter().any(|it| it.prefix.trunc() == route.prefix.trunc())
        };
        match self.routes.iter().enumerate().find(twice) {
            Some((_, route)) => Err(WrongSetting::Route(route.prefix)),
            None => Ok(()),
        }
    }
}

impl Settings {
    /// Whether this can be advertised.
    ///
    /// # Errors
    ///
    /// The device and its first [`WrongSetting`].
    pub fn check(&self) -> Result<(), (String, WrongSetting)> {
        for (at, device) in self.devices.iter().enumerate() {
            let name = &device.device;
            if self.devices[..at].iter().any(|it| it.device == *name) {
                return Err((name.clone(), WrongSetting::Twice(name.clone())));
            }
            device.check().map_err(|wrong| (name.clone(), wrong))?;
        }
        Ok(())
    }
}
