//! Which translation prefix a network has (RFC 7050, RFC 8781).
//!
//! | module | content | source |
//! |---|---|---|
//! | [`heuristic`] | prefixes out of the AAAA records of `ipv4only.arpa` | RFC 7050 section 3 |
//! | [`answer`] | what a DNS message says about a question | RFC 1034, RFC 2308 |
//! | [`validation`] | whether a prefix belongs to a domain that is trusted | RFC 7050 section 3.1.2 |
//! | [`Discovery`] | everything together: events and time in, prefixes and what to send out | |
//!
//! [`Discovery`] is a state machine without I/O. Its driver passes in links, router advertisements and DNS answers with
//! the time ([`Discovery::handle`]), carries out actions ([`Discovery::poll`]), and calls again at
//! [`Discovery::deadline`]. [`Discovery::found`] gives the prefixes, [`Discovery::report`] how they were found.

mod advertised;
pub mod answer;
mod device;
pub mod heuristic;
mod lookup;
mod machine;
mod random;
mod report;
mod solicit;
pub mod validation;

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use fordway_xlat::addr::Pool6;
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType};

pub use answer::Failure;
pub use machine::Discovery;
pub use report::{DeviceReport, Report, RouterReport, Said, ServerReport};
pub use validation::{Unproved, Validation};

/// Time since any origin, of a clock that goes on while the host sleeps: Linux's `CLOCK_BOOTTIME`.
pub type Time = Duration;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// The prefixes that are to be used, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The prefixes. IPv4 addresses are embedded with all of them, in this order, or with the first.
    pub prefixes: Vec<Prefix>,
}

impl Found {
    /// The prefix to use where one is enough: the best, on the interface `device` if one is named.
    #[must_use]
    pub fn preferred(&self, device: Option<&str>) -> Option<&Prefix> {
        let on = |prefix: &&Prefix| match (device, &prefix.device) {
            (Some(wanted), Some(device)) => device.name == wanted,
            _ => true,
        };
        self.prefixes.iter().find(on)
    }
}

/// A translation prefix, with what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The prefix.
    pub pool6: Pool6,
    /// Its source.
    pub source: Source,
    /// The interface whose network it is for (RFC 8781 section 5.1); none if it was configured.
    pub device: Option<Device>,
    /// When it expires unless it is renewed.
    pub until: Option<Time>,
    /// Whether anything proves it.
    pub validation: Validation,
    /// Whether it has expired, and is used only because no resolver answers.
    pub stale: bool,
}

/// The source of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The configuration.
    Configured,
    /// A router advertisement with a PREF64 option (RFC 8781).
    RouterAdvertisement {
        /// Link-local address of the router.
        router: Ipv6Addr,
    },
    /// An answer for `ipv4only.arpa` (RFC 7050).
    Dns {
        /// The resolver that gave it.
        server: SocketAddr,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Configured => f.write_str("configured"),
            Source::RouterAdvertisement { router } => write!(f, "router {router}"),
            Source::Dns { server } => write!(f, "resolver {server}"),
        }
    }
}

/// How to discover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Configured prefixes: if there are any, nothing is discovered.
    pub configured: Vec<Pool6>,
    /// The only interface to look at. Otherwise all are looked at, and those with an IPv6 default route are used, in
    /// the order of its metric.
    pub device: Option<String>,
    /// Whether router advertisements can be heard and solicitations be sent.
    pub advertisements: bool,
    /// Whether resolvers may be asked.
    pub dns: bool,
    /// Ask resolvers also where an advertisement has told a prefix; it is preferred all the same.
    pub both: bool,
    /// Ask a resolver that knows no prefix whether it knows the name's IPv4 addresses: then it is no DNS64 server, and
    /// otherwise something is wrong.
    pub diagnose: bool,
    /// Longest random delay of the first solicitation (`MAX_RTR_SOLICITATION_DELAY`).
    pub solicitation_delay: Duration,
    /// Domains whose names for a translator are believed, if DNSSEC proves them.
    pub trusted_domains: Vec<Name>,
    /// The path to the resolvers is secure (RFC 7050 section 2.2, "Secure Channel").
    pub secure_channel: bool,
    /// Whether only prefixes that are proved may be used, by DNSSEC or a secure channel; those of router advertisements
    /// are as trustworthy as the link (RFC 8781 section 7).
    pub require_validation: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            configured: Vec::new(),
            device: None,
            advertisements: true,
            dns: true,
            both: false,
            diagnose: false,
            solicitation_delay: Duration::from_secs(1),
            trusted_domains: Vec::new(),
            secure_channel: false,
            require_validation: false,
        }
    }
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which.
    pub device: Device,
    /// Whether it can pass packets.
    pub up: bool,
    /// Whether it was down at some moment since the last event.
    pub was_down: bool,
    /// Whether it takes part in multicast.
    pub multicast: bool,
    /// Whether it has an IPv6 address of more than the link.
    pub addressed: bool,
    /// Metric of its best IPv6 default route; none if it has none.
    pub default_route: Option<u32>,
}

/// The relevant fields of a router advertisement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// Whether it is a default router: its lifetime is not zero.
    pub default_router: bool,
    /// Its PREF64 options, with their lifetimes; zero withdraws.
    pub pref64: Vec<(Pool6, Duration)>,
    /// Its recursive DNS servers, with their lifetimes; `None` is for ever, zero withdraws.
    pub rdnss: Vec<(Ipv6Addr, Option<Duration>)>,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// All interfaces as they are now, but for those that can't lead to a network (loopback).
    Links(Vec<Link>),
    /// A router advertisement that has passed the checks of RFC 4861 section 6.1.2.
    Advertisement {
        /// Index of the interface.
        device: u32,
        /// Source address.
        router: Ipv6Addr,
        /// Its content.
        advertisement: Advertisement,
    },
    /// The resolvers that the host is configured with.
    Resolvers(Vec<SocketAddr>),
    /// The answer to a query, or why there is none.
    Answer {
        /// [`Ask::id`].
        id: u64,
        /// A message that answers the question, or why there is none.
        answer: Result<Box<Message>, Failure>,
    },
    /// The host has slept, and may be in another network now.
    Resumed,
    /// Addresses or routes have changed: resolvers that could not be reached may be reachable now.
    Reachable,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a router solicitation to all routers (RFC 4861 section 6.3.7).
    Solicit {
        /// Index of the interface.
        device: u32,
    },
    /// Ask a resolver.
    Ask(Ask),
}

/// A question for a resolver. Class IN, recursion desired, and CD not set: with it, a DNS64 server does not synthesise
/// (RFC 7050 section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// To be given back with the answer.
    pub id: u64,
    /// The interface that the question has to leave by, if the resolver was learned there (RFC 8880 section 7.1).
    pub device: Option<Device>,
    /// Whom to ask.
    pub server: SocketAddr,
    /// About which name.
    pub name: Name,
    /// For which records.
    pub record_type: RecordType,
    /// Set AD in the question, so that the answer says whether the resolver has validated it (RFC 6840 section 5.7).
    pub authenticated: bool,
    /// How long to wait.
    pub timeout: Duration,
}
