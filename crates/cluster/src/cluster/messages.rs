//! What other gateways say.

use crate::record::{Member, Message, Nanos};
use crate::settings::mutant;
use crate::shard::Shard;

use super::shards::RoleState;
use super::{Action, Cluster};

impl Cluster {
    /// Takes a message. Gives the shard, if nothing else is concerned.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        from: Member,
        message: Message,
        out: &mut Vec<Action>,
    ) -> Option<Shard> {
        let own = self.lease.incarnation;
        match message {
            Message::Ask { incarnation, sent } => {
                let peer = self.peers.get_mut(&from)?;
                if own != 0 && peer.promise(now, &self.settings, incarnation) {
                    let message = Message::Promise { by: own, incarnation, sent };
                    out.push(Action::Send { to: from, message });
                }
                None
            }
            Message::Promise { by, incarnation, sent } => {
                // Nobody can have promised what was not asked for yet.
                if sent <= now {
                    self.lease.promise(from, by, incarnation, sent);
                }
                None
            }
            Message::VoteRequest { member, revision } => {
                let peer = self.peers.get_mut(&member)?;
                if peer.vote(now, &self.settings, own, revision) {
                    let message = Message::Vote { member, revision, by: own };
                    out.push(Action::Send { to: from, message });
                }
                None
            }
            Message::Vote { member, revision, by } => {
                let peer = self.peers.get_mut(&member)?;
                peer.count(&self.settings, from, by, revision);
                None
            }
            Message::Written { shard, revision, record } => {
                self.shard_entry(now, shard, revision, record, out);
                out.push(Action::Send { to: from, message: Message::Known { shard, revision } });
                None
            }
            Message::Known { shard, revision } => {
                let (seen, record) = self.shards.get(usize::from(shard.0))?.seen?;
                if (revision, from) == (seen, record.owner) {
                    out.push(Action::Known { shard, owner: from });
                }
                None
            }
            Message::Replicate { shard, epoch, number, digest, step } => {
                let state = self.shards.get_mut(usize::from(shard.0))?;
                let RoleState::Standby(receiver) = &mut state.role else { return None };
                if state.seen.is_some_and(|(_, record)| record.epoch > epoch)
                    && !mutant!(self.settings, AnyEpoch)
                {
                    return None;
                }
                let what = (from, epoch, number);
                let records = receiver.receive(now, &self.settings, what, digest, step);
                if !records.is_empty() {
                    // The table is another one's now.
                    state.intact = None;
                    out.push(Action::Apply { shard, records });
                }
                if receiver.from() == from && receiver.epoch() == epoch {
                    let (next, ready) = receiver.state();
                    let message = Message::Acknowledge { shard, epoch, next, ready };
                    out.push(Action::Send { to: from, message });
                }
                Some(shard)
            }
            Message::Acknowledge { shard, epoch, next, ready } => {
                let state = self.shards.get_mut(usize::from(shard.0))?;
                let is_current = state.epoch() == epoch;
                let sender = state.sender().filter(|s| s.standby() == Some(from) && is_current)?;
                sender.acknowledge(now, next, ready);
                Some(shard)
            }
        }
    }
}
