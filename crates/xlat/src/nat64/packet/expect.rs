//! Connections that are expected from IPv4, because an ALG has read that they will come (RFC 6384 section 7.2).
//!
//! An expectation is a session whose remote port is 0: it keeps its BIB entry for TCP_TRANS, and names the address that
//! may connect. It ends when the expected connection opens. A BIB entry that was made for it accepts no other
//! connections.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;

use crate::nat64::table::{
    Protocol, Session, SessionKey, SessionLife, Side, Trouble, View, bib_flags, retry, state,
};
use crate::verdict::DropReason;

use super::{Birth, Segment, Tuple};

impl<'a> View<'a> {
    /// A BIB entry of TCP for a host's transport address at an IPv4 address, through which `from` may connect.
    pub(crate) fn expect(
        &self,
        host: (Ipv6Addr, u16),
        at: Ipv4Addr,
        from: Ipv4Addr,
        pool6: u8,
        mark: u32,
    ) -> Result<(Ipv4Addr, u16), DropReason> {
        let (protocol, segment) = (Protocol::Tcp, Segment::Syn);
        let remote = (from, 0);
        let tuple =
            Tuple { protocol, near: host, remote, segment, pool6, mark, packets: 0, octets: 0 };
        let mut is_new = false;
        retry(|| self.try_expect(&tuple, at, &mut is_new))
    }

    fn try_expect(
        &self,
        tuple: &Tuple<Ipv6Addr>,
        at: Ipv4Addr,
        is_new: &mut bool,
    ) -> Result<(Ipv4Addr, u16), Trouble> {
        let protocol = tuple.protocol.number();
        let chain = self.bib6_chain(tuple.near, protocol).ok_or(DropReason::BibFull)?;
        let (found, _) = self.find6(&chain, tuple.near, protocol);
        let live = found.filter(|(_, bib)| bib.state() == state::LIVE);
        let Some((index, bib)) = live else {
            if self.nat.is_draining() {
                return Err(DropReason::Draining.into());
            }
            self.bind(tuple, found.map(|(_, previous)| previous), Some(at))?;
            *is_new = true;
            return Err(Trouble::Again);
        };
        let local = bib.v4();
        if local.0 != at {
            // The IPv4 end takes data connections only from the address of the control connection.
            return Err(DropReason::PoolExhausted.into());
        }
        if core::mem::take(is_new) {
            bib.flags.fetch_or(bib_flags::EXPECTED, Relaxed);
        }
        let key = SessionKey { local, remote: tuple.remote, protocol };
        let birth = Birth::of(tuple.protocol, Side::V6);
        if let Some((_, session)) = self.session(&key)
            && session.bib.load(Relaxed) == index
        {
            let life = session.life();
            let again = SessionLife { tick: self.now, ..life };
            return if session.change(life, again) { Ok(local) } else { Err(Trouble::Again) };
        }
        self.open((index, bib), &key, birth, Side::V6, tuple)?;
        Ok(local)
    }

    /// The expectation that a packet from IPv4 meets.
    pub(crate) fn expectation(&self, tuple: &Tuple<Ipv4Addr>) -> Option<&'a Session> {
        let wanted = tuple.protocol == Protocol::Tcp
            && tuple.segment == Segment::Syn
            && !self.nat.settings.algs.is_empty();
        let key = SessionKey::tcp(tuple.near, (tuple.remote.0, 0));
        wanted.then(|| self.session(&key)).flatten().map(|(_, session)| session)
    }

    /// Whether a packet from IPv4 opens the default data connection of FTP: from the port beside that of the server, to
    /// where the host has opened the connection from (RFC 6384 section 8).
    pub(crate) fn is_default_data(&self, tuple: &Tuple<Ipv4Addr>) -> bool {
        let is_of = |control: u16| {
            self.session(&SessionKey::tcp(tuple.near, (tuple.remote.0, control))).is_some()
        };
        tuple.protocol == Protocol::Tcp
            && tuple.segment == Segment::Syn
            && self.nat.settings.algs.iter().any(|alg| {
                let mut ports = alg.ports().iter();
                ports.any(|port| alg.data_port(*port) == Some(tuple.remote.1) && is_of(*port))
            })
    }
}

/// Ends an expectation when its connection opens.
pub(crate) fn consume_expectation(expected: &Session) {
    let life = expected.life();
    if life.is_live() {
        // Fails if it was changed meanwhile: then it lasts until it expires.
        let _ = expected.end(life);
    }
}
