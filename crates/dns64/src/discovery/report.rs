//! How the prefixes were found, for people.

use std::net::{Ipv6Addr, SocketAddr};

use fordway_xlat::addr::Pool6;

use super::{Device, Failure, Prefix, Time};

/// All queries, answers and advertisements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The interfaces, those that are used first.
    pub devices: Vec<DeviceReport>,
    /// The resolvers that the host is configured with.
    pub resolvers: Vec<ServerReport>,
    /// All prefixes that are known, in the order of preference.
    pub prefixes: Vec<Prefix>,
    /// Whether all routers and resolvers have answered or can't: more will come only after a change.
    pub settled: bool,
}

/// What is known of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Which.
    pub device: Device,
    /// Whether it can pass packets.
    pub up: bool,
    /// Whether it has an IPv6 address of more than the link.
    pub addressed: bool,
    /// Metric of its best IPv6 default route.
    pub default_route: Option<u32>,
    /// Whether its prefixes may be used: it has an IPv6 default route, or was named.
    pub used: bool,
    /// Solicitations that were sent since it is up.
    pub solicitations: u32,
    /// Routers that were heard since it is up.
    pub routers: Vec<RouterReport>,
    /// Resolvers that its routers name.
    pub resolvers: Vec<ServerReport>,
}

/// The last advertisement of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterReport {
    /// Its link-local address.
    pub router: Ipv6Addr,
    /// When it was heard.
    pub heard: Time,
    /// Whether it is a default router.
    pub default_router: bool,
    /// The prefixes in its last advertisement that are not withdrawn.
    pub pref64: Vec<Pool6>,
    /// Resolvers in its last advertisement that are not withdrawn.
    pub rdnss: Vec<Ipv6Addr>,
}

/// The last answer of a resolver for `ipv4only.arpa`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Its address.
    pub server: SocketAddr,
    /// How often it was asked.
    pub asked: u32,
    /// Its answer; `None` before the first one.
    pub said: Option<Said>,
    /// Whether it knows the name's IPv4 addresses, if it was asked ([`Settings::diagnose`](super::Settings::diagnose)).
    pub knows_name: Option<bool>,
}

/// An answer of a resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Addresses with these prefixes.
    Prefixes(Vec<Pool6>),
    /// Addresses without a well-known address in them, like this one.
    OtherAddresses(Ipv6Addr),
    /// No addresses.
    Nothing {
        /// Whether there is no such name at all (NXDOMAIN), or only no address (NODATA).
        name_exists: bool,
    },
    /// Nothing of use.
    Failed(Failure),
}
