//! What is known of another gateway's lease, and what was promised to it or voted against it.

use std::collections::BTreeSet;

use crate::record::{Incarnation, LeaseRecord, Member, Nanos, Revision, Status};
use crate::settings::{Settings, mutant};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) revision: Revision,
    pub(crate) record: LeaseRecord,
    /// When that revision was received first.
    received: Nanos,
    /// When it has sent the newest revision that it wrote itself, at the latest; which may be told much later.
    written_at: Nanos,
    /// When its incarnation has asked for a promise last.
    asked_at: Nanos,
    /// No vote before.
    promised_until: Nanos,
    /// Against this revision; no promise before a newer one is seen.
    voted: Option<Revision>,
    /// Who has voted against the current revision, as far as it was collected here.
    votes: BTreeSet<Member>,
    /// When votes were asked for, or the fence written, last.
    pub(crate) tried_at: Nanos,
    /// The operator says that the gateway is off.
    pub(crate) declared: bool,
}

/// How a lease may be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Not before this time, as far as is known.
    NotBefore(Nanos),
    /// Not by this gateway.
    Never,
    /// More votes are needed.
    Ask,
    /// Now.
    Write,
}

impl Peer {
    pub(crate) fn new(now: Nanos, revision: Revision, record: LeaseRecord) -> Peer {
        Peer {
            revision,
            record,
            received: now,
            written_at: now,
            asked_at: 0,
            promised_until: 0,
            voted: None,
            votes: BTreeSet::new(),
            tried_at: 0,
            declared: false,
        }
    }

    /// Takes what the store says, if that is news. Whether shards depend on it.
    pub(crate) fn see(
        &mut self,
        now: Nanos,
        settings: &Settings,
        revision: Revision,
        record: LeaseRecord,
    ) -> bool {
        if revision <= self.revision {
            return false;
        }
        let is_same = record.incarnation == self.record.incarnation;
        let kept = if is_same { self.promised_until } else { 0 };
        let (written_at, asked_at) = if is_same {
            // Others may have ended it.
            let by = if record.status == Status::Ended { self.record.sent } else { record.sent };
            let passed = settings.timing.at_most(by.saturating_sub(self.record.sent));
            (now.min(self.written_at.saturating_add(passed)), self.asked_at)
        } else {
            (now, 0)
        };
        let new = Peer::new(now, revision, record);
        let before = self.record.standing();
        *self = Peer { promised_until: kept, written_at, asked_at, ..new };
        before != self.record.standing()
    }

    /// When it was heard of last, by what it has done itself.
    pub(crate) fn alive_at(&self) -> Nanos {
        self.written_at.max(self.asked_at)
    }

    /// How long ago the newest revision was received.
    pub(crate) fn unseen(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.received)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.record.status == Status::Ended
    }

    /// Whether an incarnation has ended. One that is not known yet has not.
    pub(crate) fn has_ended(&self, incarnation: Incarnation) -> bool {
        self.record.incarnation > incarnation
            || self.record.incarnation == incarnation && self.is_ended()
    }

    /// Promises not to vote for `ttl`. `false`: it can't.
    pub(crate) fn promise(
        &mut self,
        now: Nanos,
        settings: &Settings,
        incarnation: Incarnation,
    ) -> bool {
        let voted = self.voted.is_some() && !mutant!(settings, PromiseAfterVote);
        if voted || self.is_ended() || self.record.incarnation != incarnation {
            return false;
        }
        self.promised_until = self.promised_until.max(now + settings.timing.ttl);
        self.asked_at = now;
        true
    }

    /// Votes against a revision. `false`: it can't.
    pub(crate) fn vote(
        &mut self,
        now: Nanos,
        settings: &Settings,
        own: Incarnation,
        revision: Revision,
    ) -> bool {
        let has_promised = now < self.promised_until && !mutant!(settings, VoteAfterPromise);
        let may = self.record.peers.get(&settings.me) == Some(&own) && own != 0;
        if has_promised || !may || self.is_ended() || self.revision != revision {
            return false;
        }
        self.voted = Some(revision);
        true
    }

    /// Counts a vote of another gateway.
    pub(crate) fn count(
        &mut self,
        settings: &Settings,
        from: Member,
        by: Incarnation,
        revision: Revision,
    ) {
        if revision == self.revision
            && self.record.peers.get(&from) == Some(&by)
            && self.votes.insert(from)
            && self.has_votes(settings)
        {
            // There is nothing more to wait for.
            self.tried_at = 0;
        }
    }

    fn has_votes(&self, settings: &Settings) -> bool {
        self.votes.len() >= settings.fencing.votes(self.record.peers.len())
    }

    /// Whether this gateway may end the lease now. Votes itself, if it may.
    pub(crate) fn fence(&mut self, now: Nanos, settings: &Settings, own: Incarnation) -> Fence {
        let timing = &settings.timing;
        if self.is_ended() {
            return Fence::Never;
        }
        let wait = if mutant!(settings, NoWait) { timing.renew } else { timing.ttl };
        let not_before = (self.received + wait).max(self.promised_until);
        if now < not_before && !(mutant!(settings, VoteAfterPromise) && now >= self.received + wait)
        {
            return Fence::NotBefore(not_before);
        }
        if now >= self.received + timing.outage || self.declared {
            return Fence::Write;
        }
        if self.vote(now, settings, own, self.revision) {
            self.votes.insert(settings.me);
        } else {
            return Fence::NotBefore(self.received + timing.outage);
        }
        let enough = self.has_votes(settings) || mutant!(settings, FewVotes);
        if enough { Fence::Write } else { Fence::Ask }
    }
}
