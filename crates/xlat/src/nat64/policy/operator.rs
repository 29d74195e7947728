//! Changes by the operator, and the BIB entries of the configuration.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::time::Duration;

use crate::nat64::Nat64;
use crate::nat64::table::{
    Bib, BibError, Binding, Found, Protocol, Subscriber, View, bib_flags, one_less, state, tick,
};
use crate::verdict::DropReason;

use super::{Purpose, StaticBib};

impl Nat64 {
    /// Makes the missing BIB entries of the settings; dynamic entries that conflict with them are removed. Returns
    /// those that could not be made.
    pub fn make_static_bib(&self, now: Duration) -> Vec<(StaticBib, BibError)> {
        let _change = self.shared.begin_change();
        let mut failed = Vec::new();
        for wanted in &self.settings.bib {
            let mut made = self.put_bib(wanted, bib_flags::STATIC, now);
            // At each end one entry at most conflicts.
            for _ in 0..2 {
                let Err(BibError::Taken(other) | BibError::Bound(other)) = made else { break };
                let Some(protocol) = other.protocol else { break };
                if self.is_static(protocol, other.v4, now) {
                    break;
                }
                // Fails if it has ended meanwhile.
                let _ = self.remove_bib(protocol, other.v4, now);
                made = self.put_bib(wanted, bib_flags::STATIC, now);
            }
            failed.extend(made.err().map(|error| (*wanted, error)));
        }
        failed
    }

    fn is_static(&self, protocol: Protocol, v4: (Ipv4Addr, u16), now: Duration) -> bool {
        self.view(now, 0)
            .bib4(v4, protocol.number())
            .is_some_and(|(_, bib)| bib.flags.load(Relaxed) & bib_flags::STATIC != 0)
    }

    /// Makes a BIB entry that does not expire and that a change of settings keeps. A dynamic entry with the same two
    /// ends becomes such; one with only one of them is an error.
    pub fn add_bib(&self, wanted: &StaticBib, now: Duration) -> Result<(), BibError> {
        self.put_bib(wanted, bib_flags::STATIC | bib_flags::ADDED, now)
    }

    fn put_bib(&self, wanted: &StaticBib, flags: u8, now: Duration) -> Result<(), BibError> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        let protocol = wanted.protocol.number();
        let chain6 = view.bib6_chain(wanted.v6, protocol).ok_or(BibError::Full)?;
        let (found, _) = view.find6(&chain6, wanted.v6, protocol);
        if let Some((_, bib)) = found.filter(|(_, bib)| bib.state() == state::LIVE) {
            if bib.v4() != wanted.v4 {
                return Err(BibError::Bound(Binding::of(bib)));
            }
            bib.flags.fetch_or(flags, Relaxed);
            if bib.state() == state::LIVE {
                return Ok(());
            }
        }
        if let Some((_, holder)) = view.bib4(wanted.v4, protocol) {
            return Err(BibError::Taken(Binding::of(holder)));
        }
        let makes_way = |holder: &Bib| holder.change(state::HOLD_DOWN, state::DEAD);
        // Sessions that IPv4 hosts open through it count for its host.
        let (owner, subscriber) = view.owner_of(wanted.v6.0, wanted.protocol)?;
        found.map(|(_, bib)| bib.change(state::HOLD_DOWN, state::DEAD));
        let Some(new) = view.new_bib(wanted.v6, protocol, owner) else {
            one_less(&subscriber.ports[wanted.protocol.index()]);
            return Err(BibError::Full);
        };
        new.1.flags.store(flags, Relaxed);
        view.put(new, wanted.v4, makes_way)
    }

    /// Restores a dynamic 1:1 mapping, unused for `idle`.
    pub fn put_dynamic4(
        &self,
        v6: Ipv6Addr,
        v4: Ipv4Addr,
        idle: Duration,
        now: Duration,
    ) -> Result<(), BibError> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        if let Some((_, bib)) = view.bib6((v6, 0), 0) {
            let same = bib.v4().0 == v4;
            return if same { Ok(()) } else { Err(BibError::Bound(Binding::of(bib))) };
        }
        let new = view.new_bib((v6, 0), 0, 0).ok_or(BibError::Full)?;
        new.1.since.store(tick(now.saturating_sub(idle)), Relaxed);
        view.put(new, (v4, 0), |_| false)
    }

    /// Ends a BIB entry, static or dynamic, and its sessions. The sweeper removes them.
    pub fn remove_bib(
        &self,
        protocol: Protocol,
        v4: (Ipv4Addr, u16),
        now: Duration,
    ) -> Result<Binding, BibError> {
        let _change = self.shared.begin_change();
        let view = self.view(now, 0);
        let (_, bib) = view.bib4(v4, protocol.number()).ok_or(BibError::Missing)?;
        let binding = Binding::of(bib);
        if !bib.change(state::LIVE, state::DEAD) {
            return Err(BibError::Missing);
        }
        if let Some(subscriber) = view.subscriber_of(bib) {
            one_less(&subscriber.ports[protocol.index()]);
        }
        Ok(binding)
    }
}

impl<'a> View<'a> {
    /// The subscriber of a host, with one port more, whatever its quota: a static entry is not limited.
    fn owner_of(
        &self,
        host: Ipv6Addr,
        protocol: Protocol,
    ) -> Result<Found<'a, Subscriber>, BibError> {
        loop {
            let found = match self.subscriber(host, 0, Purpose::Counts) {
                Err(DropReason::Busy) => continue,
                found => found.map_err(|_| BibError::Full)?,
            };
            let counter = &found.1.ports[protocol.index()];
            counter.fetch_add(1, SeqCst);
            if found.1.state() == state::LIVE {
                return Ok(found);
            }
            // It has ended meanwhile; the next attempt finds or makes another one.
            one_less(counter);
        }
    }
}
