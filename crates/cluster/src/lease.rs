//! A gateway's own lease: until when its data path may translate.

use std::collections::BTreeMap;

use crate::record::{Incarnation, LeaseRecord, Member, Nanos, Peers, Revision, Status};
use crate::settings::{Settings, mutant};

/// What the store says of one's own lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is held.
    Held,
    /// It has ended, or never was.
    Ended,
    /// Another host uses the name.
    NameInUse,
    /// A later process of this host has taken it.
    Replaced,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// 0: none is held.
    pub(crate) incarnation: Incarnation,
    pub(crate) revision: Revision,
    /// What the store has.
    pub(crate) record: Option<LeaseRecord>,
    /// When the last record that the store has accepted was sent.
    pub(crate) acknowledged: Nanos,
    /// Peers of a write on the current revision that may still succeed.
    pending: Option<Peers>,
    /// When the last write was sent.
    pub(crate) written_at: Nanos,
    /// When each peer's last promise was asked for, and who promised.
    promised: BTreeMap<Member, (Incarnation, Nanos)>,
    pub(crate) asked_at: Nanos,
    /// Its end was written: it is not extended any more.
    pub(crate) closed: bool,
    /// What the data path was told.
    pub(crate) until: Nanos,
}

impl Lease {
    /// Takes what the store says of the own key, if that is news.
    pub(crate) fn see(
        &mut self,
        now: Nanos,
        settings: &Settings,
        revision: Revision,
        record: LeaseRecord,
    ) -> Option<Seen> {
        if revision <= self.revision {
            return None;
        }
        let was_held = self.incarnation != 0;
        self.revision = revision;
        (self.pending, self.closed) = (None, false);
        let seen = if record.status == Status::Ended {
            Seen::Ended
        } else if record.process == settings.process {
            let base = if mutant!(settings, FromAcknowledgement) { now } else { record.sent };
            self.acknowledged = self.acknowledged.max(base);
            Seen::Held
        } else if record.host != settings.host {
            Seen::NameInUse
        } else if was_held {
            Seen::Replaced
        } else {
            Seen::Ended
        };
        self.incarnation = if seen == Seen::Held { record.incarnation } else { 0 };
        if seen != Seen::Held {
            self.promised.clear();
            self.until = 0;
        }
        self.record = Some(record);
        Some(seen)
    }

    /// What shards depend on: whether the store is reached, and what its record says of this gateway.
    pub(crate) fn standing(
        &self,
        now: Nanos,
        settings: &Settings,
    ) -> (bool, Option<(Incarnation, Status, u32)>) {
        (self.reaches_store(now, settings), self.record.as_ref().map(LeaseRecord::standing))
    }

    /// The next record to write. The peers of a write that may still succeed stay, so that there are at most two sets.
    pub(crate) fn renewal(
        &mut self,
        now: Nanos,
        settings: &Settings,
        status: Status,
        peers: Peers,
    ) -> LeaseRecord {
        let peers = self.pending.get_or_insert(peers).clone();
        let last = self.record.as_ref().map_or(0, |record| record.incarnation);
        self.written_at = now;
        LeaseRecord {
            incarnation: if self.incarnation == 0 { last + 1 } else { self.incarnation },
            process: settings.process,
            host: settings.host,
            status,
            sent: now,
            weight: settings.weight,
            peers,
        }
    }

    /// The last write is not acknowledged.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The sets of peers of which the store may have one.
    fn sets(&self) -> impl Iterator<Item = &Peers> {
        self.record.iter().map(|record| &record.peers).chain(&self.pending)
    }

    /// Everybody whose promise may be needed.
    pub(crate) fn voters(&self) -> Peers {
        self.sets().flatten().map(|(member, incarnation)| (*member, *incarnation)).collect()
    }

    /// A peer has promised what was asked for at `sent`.
    pub(crate) fn promise(&mut self, from: Member, by: Incarnation, to: Incarnation, sent: Nanos) {
        if to == self.incarnation && to != 0 {
            let last = self.promised.entry(from).or_insert((by, sent));
            *last = (*last).max((by, sent));
        }
    }

    /// When the promises were asked for that exclude all votes of a set of peers. `None`: there are too few.
    fn extended(&self, now: Nanos, settings: &Settings, peers: &Peers) -> Option<Nanos> {
        let needed = settings.fencing.promises(peers.len());
        if needed == 0 {
            return Some(now);
        }
        let of = |(member, incarnation): (&Member, &Incarnation)| {
            let (by, sent) = self.promised.get(member)?;
            (by == incarnation || mutant!(settings, AnyIncarnation)).then_some(*sent)
        };
        let mut sent: Vec<Nanos> = peers.iter().filter_map(of).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        sent.get(needed - 1).copied()
    }

    /// Acknowledgements are missing: peers are to be asked.
    pub(crate) fn is_silent(&self, now: Nanos, settings: &Settings) -> bool {
        now.saturating_sub(self.acknowledged) >= 2 * settings.timing.renew
    }

    /// The store has acknowledged a write a short time ago.
    pub(crate) fn reaches_store(&self, now: Nanos, settings: &Settings) -> bool {
        self.incarnation != 0
            && now.saturating_sub(self.acknowledged) <= settings.timing.usable(settings.timing.ttl)
    }

    /// Until when the data path may translate, if that is later than it was told.
    pub(crate) fn extend(&mut self, now: Nanos, settings: &Settings) -> Option<Nanos> {
        if self.incarnation == 0 || self.closed {
            return None;
        }
        let timing = &settings.timing;
        let by_store = self.acknowledged + timing.usable(timing.ttl);
        let outage = if mutant!(settings, NoBound) { Nanos::MAX / 4 } else { timing.outage };
        let limit = self.acknowledged + timing.usable(outage);
        let sets = if mutant!(settings, OneSet) { 1 } else { 2 };
        let by_peers = self
            .is_silent(now, settings)
            .then(|| {
                self.sets().take(sets).map(|set| self.extended(now, settings, set)).min().flatten()
            })
            .flatten()
            .map_or(0, |sent| (sent + timing.usable(timing.ttl)).min(limit));
        let until = by_store.max(by_peers);
        (until > self.until).then(|| {
            self.until = until;
            until
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Fencing, Timing};

    fn settings(fencing: Fencing) -> Settings {
        Settings {
            me: Member(1),
            host: 1,
            process: 5,
            weight: 100,
            shards: 1,
            key: [0; 2],
            config: 0,
            fencing,
            timing: Timing {
                ttl: 1000,
                renew: 100,
                drift_ppm: 0,
                slack: 0,
                outage: 5000,
                ..Timing::default()
            },
            queue: 10,
            moves: 1,
            mutant: None,
        }
    }

    fn peers(all: &[(u16, u64)]) -> Peers {
        all.iter().map(|(member, incarnation)| (Member(*member), *incarnation)).collect()
    }

    /// A lease with these peers, which the store accepted when it was sent at 0.
    fn held(settings: &Settings, all: &[(u16, u64)]) -> Lease {
        let mut lease = Lease::default();
        let record = lease.renewal(0, settings, Status::Active, peers(all));
        assert_eq!(lease.see(150, settings, 1, record), Some(Seen::Held));
        assert_eq!(lease.extend(150, settings), Some(1000), "from when it was sent");
        lease
    }

    #[test]
    fn a_majority_of_promises_extends_from_the_time_of_asking() {
        let settings = settings(Fencing::Majority);
        let mut lease = held(&settings, &[(2, 7), (3, 8), (4, 9)]);
        lease.promise(Member(2), 7, 1, 600);
        assert_eq!(lease.extend(700, &settings), None, "two of three are needed");
        lease.promise(Member(3), 8, 1, 500);
        assert_eq!(lease.extend(700, &settings), Some(1500), "the second latest counts");
    }

    #[test]
    fn promises_of_another_incarnation_or_to_another_do_not_count() {
        let settings = settings(Fencing::Any);
        let mut lease = held(&settings, &[(2, 7)]);
        lease.promise(Member(2), 8, 1, 600);
        lease.promise(Member(3), 7, 1, 600);
        lease.promise(Member(2), 7, 2, 600);
        assert_eq!(lease.extend(700, &settings), None);
    }

    #[test]
    fn peers_of_a_write_that_may_succeed_must_promise_too() {
        let settings = settings(Fencing::Any);
        let mut lease = held(&settings, &[(2, 7)]);
        let written = lease.renewal(450, &settings, Status::Active, peers(&[(2, 7), (3, 1)]));
        lease.promise(Member(2), 7, 1, 600);
        assert_eq!(lease.extend(700, &settings), None);
        let again = lease.renewal(650, &settings, Status::Active, peers(&[]));
        assert_eq!(again.peers, written.peers, "there are at most two sets");
        lease.promise(Member(3), 1, 1, 620);
        assert_eq!(lease.extend(700, &settings), Some(1600));
    }

    #[test]
    fn promises_end_with_the_longest_outage() {
        let settings = settings(Fencing::Any);
        let mut lease = held(&settings, &[]);
        assert_eq!(lease.extend(700, &settings), Some(1700), "nobody could take over");
        assert_eq!(lease.extend(4500, &settings), Some(5000));
        assert_eq!(lease.extend(4900, &settings), None);
    }

    #[test]
    fn an_ended_lease_is_gone_and_older_news_are_none() {
        let settings = settings(Fencing::Any);
        let mut lease = held(&settings, &[]);
        let record = lease.record.clone().expect("a record");
        let ended = LeaseRecord { status: Status::Ended, ..record.clone() };
        assert_eq!(lease.see(500, &settings, 2, ended), Some(Seen::Ended));
        assert_eq!(lease.see(500, &settings, 1, record), None);
        assert_eq!((lease.incarnation, lease.until), (0, 0));
        assert_eq!(lease.renewal(600, &settings, Status::Active, peers(&[])).incarnation, 2);
    }

    #[test]
    fn a_later_process_of_the_host_replaces_and_another_host_does_not() {
        let settings = settings(Fencing::Any);
        let mut lease = held(&settings, &[]);
        let record = lease.record.clone().expect("a record");
        let other = LeaseRecord { process: 6, ..record };
        assert_eq!(lease.clone().see(1, &settings, 2, other.clone()), Some(Seen::Replaced));
        let far = LeaseRecord { host: 2, ..other.clone() };
        assert_eq!(lease.see(1, &settings, 2, far), Some(Seen::NameInUse));
        assert_eq!(Lease::default().see(1, &settings, 2, other), Some(Seen::Ended));
    }
}
