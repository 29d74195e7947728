//! Application level gateways (ALGs): they read and change what applications say.
//!
//! An [`Alg`] names the ports whose connections it watches. For each of them it makes a [`Dialogue`], which is
//! shown the octets of both directions in order, each octet once, and says what becomes of them ([`Advice`]):
//! they pass, others stand in their place, or more is needed first. What TCP makes of that is done below it, in
//! `flow` (what went in and what came out, octet by octet) and `connection` (both directions: sequence and
//! acknowledgement numbers, SACK, windows, urgent data, FIN and RST):
//!
//! - octets that are held are not acknowledged, so their sender keeps them and sends them again if need be;
//! - what is sent again becomes the same octets again, as long as they are not acknowledged;
//! - what comes before its turn waits, within bounds, or is left to its sender to repeat;
//! - what became longer than a segment may be leaves as a super-packet, which the device cuts (`apply`).
//!
//! State is kept beside the tables (`store`), only for connections whose first segment was seen, and removed with the
//! session. Connections of other ports never come here. In the kernel, programs leave packets of the watched
//! ports to the user engine.
//!
//! An ALG may ask for mappings ([`Context::expect`]): a BIB entry through which one remote address may open
//! connections, for as long as a session that begins lives (TCP_TRANS) or a connection uses it.

mod apply;
mod connection;
mod counters;
mod fields;
mod flow;
pub mod ftp;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use apply::{Watched, apply};
pub use connection::{Connection, Passed};
pub use counters::{AlgCounters, Event};
pub use fields::TcpFields;
pub use ftp::Ftp;
pub(crate) use store::{Key, Store};

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use crate::config::Config;
use crate::nat64::{Nat64, Side};

/// Octets of one direction that are held at most. A session whose [`Dialogue`] wants more bypasses the ALG from then
/// on.
pub const HELD_MAX: usize = 8192;

/// An ALG: made once, shared by all sessions.
pub trait Alg: Debug + Send + Sync {
    /// Its name in the configuration, in metrics and for people: small letters.
    fn label(&self) -> &'static str;

    /// TCP ports of servers whose connections it watches.
    fn ports(&self) -> &[u16];

    /// The port from which a server of such a port opens connections without announcing them.
    fn data_port(&self, _server: u16) -> Option<u16> {
        None
    }

    /// A connection that begins.
    fn open(&self, ends: &Ends) -> Box<dyn Dialogue>;
}

/// What is said on one connection.
pub trait Dialogue: Debug + Send {
    /// The octets of one direction that are not dealt with, at least one. They are shown
    /// again, with what followed, until [`Advice`] deals with them. `ended`: nothing will follow. What stands in
    /// their place is to be written to `out`, which is empty.
    fn octets(
        &mut self,
        from: Side,
        octets: &[u8],
        ended: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice;

    /// Octets of memory that it keeps of what was said, beside those that it is shown.
    fn kept(&self) -> usize {
        0
    }
}

/// What becomes of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It depends on what follows: they wait.
    Hold,
    /// The first so many pass as they are.
    Pass(usize),
    /// In the place of the first so many, at least one, stands what was written, which may be nothing.
    Replace(usize),
    /// Everything passes unchanged from here on, in both directions, until the connection ends.
    Bypass,
}

/// The ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// From which side it was opened.
    pub opener: Side,
    /// (X',x): the IPv6 host.
    pub host: (Ipv6Addr, u16),
    /// (T,t): its address in IPv4.
    pub local: (Ipv4Addr, u16),
    /// (Z,z): the IPv4 host.
    pub remote: (Ipv4Addr, u16),
    /// Which of `pool6` Z is embedded in.
    pub pool6: u8,
}

/// What an ALG can ask of the translator.
pub trait Mappings {
    /// A BIB entry of TCP for a host's transport address at an IPv4 address, through which `from` may connect.
    /// `None`: there is no room, or the host may have no more.
    fn expect(
        &mut self,
        host: (Ipv6Addr, u16),
        at: Ipv4Addr,
        from: Ipv4Addr,
        pool6: u8,
    ) -> Option<(Ipv4Addr, u16)>;

    /// The IPv6 address of an IPv4 address in one of `pool6`.
    fn v6_of(&self, pool6: u8, addr: Ipv4Addr) -> Option<Ipv6Addr>;

    /// The configuration and the tables behind it, for ALGs that bind addresses; `None`: there are none.
    fn tables(&self) -> Option<(&Config, &Nat64)> {
        None
    }
}

/// What a [`Dialogue`] is given, and what it can ask for.
pub struct Context<'a> {
    /// The session's ends.
    pub ends: Ends,
    /// The time of the segment.
    pub now: Duration,
    /// The ALG's counters.
    pub counters: &'a AlgCounters,
    /// There is memory to keep what was said.
    pub may_keep: bool,
    mappings: &'a mut dyn Mappings,
}

impl<'a> Context<'a> {
    /// Of a session.
    pub fn new(
        ends: Ends,
        now: Duration,
        counters: &'a AlgCounters,
        mappings: &'a mut dyn Mappings,
    ) -> Context<'a> {
        Context { ends, now, counters, may_keep: true, mappings }
    }

    /// A BIB entry for a host's transport address, at the IPv4 address that the session itself has, through
    /// which the session's IPv4 end may connect. `None`: there is no room, or the host may have no more.
    pub fn expect(&mut self, host: (Ipv6Addr, u16)) -> Option<(Ipv4Addr, u16)> {
        let Ends { local, remote, pool6, .. } = self.ends;
        let made = self.mappings.expect(host, local.0, remote.0, pool6);
        let event = if made.is_some() { Event::Mapped } else { Event::NotMapped };
        self.counters.count(event);
        made
    }

    /// The IPv6 address of an IPv4 host in the session's prefix.
    #[must_use]
    pub fn v6_of(&self, addr: Ipv4Addr) -> Option<Ipv6Addr> {
        self.mappings.v6_of(self.ends.pool6, addr)
    }

    /// The configuration and the tables behind it.
    #[must_use]
    pub fn tables(&self) -> Option<(&Config, &Nat64)> {
        self.mappings.tables()
    }

    /// Counts an event of the ALG.
    pub fn count(&self, event: Event) {
        self.counters.count(event);
    }
}

impl Debug for Context<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Context").field("ends", &self.ends).finish_non_exhaustive()
    }
}
