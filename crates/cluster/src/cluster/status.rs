//! What can be shown of a member.

use crate::record::{LeaseRecord, Member, Nanos, Status};
use crate::settings::Settings;
use crate::shard::Shard;
use crate::stream::{Sender, StreamSettings};

use super::Cluster;
use super::shards::RoleState;

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has not read the store, or is waiting for its lease.
    Joining,
    /// It holds a lease.
    Member,
    /// The cluster has another configuration.
    WrongConfig,
    /// Another host holds the lease of this name.
    NameInUse,
    /// Another process of this host has taken the lease: this one has to end.
    Replaced,
    /// It has left.
    Left,
}

/// What a gateway is to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Neither owner nor standby that is ready.
    Other,
    /// The shard's records are here.
    Ready,
    /// It owns the shard.
    Owner,
    /// It owns the shard, which is moving away.
    Moving,
}

/// A gateway, as a member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayStatus {
    /// Which gateway.
    pub member: Member,
    /// What the store says of it.
    pub status: Status,
    /// Its share of shards, in comparison with others'.
    pub weight: u32,
    /// How long ago its newest record was received, in ns; of the member itself, how long ago the last one was sent that the store
    /// has.
    pub unseen: Nanos,
}

/// A shard, as a member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// Which shard.
    pub shard: Shard,
    /// Who owns it, and since which epoch.
    pub owner: Option<(Member, u64)>,
    /// What this gateway is to it.
    pub role: Role,
    /// Of an owner: to whom it replicates.
    pub standby: Option<Member>,
    /// Of an owner: the standby has everything but the lag.
    pub is_covered: bool,
    /// Of an owner: records that are not acknowledged, and the age of the oldest in ns.
    pub lag: (usize, Nanos),
    /// Of an owner: records that a full queue has dropped.
    pub dropped: u64,
    /// Records that this gateway has of the shard.
    pub records: u64,
    /// Where the operator wants it.
    pub wish: Option<Member>,
}

impl Cluster {
    /// What it was told.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where this member stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let other = |hash: Option<u64>| hash != Some(self.settings.config);
        let record = self.lease.record.as_ref();
        if self.replaced {
            Phase::Replaced
        } else if self.config.is_some_and(|(revision, hash)| revision != 0 && other(hash)) {
            Phase::WrongConfig
        } else if self.lease.incarnation != 0 {
            Phase::Member
        } else if self.wanted == Status::Ended {
            Phase::Left
        } else if record.is_some_and(|r| r.status != Status::Ended && r.host != self.settings.host)
        {
            Phase::NameInUse
        } else {
            Phase::Joining
        }
    }

    /// Until when the data path may translate, and whether the store's acknowledgements are missing.
    #[must_use]
    pub fn lease(&self, now: Nanos) -> (Nanos, bool) {
        (self.lease.until, self.lease.is_silent(now, &self.settings))
    }

    /// Gateways that can vote to end this one's lease, or promise to respect it: as the store has its record. Without any, nobody
    /// takes its shards before [`Timing::outage`](crate::Timing::outage). One that was restarted counts from the next renewal on.
    #[must_use]
    pub fn peers(&self) -> usize {
        let living = self.living();
        let named = self.lease.record.iter().flat_map(|record| &record.peers);
        named.filter(|(member, incarnation)| living.get(member) == Some(*incarnation)).count()
    }

    /// All gateways that the store has a record of, this one among them, in order.
    pub fn gateways(&self, now: Nanos) -> impl Iterator<Item = GatewayStatus> {
        let of = |member, record: &LeaseRecord, unseen| GatewayStatus {
            member,
            status: record.status,
            weight: record.weight,
            unseen,
        };
        let peers = self.peers.iter();
        let mut all: Vec<_> =
            peers.map(|(member, peer)| of(*member, &peer.record, peer.unseen(now))).collect();
        if let Some(own) = &self.lease.record {
            all.push(of(self.settings.me, own, now.saturating_sub(self.lease.acknowledged)));
        }
        all.sort_unstable_by_key(|gateway| gateway.member);
        all.into_iter()
    }

    /// Who owns a shard, by the newest record that is known.
    #[must_use]
    pub fn owner(&self, shard: Shard) -> Option<Member> {
        let state = self.shards.get(usize::from(shard.0))?;
        state.seen.map(|(_, record)| record.owner)
    }

    /// The shards, in order.
    pub fn shards(&self, now: Nanos) -> impl Iterator<Item = ShardStatus> {
        let timing = self.settings.timing;
        let settings = StreamSettings::of(&self.settings);
        (0_u16..).zip(&self.shards).map(move |(number, state)| {
            let owner = state.seen.map(|(_, record)| (record.owner, record.epoch));
            let wish = state.seen.and_then(|(_, record)| record.wish);
            let (role, sender) = match &state.role {
                RoleState::Standby(receiver) => {
                    let alive_at = self.alive_at(now, owner.map(|(member, _)| member));
                    let is_ready = receiver.is_ready(state.epoch(), now, alive_at, &timing);
                    (if is_ready { Role::Ready } else { Role::Other }, None)
                }
                RoleState::Owner(sender) => (Role::Owner, Some(sender)),
                RoleState::Stopping { sender, .. } | RoleState::Handing { sender, .. } => {
                    (Role::Moving, Some(sender))
                }
            };
            ShardStatus {
                shard: Shard(number),
                owner,
                role,
                standby: sender.and_then(Sender::standby),
                is_covered: sender.is_some_and(|sender| sender.is_nearly_caught_up(now, &settings)),
                lag: sender.map_or((0, 0), |sender| sender.lag(now)),
                dropped: sender.map_or(0, |sender| sender.dropped),
                records: state.records(),
                wish,
            }
        })
    }

    /// Of a standby whose table was equal to its owner's: the epoch, and the number of the last message that it has applied.
    #[cfg(test)]
    pub(crate) fn verified(&self, shard: usize) -> Option<(u64, u64)> {
        let RoleState::Standby(receiver) = &self.shards[shard].role else { return None };
        let (next, is_verified) = receiver.state();
        is_verified.then(|| (receiver.epoch(), next - 1))
    }
}
