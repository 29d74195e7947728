//! Application level gateways (ALGs): they read and change the payload of connections.
//!
//! An [`Alg`] names the ports whose connections it watches. For each connection it makes a [`Dialogue`], which gets the
//! octets of both directions in order, each octet once, and decides ([`Advice`]): they pass, they are replaced, or more
//! octets are needed first. TCP is handled below it, by `flow` (input and output, octet by octet) and `connection`
//! (both directions: sequence and acknowledgement numbers, SACK, windows, urgent data, FIN and RST):
//!
//! - held octets are not acknowledged, so their sender retransmits them if necessary;
//! - retransmitted octets are replaced by the same octets again, until they are acknowledged;
//! - segments out of order are kept, within bounds, or left to their sender to retransmit;
//! - a segment that has become longer than the MSS leaves as a super-packet, which the device cuts (`apply`).
//!
//! State is kept beside the tables (`store`), only for connections whose first segment was seen, and removed with the
//! session. Packets of other ports take no part in this. Kernel programs pass packets of the watched ports to the user
//! engine.
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

/// Held octets of one direction at most. A session whose [`Dialogue`] wants more bypasses the ALG from then on.
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

    /// The dialogue of a new connection.
    fn open(&self, ends: &Ends) -> Box<dyn Dialogue>;
}

/// The dialogue of one connection.
pub trait Dialogue: Debug + Send {
    /// The pending octets of one direction, at least one. They are passed in again, with what follows, until [`Advice`]
    /// deals with them. `ended`: nothing will follow. A replacement is written to `out`, which is empty.
    fn octets(
        &mut self,
        from: Side,
        octets: &[u8],
        ended: bool,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Advice;

    /// Octets of memory that it keeps, beside those that it is passed.
    fn kept(&self) -> usize {
        0
    }
}

/// The decision about octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// They are held until more has come.
    Hold,
    /// The first so many pass unchanged.
    Pass(usize),
    /// The first so many, at least one, are replaced by what was written, which may be nothing.
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
    /// A BIB entry of TCP for a host's transport address at an IPv4 address, through which `from` may connect. `None`:
    /// there is no room, or the host may have no more.
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

    /// A BIB entry for a host's transport address, at the IPv4 address that the session itself has, through which the
    /// session's IPv4 end may connect. `None`: there is no room, or the host may have no more.
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
