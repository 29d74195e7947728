//! The standby's side of a stream.

use std::cmp::Ordering;

use crate::record::{Digest, Member, Nanos, Record, Step};
use crate::settings::{Settings, Timing, mutant};

use super::Shadow;

/// The standby's side of a shard's stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    pub(crate) shadow: Shadow,
    from: Member,
    epoch: u64,
    /// The number that is applied next.
    next: u64,
    verified: bool,
    heard_at: Nanos,
}

impl Receiver {
    pub(crate) fn new(shadow: Shadow) -> Receiver {
        Receiver { shadow, from: Member(0), epoch: 0, next: 0, verified: false, heard_at: 0 }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn from(&self) -> Member {
        self.from
    }

    /// Number of the next message, and whether the table is what the owner had before it.
    pub(crate) fn state(&self) -> (u64, bool) {
        (self.next, self.verified)
    }

    /// Whether the table is what the owner of `epoch` had, as far as is known. `alive_at`: when the owner was heard of last, by the
    /// store or otherwise. If it has lived longer than what was heard by the stream, the table may be an old one; the time after
    /// that, in which nobody owns the shard, makes it no older.
    pub(crate) fn is_ready(
        &self,
        epoch: u64,
        now: Nanos,
        alive_at: Nanos,
        timing: &Timing,
    ) -> bool {
        let age = 2 * timing.ttl + timing.renew;
        self.verified
            && self.epoch == epoch
            && alive_at.saturating_sub(self.heard_at) <= age
            && now.saturating_sub(self.heard_at) <= timing.memory.max(age)
    }

    /// Takes a message of the stream, from a gateway in an epoch with a number. Gives what to change in the table.
    pub(crate) fn receive(
        &mut self,
        now: Nanos,
        settings: &Settings,
        (from, epoch, number): (Member, u64, u64),
        digest: Digest,
        step: Step,
    ) -> Vec<Record> {
        if step == Step::Release {
            self.verified &= (self.from, self.epoch) != (from, epoch);
            return Vec::new();
        }
        let is_next = match epoch.cmp(&self.epoch) {
            Ordering::Greater => step == Step::Begin,
            Ordering::Equal if step == Step::Begin => number >= self.next,
            Ordering::Equal => {
                let skips = mutant!(settings, NoGaps) && number > self.next;
                self.from == from && (self.next == number || skips)
            }
            Ordering::Less => {
                mutant!(settings, AnyEpoch) && (step == Step::Begin || self.next == number)
            }
        };
        if !is_next {
            return Vec::new();
        }
        (self.from, self.epoch, self.next) = (from, epoch.max(self.epoch), number + 1);
        self.heard_at = now;
        let (may_verify, changes) = match step {
            Step::Begin => {
                self.shadow.begin();
                (true, Vec::new())
            }
            Step::Records(records) => (self.verified, records),
            Step::End if self.verified => (true, Vec::new()),
            Step::End => (true, self.shadow.remove_others()),
            Step::Idle | Step::Release => (self.verified, Vec::new()),
        };
        for record in &changes {
            self.shadow.apply(record);
        }
        let is_equal = self.shadow.digest() == digest || mutant!(settings, NoGaps);
        self.verified = may_verify && is_equal;
        changes
    }
}
