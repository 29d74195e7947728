//! Making BIB entries and sessions (RFC 6146 section 3.5); `crates/bpf/c/nat64_make.h` in C.
//!
//! An entry is taken off a free list, filled in, and linked; then others find it. Until it is linked it is its
//! maker's alone, but for its death: the sweeper looks at every entry, and ends one whose BIB entry or pool is
//! gone. So a maker who comes too late does not take anything back that was alive. He lets it die, and the
//! sweeper, which takes out what is dead, takes it off the counts, too.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::verdict::DropReason;

use super::chain::{FreeList, state};
use super::filter::{Trouble, Tuple, count};
use super::hash::halves;
use super::layout::{Bib, Kind, Session};
use super::permission::PermissionKey;
use super::settings::Protocol;
use super::subscriber::For;
use super::tcp::{Side, TcpState, Timeout};
use super::view::{Found, SessionKey, SessionLife, View, life, life_parts, one_less};

/// What a session begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) state: u8,
    pub(super) timeout: Timeout,
}

impl Birth {
    pub(super) fn of(protocol: Protocol, side: Side) -> Birth {
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

impl<'a> View<'a> {
    /// A new BIB entry for the host's transport address. The one of `resting` makes way for it, and leaves it
    /// its (T,t), if that is still the subscriber's.
    pub(super) fn bind(
        &self,
        tuple: &Tuple<Ipv6Addr>,
        resting: Option<&Bib>,
    ) -> Result<(), Trouble> {
        if let Some(addresses) = self.nat.settings.addresses.as_ref().filter(|it| it.outgoing) {
            return self.bind_own(addresses, tuple, resting);
        }
        let protocol = tuple.protocol;
        let (owner, subscriber) = self.subscriber_now(tuple.near.0, tuple.mark, For::Ports)?;
        match self.count_port(subscriber, protocol, Side::V6) {
            Err(DropReason::Busy) => return Err(Trouble::Again),
            counted => counted?,
        }
        let uncount = || one_less(&subscriber.ports[protocol.index()]);
        if let Err(reason) = self.has_room(subscriber, Side::V6) {
            uncount();
            return Err(reason.into());
        }
        let Some(new) = self.new_bib(tuple.near, protocol.number(), owner) else {
            uncount();
            return Err(DropReason::BibFull.into());
        };
        if resting.is_some_and(|resting| !resting.change(state::RESTING, state::DEAD)) {
            self.unclaim(new);
            uncount();
            return Err(Trouble::Again);
        }
        if !self.allocate(new, subscriber, resting.map(Bib::v4)) {
            self.unclaim(new);
            uncount();
            return Err(DropReason::PoolExhausted.into());
        }
        if self.announce(new) {
            self.nat.shared.created.bibs_created[protocol.index()].fetch_add(1, Relaxed);
        } else if new.1.change(state::LIVE, state::DEAD) {
            uncount();
        }
        Ok(())
    }

    /// A BIB entry that is linked nowhere yet, CLAIMED. `None`: the table is full.
    pub(super) fn new_bib(
        &self,
        v6: (Ipv6Addr, u16),
        protocol: u8,
        owner: u32,
    ) -> Option<Found<'a, Bib>> {
        let list = FreeList::of(&self.regions, Kind::Bib);
        let index = list.take(self.regions.bibs, self.shard)?;
        let bib = &self.regions.bibs[index as usize];
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
        Some((index, bib))
    }

    /// Gives back a CLAIMED entry that was linked nowhere.
    pub(super) fn unclaim(&self, (index, bib): Found<'_, Bib>) {
        bib.life.store(life(state::FREE, 0), Release);
        FreeList::of(&self.regions, Kind::Bib).give(self.regions.bibs, self.shard, index);
    }

    /// Links a CLAIMED entry under an IPv4 transport address. Who holds it may make way: `makes_way` then has
    /// let him die. `Err`: the one who holds it, if it is held.
    pub(super) fn claim4(
        &self,
        (index, bib): Found<'_, Bib>,
        v4: (Ipv4Addr, u16),
        makes_way: impl Fn(&Bib) -> bool,
    ) -> Result<(), Option<&'a Bib>> {
        let protocol = bib.protocol.load(Relaxed);
        let chain = self.bib4_chain(v4, protocol).ok_or(None)?;
        bib.v4.store(v4.0.to_bits(), Relaxed);
        bib.v4_port.store(v4.1, Relaxed);
        loop {
            match self.holder4(&chain, v4, protocol) {
                (Some((_, holder)), _) if makes_way(holder) => {}
                (Some((_, holder)), _) => return Err(Some(holder)),
                (None, seen) if !seen.is_whole() => return Err(None),
                (None, seen) if chain.insert(index, seen) => return Ok(()),
                (None, _) => {}
            }
        }
    }

    /// Lets an entry live that is linked under its IPv4 transport address, and lets others find it by its IPv6
    /// side. `false`: another has come first; it lives, and has to die.
    pub(super) fn announce(&self, (index, bib): Found<'_, Bib>) -> bool {
        bib.life.store(life(state::LIVE, 0), Release);
        let (v6, protocol) = (bib.v6(), bib.protocol.load(Relaxed));
        let Some(chain) = self.bib6_chain(v6, protocol) else { return false };
        loop {
            match self.find6(&chain, v6, protocol) {
                (Some(_), _) => return false,
                (None, seen) if !seen.is_whole() => return false,
                (None, seen) if chain.insert(index, seen) => return true,
                (None, _) => {}
            }
        }
    }

    /// A new session of a BIB entry.
    pub(super) fn open<A>(
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
        let chain = self.session_chain(key).ok_or(DropReason::SessionsFull)?;
        if let (Some((_, other)), _) = self.find_session(&chain, key) {
            self.end_orphan(other);
            return Err(Trouble::Again);
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
        let (new, permits) = match self.take_session(index, key, birth, side) {
            Ok(taken) => taken,
            Err(trouble) => {
                one_session_less(bib);
                if let Some(subscriber) = subscriber {
                    one_less(&subscriber.sessions);
                }
                return Err(trouble);
            }
        };
        let session = &self.regions.sessions[new as usize];
        fill_session(session, index, key, tuple.pool6);
        count(session, side, tuple);
        let timeout = birth.timeout as u8;
        let born = SessionLife { tick: self.now, state: birth.state, timeout, permits };
        session.life.store(born.word(), Release);
        loop {
            match self.find_session(&chain, key) {
                (Some(_), _) => {
                    // Fails if the sweeper was quicker.
                    let _ = session.end(born);
                    return Err(Trouble::Again);
                }
                (None, seen) if !seen.is_whole() => {
                    let _ = session.end(born);
                    return Err(DropReason::SessionsFull.into());
                }
                (None, seen) if chain.insert(new, seen) => {
                    self.made.set(true);
                    let created = &self.nat.shared.created.sessions_created;
                    created[tuple.protocol.index()].fetch_add(1, Relaxed);
                    return Ok(());
                }
                (None, _) => {}
            }
        }
    }

    /// A free entry for a session, and whether a permission counts it: that of a stored SYN lets nobody in.
    fn take_session(
        &self,
        bib: u32,
        key: &SessionKey,
        birth: Birth,
        side: Side,
    ) -> Result<(u32, bool), Trouble> {
        let list = FreeList::of(&self.regions, Kind::Session);
        if side == Side::V4 && !list.has_reserve() {
            return Err(DropReason::SessionsFull.into());
        }
        let permits = self.filters_by_address() && birth.timeout != Timeout::TcpIncomingSyn;
        let permission = PermissionKey::of(bib, key);
        if permits {
            self.permit(&permission)?;
        }
        let Some(new) = list.take(self.regions.sessions, self.shard) else {
            if permits {
                self.unpermit(&permission);
            }
            return Err(DropReason::SessionsFull.into());
        };
        Ok((new, permits))
    }

    /// Ends a session whose BIB entry is gone, before the sweeper comes to it: its place is needed.
    fn end_orphan(&self, session: &Session) {
        let life = session.life();
        let bib = Self::entry(self.regions.bibs, session.bib.load(Relaxed));
        if life.is_live() && bib.is_none_or(|bib| bib.state() != state::LIVE) {
            // Fails if the sweeper was quicker.
            let _ = session.end(life);
        }
    }
}

pub(super) fn fill_session(session: &Session, bib: u32, key: &SessionKey, pool6: u8) {
    session.bib.store(bib, Relaxed);
    session.remote.store(key.remote.0.to_bits(), Relaxed);
    session.remote_port.store(key.remote.1, Relaxed);
    session.local.store(key.local.0.to_bits(), Relaxed);
    session.local_port.store(key.local.1, Relaxed);
    session.protocol.store(key.protocol, Relaxed);
    session.pool6.store(pool6, Relaxed);
    session.seen.store(0, Relaxed);
    for counter in session.packets.iter().chain(&session.octets) {
        counter.store(0, Relaxed);
    }
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
