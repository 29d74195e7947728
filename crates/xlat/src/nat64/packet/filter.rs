//! Filtering and updating binding and session information (RFC 6146 section 3.5).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;

use crate::nat64::table::{
    Found, PermissionKey, Protocol, Session, SessionKey, SessionLife, Side, TcpState, Timeout,
    Trouble, View, bib_flags, retry, state,
};
use crate::verdict::DropReason;

use super::expect::consume_expectation;
use super::{Birth, Segment, Transition, transition};

/// A packet's addresses and ports, as far as the tables need them. Of ICMP queries, the identifier is the port of the
/// IPv6 host's side, and the other is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<A> {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The host's side: (X',x) of a packet from IPv6, (T,t) of one from IPv4.
    pub near: (A, u16),
    /// The other side in IPv4: (Z,z).
    pub remote: (Ipv4Addr, u16),
    /// What a TCP segment means.
    pub segment: Segment,
    /// Which of `pool6` the remote address is embedded in.
    pub pool6: u8,
    /// The packet's mark.
    pub mark: u32,
    /// Packets on the wire: the segments of a super-packet.
    pub packets: u32,
    /// Octets, as it came.
    pub octets: u32,
}

/// The IPv6 side of a packet from IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing6 {
    /// (X',x).
    pub host: (Ipv6Addr, u16),
    /// Which of `pool6` the remote address is to be embedded in.
    pub pool6: u8,
}

/// Why a packet from IPv4 is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is dropped.
    Drop(DropReason),
    /// An unsolicited SYN: it is kept for TCP_INCOMING_SYN (RFC 6146 section 3.5.2.2, RFC 5382 REQ-4).
    Store,
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Refusal {
        Refusal::Drop(reason)
    }
}

impl View<'_> {
    /// A packet from an IPv6 host: updates the tables, and gives (T,t).
    pub(crate) fn filter_v6(&self, tuple: &Tuple<Ipv6Addr>) -> Result<(Ipv4Addr, u16), DropReason> {
        retry(|| self.try_filter_v6(tuple))
    }

    fn try_filter_v6(&self, tuple: &Tuple<Ipv6Addr>) -> Result<(Ipv4Addr, u16), Trouble> {
        let protocol = tuple.protocol.number();
        let chain = self.bib6_chain(tuple.near, protocol).ok_or(DropReason::BibFull)?;
        let (found, _) = self.find6(&chain, tuple.near, protocol);
        let opens = tuple.protocol != Protocol::Tcp || tuple.segment.opens();
        if let Some((index, bib)) = found
            && bib.state() == state::LIVE
        {
            let local = bib.v4();
            let key = SessionKey { local, remote: tuple.remote, protocol };
            if let Some(found @ (place, session)) = self.session(&key)
                && session.bib.load(Relaxed) == index
            {
                if session.pool6.load(Relaxed) != tuple.pool6 {
                    // Answers come from where the host asked last.
                    session.pool6.store(tuple.pool6, Relaxed);
                    self.note(place);
                }
                self.refresh(found, Side::V6, tuple)?;
                return Ok(local);
            }
            if opens {
                let birth = Birth::of(tuple.protocol, Side::V6);
                self.open((index, bib), &key, birth, Side::V6, tuple)?;
            }
            // RFC 6146 section 3.5.2.2, CLOSED: other segments pass by the BIB alone.
            return Ok(local);
        }
        if !opens {
            return Err(DropReason::NotSyn.into());
        }
        if self.nat.is_draining() {
            return Err(DropReason::Draining.into());
        }
        // A host that returns during the hold-down of its port gets the port again.
        self.bind(tuple, found.map(|(_, previous)| previous), None)?;
        // With the BIB entry the next attempt makes the session.
        Err(Trouble::Again)
    }

    /// A packet from IPv4: updates the tables, and gives (X',x). `may_begin`: whether its source may stand in IPv6 by
    /// the tuple's prefix; asked for only where there is no session yet, which has a prefix of its own.
    pub(crate) fn filter_v4(
        &self,
        tuple: &Tuple<Ipv4Addr>,
        may_begin: impl Fn() -> Result<(), DropReason>,
    ) -> Result<Outgoing6, Refusal> {
        retry(|| self.try_filter_v4(tuple, &may_begin))?.ok_or(Refusal::Store)
    }

    /// `None`: the SYN is to be stored.
    fn try_filter_v4(
        &self,
        tuple: &Tuple<Ipv4Addr>,
        may_begin: impl Fn() -> Result<(), DropReason>,
    ) -> Result<Option<Outgoing6>, Trouble> {
        let protocol = tuple.protocol.number();
        let key = SessionKey { local: tuple.near, remote: tuple.remote, protocol };
        if let Some(found @ (_, session)) = self.session(&key)
            && let Some(bib) = Self::entry(self.regions.bibs, session.bib.load(Relaxed))
            && bib.state() == state::LIVE
        {
            if session.life().timeout == Timeout::TcpIncomingSyn as u8 {
                // The session of a stored SYN does not permit its sender to send; only the SYN may be retransmitted.
                return if tuple.segment == Segment::Syn {
                    Ok(None)
                } else {
                    Err(DropReason::Filtered.into())
                };
            }
            self.refresh(found, Side::V4, tuple)?;
            let pool6 = session.pool6.load(Relaxed);
            return Ok(Some(Outgoing6 { host: bib.v6(), pool6 }));
        }
        let syn = tuple.protocol == Protocol::Tcp && tuple.segment.opens();
        let expectation = self.expectation(tuple);
        if expectation.is_none() {
            may_begin()?;
        }
        let is_expected = expectation.is_some() || self.is_default_data(tuple);
        if !is_expected {
            self.may_begin(tuple.remote.0)?;
        }
        let accepts = self.nat.settings.accept_v4_syn || is_expected;
        if syn && !accepts {
            return Err(DropReason::ExternallyInitiated.into());
        }
        let Some((index, bib)) = self.bib4(tuple.near, protocol) else {
            if self.bind_incoming(tuple)? {
                // With the BIB entry the next attempt makes the session.
                return Err(Trouble::Again);
            }
            // A SYN with ACK answers a SYN; it can't be a simultaneous open.
            let waits = syn && tuple.segment == Segment::Syn;
            return if waits { Ok(None) } else { Err(DropReason::NoBib.into()) };
        };
        if !is_expected && bib.flags.load(Relaxed) & bib_flags::EXPECTED != 0 {
            return Err(DropReason::Filtered.into());
        }
        let filters = self.nat.filters_by_address() && !is_expected;
        let mut birth = Birth::of(tuple.protocol, Side::V4);
        if tuple.segment == Segment::Syn && syn && filters {
            if self.is_quiet {
                return Err(DropReason::SynUnanswered.into());
            }
            birth.timeout = Timeout::TcpIncomingSyn;
        } else if filters && !self.is_permitted(&PermissionKey::of(index, &key)) {
            return Err(DropReason::Filtered.into());
        }
        let pool6 = expectation.map_or(tuple.pool6, |expected| expected.pool6.load(Relaxed));
        if tuple.protocol != Protocol::Tcp || syn {
            let tuple = Tuple { pool6, ..*tuple };
            self.open((index, bib), &key, birth, Side::V4, &tuple)?;
        }
        if let Some(expected) = expectation {
            consume_expectation(expected);
        }
        let stored = birth.timeout == Timeout::TcpIncomingSyn;
        Ok((!stored).then(|| Outgoing6 { host: bib.v6(), pool6 }))
    }

    /// An ICMP error about a packet that an IPv6 host got: gives (T,t) of that host, if there is a session. Nothing is
    /// refreshed (RFC 5508 REQ-6).
    pub(crate) fn error_from_v6(
        &self,
        protocol: Protocol,
        host: (Ipv6Addr, u16),
        remote: (Ipv4Addr, u16),
    ) -> Option<(Ipv4Addr, u16)> {
        let (index, bib) = self.bib6(host, protocol.number())?;
        let key = SessionKey { local: bib.v4(), remote, protocol: protocol.number() };
        let (_, session) = self.session(&key)?;
        (session.bib.load(Relaxed) == index).then_some(key.local)
    }

    /// An ICMP error about a packet that came from (T,t): gives (X',x), if there is a session. Nothing is refreshed.
    pub(crate) fn error_from_v4(
        &self,
        protocol: Protocol,
        local: (Ipv4Addr, u16),
        remote: (Ipv4Addr, u16),
    ) -> Option<Outgoing6> {
        let key = SessionKey { local, remote, protocol: protocol.number() };
        let (_, session) = self.session(&key)?;
        let bib = Self::entry(self.regions.bibs, session.bib.load(Relaxed))?;
        (bib.state() == state::LIVE)
            .then(|| Outgoing6 { host: bib.v6(), pool6: session.pool6.load(Relaxed) })
    }

    /// Updates state and lifetime of a session for a packet, and counts it.
    fn refresh<A>(
        &self,
        (index, session): Found<'_, Session>,
        side: Side,
        tuple: &Tuple<A>,
    ) -> Result<(), Trouble> {
        let (before, after) = loop {
            let before = session.life();
            if !before.is_live() {
                return Err(Trouble::Again);
            }
            let mut after = before;
            if let Some(state) = TcpState::of(before.state) {
                let mut step = transition(state, side, tuple.segment);
                if step.state == TcpState::V4Init && !self.nat.settings.accept_v4_syn {
                    step = Transition { state, lifetime: None };
                }
                after.state = step.state as u8;
                if let Some(timeout) = step.lifetime {
                    after.timeout = timeout as u8;
                    after.tick = self.now;
                }
            } else if side == Side::V6 || self.nat.settings.refresh_from_v4 {
                after.tick = self.now;
            }
            if self.answers_stored_syn(before, after) {
                if self.answer_stored_syn(session, before, after)? {
                    break (before, after);
                }
            } else if after == before || session.change(before, after) {
                break (before, after);
            }
        };
        if (before.state, before.timeout) != (after.state, after.timeout) {
            self.note(index);
        }
        count(session, side, tuple);
        Ok(())
    }

    /// Whether the host has answered a stored SYN: from now on the session permits its remote address.
    fn answers_stored_syn(&self, before: SessionLife, after: SessionLife) -> bool {
        let stored = Timeout::TcpIncomingSyn as u8;
        self.nat.filters_by_address() && before.timeout == stored && after.timeout != stored
    }

    /// `false`: the session has changed meanwhile.
    fn answer_stored_syn(
        &self,
        session: &Session,
        before: SessionLife,
        after: SessionLife,
    ) -> Result<bool, Trouble> {
        let permission = PermissionKey::of(session.bib.load(Relaxed), &session.key());
        self.permit(&permission)?;
        let has_changed = session.change(before, SessionLife { permits: true, ..after });
        if !has_changed {
            self.unpermit(&permission);
        }
        Ok(has_changed)
    }
}

/// Counts a packet.
pub(crate) fn count<A>(session: &Session, side: Side, tuple: &Tuple<A>) {
    session.packets[side.index()].fetch_add(u64::from(tuple.packets), Relaxed);
    session.octets[side.index()].fetch_add(u64::from(tuple.octets), Relaxed);
}
