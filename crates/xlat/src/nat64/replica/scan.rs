//! The owner's side: what differs between the tables and what was told.
//!
//! An entry that has not changed costs its own cache line and 24 to 96 octets beside it, which are read in order; its
//! BIB entry is looked up only when a session is new.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::time::Duration;

use crate::nat64::policy::ticks;
use crate::nat64::table::{
    Bib, Kind, PortBlock, Protocol, Session, SessionLife, Subscriber, View, bib_flags,
    session_seen, state,
};
use crate::nat64::{Nat64, Sweeper};

use super::record::{LEFT_UNIT, Named, SessionValue, is_replicated};
use super::told::{Presence, ToldBib, ToldSession, ToldSubscriber};
use super::{Change, Leftover, Replica, Tell};

/// What a slice of a scan has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Entries that it has looked at.
    pub looked: u32,
    /// It has looked at the last one; the next slice begins anew.
    pub is_complete: bool,
}

/// The kinds of entries, in the order in which a scan looks at them. BIB entries come before sessions, so that those of
/// an earlier binding are removed before those of the next are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Bibs,
    Sessions,
    Subscribers,
}

impl Phase {
    fn kind(self) -> Kind {
        match self {
            Phase::Bibs => Kind::Bib,
            Phase::Sessions => Kind::Session,
            Phase::Subscribers => Kind::Subscriber,
        }
    }

    fn next(self) -> Option<Phase> {
        match self {
            Phase::Bibs => Some(Phase::Sessions),
            Phase::Sessions => Some(Phase::Subscribers),
            Phase::Subscribers => None,
        }
    }
}

/// How far a scan has come.
#[derive(Debug)]
pub(super) struct Pass {
    phase: Phase,
    next: u32,
    /// Shards of others whose entries without a record this scan removes, from its beginning on and as long as they are
    /// others'.
    pub(super) prunes: Vec<bool>,
    prunes_any: bool,
}

impl Default for Pass {
    fn default() -> Pass {
        Pass { phase: Phase::Bibs, next: 1, prunes: Vec::new(), prunes_any: false }
    }
}

impl Replica {
    /// Looks at up to `most` entries: the next ones of a scan that is under way, else the first ones of the next scan. Tells
    /// what has changed in shards that this gateway owns.
    ///
    /// Changes before the beginning of a scan are told when it is complete. Only a session whose subscriber's entry
    /// has just been used by another one, whose BIB entries were not all looked at again, is told by the scan after that.
    pub fn scan(
        &mut self,
        nat: &Nat64,
        sweeper: &mut Sweeper,
        now: Duration,
        most: u32,
        tell: &mut Tell<'_>,
    ) -> Scanned {
        let view = nat.view(now, 0);
        self.grow(&view);
        self.tell_ended(tell);
        if self.pass.phase == Phase::Bibs && self.pass.next == 1 {
            self.pass.prunes = self.leftovers.iter().map(|it| *it == Leftover::Lost).collect();
            self.pass.prunes_any = self.pass.prunes.contains(&true);
        }
        let mut looked = 0;
        loop {
            let (phase, first) = (self.pass.phase, self.pass.next);
            let end = end_of(&view, phase.kind()).min(self.told.end(phase.kind()));
            let last = end.min(first.saturating_add(most - looked)).max(first);
            for entry in first..last {
                match phase {
                    Phase::Bibs => self.look_at_bib(&view, sweeper, entry, tell),
                    Phase::Sessions => self.look_at_session(&view, entry, tell),
                    Phase::Subscribers => self.look_at_subscriber(&view, entry, tell),
                }
            }
            looked += last - first;
            self.pass.next = last;
            if last < end {
                return Scanned { looked, is_complete: false };
            }
            self.pass.next = 1;
            let next = phase.next();
            self.pass.phase = next.unwrap_or_default();
            if next.is_none() {
                self.is_pruned();
                return Scanned { looked, is_complete: true };
            }
        }
    }

    pub(super) fn tell_ended(&mut self, tell: &mut Tell<'_>) {
        for (shard, key) in self.ended.drain(..) {
            tell(Change { shard, key, value: None });
        }
    }

    /// Room for entries that were made since.
    pub(super) fn grow(&mut self, view: &View<'_>) {
        let [subscribers, bibs, sessions] =
            [Kind::Subscriber, Kind::Bib, Kind::Session].map(|kind| end_of(view, kind) as usize);
        self.told.grow(subscribers, bibs, sessions);
    }

    /// The scan has removed entries without a record.
    fn is_pruned(&mut self) {
        for (leftover, prunes) in self.leftovers.iter_mut().zip(&self.pass.prunes) {
            if *prunes {
                *leftover = Leftover::Nothing;
            }
        }
    }

    /// Tells every entry of the tables that has a record, whichever shard it is of: those that an earlier process has
    /// left. To be called once, before this gateway owns any shard. It takes as long as a whole scan.
    pub fn load(&mut self, nat: &Nat64, sweeper: &mut Sweeper, now: Duration, tell: &mut Tell<'_>) {
        self.loads = true;
        while !self.scan(nat, sweeper, now, u32::MAX, tell).is_complete {}
        self.loads = false;
    }

    /// Whether what was told follows the tables, as to a shard.
    pub(super) fn follows(&self, shard: u16) -> bool {
        self.loads || self.shards.owns(shard)
    }

    fn prunes(&self, shard: u16) -> bool {
        self.pass.prunes.get(usize::from(shard)) == Some(&true)
    }

    fn look_at_bib(
        &mut self,
        view: &View<'_>,
        sweeper: &mut Sweeper,
        entry: u32,
        tell: &mut Tell<'_>,
    ) {
        let bib = &view.regions.bibs[entry as usize];
        let told = &self.told.bibs[entry as usize];
        if told.is_told() {
            if self.follows(told.shard) && !(bib.state() == state::LIVE && told.is(bib)) {
                self.untell_bib(entry, tell);
            }
        } else if self.pass.prunes_any {
            self.prune_bib(view, sweeper, entry, None);
        }
    }

    /// Tells the removal of a BIB entry, and of its sessions before.
    pub(super) fn untell_bib(&mut self, entry: u32, tell: &mut Tell<'_>) {
        while let Some(session) = self.told.last_session_of(&self.told.bibs[entry as usize]) {
            let (shard, key) = self.told.remove_session(session);
            tell(Change { shard, key, value: None });
        }
        if let Some((shard, key)) = self.told.remove_bib(entry) {
            tell(Change { shard, key, value: None });
        }
    }

    /// Tells the removal of a session, and of its BIB entry if it was the last one.
    fn untell_session(&mut self, entry: u32, tell: &mut Tell<'_>) {
        let bib = self.told.sessions[entry as usize].bib;
        let (shard, key) = self.told.remove_session(entry);
        tell(Change { shard, key, value: None });
        if self.told.bibs[bib as usize].sessions == 0 {
            self.untell_bib(bib, tell);
        }
    }

    pub(super) fn look_at_session(&mut self, view: &View<'_>, entry: u32, tell: &mut Tell<'_>) {
        let session = &view.regions.sessions[entry as usize];
        let life = session.life();
        let told = self.told.sessions[entry as usize];
        let has_record = self.has_record(session, life);
        if told.is_told() {
            if !self.follows(told.shard) {
                return;
            }
            if has_record && told.is(session) {
                let value = value_of(view, session, life);
                if self.told.session_value(entry) != value {
                    self.told.set_session(entry, &value);
                    self.tell_session(entry, tell);
                }
                return;
            }
            self.untell_session(entry, tell);
        }
        if has_record {
            self.tell_new_session(view, entry, session, life, tell);
        }
        if self.pass.prunes_any {
            self.prune_session(view, session, life, None);
        }
    }

    pub(super) fn has_record(&self, session: &Session, life: SessionLife) -> bool {
        let protocol = session.protocol.load(Relaxed);
        let wanted = match Protocol::of(protocol) {
            Some(Protocol::Tcp) => true,
            Some(Protocol::Udp) => self.replicated.udp,
            Some(Protocol::Icmp) => self.replicated.icmp,
            None => false,
        };
        wanted && is_replicated(protocol, life.state, life.timeout)
    }

    fn tell_new_session(
        &mut self,
        view: &View<'_>,
        entry: u32,
        session: &Session,
        life: SessionLife,
        tell: &mut Tell<'_>,
    ) {
        let owner = session.bib.load(Relaxed);
        let Some(bib) = View::entry(view.regions.bibs, owner) else { return };
        if !is_of(session, bib) {
            return;
        }
        let Some(shard) = self.tell_bib(view, owner, bib, tell) else { return };
        let told = ToldSession::of(session, shard);
        // Another entry of this key has ended, and the scan has not come to it yet.
        if self.told.bibs[owner as usize].sessions != 0
            && let Some(other) = self.told.find(shard, &Named::Session(told.key()))
        {
            let (shard, key) = self.told.remove_session(other);
            tell(Change { shard, key, value: None });
        }
        self.told.put_session(entry, told, &value_of(view, session, life));
        self.tell_session(entry, tell);
    }

    fn tell_session(&self, entry: u32, tell: &mut Tell<'_>) {
        let told = &self.told.sessions[entry as usize];
        let key = Named::Session(told.key()).key();
        let value = self.told.session_value(entry).octets();
        tell(Change { shard: told.shard, key, value: Some(value.as_slice()) });
    }

    /// The shard of a live BIB entry of this gateway's, which is told if it was not. `None`: it is none.
    fn tell_bib(
        &mut self,
        view: &View<'_>,
        entry: u32,
        bib: &Bib,
        tell: &mut Tell<'_>,
    ) -> Option<u16> {
        let known = self.told.bibs.get(entry as usize)?;
        let is_live = bib.state() == state::LIVE;
        if known.is_told() {
            if is_live && known.is(bib) {
                return self.follows(known.shard).then_some(known.shard);
            }
            if !self.follows(known.shard) {
                return None;
            }
            self.untell_bib(entry, tell);
        }
        if !is_live || bib.flags.load(Relaxed) & bib_flags::STATIC != 0 {
            return None;
        }
        let shard = self.shards.partition().of_host(bib.v6().0);
        let told = ToldBib::of(bib, shard);
        let named = told.named()?;
        let is_own = self.follows(shard);
        if !is_own || !self.tell_subscriber(view, told.subscriber, shard, tell) {
            return None;
        }
        if let Some(other) = self.told.find(shard, &named) {
            self.untell_bib(other, tell);
        }
        self.told.put_bib(entry, told);
        let value = self.told.bib_value(entry).octets();
        tell(Change { shard, key: named.key(), value: Some(value.as_slice()) });
        Some(shard)
    }

    /// Whether a subscriber is told, which is done if it was not.
    fn tell_subscriber(
        &mut self,
        view: &View<'_>,
        entry: u32,
        shard: u16,
        tell: &mut Tell<'_>,
    ) -> bool {
        let Some(subscriber) = View::entry(view.regions.subscribers, entry) else { return false };
        if entry as usize >= self.told.subscribers.len() {
            return false;
        }
        let known = &self.told.subscribers[entry as usize];
        let is_same = known.is_told() && known.is(subscriber);
        if !is_same {
            // One that is claimed may be about to end, but has an entry now.
            let is_there = matches!(subscriber.state(), state::LIVE | state::CLAIMED);
            if !self.untell_subscriber(entry, tell) || !is_there {
                return false;
            }
            let (prefix, mark) = (subscriber.prefix(), subscriber.mark.load(Relaxed));
            if self.shards.partition().of_host(prefix) != shard {
                return false;
            }
            let named = Named::Subscriber { prefix, mark };
            if let Some(other) = self.told.find(shard, &named)
                && !self.untell_subscriber(other, tell)
            {
                return false;
            }
            self.told.subscribers[entry as usize] = ToldSubscriber::of(prefix, mark, shard);
        }
        self.tell_blocks(entry, subscriber, tell);
        true
    }

    /// Tells a subscriber whose blocks differ from what was told, or of which there is no record.
    fn tell_blocks(&mut self, entry: u32, subscriber: &Subscriber, tell: &mut Tell<'_>) {
        let told = &self.told.subscribers[entry as usize];
        let is_recorded = told.presence == Presence::Recorded;
        if is_recorded && subscriber.blocks().eq(told.blocks().iter().copied()) {
            return;
        }
        let blocks: Vec<PortBlock> = subscriber.blocks().collect();
        self.told.set_blocks(entry, &blocks);
        if !is_recorded {
            self.told.set_recorded(entry, true);
        }
        let told = &self.told.subscribers[entry as usize];
        let (shard, named) = (told.shard, told.named());
        let value = self.told.value(&named, entry);
        tell(Change { shard, key: named.key(), value: Some(value.as_slice()) });
    }

    /// Tells the removal of a subscriber. `false`: it has BIB entries that were told, and is to be looked at again.
    fn untell_subscriber(&mut self, entry: u32, tell: &mut Tell<'_>) -> bool {
        let told = &self.told.subscribers[entry as usize];
        if told.bibs != 0 {
            return false;
        }
        if told.is_told()
            && let Some((shard, key)) = self.told.remove_subscriber(entry)
        {
            tell(Change { shard, key, value: None });
        }
        true
    }

    pub(super) fn look_at_subscriber(&mut self, view: &View<'_>, entry: u32, tell: &mut Tell<'_>) {
        let subscriber = &view.regions.subscribers[entry as usize];
        let told = &self.told.subscribers[entry as usize];
        let state = subscriber.state();
        if told.is_told() {
            if !self.follows(told.shard) {
                return;
            }
            if told.is(subscriber) && matches!(state, state::LIVE | state::CLAIMED) {
                return self.tell_blocks(entry, subscriber, tell);
            }
            if !self.untell_subscriber(entry, tell) {
                return;
            }
        }
        if state != state::LIVE {
            return;
        }
        let shard = self.shards.partition().of_host(subscriber.prefix());
        if self.follows(shard) {
            self.tell_subscriber(view, entry, shard, tell);
        } else if self.prunes(shard) {
            subscriber.end();
        }
    }

    /// Ends a BIB entry without a record, in `only` or in a shard that this scan prunes.
    pub(super) fn prune_bib(
        &self,
        view: &View<'_>,
        sweeper: &mut Sweeper,
        entry: u32,
        only: Option<u16>,
    ) {
        let bib = &view.regions.bibs[entry as usize];
        let fixed = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
        if fixed || Protocol::of(bib.protocol.load(Relaxed)).is_none() {
            return;
        }
        let is_held = bib.state() == state::HOLD_DOWN;
        if !is_held && bib.state() != state::LIVE {
            return;
        }
        let shard = self.shards.partition().of_host(bib.v6().0);
        if only.map_or_else(|| self.prunes(shard), |only| only == shard) {
            if is_held {
                bib.change(state::HOLD_DOWN, state::DEAD);
            }
            sweeper.remove_bib(view, entry);
        }
    }

    /// Ends a session without a record, in `only` or in a shard that this scan prunes. A sweep removes it.
    pub(super) fn prune_session(
        &self,
        view: &View<'_>,
        session: &Session,
        life: SessionLife,
        only: Option<u16>,
    ) {
        if !life.is_live() || session.is_permission() {
            return;
        }
        let Some(bib) = View::entry(view.regions.bibs, session.bib.load(Relaxed)) else { return };
        let fixed = bib.flags.load(Relaxed) & bib_flags::STATIC != 0;
        let shard = self.shards.partition().of_host(bib.v6().0);
        if !fixed && only.map_or_else(|| self.prunes(shard), |only| only == shard) {
            // Fails if it has changed meanwhile, which is no packet's doing: it has ended.
            let _ = session.end(life);
        }
    }
}

/// Whether a BIB entry is still the one that a session was made for.
pub(super) fn is_of(session: &Session, bib: &Bib) -> bool {
    (bib.v4(), bib.protocol.load(Relaxed)) == (session.local(), session.protocol.load(Relaxed))
}

/// The end of the entries of a kind that were ever used.
pub(super) fn end_of(view: &View<'_>, kind: Kind) -> u32 {
    let meta = view.regions.meta;
    let entries = meta.entries[kind as usize].load(Relaxed);
    meta.fresh[kind as usize].load(Acquire).min(entries)
}

/// What a session's record says.
pub(super) fn value_of(view: &View<'_>, session: &Session, life: SessionLife) -> SessionValue {
    let left = view.nat.ticks.of_class(life.timeout).saturating_sub(view.age(life.tick));
    let left = left.div_ceil(ticks(LEFT_UNIT)).clamp(1, u32::from(u8::MAX));
    let is_shifted = session.seen.load(Relaxed) & session_seen::SHIFTED != 0;
    SessionValue {
        state: life.state,
        class: life.timeout,
        left: left as u8,
        pool6: session.pool6.load(Relaxed),
        shift: is_shifted.then(|| view.kept_shift(&session.key())).flatten(),
    }
}
