//! Gateways that share the load, one of which may die: shards, leases with fencing, replication of state.
//!
//! This crate is pure: events and time in, actions out. It opens no socket and reads no clock.
//!
//! | module | content |
//! |---|---|
//! | `shard` | which part of `pool4` and which subscribers are a shard |
//! | `placement` | which gateway should own a shard |
//! | `record` | what the store holds and what gateways tell each other, as octets |
//! | `settings` | what a gateway is told; times of the protocol |
//! | `lease` | the gateway's own lease: until when it may translate |
//! | `peer` | other gateways' leases: promises, votes, the end of a lease |
//! | `stream` | replication of a shard's records |
//! | `cluster` | all of it together: inputs and actions |
//! | `model`, `mutant` | tests: the protocol among faults, and with faults of its own |
//!
//! `docs/cluster.md` has the failure model and the protocol.
#![forbid(unsafe_code)]

mod cluster;
mod lease;
#[cfg(test)]
mod model;
#[cfg(test)]
mod mutant;
mod peer;
mod placement;
mod record;
mod settings;
mod shard;
mod stream;

pub use cluster::{Action, Cluster, Command, GatewayStatus, Input, Phase, Role, ShardStatus};
pub use placement::ranking;
pub use record::{
    Digest, Encoded, Incarnation, Key, LeaseRecord, Malformed, Member, Message, Nanos, Octets,
    Peers, Record, RecordKey, Revision, ShardRecord, Status, Step, Value, decode, encode,
};
pub use settings::{Fencing, Settings, Timing, WrongTiming};
pub use shard::{MAX_SHARDS, Shard, ShardMap, WrongShards};
