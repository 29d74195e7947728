//! Sweeping of BIB entries: without sessions, after hold-down, or not fitting the settings.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::time::Duration;

use crate::nat64::table::{
    Bib, Binding, Kind, Protocol, TICK_SHIFT, Unlinked, bib_flags, life, life_parts, one_less,
    state,
};

use super::{Event, Pass};

/// Ticks for which a BIB entry may be without its first session.
const FIRST_SESSION: u32 = 8;

impl Pass<'_, '_> {
    pub(crate) fn bib(&mut self, index: u32) {
        let bib = &self.view.regions.bibs[index as usize];
        let (state, sessions) = life_parts(bib.life.load(Acquire));
        match state {
            state::LIVE => self.live_bib(bib, sessions),
            state::HOLD_DOWN if self.has_held_down(bib) => {
                bib.change(state::HOLD_DOWN, state::DEAD);
            }
            state::HOLD_DOWN => self.sweep.swept.hold_down += 1,
            state::LIMBO => self.found_in_limbo((Kind::Bib, index)),
            _ => {}
        }
        // An entry that the steps above have ended is unlinked at once, unless it has sessions.
        match life_parts(bib.life.load(Acquire)) {
            (state::DEAD, 0) => self.finish_bib(index, bib),
            (state::DEAD, _) => *self.orphans = true,
            _ => {}
        }
    }

    fn has_held_down(&self, bib: &Bib) -> bool {
        self.expired(bib.since.load(Relaxed), self.view.nat.ticks.hold_down)
    }

    fn live_bib(&mut self, bib: &Bib, sessions: u32) {
        let protocol = Protocol::of(bib.protocol.load(Relaxed));
        self.tell_of_bib(bib);
        if self.sweep.review && !self.view.nat.keeps(bib) {
            self.end_bib(bib, protocol, state::DEAD, u32::MAX);
        } else if self.is_over(bib, protocol, sessions) {
            self.expire_bib(bib, protocol);
        } else {
            let swept = &mut self.sweep.swept;
            swept.bibs[protocol.map_or(3, Protocol::index)] += 1;
            swept.held += u64::from(bib.flags.load(Relaxed) & bib_flags::HELD != 0);
        }
    }

    /// Whether the lifetime of a live BIB entry with so many sessions is over.
    fn is_over(&self, bib: &Bib, protocol: Option<Protocol>, sessions: u32) -> bool {
        let (flags, since) = (bib.flags.load(Relaxed), bib.since.load(Relaxed));
        let is_over = match protocol {
            None if flags & bib_flags::HELD != 0 => self.expired(since, self.view.nat.ticks.hold),
            None => self.expired(since, self.view.nat.ticks.dynamic4),
            Some(_) => {
                let created = bib.created.load(Relaxed);
                sessions == 0 && (since != created || self.view.age(created) > FIRST_SESSION)
            }
        };
        is_over && flags & bib_flags::STATIC == 0 && self.view.nat.settings.ages_host(bib.v6().0)
    }

    fn expire_bib(&mut self, bib: &Bib, protocol: Option<Protocol>) {
        // A port that never had a session is unknown in IPv4: it needs no hold-down.
        let holds_down = matches!(protocol, Some(Protocol::Udp | Protocol::Icmp))
            && bib.since.load(Relaxed) != bib.created.load(Relaxed)
            && self.view.nat.ticks.hold_down != 0
            && self.sweep.swept.hold_down
                < u64::from(self.view.nat.settings.lifetimes.hold_down_most);
        if protocol.is_some() {
            let to = if holds_down { state::HOLD_DOWN } else { state::DEAD };
            self.end_bib(bib, protocol, to, 0);
        } else {
            bib.change(state::LIVE, state::DEAD);
        }
    }

    /// A session that has ended was the last one of its BIB entry.
    pub(crate) fn lost_last_session(&mut self, index: u32, bib: &Bib) {
        bib.since.store(self.view.now, Relaxed);
        let protocol = Protocol::of(bib.protocol.load(Relaxed));
        if bib.state() == state::LIVE && self.is_over(bib, protocol, 0) {
            self.expire_bib(bib, protocol);
            if bib.state() != state::LIVE {
                let counted = &mut self.sweep.swept.bibs[protocol.map_or(3, Protocol::index)];
                *counted = counted.saturating_sub(1);
            }
        }
        if life_parts(bib.life.load(Acquire)) == (state::DEAD, 0) {
            self.finish_bib(index, bib);
        }
    }

    /// Ends a BIB entry with up to `most` sessions, and returns the port to its subscriber's quota.
    fn end_bib(&mut self, bib: &Bib, protocol: Option<Protocol>, to: u8, most: u32) {
        let word = bib.life.load(Acquire);
        let (from, sessions) = life_parts(word);
        // Another thread opens a session: then the entry stays.
        if from != state::LIVE
            || sessions > most
            || bib.life.compare_exchange(word, life(to, sessions), AcqRel, Acquire).is_err()
        {
            return;
        }
        if let (Some(protocol), Some(subscriber)) = (protocol, self.view.subscriber_of(bib)) {
            one_less(&subscriber.ports[protocol.index()]);
        }
        if to == state::HOLD_DOWN {
            self.sweep.swept.hold_down += 1;
            bib.subscriber.store(0, Relaxed);
            bib.since.store(self.view.now, Relaxed);
        }
    }

    fn tell_of_bib(&mut self, bib: &Bib) {
        // Read first: most entries are known, and their cache lines stay shared.
        if bib.flags.load(Relaxed) & bib_flags::SEEN == 0 {
            bib.flags.fetch_or(bib_flags::SEEN, Relaxed);
            let age = u64::from(self.view.age(bib.created.load(Relaxed))) << TICK_SHIFT;
            let created = self.now.saturating_sub(Duration::from_nanos(age));
            (self.tell)(Event::BibCreated(Binding::of(bib), created));
        }
    }

    /// Unlinks a dead BIB entry without sessions.
    fn finish_bib(&mut self, index: u32, bib: &Bib) {
        let protocol = bib.protocol.load(Relaxed);
        let chain6 = self.view.bib6_chain(bib.v6(), protocol);
        let from6 = chain6.map_or(Unlinked::Absent, |chain| chain.unlink(index));
        let chain4 = self.view.bib4_chain(bib.v4(), protocol);
        let from4 = chain4.map_or(Unlinked::Absent, |chain| chain.unlink(index));
        if from6 == Unlinked::Done {
            // It may have ended between two sweeps.
            self.tell_of_bib(bib);
        }
        if !self.may_go((Kind::Bib, index), from6.and(from4)) {
            return;
        }
        if bib.flags.load(Relaxed) & bib_flags::SEEN != 0 {
            (self.tell)(Event::BibRemoved(Binding::of(bib)));
        }
        bib.life.store(life(state::LIMBO, 0), Release);
        self.put_in_limbo((Kind::Bib, index));
    }
}
