//! A member of a cluster.

mod interface;
mod messages;
mod shards;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use fordway_xlat::steps::mix;

use crate::lease::{Lease, Seen};
use crate::peer::{Fence, Peer};
use crate::record::{Key, Member, Message, Nanos, Peers, Revision, ShardRecord, Status, Value};
use crate::settings::{Settings, WrongTiming};
use crate::shard::Shard;
use crate::stream::Shadow;

pub use interface::{Action, Command, Input};
use shards::ShardState;
pub use status::{GatewayStatus, Phase, Role, ShardStatus};

/// A member of a cluster.
///
/// Before it is made, the host's data path translates nothing that an earlier process was allowed to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    settings: Settings,
    random: u64,
    synced: bool,
    config: Option<(Revision, Option<u64>)>,
    config_at: Nanos,
    wanted: Status,
    replaced: bool,
    lease: Lease,
    peers: BTreeMap<Member, Peer>,
    shards: Vec<ShardState>,
    tickets: u64,
    /// The shard whose record is read next, in case that a watch has missed something.
    reads: u16,
    /// Placement has to be computed anew, and all shards to be looked at.
    changed: bool,
    /// A planned move has begun since all shards were looked at: others may wait for its end.
    moved: bool,
    wake: Nanos,
}

/// Whether a time has come. If not, it is when to look again.
fn due(now: Nanos, at: Nanos, wake: &mut Nanos) -> bool {
    if now < at {
        *wake = (*wake).min(at);
    }
    now >= at
}

impl Cluster {
    /// A member, of which nobody knows yet.
    pub fn new(settings: Settings) -> Result<Cluster, WrongTiming> {
        settings.timing.check()?;
        let shadow = Shadow::new(settings.key);
        let shards = (0..settings.shards).map(|n| ShardState::new(Shard(n), shadow.clone()));
        Ok(Cluster {
            random: mix(settings.process),
            synced: false,
            config: None,
            config_at: 0,
            wanted: Status::Active,
            replaced: false,
            lease: Lease::default(),
            peers: BTreeMap::new(),
            shards: shards.collect(),
            tickets: 0,
            reads: 0,
            changed: true,
            moved: false,
            wake: 0,
            settings,
        })
    }

    /// When [`Input::Tick`] has something to do, at the latest.
    #[must_use]
    pub fn wakeup(&self) -> Nanos {
        let is_member = self.lease.incarnation != 0;
        let of_shards = self.shards.iter().map(|shard| shard.wake).filter(|_| is_member);
        of_shards.min().unwrap_or(Nanos::MAX).min(self.wake)
    }

    /// Takes an input. `now` never decreases. Inputs that were sent before it come first, so that a clock is never
    /// older than what it is compared with.
    pub fn handle(&mut self, now: Nanos, input: Input, out: &mut Vec<Action>) {
        match input {
            Input::Tick => {}
            Input::Synced => self.synced = true,
            Input::Forget => self.forget(out),
            Input::Entry { key, revision, value } => self.entry(now, key, revision, value, out),
            Input::Refused { key } => out.push(Action::Read { key }),
            Input::Command(command) => self.command(command, out),
            Input::Received { from, message } => {
                if let Some(shard) = self.receive(now, from, message, out) {
                    return self.tick_shard(now, shard, out);
                }
            }
            Input::Loaded { shard, epoch, records } => return self.loaded(shard, epoch, &records),
            Input::Stopped { shard, ticket } => return self.stopped(now, shard, ticket, out),
            Input::Changed { shard, records } => return self.change(now, shard, records, out),
            Input::Chunk { shard, after, records, is_last } => {
                return self.chunk(now, shard, (after, records, is_last), out);
            }
        }
        self.tick(now, out);
    }

    fn entry(
        &mut self,
        now: Nanos,
        key: Key,
        revision: Revision,
        value: Option<Value>,
        out: &mut Vec<Action>,
    ) {
        match (key, value) {
            (Key::Config, None) if self.config.is_none_or(|(last, _)| last < revision) => {
                self.config = Some((revision, None));
            }
            (Key::Config, Some(Value::Config(hash)))
                if self.config.is_none_or(|(last, _)| last < revision) =>
            {
                self.config = Some((revision, Some(hash)));
            }
            (Key::Lease(member), Some(Value::Lease(record))) if member == self.settings.me => {
                let before = self.lease.standing(now, &self.settings);
                match self.lease.see(now, &self.settings, revision, record) {
                    None => {}
                    Some(Seen::Held) => {
                        self.changed |= before != self.lease.standing(now, &self.settings);
                    }
                    Some(seen) => {
                        self.replaced |= seen == Seen::Replaced;
                        self.lost(out);
                    }
                }
            }
            (Key::Lease(member), Some(Value::Lease(record))) => match self.peers.get_mut(&member) {
                Some(peer) => self.changed |= peer.see(now, &self.settings, revision, record),
                None => {
                    self.peers.insert(member, Peer::new(now, revision, record));
                    self.changed = true;
                }
            },
            (Key::Shard(shard), Some(Value::Shard(record))) => {
                self.shard_entry(now, shard, revision, record, out);
            }
            // A key that was never written, or a value of another key's kind.
            _ => {}
        }
    }

    /// Nothing is known of the store any more. Whoever holds the lease gives it up, and joins as a process that has begun just now,
    /// whose promises and votes nobody counts on.
    fn forget(&mut self, out: &mut Vec<Action>) {
        if self.lease.incarnation != 0 {
            self.lost(out);
        }
        self.settings.process = mix(self.settings.process);
        (self.synced, self.config, self.lease) = (false, None, Lease::default());
        // When they were heard of last stays known.
        self.peers.values_mut().for_each(|peer| peer.revision = 0);
        self.shards.iter_mut().for_each(ShardState::forget);
        self.changed = true;
    }

    /// The lease has ended: nothing is translated any more.
    fn lost(&mut self, out: &mut Vec<Action>) {
        self.changed = true;
        self.lease.until = 0;
        out.push(Action::Lease { until: 0 });
        self.lose_shards(out);
    }

    fn command(&mut self, command: Command, out: &mut Vec<Action>) {
        match command {
            Command::Join => self.wanted = Status::Active,
            Command::Drain => self.wanted = Status::Draining,
            Command::Leave => self.wanted = Status::Ended,
            Command::Declare(member) => {
                if let Some(peer) = self.peers.get_mut(&member) {
                    peer.declared = true;
                }
            }
            Command::Wish(shard, wish) => self.wish(shard, wish, out),
        }
        // Told to the others at once.
        self.lease.written_at = 0;
        self.changed = true;
    }

    /// A number that other members don't have, from 0 to `below` - 1.
    fn draw(&mut self, below: u64) -> u64 {
        self.random = mix(self.random ^ 0x9e37_79b9_7f4a_7c15);
        self.random % below.max(1)
    }

    /// Everything that the time, or a change, makes necessary.
    fn tick(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.wake = Nanos::MAX;
        if !self.synced || self.replaced || !self.check_config(now, out) {
            return;
        }
        let mut all = std::mem::take(&mut self.changed);
        if all {
            self.place();
        }
        if self.moved && self.may_move_another() {
            (self.moved, all) = (false, true);
        }
        self.renew(now, out);
        self.ask(now, out);
        self.fence(now, out);
        if let Some(until) = self.lease.extend(now, &self.settings) {
            out.push(Action::Lease { until });
        }
        for number in 0..self.settings.shards {
            if all || self.shards[usize::from(number)].wake <= now {
                self.tick_shard(now, Shard(number), out);
            }
        }
    }

    /// Whether the cluster has this member's configuration. The first one writes it.
    fn check_config(&mut self, now: Nanos, out: &mut Vec<Action>) -> bool {
        match self.config {
            None | Some((0, None)) => {
                let again = self.config_at + self.settings.timing.renew;
                if self.config_at == 0 || due(now, again, &mut self.wake) {
                    self.config_at = now.max(1);
                    self.wake = self.wake.min(now + self.settings.timing.renew);
                    let value = Value::Config(self.settings.config);
                    out.push(Action::Write { key: Key::Config, expected: 0, value });
                }
                false
            }
            Some((_, hash)) if hash == Some(self.settings.config) => true,
            Some(_) => {
                if self.lease.incarnation != 0 {
                    self.lease.incarnation = 0;
                    self.lost(out);
                }
                false
            }
        }
    }

    /// Members that have not ended, and their incarnations.
    fn living(&self) -> Peers {
        let living = self.peers.iter().filter(|(_, peer)| !peer.is_ended());
        living.map(|(member, peer)| (*member, peer.record.incarnation)).collect()
    }

    fn renew(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let (key, timing) = (Key::Lease(self.settings.me), self.settings.timing);
        let is_held = self.lease.incarnation != 0;
        let record = self.lease.record.as_ref();
        let is_foreign = |record: &&crate::record::LeaseRecord| {
            record.status != Status::Ended && record.host != self.settings.host
        };
        if !is_held && (self.wanted == Status::Ended || record.filter(is_foreign).is_some()) {
            return;
        }
        // Two renewals are never further apart than `renew`, but not all members' at one time.
        let written_at = self.lease.written_at;
        if written_at != 0 && !due(now, written_at + timing.renew, &mut self.wake) {
            return;
        }
        if is_held && self.lease.is_pending() {
            // The last one, or its answer, may be lost.
            out.push(Action::Read { key });
        }
        let leaves = self.wanted == Status::Ended;
        let status = if leaves && !self.has_left() { Status::Draining } else { self.wanted };
        if status == Status::Ended && !self.lease.closed {
            (self.lease.until, self.lease.closed) = (0, true);
            out.push(Action::Lease { until: 0 });
        }
        let peers = self.living();
        let record = self.lease.renewal(now, &self.settings, status, peers);
        let early = self.draw(timing.renew / 8);
        self.lease.written_at = now.saturating_sub(early).max(1);
        self.wake = self.wake.min(self.lease.written_at + timing.renew);
        let expected = self.lease.revision;
        out.push(Action::Write { key, expected, value: Value::Lease(record) });
        out.push(Action::Read { key: Key::Shard(Shard(self.reads)) });
        self.reads = (self.reads + 1) % self.settings.shards.max(1);
    }

    /// Asks peers for promises, if the store does not answer.
    fn ask(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let timing = self.settings.timing;
        if self.lease.incarnation == 0 {
            return;
        }
        if !self.lease.is_silent(now, &self.settings) {
            self.wake = self.wake.min(self.lease.acknowledged + 2 * timing.renew);
            return;
        }
        if !due(now, self.lease.asked_at + timing.renew, &mut self.wake) {
            return;
        }
        self.lease.asked_at = now;
        self.wake = self.wake.min(now + timing.renew);
        let message = Message::Ask { incarnation: self.lease.incarnation, sent: now };
        let voters = self.lease.voters();
        out.extend(voters.keys().map(|to| Action::Send { to: *to, message: message.clone() }));
    }

    /// Ends the leases of gateways that have been silent for too long.
    fn fence(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.lease.reaches_store(now, &self.settings) {
            return;
        }
        let renew = self.settings.timing.renew;
        for (member, peer) in &mut self.peers {
            let fence = peer.fence(now, &self.settings, self.lease.incarnation);
            if let Fence::NotBefore(at) = fence {
                self.wake = self.wake.min(at.max(now + 1));
            }
            let acts = matches!(fence, Fence::Ask | Fence::Write);
            if !acts || peer.tried_at != 0 && !due(now, peer.tried_at + renew, &mut self.wake) {
                continue;
            }
            if fence == Fence::Write {
                peer.tried_at = now.max(1);
                let key = Key::Lease(*member);
                let record =
                    crate::record::LeaseRecord { status: Status::Ended, ..peer.record.clone() };
                let (expected, value) = (peer.revision, Value::Lease(record));
                out.push(Action::Write { key, expected, value });
            } else {
                peer.tried_at = now.max(1);
                let message = Message::VoteRequest { member: *member, revision: peer.revision };
                let voters = peer.record.peers.keys().filter(|to| **to != self.settings.me);
                let send = |to: &Member| Action::Send { to: *to, message: message.clone() };
                out.extend(voters.map(send));
            }
            self.wake = self.wake.min(now + renew);
        }
    }

    /// When another gateway was heard of last.
    fn alive_at(&self, now: Nanos, owner: Option<Member>) -> Nanos {
        owner.and_then(|owner| self.peers.get(&owner)).map_or(now, Peer::alive_at)
    }

    /// Whether an incarnation has ended, for ever, as far as is known.
    fn has_ended(&self, record: &ShardRecord) -> bool {
        if record.owner != self.settings.me {
            return self
                .peers
                .get(&record.owner)
                .is_some_and(|peer| peer.has_ended(record.incarnation));
        }
        self.lease.record.as_ref().is_some_and(|own| {
            own.incarnation > record.incarnation
                || own.incarnation == record.incarnation && own.status == Status::Ended
        })
    }
}
