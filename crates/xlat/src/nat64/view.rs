//! The tables at one moment: reading entries, and finding them.

use core::cell::Cell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use super::Nat64;
use super::chain::{Chain, Directory, Seen, state};
use super::hash::{Secret, halves};
use super::layout::{Bib, SESSION_PERMITS, Session, Subscriber};
use super::memory::Regions;

/// State of a life of 32 bits, and the number in its low 24.
pub(crate) fn life_parts(life: u32) -> (u8, u32) {
    ((life >> 24) as u8, life & 0x00ff_ffff)
}

pub(crate) fn life(state: u8, number: u32) -> u32 {
    u32::from(state) << 24 | number
}

/// A session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLife {
    pub(crate) tick: u32,
    pub(crate) state: u8,
    pub(crate) timeout: u8,
    /// A [permission](super::permission) counts it.
    pub(crate) permits: bool,
}

impl SessionLife {
    pub(crate) fn of(word: u64) -> SessionLife {
        SessionLife {
            tick: word as u32,
            state: (word >> 32) as u8,
            timeout: (word >> 40) as u8,
            permits: word & SESSION_PERMITS != 0,
        }
    }

    pub(crate) fn word(self) -> u64 {
        let permits = if self.permits { SESSION_PERMITS } else { 0 };
        u64::from(self.tick) | u64::from(self.state) << 32 | u64::from(self.timeout) << 40 | permits
    }

    pub(crate) fn is_live(self) -> bool {
        self.state >= state::LIVE
    }
}

impl Bib {
    pub(crate) fn v6(&self) -> (Ipv6Addr, u16) {
        let bits =
            u128::from(self.v6_hi.load(Relaxed)) << 64 | u128::from(self.v6_lo.load(Relaxed));
        (Ipv6Addr::from_bits(bits), self.v6_port.load(Relaxed))
    }

    pub(crate) fn v4(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.v4.load(Relaxed)), self.v4_port.load(Relaxed))
    }

    pub(crate) fn state(&self) -> u8 {
        life_parts(self.life.load(Acquire)).0
    }

    fn is_v6(&self, (hi, lo): (u64, u64), port: u16, protocol: u8) -> bool {
        self.v6_lo.load(Relaxed) == lo
            && self.v6_hi.load(Relaxed) == hi
            && self.v6_port.load(Relaxed) == port
            && self.protocol.load(Relaxed) == protocol
    }

    fn is_v4(&self, addr: u32, port: u16, protocol: u8) -> bool {
        self.v4.load(Relaxed) == addr
            && self.v4_port.load(Relaxed) == port
            && self.protocol.load(Relaxed) == protocol
    }

    /// Goes from one state to another, whatever the number of sessions. `false`: it was not in it.
    pub(crate) fn change(&self, from: u8, to: u8) -> bool {
        let change = |word| {
            let (state, number) = life_parts(word);
            (state == from).then(|| life(to, number))
        };
        self.life.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

impl Session {
    pub(crate) fn life(&self) -> SessionLife {
        SessionLife::of(self.life.load(Acquire))
    }

    pub(crate) fn local(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.local.load(Relaxed)), self.local_port.load(Relaxed))
    }

    pub(crate) fn remote(&self) -> (Ipv4Addr, u16) {
        (Ipv4Addr::from_bits(self.remote.load(Relaxed)), self.remote_port.load(Relaxed))
    }

    pub(crate) fn key(&self) -> SessionKey {
        let protocol = self.protocol.load(Relaxed);
        SessionKey { local: self.local(), remote: self.remote(), protocol }
    }

    /// From one life to another. `false`: it has changed meanwhile.
    pub(crate) fn change(&self, from: SessionLife, to: SessionLife) -> bool {
        self.life.compare_exchange(from.word(), to.word(), AcqRel, Acquire).is_ok()
    }

    /// It lives no more; the sweeper does the rest. `false`: it has changed meanwhile.
    pub(crate) fn end(&self, from: SessionLife) -> bool {
        self.change(from, SessionLife { state: state::DEAD, ..from })
    }

    pub(crate) fn is(&self, key: &SessionKey) -> bool {
        self.local.load(Relaxed) == key.local.0.to_bits()
            && self.remote.load(Relaxed) == key.remote.0.to_bits()
            && self.local_port.load(Relaxed) == key.local.1
            && self.remote_port.load(Relaxed) == key.remote.1
            && self.protocol.load(Relaxed) == key.protocol
    }
}

impl Subscriber {
    pub(crate) fn prefix(&self) -> Ipv6Addr {
        let bits = u128::from(self.hi.load(Relaxed)) << 64 | u128::from(self.lo.load(Relaxed));
        Ipv6Addr::from_bits(bits)
    }

    pub(crate) fn state(&self) -> u8 {
        life_parts(self.life.load(SeqCst)).0
    }
}

/// What names a session: its IPv4 transport addresses. Of ICMP, the remote port is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey {
    pub(crate) local: (Ipv4Addr, u16),
    pub(crate) remote: (Ipv4Addr, u16),
    pub(crate) protocol: u8,
}

/// An entry and its index.
pub(crate) type Found<'a, T> = (u32, &'a T);

/// The tables, at a moment, for a thread.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) nat: &'a Nat64,
    pub(crate) regions: Regions<'a>,
    /// The time in ticks.
    pub(crate) now: u32,
    /// Where this thread takes free entries first.
    pub(crate) shard: usize,
    /// A session or a 1:1 mapping was made.
    pub(crate) made: Cell<bool>,
}

impl<'a> View<'a> {
    fn secret(&self) -> Secret {
        self.nat.secret
    }

    /// An entry by its index; `None` for 0.
    pub(crate) fn entry<T>(entries: &'a [T], index: u32) -> Option<&'a T> {
        entries.get(index as usize).filter(|_| index != 0)
    }

    pub(crate) fn bib6_chain(&self, v6: (Ipv6Addr, u16), protocol: u8) -> Option<Chain<'a, Bib>> {
        let hash = self.secret().v6(v6.0, v6.1, protocol);
        Chain::of(&self.regions, self.regions.bibs, Directory::Bib6, hash)
    }

    pub(crate) fn bib4_chain(&self, v4: (Ipv4Addr, u16), protocol: u8) -> Option<Chain<'a, Bib>> {
        let hash = self.secret().v4(v4.0, v4.1, protocol);
        Chain::of(&self.regions, self.regions.bibs, Directory::Bib4, hash)
    }

    pub(crate) fn session_chain(&self, key: &SessionKey) -> Option<Chain<'a, Session>> {
        let hash = self.secret().session(key.local, key.remote, key.protocol);
        Chain::of(&self.regions, self.regions.sessions, Directory::Session, hash)
    }

    pub(crate) fn subscriber_chain(
        &self,
        prefix: Ipv6Addr,
        mark: u32,
    ) -> Option<Chain<'a, Subscriber>> {
        let hash = self.secret().subscriber(prefix, mark);
        Chain::of(&self.regions, self.regions.subscribers, Directory::Subscriber, hash)
    }

    pub(crate) fn found<T>(entries: &'a [T], found: Option<u32>) -> Option<Found<'a, T>> {
        found.and_then(|index| Some((index, entries.get(index as usize)?)))
    }

    /// The BIB entry of an IPv6 transport address: live, or resting.
    pub(crate) fn find6(
        &self,
        chain: &Chain<'a, Bib>,
        v6: (Ipv6Addr, u16),
        protocol: u8,
    ) -> (Option<Found<'a, Bib>>, Seen) {
        let addr = halves(v6.0);
        let (found, seen) = chain.find(|bib| {
            bib.is_v6(addr, v6.1, protocol) && matches!(bib.state(), state::LIVE | state::RESTING)
        });
        (Self::found(self.regions.bibs, found), seen)
    }

    /// The live BIB entry of an IPv4 transport address.
    pub(crate) fn bib4(&self, v4: (Ipv4Addr, u16), protocol: u8) -> Option<Found<'a, Bib>> {
        let addr = v4.0.to_bits();
        let live = |bib: &Bib| bib.is_v4(addr, v4.1, protocol) && bib.state() == state::LIVE;
        Self::found(self.regions.bibs, self.bib4_chain(v4, protocol)?.find(live).0)
    }

    /// The live BIB entry of an IPv6 transport address.
    pub(crate) fn bib6(&self, v6: (Ipv6Addr, u16), protocol: u8) -> Option<Found<'a, Bib>> {
        let addr = halves(v6.0);
        let live = |bib: &Bib| bib.is_v6(addr, v6.1, protocol) && bib.state() == state::LIVE;
        Self::found(self.regions.bibs, self.bib6_chain(v6, protocol)?.find(live).0)
    }

    /// Whoever holds an IPv4 transport address: any entry that may not have a second beside it.
    pub(crate) fn holder4(
        &self,
        chain: &Chain<'a, Bib>,
        v4: (Ipv4Addr, u16),
        protocol: u8,
    ) -> (Option<Found<'a, Bib>>, Seen) {
        let addr = v4.0.to_bits();
        let (found, seen) = chain.find(|bib| {
            let holds = matches!(bib.state(), state::CLAIMED | state::LIVE | state::RESTING);
            holds && bib.is_v4(addr, v4.1, protocol)
        });
        (Self::found(self.regions.bibs, found), seen)
    }

    /// The live session of a key.
    pub(crate) fn find_session(
        &self,
        chain: &Chain<'a, Session>,
        key: &SessionKey,
    ) -> (Option<Found<'a, Session>>, Seen) {
        let (found, seen) = chain.find(|session| session.is(key) && session.life().is_live());
        (Self::found(self.regions.sessions, found), seen)
    }

    pub(crate) fn session(&self, key: &SessionKey) -> Option<Found<'a, Session>> {
        self.find_session(&self.session_chain(key)?, key).0
    }

    /// The subscriber of a prefix: live, or one of which the sweeper finds out whether it still is
    /// ([`state::CLAIMED`]).
    pub(crate) fn find_subscriber(
        &self,
        chain: &Chain<'a, Subscriber>,
        prefix: Ipv6Addr,
        mark: u32,
    ) -> (Option<Found<'a, Subscriber>>, Seen) {
        let (hi, lo) = halves(prefix);
        let (found, seen) = chain.find(|subscriber| {
            subscriber.lo.load(Relaxed) == lo
                && subscriber.hi.load(Relaxed) == hi
                && subscriber.mark.load(Relaxed) == mark
                && matches!(subscriber.state(), state::LIVE | state::CLAIMED)
        });
        (Self::found(self.regions.subscribers, found), seen)
    }

    /// The subscriber of a BIB entry.
    pub(crate) fn subscriber_of(&self, bib: &Bib) -> Option<&'a Subscriber> {
        Self::entry(self.regions.subscribers, bib.subscriber.load(Relaxed))
    }
}

/// Takes one off a counter that others count up and down; stays at 0, where a killed process may have
/// left it too low.
pub(crate) fn one_less(counter: &AtomicU32) {
    let _ = counter.fetch_update(AcqRel, Acquire, |number| number.checked_sub(1));
}
