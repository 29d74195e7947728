//! The owner's side of a stream.

use std::collections::VecDeque;

use crate::record::{Digest, Incarnation, Member, Nanos, Record, RecordKey, Step};
use crate::settings::Settings;

use super::Shadow;

/// Records of a message at most.
const BATCH: usize = 256;

/// Messages of all streams together that wait for acknowledgement, about; and of one.
const FLIGHT: usize = 2048;
const FLIGHT_OF_ONE: std::ops::RangeInclusive<usize> = 2..=16;

/// How often the time doubles after which messages are sent again.
const DOUBLINGS: u32 = 3;
/// Messages are sent again after so many times what acknowledgements took lately, at the least.
const PATIENCE: Nanos = 2;

/// Times and bounds of streams, in ns, records, and messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamSettings {
    pub(crate) batch: Nanos,
    pub(crate) resend: Nanos,
    pub(crate) idle: Nanos,
    pub(crate) queue: usize,
    pub(crate) flight: usize,
}

impl StreamSettings {
    pub(crate) fn of(settings: &Settings) -> StreamSettings {
        let of_one = FLIGHT / usize::from(settings.shards.max(1));
        StreamSettings {
            batch: settings.timing.batch,
            resend: settings.timing.resend,
            idle: settings.timing.renew,
            queue: settings.queue,
            flight: of_one.clamp(*FLIGHT_OF_ONE.start(), *FLIGHT_OF_ONE.end()),
        }
    }
}

/// How far the records that the owner has already are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Snapshot {
    /// [`Step::Begin`] is to be sent, or its acknowledgement waited for.
    Begins,
    /// Up to and with this key.
    Reads(Option<RecordKey>),
    /// Asked for the records after this key.
    Waits(Option<RecordKey>),
    Done,
}

/// A message that is not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) digest: Digest,
    pub(crate) step: Step,
    at: Nanos,
}

impl Sent {
    fn records(&self) -> usize {
        match &self.step {
            Step::Records(records) => records.len(),
            _ => 0,
        }
    }
}

/// What to do for a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SenderAction {
    /// To the standby.
    Send(Sent),
    /// Give [`Sender::chunk`] records after a key, in order.
    Read(Option<RecordKey>, usize),
}

/// The owner's side of a shard's stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    pub(crate) shadow: Shadow,
    /// By incarnation: another one knows nothing of this stream.
    standby: Option<(Member, Incarnation)>,
    /// Number of the next message.
    next: u64,
    /// Number of the stream's last [`Step::Begin`].
    begun: u64,
    window: VecDeque<Sent>,
    in_window: usize,
    /// With what the table was after each.
    pending: Vec<(Record, Digest)>,
    pending_since: Nanos,
    /// What the table was before the first of them.
    before: Digest,
    snapshot: Snapshot,
    ready: bool,
    /// The highest number acknowledged.
    acknowledged: u64,
    /// Last message sent.
    sent_at: Nanos,
    /// When an acknowledgement was last of use, or messages were sent again; and how often since without one.
    heard_at: Nanos,
    silences: u32,
    /// What acknowledgements took lately: an overloaded standby is not to be told everything again.
    delay: Nanos,
    /// Records that were dropped from the full queue.
    pub(crate) dropped: u64,
}

impl Sender {
    pub(crate) fn new(shadow: Shadow) -> Sender {
        Sender {
            shadow,
            standby: None,
            next: 1,
            begun: 0,
            window: VecDeque::new(),
            in_window: 0,
            pending: Vec::new(),
            pending_since: 0,
            before: Digest::default(),
            snapshot: Snapshot::Begins,
            ready: false,
            acknowledged: 0,
            sent_at: 0,
            heard_at: 0,
            silences: 0,
            delay: 0,
            dropped: 0,
        }
    }

    pub(crate) fn standby(&self) -> Option<Member> {
        self.standby.map(|(member, _)| member)
    }

    /// Whom to send to, from now on.
    pub(crate) fn set_standby(&mut self, standby: Option<(Member, Incarnation)>) {
        if self.standby != standby {
            (self.standby, self.delay) = (standby, 0);
            self.restart();
        }
    }

    /// Begins anew, with whatever the owner has then.
    fn restart(&mut self) {
        self.window.clear();
        self.in_window = 0;
        self.pending.clear();
        self.snapshot = Snapshot::Begins;
        self.ready = false;
        self.begun = 0;
        self.silences = 0;
    }

    /// The standby has everything.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.ready && self.window.is_empty() && self.pending.is_empty()
    }

    /// The standby is ready and answers, with few records on their way.
    pub(crate) fn is_nearly_caught_up(&self, now: Nanos, settings: &StreamSettings) -> bool {
        let answers = |sent: &Sent| now.saturating_sub(sent.at) < settings.resend;
        self.ready
            && self.window.front().is_none_or(answers)
            && self.in_window + self.pending.len() <= 4 * BATCH
    }

    /// Records without an acknowledgement, and the age of the oldest in ns.
    pub(crate) fn lag(&self, now: Nanos) -> (usize, Nanos) {
        let waits = self.window.iter().find(|sent| sent.records() != 0).map(|sent| sent.at);
        let since = waits.or((!self.pending.is_empty()).then_some(self.pending_since));
        (self.in_window + self.pending.len(), since.map_or(0, |at| now.saturating_sub(at)))
    }

    /// Takes changes of the owner's table, in their order.
    pub(crate) fn change(&mut self, now: Nanos, settings: &StreamSettings, records: Vec<Record>) {
        for record in records {
            let before = self.shadow.digest();
            if !self.shadow.apply(&record) || self.begun == 0 {
                continue;
            }
            if self.pending.is_empty() {
                (self.pending_since, self.before) = (now, before);
            }
            self.pending.push((record, self.shadow.digest()));
            if self.in_window + self.pending.len() > settings.queue {
                self.dropped += (self.in_window + self.pending.len()) as u64;
                self.restart();
            }
        }
    }

    /// Takes records that [`SenderAction::Read`] asked for: read after all changes given before and before all given
    /// later. One that differs from them is a change that will be given.
    pub(crate) fn chunk(
        &mut self,
        now: Nanos,
        after: Option<RecordKey>,
        records: Vec<Record>,
        is_last: bool,
    ) -> Vec<Sent> {
        if self.snapshot != Snapshot::Waits(after) {
            return Vec::new();
        }
        let mut sent = self.flush(now);
        let last = records.last().map(|record| record.key);
        let known: Vec<_> = records.into_iter().filter(|r| self.shadow.has(r)).collect();
        sent.push(self.send(now, Step::Records(known)));
        self.snapshot = Snapshot::Reads(last);
        if is_last || last.is_none() {
            sent.push(self.send(now, Step::End));
            self.snapshot = Snapshot::Done;
        }
        sent
    }

    /// All messages before `next` are applied.
    pub(crate) fn acknowledge(&mut self, now: Nanos, next: u64, ready: bool) {
        if self.begun == 0 || next <= self.begun || next > self.next || next < self.acknowledged {
            return;
        }
        if next > self.acknowledged {
            (self.acknowledged, self.heard_at, self.silences) = (next, now, 0);
        }
        while self.window.front().is_some_and(|sent| sent.number < next) {
            let Some(sent) = self.window.pop_front() else { break };
            self.in_window -= sent.records();
            // The longest one, which wears off.
            self.delay = now.saturating_sub(sent.at).max(self.delay - self.delay / 8);
        }
        if ready {
            // What is still to be read, the standby has.
            (self.ready, self.snapshot) = (true, Snapshot::Done);
        } else if self.ready || self.snapshot == Snapshot::Done && self.window.is_empty() {
            // It has diverged.
            self.restart();
        } else if self.snapshot == Snapshot::Begins {
            self.snapshot = Snapshot::Reads(None);
        }
    }

    /// Sends what is pending, whatever its age.
    pub(crate) fn flush(&mut self, now: Nanos) -> Vec<Sent> {
        std::iter::from_fn(|| self.send_pending(now)).collect()
    }

    fn send_pending(&mut self, now: Nanos) -> Option<Sent> {
        let rest = self.pending.split_off(self.pending.len().min(BATCH));
        let told = std::mem::replace(&mut self.pending, rest);
        self.before = told.last()?.1;
        let records = told.into_iter().map(|(record, _)| record).collect();
        Some(self.send(now, Step::Records(records)))
    }

    /// The standby is not to be given more than it can take: what it has not acknowledged is on its way, or waits there.
    fn has_room(&self, settings: &StreamSettings) -> bool {
        self.window.len() < settings.flight
    }

    /// When everything is sent again, if nothing is heard: later each time, since perhaps the standby is only slow.
    fn resend_at(&self, settings: &StreamSettings) -> Option<Nanos> {
        let last = self.heard_at.max(self.window.front()?.at);
        let most = settings.resend << DOUBLINGS;
        let patience = (PATIENCE * self.delay).clamp(settings.resend, most);
        Some(last + (patience << self.silences))
    }

    /// When something is sent, if there is nothing to tell: of all streams at the same time, so that messages leave together.
    fn idle_at(&self, settings: &StreamSettings) -> Nanos {
        let idle = settings.idle.max(1);
        (self.sent_at / idle + 1) * idle
    }

    fn send(&mut self, now: Nanos, step: Step) -> Sent {
        // What is pending, the standby can't have.
        let digest = if self.pending.is_empty() { self.shadow.digest() } else { self.before };
        let sent = Sent { number: self.next, digest, step, at: now };
        self.next += 1;
        self.in_window += sent.records();
        self.sent_at = now;
        self.window.push_back(sent.clone());
        sent
    }

    /// What is to be done at this time.
    pub(crate) fn tick(&mut self, now: Nanos, settings: &StreamSettings) -> Vec<SenderAction> {
        if self.standby.is_none() {
            return Vec::new();
        }
        let mut sent = Vec::new();
        if self.resend_at(settings).is_some_and(|at| at <= now) {
            (self.heard_at, self.silences) = (now, (self.silences + 1).min(DOUBLINGS));
            sent.extend(self.window.iter().cloned());
        }
        if self.begun == 0 {
            self.begun = self.next;
            sent.push(self.send(now, Step::Begin));
        }
        let is_due = now.saturating_sub(self.pending_since) >= settings.batch;
        while self.has_room(settings) && (is_due || self.pending.len() >= BATCH) {
            let Some(message) = self.send_pending(now) else { break };
            sent.push(message);
        }
        if now >= self.idle_at(settings) && self.window.is_empty() {
            sent.push(self.send(now, Step::Idle));
        }
        let mut actions: Vec<_> = sent.into_iter().map(SenderAction::Send).collect();
        if let Snapshot::Reads(after) = self.snapshot
            && self.has_room(settings)
            && self.in_window + BATCH <= settings.queue / 2
        {
            self.snapshot = Snapshot::Waits(after);
            actions.push(SenderAction::Read(after, BATCH));
        }
        actions
    }

    /// When [`Sender::tick`] has something to do, at the latest.
    pub(crate) fn wakeup(&self, settings: &StreamSettings) -> Nanos {
        if self.standby.is_none() {
            return Nanos::MAX;
        }
        if self.begun == 0 || matches!(self.snapshot, Snapshot::Reads(_)) && self.in_window == 0 {
            return 0;
        }
        let batch = self.pending_since + settings.batch;
        let waits = self.pending.is_empty() || !self.has_room(settings);
        let batch = if waits { Nanos::MAX } else { batch };
        let window = self.resend_at(settings).unwrap_or_else(|| self.idle_at(settings));
        batch.min(window)
    }
}
