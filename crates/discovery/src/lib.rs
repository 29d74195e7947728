//! Discovers the translation prefix of the network that this host is in.
//!
//! [`Watcher`] listens to router advertisements and to changes of the network, sends solicitations and queries
//! resolvers; [`fordway_dns64::discovery`] decides. [`look`] does it once.
#![forbid(unsafe_code)]

mod ask;
mod links;
mod resolvers;
mod watcher;

use std::io;
use std::time::Duration;

pub use fordway_dns64::discovery::{
    Device, DeviceReport, Failure, Found, Prefix, Report, RouterReport, Said, ServerReport,
    Settings, Source, Unproved, Validation,
};
pub use watcher::Watcher;

use fordway_serve::boottime;

/// Why a network can't be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Router advertisements can't be received.
    #[error("cannot open a raw ICMPv6 socket for router advertisements: {0}")]
    RawSocket(io::Error),
    /// Interfaces, addresses and routes can't be listed.
    #[error(transparent)]
    Net(#[from] fordway_net::Error),
    /// The system gives no timer or no events.
    #[error("cannot wait for events: {0}")]
    Wait(io::Error),
    /// The system gives no random numbers.
    #[error("cannot draw a random number: {0}")]
    Random(String),
}

impl Error {
    /// Whether the process may not open a raw socket. Without [`Settings::advertisements`] everything else works.
    pub fn is_privilege(&self) -> bool {
        matches!(self, Error::RawSocket(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// What can be done about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::RawSocket(_) if self.is_privilege() => {
                Some("CAP_NET_RAW in the network namespace is needed: run as root or grant it")
            }
            Error::RawSocket(_) => Some("is IPv6 disabled (kernel parameter ipv6.disable)?"),
            Error::Net(error) => error.hint(),
            Error::Wait(_) | Error::Random(_) => None,
        }
    }
}

/// Finds the prefixes of the network once, within `timeout`, and reports how they were found.
///
/// It ends as soon as all immediate answers have come.
///
/// # Errors
///
/// As [`Watcher::open`] and [`Watcher::run`].
pub async fn look(settings: Settings, timeout: Duration) -> Result<(Found, Report), Error> {
    Watcher::open(settings)?.look(timeout).await
}

/// How long from now until a time of [`Prefix::until`]; zero if it is over.
#[must_use]
pub fn remaining(until: Duration) -> Duration {
    until.saturating_sub(boottime::now())
}

/// The time of [`Prefix::until`] that is so far from now.
#[must_use]
pub fn after(time: Duration) -> Duration {
    boottime::now().saturating_add(time)
}

/// How long ago a time such as [`RouterReport::heard`] was.
#[must_use]
pub fn elapsed(since: Duration) -> Duration {
    boottime::now().saturating_sub(since)
}
