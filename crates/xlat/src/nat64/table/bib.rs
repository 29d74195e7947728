//! Making and linking BIB entries; `crates/bpf/c/nat64_make.h` in C.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::verdict::DropReason;

use super::{Bib, Binding, Found, FreeList, Kind, Protocol, View, halves, life, one_less, state};

/// Why a step did not finish.
pub(crate) enum Trouble {
    /// Another thread has changed the entry: retry.
    Again,
    /// The packet is dropped.
    Refused(DropReason),
}

impl From<DropReason> for Trouble {
    fn from(reason: DropReason) -> Trouble {
        Trouble::Refused(reason)
    }
}

/// Retries `step` until it finishes. `Err`: refused, or other threads have changed its entries each time.
#[inline]
pub(crate) fn retry<T>(mut step: impl FnMut() -> Result<T, Trouble>) -> Result<T, DropReason> {
    for _ in 0..ATTEMPTS {
        match step() {
            Err(Trouble::Again) => {}
            Err(Trouble::Refused(reason)) => return Err(reason),
            Ok(done) => return Ok(done),
        }
    }
    Err(DropReason::Busy)
}

/// Retries of a step whose entries other threads change.
const ATTEMPTS: u32 = 16;

/// Why a BIB entry was not made by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BibError {
    /// The IPv4 transport address is bound to this.
    Taken(Binding),
    /// The IPv6 transport address is bound to this.
    Bound(Binding),
    /// The table is full.
    Full,
    /// There is no such entry.
    Missing,
}

impl<'a> View<'a> {
    /// A BIB entry that is linked nowhere yet, CLAIMED. `None`: the table is full.
    pub(crate) fn new_bib(
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
    pub(crate) fn unclaim(&self, (index, bib): Found<'_, Bib>) {
        bib.life.store(life(state::FREE, 0), Release);
        FreeList::of(&self.regions, Kind::Bib).give(self.regions.bibs, self.shard, index);
    }

    /// Links a CLAIMED entry under an IPv4 transport address. `makes_way` marks the address's holder DEAD if that may be
    /// replaced, and says whether it was. `Err`: the holder that may not; `Err(None)`: the table is damaged.
    pub(crate) fn claim4(
        &self,
        (index, bib): Found<'_, Bib>,
        v4: (Ipv4Addr, u16),
        makes_way: impl Fn(&Bib) -> bool,
    ) -> Result<(), Option<&'a Bib>> {
        let protocol = bib.protocol.load(Relaxed);
        let chain = self.bib4_chain(v4, protocol).ok_or(None)?;
        bib.v4.store(v4.0.to_bits(), Relaxed);
        bib.v4_port.store(v4.1, Relaxed);
        let search = || loop {
            match self.holder4(&chain, v4, protocol) {
                (Some((_, holder)), _) if makes_way(holder) => {}
                (holder, seen) => break (holder.map(|(_, holder)| holder), seen),
            }
        };
        chain.link(index, search)
    }

    /// Makes an entry LIVE that is linked under its IPv4 transport address, and links it under its IPv6 side. `false`:
    /// there is another entry of that IPv6 side; the new one is LIVE, and its maker has to mark it DEAD.
    pub(crate) fn announce(&self, (index, bib): Found<'_, Bib>) -> bool {
        bib.life.store(life(state::LIVE, 0), Release);
        let (v6, protocol) = (bib.v6(), bib.protocol.load(Relaxed));
        self.bib6_chain(v6, protocol)
            .is_some_and(|chain| chain.link(index, || self.find6(&chain, v6, protocol)).is_ok())
    }

    /// Binds both ends of a new entry, or gives it back.
    pub(crate) fn put(
        &self,
        new: Found<'a, Bib>,
        v4: (Ipv4Addr, u16),
        makes_way: impl Fn(&Bib) -> bool,
    ) -> Result<(), BibError> {
        let protocol = Protocol::of(new.1.protocol.load(Relaxed));
        let counter = self.subscriber_of(new.1).zip(protocol);
        let counter = counter.map(|(owner, protocol)| &owner.ports[protocol.index()]);
        if let Err(holder) = self.claim4(new, v4, makes_way) {
            self.unclaim(new);
            counter.inspect(|counter| one_less(counter));
            return Err(
                holder.map_or(BibError::Full, |holder| BibError::Taken(Binding::of(holder)))
            );
        }
        if self.announce(new) {
            return Ok(());
        }
        if new.1.change(state::LIVE, state::DEAD) {
            counter.inspect(|counter| one_less(counter));
        }
        let (v6, protocol) = (new.1.v6(), new.1.protocol.load(Relaxed));
        let other = self.bib6(v6, protocol).map_or(new.1, |(_, other)| other);
        Err(BibError::Bound(Binding::of(other)))
    }
}
