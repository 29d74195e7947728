//! The owner's side, ahead of a scan: sessions that are noted as new or changed, one bit each
//! ([`Gates::changed`](crate::nat64::Gates::changed)).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::time::Duration;

use crate::nat64::Nat64;
use crate::nat64::table::{Kind, View, bib_flags, state};

use super::scan::{end_of, is_of};
use super::{Replica, Tell};

/// What looking at changed sessions has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The round is complete; the next call begins another.
    pub is_complete: bool,
    /// A session of it has a subscriber in an entry of an earlier one, whose BIB entries are still known: a later round tells
    /// it, or a scan.
    pub waits: bool,
}

/// How far a round of [`Replica::look_at_changed`] has come.
#[derive(Debug, Default)]
pub(super) struct Round {
    next: usize,
    waiting: Vec<u32>,
}

impl Replica {
    /// Looks at the sessions of which packets or the sweeper have noted that they are new or have another state, before a
    /// scan comes to them. A call looks at about `most`, and the next one goes on from there; when all were looked at, a round
    /// is complete, and what was noted before it began is told.
    pub fn look_at_changed(
        &mut self,
        nat: &Nat64,
        now: Duration,
        most: u32,
        tell: &mut Tell<'_>,
    ) -> Looked {
        let view = nat.view(now, 0);
        self.grow(&view);
        self.tell_ended(tell);
        let shards = Arc::clone(&self.shards);
        let words = shards.changed();
        let mut looked = 0;
        while let Some(word) = words.get(self.round.next)
            && looked < most
        {
            let place = self.round.next as u32 * 64;
            self.round.next += 1;
            if word.load(Relaxed) == 0 {
                continue;
            }
            let bits = word.swap(0, AcqRel);
            // Of entries that were made since the call began, too: whoever takes their bits looks at them.
            self.grow(&view);
            let end = end_of(&view, Kind::Session).min(self.told.end(Kind::Session));
            for first in (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| place + bit) {
                for entry in (first..end).step_by(words.len() * 64).filter(|entry| *entry != 0) {
                    looked += 1;
                    self.look_at_bib_of(entry, &view, tell);
                    self.look_at_session(&view, entry, tell);
                    self.look_at_subscriber_of(&view, entry, tell);
                    if self.waits(&view, entry) {
                        self.round.waiting.push(entry);
                    }
                }
            }
        }
        let is_complete = self.round.next >= words.len();
        let waits = is_complete && !self.round.waiting.is_empty();
        if is_complete {
            self.round.next = 0;
            self.round.waiting.drain(..).for_each(|entry| shards.note(entry));
        }
        Looked { is_complete, waits }
    }

    /// If the binding of a told session has ended, tells its removal and that of its sessions. Another binding of the same
    /// address and port may have its entry by now, and a session of that one the session's: which alone looks as it was told.
    fn look_at_bib_of(&mut self, session: u32, view: &View<'_>, tell: &mut Tell<'_>) {
        let told = self.told.sessions[session as usize];
        if told.is_told() && self.follows(told.shard) && self.told.has_bib(view, told.bib).is_none()
        {
            self.untell_bib(told.bib, tell);
        }
    }

    /// Tells the subscriber of a session without a record, for which it may have got a block.
    fn look_at_subscriber_of(&mut self, view: &View<'_>, entry: u32, tell: &mut Tell<'_>) {
        let session = &view.regions.sessions[entry as usize];
        if self.told.sessions[entry as usize].is_told()
            || !session.life().is_live()
            || session.is_permission()
        {
            return;
        }
        let bib = View::entry(view.regions.bibs, session.bib.load(Relaxed));
        if let Some(bib) = bib.filter(|bib| bib.state() == state::LIVE) {
            let subscriber = bib.subscriber.load(Relaxed);
            if (1..self.told.end(Kind::Subscriber)).contains(&subscriber) {
                self.look_at_subscriber(view, subscriber, tell);
            }
        }
    }

    /// Whether a session of this gateway's has a record that could not be told.
    fn waits(&self, view: &View<'_>, entry: u32) -> bool {
        let session = &view.regions.sessions[entry as usize];
        if self.told.sessions[entry as usize].is_told() || !self.has_record(session, session.life())
        {
            return false;
        }
        let bib = View::entry(view.regions.bibs, session.bib.load(Relaxed));
        bib.is_some_and(|bib| {
            bib.state() == state::LIVE
                && is_of(session, bib)
                && bib.flags.load(Relaxed) & bib_flags::STATIC == 0
                && self.follows(self.shards.partition().of_host(bib.v6().0))
        })
    }
}
