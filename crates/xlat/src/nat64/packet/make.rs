//! Making BIB entries and sessions (RFC 6146 section 3.5); `crates/bpf/c/nat64_make.h` in C.
//!
//! A new entry is private until it is linked into a chain. The sweeper may still mark it dead meanwhile, because it
//! scans every entry and ends those whose BIB entry or pool is gone. A thread that then fails to link the entry must
//! not free it: the sweeper does, and corrects the counts.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::nat64::policy::Purpose;
use crate::nat64::table::{
    Bib, Found, FreeList, Kind, PermissionKey, Protocol, Session, SessionKey, SessionLife, Side,
    Subscriber, TcpState, Timeout, Trouble, View, one_less, state,
};
use crate::verdict::DropReason;

use super::filter::{Tuple, count};

/// What a session begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) state: u8,
    pub(crate) timeout: Timeout,
}

impl Birth {
    pub(crate) fn of(protocol: Protocol, side: Side) -> Birth {
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
    /// A new BIB entry for the host's transport address. It replaces the host's entry `previous`, which is in
    /// hold-down, and takes over its (T,t) if that is still the subscriber's. `at`: the address that an ALG wants.
    pub(crate) fn bind(
        &self,
        tuple: &Tuple<Ipv6Addr>,
        previous: Option<&Bib>,
        at: Option<Ipv4Addr>,
    ) -> Result<(), Trouble> {
        if let Some(bound) = self.bind_own(tuple, previous, at) {
            return bound;
        }
        let local = previous.map(Bib::v4);
        self.bind_by(tuple, tuple.near, previous, (Side::V6, Purpose::Ports), |new, subscriber| {
            self.allocate(new, subscriber, local).then_some(()).ok_or(DropReason::PoolExhausted)
        })
    }

    /// A new BIB entry of `host`, for the first packet, which comes from `side`. `claim` links it under an IPv4
    /// transport address. It replaces the host's entry `previous`, which is in hold-down.
    pub(crate) fn bind_by<A>(
        &self,
        tuple: &Tuple<A>,
        host: (Ipv6Addr, u16),
        previous: Option<&Bib>,
        (side, purpose): (Side, Purpose),
        claim: impl FnOnce(Found<'a, Bib>, &'a Subscriber) -> Result<(), DropReason>,
    ) -> Result<(), Trouble> {
        let protocol = tuple.protocol;
        if !self.nat.settings.owns_host(host.0) {
            return Err(DropReason::OtherShard.into());
        }
        let (owner, subscriber) = self.subscriber_now(host.0, tuple.mark, purpose)?;
        match self.count_port(subscriber, protocol, side) {
            Err(DropReason::Busy) => return Err(Trouble::Again),
            counted => counted?,
        }
        let uncount = || one_less(&subscriber.ports[protocol.index()]);
        let begun = self
            .has_room(subscriber, side)
            .and_then(|()| self.new_bib(host, protocol.number(), owner).ok_or(DropReason::BibFull));
        let new = begun.inspect_err(|_| uncount())?;
        let claimed = match previous {
            Some(previous) if !previous.change(state::HOLD_DOWN, state::DEAD) => {
                Err(Trouble::Again)
            }
            _ => claim(new, subscriber).map_err(Trouble::from),
        };
        if claimed.is_err() {
            self.unclaim(new);
            uncount();
            return claimed;
        }
        if self.announce(new) {
            self.nat.shared.created.bibs_created[protocol.index()].fetch_add(1, Relaxed);
        } else if new.1.change(state::LIVE, state::DEAD) {
            uncount();
        }
        Ok(())
    }

    /// A new session of a BIB entry.
    pub(crate) fn open<A>(
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
        if self.nat.settings.shards.is_some() && !self.nat.settings.owns_host(bib.v6().0) {
            return Err(DropReason::OtherShard.into());
        }
        let chain = self.session_chain(key).ok_or(DropReason::SessionsFull)?;
        if let (Some((_, other)), _) = self.find_session(&chain, key) {
            self.end_orphan(other);
            return Err(Trouble::Again);
        }
        if !bib.add_session() {
            return Err(Trouble::Again);
        }
        let subscriber = self.subscriber_of(bib);
        if let Some(subscriber) = subscriber
            && let Err(reason) = self.count_session(subscriber, side)
        {
            bib.remove_session();
            return Err(reason.into());
        }
        let (new, permits) = match self.take_session(index, key, birth, side) {
            Ok(taken) => taken,
            Err(trouble) => {
                bib.remove_session();
                if let Some(subscriber) = subscriber {
                    one_less(&subscriber.sessions);
                }
                return Err(trouble);
            }
        };
        let session = &self.regions.sessions[new as usize];
        session.fill(index, key, tuple.pool6);
        count(session, side, tuple);
        let timeout = birth.timeout as u8;
        let born = SessionLife { tick: self.now, state: birth.state, timeout, permits };
        session.life.store(born.word(), Release);
        chain.link(new, || self.find_session(&chain, key)).map_err(|other| {
            // Fails if the sweeper has ended it already.
            let _ = session.end(born);
            other.map_or(DropReason::SessionsFull.into(), |_| Trouble::Again)
        })?;
        self.note(new);
        self.made.set(true);
        self.nat.shared.created.sessions_created[tuple.protocol.index()].fetch_add(1, Relaxed);
        Ok(())
    }

    /// A free entry for a session, and whether a permission counts it: the session of a stored SYN permits no address.
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
        let permits = self.nat.filters_by_address() && birth.timeout != Timeout::TcpIncomingSyn;
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

    /// Ends a session whose BIB entry is gone, without waiting for the sweeper: its key is needed.
    fn end_orphan(&self, session: &Session) {
        let life = session.life();
        let bib = Self::entry(self.regions.bibs, session.bib.load(Relaxed));
        if life.is_live() && bib.is_none_or(|bib| bib.state() != state::LIVE) {
            // Fails if the sweeper has ended it already.
            let _ = session.end(life);
        }
    }
}
