//! What a member tells, with names and sums, as clients see it.

use std::collections::BTreeMap;

use fordway_cluster::{GatewayStatus, Member, Phase, Role, ShardStatus, Status};
use fordway_clusterd::Overview;
use fordway_control::{
    ClusterPhase, ClusterState, ClusterStats, ClusterStatus, GatewayRow, GatewayState, RecordStats,
    ShardCounts, ShardRole, ShardRow,
};
use fordway_counters::cluster::TablesStats;

use super::Gateways;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// The cluster, as a member sees it.
pub(super) fn status(
    overview: &Overview,
    gateways: &Gateways,
    tables: TablesStats,
) -> ClusterStatus {
    let Overview { now, until, .. } = *overview;
    let state = ClusterState {
        name: gateways.name(gateways.me),
        phase: phase(overview.phase),
        error: None,
        // One that ends within this millisecond has not ended.
        lease_ms: until.saturating_sub(now).div_ceil(MS),
        store_connected: overview.is_store_open,
        store_error: overview.store_error.clone(),
        silent: overview.is_silent,
        peers: overview.peers as u64,
        shards_by_role: counts(&overview.shards),
    };
    let stats = ClusterStats {
        state,
        records: records(&overview.shards),
        moves: overview.moves.clone(),
        store: overview.store.clone(),
        channel: overview.channel.clone(),
        tables,
    };
    let shards = overview.shards.iter().map(|shard| row(shard, gateways)).collect();
    ClusterStatus { stats, gateways: rows(overview, gateways), shards }
}

fn phase(phase: Phase) -> ClusterPhase {
    match phase {
        Phase::Joining => ClusterPhase::Joining,
        Phase::Member => ClusterPhase::Member,
        Phase::WrongConfig => ClusterPhase::WrongConfig,
        Phase::NameInUse => ClusterPhase::NameInUse,
        Phase::Replaced => ClusterPhase::Replaced,
        Phase::Left => ClusterPhase::Left,
    }
}

fn owns(shard: &ShardStatus) -> bool {
    matches!(shard.role, Role::Owner | Role::Moving)
}

fn counts(shards: &[ShardStatus]) -> ShardCounts {
    let mut counts = ShardCounts::default();
    for shard in shards {
        let count = match shard.role {
            Role::Other => &mut counts.other,
            Role::Ready => &mut counts.ready,
            Role::Owner => &mut counts.owner,
            Role::Moving => &mut counts.moving,
        };
        *count += 1;
        counts.uncovered += u64::from(owns(shard) && !shard.is_covered);
    }
    counts
}

fn records(shards: &[ShardStatus]) -> RecordStats {
    let mut all = RecordStats::default();
    for shard in shards {
        let records = if owns(shard) { &mut all.own } else { &mut all.others };
        *records += shard.records;
        let (lag, age) = shard.lag;
        all.lag += lag as u64;
        all.lag_ms = all.lag_ms.max(age / MS);
        all.dropped += shard.dropped;
    }
    all
}

/// Those of the configuration, and others of which the store has a record.
fn rows(overview: &Overview, gateways: &Gateways) -> Vec<GatewayRow> {
    let mut rows: BTreeMap<Member, GatewayRow> = BTreeMap::new();
    let known = overview.gateways.iter().map(|gateway| gateway.member);
    for member in gateways.names.keys().copied().chain(known) {
        let (name, this) = (gateways.name(member), member == gateways.me);
        rows.insert(member, GatewayRow { name, this, ..GatewayRow::default() });
    }
    for GatewayStatus { member, status, weight, unseen } in &overview.gateways {
        if let Some(row) = rows.get_mut(member) {
            row.state = match status {
                Status::Active => GatewayState::Active,
                Status::Draining => GatewayState::Draining,
                Status::Ended => GatewayState::Ended,
            };
            row.weight = Some(*weight);
            row.unseen_ms = Some(unseen / MS);
        }
    }
    for (owner, _) in overview.shards.iter().filter_map(|shard| shard.owner) {
        if let Some(row) = rows.get_mut(&owner) {
            row.shards += 1;
        }
    }
    rows.into_values().collect()
}

fn row(shard: &ShardStatus, gateways: &Gateways) -> ShardRow {
    ShardRow {
        shard: shard.shard.0,
        owner: shard.owner.map(|(owner, _)| gateways.name(owner)),
        epoch: shard.owner.map_or(0, |(_, epoch)| epoch),
        role: match shard.role {
            Role::Other => ShardRole::Other,
            Role::Ready => ShardRole::Ready,
            Role::Owner => ShardRole::Owner,
            Role::Moving => ShardRole::Moving,
        },
        standby: shard.standby.map(|standby| gateways.name(standby)),
        covered: shard.is_covered,
        lag: shard.lag.0 as u64,
        lag_ms: shard.lag.1 / MS,
        records: shard.records,
        wish: shard.wish.map(|wish| gateways.name(wish)),
    }
}
