//! Shards: taken, owned, handed over.

use crate::placement::ranking;
use crate::record::{
    Digest, Key, Member, Message, Nanos, Record, RecordKey, Revision, ShardRecord, Status, Step,
    Value,
};
use crate::settings::mutant;
use crate::shard::Shard;
use crate::stream::{Receiver, Sender, SenderAction, Shadow, StreamSettings};

use super::{Action, Cluster, due};

/// What this gateway is to a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RoleState {
    /// Its standby, or nothing.
    Standby(Receiver),
    /// Its owner.
    Owner(Sender),
    /// Its owner, which has stopped translating to give it away; to nobody in particular if it leaves.
    Stopping { sender: Sender, to: Option<Member>, since: Nanos, ticket: u64, is_stopped: bool },
    /// Its owner, which may have written another one already.
    Handing { sender: Sender, to: Member, since: Nanos },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShardState {
    shard: Shard,
    /// What the store has; `None`: nobody has ever owned it.
    pub(super) seen: Option<(Revision, ShardRecord)>,
    pub(super) role: RoleState,
    /// Active members, the one that should own it first.
    order: Vec<Member>,
    unowned_since: Option<Nanos>,
    written_at: Nanos,
    /// The epoch that was written to take it, and whether its records are here.
    taking: Option<(u64, bool)>,
    /// No planned move before.
    not_before: Nanos,
    /// The data path has the records of the owner of this epoch, an earlier process of this host.
    pub(super) intact: Option<u64>,
    pub(super) wake: Nanos,
}

impl ShardState {
    pub(super) fn new(shard: Shard, shadow: Shadow) -> ShardState {
        ShardState {
            shard,
            seen: None,
            role: RoleState::Standby(Receiver::new(shadow)),
            order: Vec::new(),
            unowned_since: None,
            written_at: 0,
            taking: None,
            not_before: 0,
            intact: None,
            wake: 0,
        }
    }

    /// What the store has is not known any more.
    pub(super) fn forget(&mut self) {
        (self.seen, self.unowned_since, self.written_at, self.taking) = (None, None, 0, None);
        self.order.clear();
    }

    pub(super) fn epoch(&self) -> u64 {
        self.seen.map_or(0, |(_, record)| record.epoch)
    }

    pub(super) fn sender(&mut self) -> Option<&mut Sender> {
        match &mut self.role {
            RoleState::Standby(_) => None,
            RoleState::Owner(sender)
            | RoleState::Stopping { sender, .. }
            | RoleState::Handing { sender, .. } => Some(sender),
        }
    }

    pub(super) fn shadow(&mut self) -> &mut Shadow {
        match &mut self.role {
            RoleState::Standby(receiver) => &mut receiver.shadow,
            RoleState::Owner(sender)
            | RoleState::Stopping { sender, .. }
            | RoleState::Handing { sender, .. } => &mut sender.shadow,
        }
    }

    /// Records that are here.
    pub(super) fn records(&self) -> u64 {
        let shadow = match &self.role {
            RoleState::Standby(receiver) => &receiver.shadow,
            RoleState::Owner(sender)
            | RoleState::Stopping { sender, .. }
            | RoleState::Handing { sender, .. } => &sender.shadow,
        };
        shadow.digest().count
    }

    /// Takes the sender away, for another role.
    fn take_sender(&mut self) -> Sender {
        let nothing = RoleState::Standby(Receiver::new(Shadow::default()));
        match std::mem::replace(&mut self.role, nothing) {
            RoleState::Standby(receiver) => Sender::new(receiver.shadow),
            RoleState::Owner(sender)
            | RoleState::Stopping { sender, .. }
            | RoleState::Handing { sender, .. } => sender,
        }
    }

    /// It is somebody else's now.
    fn lose(&mut self, ticket: u64, out: &mut Vec<Action>) {
        if matches!(self.role, RoleState::Standby(_)) {
            return;
        }
        let was_translating = matches!(self.role, RoleState::Owner(_));
        let shadow = std::mem::take(&mut self.take_sender().shadow);
        self.role = RoleState::Standby(Receiver::new(shadow));
        self.intact = None;
        if was_translating {
            out.push(Action::Stop { shard: self.shard, ticket });
        }
    }

    /// The operator's wish, if that member is active, then placement.
    fn wanted(&self) -> impl Iterator<Item = Member> + '_ {
        let wish = self.seen.and_then(|(_, record)| record.wish);
        let wish = wish.filter(|wish| self.order.contains(wish));
        let others = self.order.iter().copied().filter(move |member| Some(*member) != wish);
        wish.into_iter().chain(others)
    }
}

impl Cluster {
    fn state(&mut self, shard: Shard) -> Option<&mut ShardState> {
        self.shards.get_mut(usize::from(shard.0))
    }

    /// Computes the placement.
    pub(super) fn place(&mut self) {
        let others = self.peers.iter().filter(|(_, p)| p.record.status == Status::Active);
        let mut active: Vec<_> = others.map(|(m, peer)| (*m, peer.record.weight)).collect();
        if self.wanted == Status::Active && self.lease.incarnation != 0 {
            active.push((self.settings.me, self.settings.weight));
        }
        for state in &mut self.shards {
            state.order = ranking(self.settings.key, state.shard, active.iter().copied());
        }
    }

    /// Whether fewer shards are being moved than may be.
    pub(super) fn may_move_another(&self) -> bool {
        let is_planned = |state: &&ShardState| {
            matches!(
                state.role,
                RoleState::Stopping { to: Some(_), .. } | RoleState::Handing { .. }
            )
        };
        self.shards.iter().filter(is_planned).count() < self.settings.moves
    }

    pub(super) fn lose_shards(&mut self, out: &mut Vec<Action>) {
        for state in &mut self.shards {
            self.tickets += 1;
            state.lose(self.tickets, out);
            state.taking = None;
        }
    }

    /// Whether this gateway, which is leaving, has stopped with everything.
    pub(super) fn has_left(&self) -> bool {
        self.shards.iter().all(|state| match &state.role {
            RoleState::Standby(_) => true,
            RoleState::Stopping { to, is_stopped, .. } => to.is_none() && *is_stopped,
            _ => false,
        })
    }

    pub(super) fn loaded(&mut self, shard: Shard, epoch: u64, records: &[Record]) {
        if let Some(state) = self.state(shard) {
            state.intact = (epoch != 0).then_some(epoch);
            for record in records {
                state.shadow().apply(record);
            }
        }
    }

    pub(super) fn wish(&mut self, shard: Shard, wish: Option<Member>, out: &mut Vec<Action>) {
        let Some(state) = self.state(shard) else { return };
        if let (RoleState::Owner(_), Some((expected, record))) = (&state.role, state.seen) {
            let value = Value::Shard(ShardRecord { wish, ..record });
            out.push(Action::Write { key: Key::Shard(shard), expected, value });
        }
    }

    pub(super) fn shard_entry(
        &mut self,
        now: Nanos,
        shard: Shard,
        revision: Revision,
        record: ShardRecord,
        out: &mut Vec<Action>,
    ) {
        self.tickets += 1;
        let (ticket, me, own) = (self.tickets, self.settings.me, self.lease.incarnation);
        let ttl = self.settings.timing.ttl;
        let Some(state) = self.state(shard) else { return };
        if state.seen.is_some_and(|(last, _)| revision <= last) {
            return;
        }
        let before = state.epoch();
        (state.seen, state.wake) = (Some((revision, record)), 0);
        state.unowned_since = None;
        let is_own = record.owner == me && record.incarnation == own && own != 0;
        match &state.role {
            RoleState::Handing { to, .. } if !is_own && record.owner == *to => {
                let message = Message::Written { shard, revision, record };
                out.push(Action::Send { to: *to, message });
                state.lose(ticket, out);
            }
            RoleState::Owner(_) | RoleState::Stopping { .. }
                if is_own && record.epoch == before => {}
            RoleState::Standby(_) if is_own => self.own(shard, record, out),
            _ if is_own => {
                // A planned move has failed for good: the write that could still succeed is refused now.
                let mut sender = state.take_sender();
                sender.set_standby(None);
                state.role = RoleState::Owner(sender);
                state.not_before = now + ttl;
                out.push(Action::Translate { shard, epoch: record.epoch, is_quiet: false });
            }
            _ => state.lose(ticket, out),
        }
    }

    /// A shard has become this gateway's.
    fn own(&mut self, shard: Shard, record: ShardRecord, out: &mut Vec<Action>) {
        let Some(state) = self.state(shard) else { return };
        let RoleState::Standby(receiver) = &state.role else { return };
        let taken = state.taking.filter(|(epoch, _)| *epoch == record.epoch);
        let handed = || receiver.state().1 && receiver.epoch() + 1 == record.epoch;
        let has_records = taken.map_or_else(handed, |(_, has_records)| has_records);
        let mut sender = state.take_sender();
        if !has_records {
            let empty = Shadow::new(self.settings.key);
            sender = Sender::new(empty);
            out.push(Action::Clear { shard });
        }
        let Some(state) = self.state(shard) else { return };
        state.role = RoleState::Owner(sender);
        state.taking = None;
        let is_quiet = taken.is_some();
        out.push(Action::Translate { shard, epoch: record.epoch, is_quiet });
    }

    pub(super) fn stopped(&mut self, now: Nanos, shard: Shard, done: u64, out: &mut Vec<Action>) {
        if let Some(state) = self.state(shard)
            && let RoleState::Stopping { ticket, is_stopped, .. } = &mut state.role
            && *ticket == done
        {
            *is_stopped = true;
            state.wake = 0;
        }
        // A gateway that leaves has perhaps stopped with everything.
        self.tick(now, out);
    }

    pub(super) fn change(
        &mut self,
        now: Nanos,
        shard: Shard,
        records: Vec<Record>,
        out: &mut Vec<Action>,
    ) {
        let settings = StreamSettings::of(&self.settings);
        let Some(state) = self.state(shard) else { return };
        match state.sender() {
            Some(sender) => sender.change(now, &settings, records),
            // The last changes before it was lost: the table has them.
            None => records.iter().for_each(|record| {
                state.shadow().apply(record);
            }),
        }
        self.tick_shard(now, shard, out);
    }

    pub(super) fn chunk(
        &mut self,
        now: Nanos,
        shard: Shard,
        (after, records, is_last): (Option<RecordKey>, Vec<Record>, bool),
        out: &mut Vec<Action>,
    ) {
        let Some(state) = self.state(shard) else { return };
        let epoch = state.epoch();
        if let Some(sender) = state.sender() {
            let standby = sender.standby();
            for sent in sender.chunk(now, after, records, is_last) {
                replicate(shard, epoch, standby, SenderAction::Send(sent), out);
            }
        }
        self.tick_shard(now, shard, out);
    }

    /// What is to be done for a shard.
    pub(super) fn tick_shard(&mut self, now: Nanos, shard: Shard, out: &mut Vec<Action>) {
        let is_member = self.synced && self.lease.incarnation != 0;
        let Some(state) = self.state(shard).filter(|_| is_member) else { return };
        state.wake = Nanos::MAX;
        match &state.role {
            RoleState::Standby(_) => self.take(now, shard, out),
            RoleState::Owner(_) => {
                self.direct(now, shard, out);
                self.stream(now, shard, out);
            }
            RoleState::Stopping { .. } => {
                self.stream(now, shard, out);
                self.hand_over(now, shard, out);
            }
            RoleState::Handing { .. } => self.hand_over(now, shard, out),
        }
    }

    /// Takes a shard that nobody owns, if this gateway should.
    fn take(&mut self, now: Nanos, shard: Shard, out: &mut Vec<Action>) {
        let (me, own, timing) = (self.settings.me, self.lease.incarnation, self.settings.timing);
        let is_draining = self.wanted == Status::Draining;
        let Some(state) = self.shards.get(usize::from(shard.0)) else { return };
        let seen = state.seen;
        let alive_at = self.alive_at(now, seen.map(|(_, record)| record.owner));
        if let Some((_, record)) = seen
            && (record.owner, record.incarnation) == (me, own)
        {
            // It was given to this incarnation before the incarnation knew that it holds its lease.
            self.own(shard, record, out);
            return self.tick_shard(now, shard, out);
        }
        let is_free = seen.is_none_or(|(_, record)| self.has_ended(&record));
        let Some(state) = self.state(shard).filter(|_| is_free) else { return };
        let place = match state.wanted().position(|member| member == me) {
            Some(place) => place as Nanos,
            None if state.order.is_empty() && is_draining => 0,
            None => return,
        };
        let RoleState::Standby(receiver) = &state.role else { return };
        let (has_records, wait) = match seen {
            None if place == 0 => (true, 0),
            None => (true, timing.grace + timing.turn * place),
            Some((_, record)) => {
                let is_intact = record.owner == me && state.intact == Some(record.epoch);
                let is_ready = receiver.is_ready(record.epoch, now, alive_at, &timing);
                // A standby of an earlier time, which thinks that it is ready, leaves it to those who should be.
                let wait = match (is_intact, is_ready) {
                    (true, _) => 0,
                    (false, true) => timing.turn * place,
                    (false, false) if place == 0 => timing.grace,
                    (false, false) => timing.grace.max(timing.patience) + timing.turn * place,
                };
                (is_intact || is_ready, wait)
            }
        };
        let since = *state.unowned_since.get_or_insert(now);
        let again = state.written_at + timing.renew;
        let mut wake = Nanos::MAX;
        let is_time = due(now, since + wait, &mut wake)
            && (state.written_at == 0 || due(now, again, &mut wake));
        if is_time {
            let (expected, epoch) = seen.map_or((0, 0), |(revision, r)| (revision, r.epoch));
            let wish = seen.and_then(|(_, record)| record.wish);
            state.written_at = now.max(1);
            state.taking = Some((epoch + 1, has_records));
            wake = now + timing.renew;
            let record = ShardRecord { epoch: epoch + 1, owner: me, incarnation: own, wish };
            let value = Value::Shard(record);
            out.push(Action::Write { key: Key::Shard(shard), expected, value });
        }
        state.wake = state.wake.min(wake);
    }

    /// Chooses the standby of an own shard, and begins to give it away if it should be elsewhere.
    fn direct(&mut self, now: Nanos, shard: Shard, out: &mut Vec<Action>) {
        let (me, ticket) = (self.settings.me, self.tickets + 1);
        let leaves = self.wanted == Status::Ended;
        let is_same_stream = mutant!(self.settings, SameStream);
        let without_stop = mutant!(self.settings, NoStop);
        let settings = StreamSettings::of(&self.settings);
        let Some(state) = self.shards.get(usize::from(shard.0)) else { return };
        let epoch = state.epoch();
        let should = state.wanted().next().filter(|member| *member != me);
        let standby = should.or_else(|| state.wanted().find(|member| *member != me));
        let may_move = should.is_some()
            && self.may_move_another()
            && self.lease.reaches_store(now, &self.settings);
        let incarnation = |to| {
            let living = self.peers.get(&to).filter(|peer| !peer.is_ended())?;
            Some(if is_same_stream { 1 } else { living.record.incarnation })
        };
        let Some(state) = self.shards.get_mut(usize::from(shard.0)) else { return };
        let RoleState::Owner(sender) = &mut state.role else { return };
        let before = sender.standby();
        sender.set_standby(standby.and_then(|to| Some((to, incarnation(to)?))));
        if let Some(to) = before.filter(|before| sender.standby() != Some(*before)) {
            let (digest, step) = (Digest::default(), Step::Release);
            let message = Message::Replicate { shard, epoch, number: 0, digest, step };
            out.push(Action::Send { to, message });
        }
        let is_near = sender.is_nearly_caught_up(now, &settings);
        let moves = may_move && is_near;
        if moves && due(now, state.not_before, &mut state.wake) || leaves && should.is_none() {
            let sender = state.take_sender();
            let is_stopped = without_stop;
            let to = should;
            state.role = RoleState::Stopping { sender, to, since: now, ticket, is_stopped };
            if !without_stop {
                out.push(Action::Stop { shard, ticket });
            }
            self.tickets = ticket;
            self.moved |= should.is_some();
        }
    }

    /// Goes on with giving a shard away.
    fn hand_over(&mut self, now: Nanos, shard: Shard, out: &mut Vec<Action>) {
        let (me, own, timing) = (self.settings.me, self.lease.incarnation, self.settings.timing);
        let (living, leaves) = (self.living(), self.wanted == Status::Ended);
        let Some(state) = self.state(shard) else { return };
        let Some((expected, record)) = state.seen else { return };
        let mut wake = state.wake;
        let again = state.written_at + timing.renew;
        let (to, since) = match &mut state.role {
            RoleState::Stopping { sender, to: Some(to), since, is_stopped, .. } => {
                let (to, since) = (*to, *since);
                if *is_stopped && sender.is_caught_up() && living.contains_key(&to) {
                    state.role = RoleState::Handing { sender: state.take_sender(), to, since: now };
                    (to, now)
                } else {
                    if due(now, since + timing.handover, &mut wake) {
                        // Nothing was written: the epoch goes on.
                        state.role = RoleState::Owner(state.take_sender());
                        state.not_before = now + timing.ttl;
                        wake = 0;
                        let epoch = record.epoch;
                        out.push(Action::Translate { shard, epoch, is_quiet: false });
                    }
                    state.wake = wake;
                    return;
                }
            }
            RoleState::Stopping { to: None, .. } if !leaves => {
                // It stays after all.
                state.role = RoleState::Owner(state.take_sender());
                state.wake = 0;
                let epoch = record.epoch;
                return out.push(Action::Translate { shard, epoch, is_quiet: false });
            }
            RoleState::Handing { to, since, .. } if due(now, again, &mut wake) => (*to, *since),
            _ => {
                state.wake = wake;
                return;
            }
        };
        // The same epoch and revision, whoever is written: one of all writes succeeds.
        let keeps = now.saturating_sub(since) >= timing.handover;
        let to = living.get(&to).filter(|_| !keeps).map_or((me, own), |inc| (to, *inc));
        state.written_at = now.max(1);
        state.wake = wake.min(now + timing.renew);
        let record =
            ShardRecord { epoch: record.epoch + 1, owner: to.0, incarnation: to.1, ..record };
        let value = Value::Shard(record);
        out.push(Action::Write { key: Key::Shard(shard), expected, value });
        if keeps {
            out.push(Action::Read { key: Key::Shard(shard) });
        }
    }

    /// Goes on with the stream to the standby.
    fn stream(&mut self, now: Nanos, shard: Shard, out: &mut Vec<Action>) {
        let settings = StreamSettings::of(&self.settings);
        let Some(state) = self.state(shard) else { return };
        let epoch = state.epoch();
        let stopped = matches!(state.role, RoleState::Stopping { is_stopped: true, .. });
        let Some(sender) = state.sender() else { return };
        let standby = sender.standby();
        let rest = if stopped { sender.flush(now) } else { Vec::new() };
        let all = rest.into_iter().map(SenderAction::Send).chain(sender.tick(now, &settings));
        for action in all {
            replicate(shard, epoch, standby, action, out);
        }
        let wake = sender.wakeup(&settings).max(now + 1);
        state.wake = state.wake.min(wake);
    }
}

fn replicate(
    shard: Shard,
    epoch: u64,
    standby: Option<Member>,
    action: SenderAction,
    out: &mut Vec<Action>,
) {
    match (action, standby) {
        (SenderAction::Send(sent), Some(to)) => {
            let (number, digest, step) = (sent.number, sent.digest, sent.step);
            let message = Message::Replicate { shard, epoch, number, digest, step };
            out.push(Action::Send { to, message });
        }
        (SenderAction::Read(after, most), _) => {
            out.push(Action::ReadRecords { shard, after, most });
        }
        (SenderAction::Send(_), None) => {}
    }
}
