//! Filtering and updating binding and session information (RFC 6146 section 3.5).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::verdict::DropReason;

use super::chain::{FreeList, state};
use super::hash::halves;
use super::layout::{Bib, Kind, Session};
use super::settings::{Filtering, Protocol};
use super::tcp::{Segment, Side, TcpState, Timeout, Transition, transition};
use super::view::{Found, SessionKey, SessionLife, View, life, life_parts, one_less};

/// How often a step is begun anew because others changed the same entries.
const ATTEMPTS: u32 = 16;

/// A packet's addresses and ports, as far as the tables ask for them. Of ICMP queries, the identifier is
/// the port of the IPv6 host's side, and the other is 0.
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

/// What stands on the other side of the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing6 {
    /// (X',x).
    pub host: (Ipv6Addr, u16),
    /// Which of `pool6` the remote address is to be embedded in.
    pub pool6: u8,
}

/// Why a packet from IPv4 goes no further.
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

/// What a session begins with.
#[derive(Clone, Copy, Debug)]
struct Birth {
    state: u8,
    timeout: Timeout,
}

impl Birth {
    fn of(protocol: Protocol, side: Side) -> Birth {
        match (protocol, side) {
            (Protocol::Udp, _) => Birth { state: state::LIVE, timeout: Timeout::Udp },
            (Protocol::Icmp, _) => Birth { state: state::LIVE, timeout: Timeout::Icmp },
            (Protocol::Tcp, Side::V6) => {
                Birth { state: TcpState::V6Init as u8, timeout: Timeout::TcpTrans }
            }
            (Protocol::Tcp, Side::V4) => {
                Birth { state: TcpState::V4Init as u8, timeout: Timeout::TcpTrans }
            }
        }
    }
}

/// Why a step did not come to its end.
enum Trouble {
    /// Somebody else changed the entry; begin anew.
    Again,
    Refused(DropReason),
}

impl From<DropReason> for Trouble {
    fn from(reason: DropReason) -> Trouble {
        Trouble::Refused(reason)
    }
}

impl<'a> View<'a> {
    /// A packet from an IPv6 host: updates the tables, and gives (T,t).
    pub(crate) fn filter_v6(&self, tuple: &Tuple<Ipv6Addr>) -> Result<(Ipv4Addr, u16), DropReason> {
        for _ in 0..ATTEMPTS {
            match self.try_filter_v6(tuple) {
                Err(Trouble::Again) => {}
                Err(Trouble::Refused(reason)) => return Err(reason),
                Ok(local) => return Ok(local),
            }
        }
        Err(DropReason::Busy)
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
            if let Some((_, session)) = self.session(&key)
                && session.bib.load(Relaxed) == index
            {
                if session.pool6.load(Relaxed) != tuple.pool6 {
                    // Answers come from where the host asked last.
                    session.pool6.store(tuple.pool6, Relaxed);
                }
                return if self.refresh(session, Side::V6, tuple) {
                    Ok(local)
                } else {
                    Err(Trouble::Again)
                };
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
        // A host that comes back while its port rests gets it again.
        self.bind(tuple, found.map(|(_, resting)| resting))?;
        // With the BIB entry the next attempt makes the session.
        Err(Trouble::Again)
    }

    /// A packet from IPv4: updates the tables, and gives (X',x).
    pub(crate) fn filter_v4(&self, tuple: &Tuple<Ipv4Addr>) -> Result<Outgoing6, Refusal> {
        for _ in 0..ATTEMPTS {
            match self.try_filter_v4(tuple) {
                Err(Trouble::Again) => {}
                Err(Trouble::Refused(reason)) => return Err(reason.into()),
                Ok(outgoing) => return outgoing.ok_or(Refusal::Store),
            }
        }
        Err(DropReason::Busy.into())
    }

    /// `None`: the SYN is to be stored.
    fn try_filter_v4(&self, tuple: &Tuple<Ipv4Addr>) -> Result<Option<Outgoing6>, Trouble> {
        let protocol = tuple.protocol.number();
        let key = SessionKey { local: tuple.near, remote: tuple.remote, protocol };
        if let Some((_, session)) = self.session(&key)
            && let Some(bib) = Self::entry(self.regions.bibs, session.bib.load(Relaxed))
            && bib.state() == state::LIVE
        {
            if session.life().timeout == Timeout::TcpIncomingSyn as u8 {
                // What the stored SYN left is no sign that the host wants to hear of its sender; the SYN may
                // come again.
                return if tuple.segment == Segment::Syn {
                    Ok(None)
                } else {
                    Err(DropReason::Filtered.into())
                };
            }
            if !self.refresh(session, Side::V4, tuple) {
                return Err(Trouble::Again);
            }
            let pool6 = session.pool6.load(Relaxed);
            return Ok(Some(Outgoing6 { host: bib.v6(), pool6 }));
        }
        let syn = tuple.protocol == Protocol::Tcp && tuple.segment.opens();
        let accepts = self.nat.settings.accept_v4_syn;
        if syn && !accepts {
            return Err(DropReason::ExternallyInitiated.into());
        }
        let Some((index, bib)) = self.bib4(tuple.near, protocol) else {
            // A SYN with ACK answers somebody else's SYN; it can't be a simultaneous open.
            let waits = syn && tuple.segment == Segment::Syn;
            return if waits { Ok(None) } else { Err(DropReason::NoBib.into()) };
        };
        let filters = self.nat.settings.filtering == Filtering::AddressDependent;
        let mut birth = Birth::of(tuple.protocol, Side::V4);
        if tuple.segment == Segment::Syn && syn && filters {
            birth.timeout = Timeout::TcpIncomingSyn;
        } else if filters && !self.has_session_with(tuple.near, tuple.remote.0, protocol) {
            return Err(DropReason::Filtered.into());
        }
        if tuple.protocol != Protocol::Tcp || syn {
            self.open((index, bib), &key, birth, Side::V4, tuple)?;
        }
        let stored = birth.timeout == Timeout::TcpIncomingSyn;
        Ok((!stored).then(|| Outgoing6 { host: bib.v6(), pool6: tuple.pool6 }))
    }

    /// An ICMP error about a packet that an IPv6 host got: gives (T,t) of that host, if there is a session.
    /// Nothing is refreshed (RFC 5508 REQ-6).
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

    /// An ICMP error about a packet that came from (T,t), likewise.
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

    /// A packet of a session: its state and lifetime follow, and it is counted. `false`: it died meanwhile.
    fn refresh<A>(&self, session: &Session, side: Side, tuple: &Tuple<A>) -> bool {
        loop {
            let word = session.life.load(Acquire);
            let before = SessionLife::of(word);
            if !before.is_live() {
                return false;
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
            if after == before
                || session.life.compare_exchange(word, after.word(), AcqRel, Acquire).is_ok()
            {
                break;
            }
        }
        count(session, side, tuple);
        true
    }

    /// A new session of a BIB entry.
    fn open<A>(
        &self,
        (index, bib): Found<'_, Bib>,
        key: &SessionKey,
        birth: Birth,
        side: Side,
        tuple: &Tuple<A>,
    ) -> Result<(), Trouble> {
        if self.nat.is_draining() {
            return Err(DropReason::Draining.into());
        }
        if !one_session_more(bib) {
            return Err(Trouble::Again);
        }
        let subscriber = self.subscriber_of(bib);
        if let Some(subscriber) = subscriber
            && let Err(reason) = self.count_session(subscriber, side)
        {
            one_session_less(bib);
            return Err(reason.into());
        }
        let undo = || {
            one_session_less(bib);
            if let Some(subscriber) = subscriber {
                one_less(&subscriber.sessions);
            }
        };
        let list = FreeList::of(&self.regions, Kind::Session);
        let room = side == Side::V6 || list.has_reserve();
        let new = room.then(|| list.take(self.regions.sessions, self.shard)).flatten();
        let (Some(new), Some(chain)) = (new, self.session_chain(key)) else {
            undo();
            return Err(DropReason::SessionsFull.into());
        };
        let session = &self.regions.sessions[new as usize];
        session.bib.store(index, Relaxed);
        session.remote.store(key.remote.0.to_bits(), Relaxed);
        session.remote_port.store(key.remote.1, Relaxed);
        session.local.store(key.local.0.to_bits(), Relaxed);
        session.local_port.store(key.local.1, Relaxed);
        session.protocol.store(key.protocol, Relaxed);
        session.pool6.store(tuple.pool6, Relaxed);
        session.seen.store(0, Relaxed);
        for counter in session.packets.iter().chain(&session.octets) {
            counter.store(0, Relaxed);
        }
        count(session, side, tuple);
        let timeout = birth.timeout as u8;
        let born = SessionLife { tick: self.now, state: birth.state, timeout };
        session.life.store(born.word(), Release);
        loop {
            let (found, seen) = self.find_session(&chain, key);
            if let Some((_, other)) = found {
                self.end_orphan(other);
                session.life.store(0, Release);
                list.give(self.regions.sessions, self.shard, new);
                undo();
                return Err(Trouble::Again);
            }
            if chain.insert(new, seen) {
                self.made.set(true);
                self.nat.counters.sessions_created[tuple.protocol.index()].fetch_add(1, Relaxed);
                return Ok(());
            }
        }
    }

    /// Ends a session whose BIB entry is gone, before the sweeper comes to it: its place is needed.
    fn end_orphan(&self, session: &Session) {
        let word = session.life.load(Acquire);
        let before = SessionLife::of(word);
        let bib = Self::entry(self.regions.bibs, session.bib.load(Relaxed));
        if before.is_live() && bib.is_none_or(|bib| bib.state() != state::LIVE) {
            let dead = SessionLife { state: state::DEAD, ..before };
            // Fails if the sweeper was quicker.
            let _ = session.life.compare_exchange(word, dead.word(), AcqRel, Acquire);
        }
    }

    /// A new BIB entry for the host's transport address. The one of `resting` makes way for it, and leaves it
    /// its (T,t), if that is still the subscriber's.
    fn bind(&self, tuple: &Tuple<Ipv6Addr>, resting: Option<&Bib>) -> Result<(), Trouble> {
        let protocol = tuple.protocol;
        let (owner, subscriber) = self.subscriber(tuple.near.0, tuple.mark)?;
        match self.count_port(subscriber, protocol) {
            Err(DropReason::Busy) => return Err(Trouble::Again),
            counted => counted?,
        }
        let list = FreeList::of(&self.regions, Kind::Bib);
        let Some(index) = list.take(self.regions.bibs, self.shard) else {
            one_less(&subscriber.ports[protocol.index()]);
            return Err(DropReason::BibFull.into());
        };
        let bib = &self.regions.bibs[index as usize];
        self.fill_bib(bib, tuple.near, protocol.number(), owner);
        let undo = || {
            self.unclaim((index, bib));
            one_less(&subscriber.ports[protocol.index()]);
        };
        if resting.is_some_and(|resting| !resting.change(state::RESTING, state::DEAD)) {
            undo();
            return Err(Trouble::Again);
        }
        if !self.allocate(index, bib, subscriber, resting.map(Bib::v4)) {
            undo();
            return Err(DropReason::PoolExhausted.into());
        }
        bib.change(state::CLAIMED, state::LIVE);
        if self.announce(index, bib, tuple.near, protocol.number()) {
            self.nat.counters.bibs_created[protocol.index()].fetch_add(1, Relaxed);
        } else {
            one_less(&subscriber.ports[protocol.index()]);
        }
        Ok(())
    }

    /// Writes a new BIB entry, but for its IPv4 side.
    pub(crate) fn fill_bib(&self, bib: &Bib, v6: (Ipv6Addr, u16), protocol: u8, owner: u32) {
        let (hi, lo) = halves(v6.0);
        bib.v6_hi.store(hi, Relaxed);
        bib.v6_lo.store(lo, Relaxed);
        bib.v6_port.store(v6.1, Relaxed);
        bib.protocol.store(protocol, Relaxed);
        bib.flags.store(0, Relaxed);
        bib.subscriber.store(owner, Relaxed);
        bib.created.store(self.now, Relaxed);
        bib.since.store(self.now, Relaxed);
        bib.life.store(life(state::CLAIMED, 0), Release);
    }

    /// Lets others find a live BIB entry by its IPv6 side. `false`: another has come first; this one is
    /// dead.
    pub(crate) fn announce(
        &self,
        index: u32,
        bib: &Bib,
        v6: (Ipv6Addr, u16),
        protocol: u8,
    ) -> bool {
        let Some(chain) = self.bib6_chain(v6, protocol) else { return false };
        loop {
            let (found, seen) = self.find6(&chain, v6, protocol);
            if found.is_some() {
                bib.change(state::LIVE, state::DEAD);
                return false;
            }
            if chain.insert(index, seen) {
                return true;
            }
        }
    }
}

/// Counts a packet.
fn count<A>(session: &Session, side: Side, tuple: &Tuple<A>) {
    let direction = match side {
        Side::V4 => 0,
        Side::V6 => 1,
    };
    session.packets[direction].fetch_add(u64::from(tuple.packets), Relaxed);
    session.octets[direction].fetch_add(u64::from(tuple.octets), Relaxed);
}

/// Counts a session of a live BIB entry. `false`: it lives no more.
fn one_session_more(bib: &Bib) -> bool {
    let more = |word| {
        let (state, number) = life_parts(word);
        (state == state::LIVE && number < 0xff_ffff).then(|| word + 1)
    };
    bib.life.fetch_update(AcqRel, Acquire, more).is_ok()
}

/// Takes back what [`one_session_more`] counted; stays at 0.
pub(crate) fn one_session_less(bib: &Bib) -> u32 {
    let less = |word| (life_parts(word).1 != 0).then(|| word - 1);
    bib.life.fetch_update(AcqRel, Acquire, less).map_or(0, |word| life_parts(word).1 - 1)
}
