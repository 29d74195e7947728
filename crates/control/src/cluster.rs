//! Gateways that share the load.

use fordway_counters::cluster::{ChannelStats, ShardStats, StoreStats, TablesStats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a gateway stands in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterPhase {
    /// It has not read the store, or is waiting for its lease.
    #[default]
    Joining,
    /// It holds its lease.
    Member,
    /// The cluster has another configuration.
    WrongConfig,
    /// Another host holds the lease of its name.
    NameInUse,
    /// Another process of its host is in its place.
    Replaced,
    /// It has left.
    Left,
    /// It takes no part any more, because of an error.
    Failed,
}

impl ClusterPhase {
    /// All that there are.
    pub const ALL: [ClusterPhase; 7] = [
        ClusterPhase::Joining,
        ClusterPhase::Member,
        ClusterPhase::WrongConfig,
        ClusterPhase::NameInUse,
        ClusterPhase::Replaced,
        ClusterPhase::Left,
        ClusterPhase::Failed,
    ];

    /// The word of the protocol.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            ClusterPhase::Joining => "joining",
            ClusterPhase::Member => "member",
            ClusterPhase::WrongConfig => "wrong_config",
            ClusterPhase::NameInUse => "name_in_use",
            ClusterPhase::Replaced => "replaced",
            ClusterPhase::Left => "left",
            ClusterPhase::Failed => "failed",
        }
    }
}

/// What an operator can want of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClusterChange {
    /// Say where a shard is wanted that the gateway owns.
    Move {
        /// The shard's number.
        shard: u16,
        /// The gateway; none: where placement wants it.
        #[serde(default)]
        gateway: Option<String>,
    },
    /// Give all shards to other gateways, and stay.
    Drain,
    /// Own shards again.
    Join,
    /// Give all shards to other gateways, then end the lease.
    Leave,
    /// Another gateway is off, certainly: its lease may be ended without votes.
    Declare {
        /// That gateway.
        gateway: String,
    },
}

/// What a gateway is to a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShardRole {
    /// Neither owner nor standby that is ready.
    #[default]
    Other,
    /// A standby that has its records.
    Ready,
    /// Its owner.
    Owner,
    /// Its owner, from which it is moving away.
    Moving,
}

/// How many shards a gateway has, by what it is to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShardCounts {
    /// Those that it owns and keeps.
    pub owner: u64,
    /// Those that it owns and that are moving away.
    pub moving: u64,
    /// Those whose standby it is, and whose records it has.
    pub ready: u64,
    /// The others.
    pub other: u64,
    /// Those that it owns, also moving ones, without a standby that is ready.
    pub uncovered: u64,
}

impl ShardCounts {
    /// Shards that the gateway owns.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owner + self.moving
    }
}

/// A gateway in its cluster, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterState {
    /// The gateway's name.
    pub name: String,
    /// Where it stands.
    pub phase: ClusterPhase,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Milliseconds until its lease ends, if nothing extends it; 0: it has none, and translates nothing.
    pub lease_ms: u64,
    /// A server of the store is connected, and the bucket open.
    pub store_connected: bool,
    /// Why not, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_error: Option<String>,
    /// The store's acknowledgements are missing: promises of other gateways extend the lease.
    pub silent: bool,
    /// Gateways that can vote to end its lease, or promise to respect it.
    pub peers: u64,
    /// Its shards.
    pub shards_by_role: ShardCounts,
}

impl ClusterState {
    /// Whether it translates its shards now: it holds a lease that has not ended.
    #[must_use]
    pub fn translates(&self) -> bool {
        self.phase == ClusterPhase::Member && self.lease_ms > 0
    }
}

/// Replicated records of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordStats {
    /// Records of shards that it owns.
    pub own: u64,
    /// Records of other gateways' shards.
    pub others: u64,
    /// Records of own shards that their standbys have not acknowledged.
    pub lag: u64,
    /// Age of the oldest of these, in milliseconds.
    pub lag_ms: u64,
    /// Records of the shards that it owns now that full queues have dropped; the standby then gets all of a shard's again.
    pub dropped: u64,
}

/// What a gateway has counted in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStats {
    /// Where it stands.
    #[serde(flatten)]
    pub state: ClusterState,
    /// Its records.
    pub records: RecordStats,
    /// What has happened to shards.
    pub moves: ShardStats,
    /// What has happened at the store.
    pub store: StoreStats,
    /// What has happened to messages between gateways.
    pub channel: ChannelStats,
    /// What the tables have of replicated records.
    pub tables: TablesStats,
}

/// What the store says of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GatewayState {
    /// It owns shards, or can.
    Active,
    /// It gives its shards away.
    Draining,
    /// It has left, or was fenced.
    Ended,
    /// It has never joined, or this gateway does not know yet.
    #[default]
    Unknown,
}

impl GatewayState {
    /// The word of the protocol.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            GatewayState::Active => "active",
            GatewayState::Draining => "draining",
            GatewayState::Ended => "ended",
            GatewayState::Unknown => "unknown",
        }
    }
}

/// A gateway of the configuration, as another one sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayRow {
    /// Its name.
    pub name: String,
    /// It is the one that answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub this: bool,
    /// What the store says.
    pub state: GatewayState,
    /// Its share of shards, in comparison with others'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Milliseconds since its last renewal was seen; none of one that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_ms: Option<u64>,
    /// Shards that it owns.
    pub shards: u64,
}

/// A shard, as a gateway sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShardRow {
    /// Its number.
    pub shard: u16,
    /// The gateway that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The ownership's number; 0: nobody has ever owned it.
    pub epoch: u64,
    /// What the gateway that answers is to it.
    pub role: ShardRole,
    /// To whom it replicates; known to the owner alone, as the next three are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<String>,
    /// The standby has everything but the lag.
    pub covered: bool,
    /// Records that the standby has not acknowledged.
    pub lag: u64,
    /// Age of the oldest of these, in milliseconds.
    pub lag_ms: u64,
    /// Records that the gateway that answers has.
    pub records: u64,
    /// Where the operator wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
}

/// A cluster, as one gateway sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStatus {
    /// This gateway.
    #[serde(flatten)]
    pub stats: ClusterStats,
    /// The gateways of the configuration, this one among them.
    pub gateways: Vec<GatewayRow>,
    /// The shards, by number; none if this gateway takes no part any more.
    pub shards: Vec<ShardRow>,
}
