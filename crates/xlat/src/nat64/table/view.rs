//! The tables at one moment: searches for entries.

use core::cell::Cell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::Relaxed;

use crate::nat64::Nat64;

use super::{
    Bib, Chain, Directory, Regions, Secret, Seen, Session, SessionKey, Subscriber, halves, state,
};

/// An entry and its index.
pub(crate) type Found<'a, T> = (u32, &'a T);

/// The tables, at a moment, for a thread.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) nat: &'a Nat64,
    pub(crate) regions: Regions<'a>,
    /// The time in ticks.
    pub(crate) now: u32,
    /// The shard whose free entries this thread takes first.
    pub(crate) shard: usize,
    /// A session or a 1:1 mapping was made.
    pub(crate) made: Cell<bool>,
    /// The packet's shard may lack sessions, so an unsolicited SYN makes none.
    pub(crate) is_quiet: bool,
}

impl<'a> View<'a> {
    fn secret(&self) -> Secret {
        self.nat.secret
    }

    /// In a cluster: a session is new or has another state.
    #[inline]
    pub(crate) fn note(&self, session: u32) {
        if let Some(shards) = &self.nat.settings.shards {
            shards.note(session);
        }
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

    /// The BIB entry of an IPv6 transport address: live, or in hold-down.
    pub(crate) fn find6(
        &self,
        chain: &Chain<'a, Bib>,
        v6: (Ipv6Addr, u16),
        protocol: u8,
    ) -> (Option<Found<'a, Bib>>, Seen) {
        let addr = halves(v6.0);
        chain.find(|bib| {
            bib.is_v6(addr, v6.1, protocol) && matches!(bib.state(), state::LIVE | state::HOLD_DOWN)
        })
    }

    /// The live BIB entry of an IPv4 transport address.
    pub(crate) fn bib4(&self, v4: (Ipv4Addr, u16), protocol: u8) -> Option<Found<'a, Bib>> {
        let addr = v4.0.to_bits();
        let live = |bib: &Bib| bib.is_v4(addr, v4.1, protocol) && bib.state() == state::LIVE;
        self.bib4_chain(v4, protocol)?.find(live).0
    }

    /// The live BIB entry of an IPv6 transport address.
    pub(crate) fn bib6(&self, v6: (Ipv6Addr, u16), protocol: u8) -> Option<Found<'a, Bib>> {
        let addr = halves(v6.0);
        let live = |bib: &Bib| bib.is_v6(addr, v6.1, protocol) && bib.state() == state::LIVE;
        self.bib6_chain(v6, protocol)?.find(live).0
    }

    /// The entry that holds an IPv4 transport address: in any state in which the address can't have a second one.
    pub(crate) fn holder4(
        &self,
        chain: &Chain<'a, Bib>,
        v4: (Ipv4Addr, u16),
        protocol: u8,
    ) -> (Option<Found<'a, Bib>>, Seen) {
        let addr = v4.0.to_bits();
        chain.find(|bib| {
            let holds = matches!(bib.state(), state::CLAIMED | state::LIVE | state::HOLD_DOWN);
            holds && bib.is_v4(addr, v4.1, protocol)
        })
    }

    /// The live session of a key.
    pub(crate) fn find_session(
        &self,
        chain: &Chain<'a, Session>,
        key: &SessionKey,
    ) -> (Option<Found<'a, Session>>, Seen) {
        chain.find(|session| session.is(key) && session.life().is_live())
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
        chain.find(|subscriber| {
            subscriber.lo.load(Relaxed) == lo
                && subscriber.hi.load(Relaxed) == hi
                && subscriber.mark.load(Relaxed) == mark
                && matches!(subscriber.state(), state::LIVE | state::CLAIMED)
        })
    }

    /// Ticks since one that an entry holds. Another processor's clock may be a tick ahead.
    pub(crate) fn age(&self, tick: u32) -> u32 {
        let age = self.now.wrapping_sub(tick);
        if age > u32::MAX / 2 { 0 } else { age }
    }

    /// The subscriber of a BIB entry.
    pub(crate) fn subscriber_of(&self, bib: &Bib) -> Option<&'a Subscriber> {
        Self::entry(self.regions.subscribers, bib.subscriber.load(Relaxed))
    }
}
