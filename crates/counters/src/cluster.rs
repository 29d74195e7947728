//! What a gateway of a cluster counts of the store and of the other gateways.

use std::sync::{Mutex, PoisonError};

use crate::counter::counters;

counters! {
    /// What has happened at the store since the start.
    pub struct StoreStats;
    /// What is counted of it.
    pub struct StoreCounters of SharedCounter;
    /// Writes that a server has taken.
    written,
    /// Writes that a server has refused, or that were not sent, as the key had another revision.
    refused,
    /// Values in the bucket that don't count, since another one that replaced the same came before.
    overruled: u64,
    /// Writes whose outcome is unknown.
    unknown,
    /// Writes and reads that were dropped, as no server was connected.
    dropped,
    /// Values that this version can't read.
    malformed,
    /// Watches that were begun.
    watches,
}

counters! {
    /// What has happened to messages between gateways since the start.
    pub struct ChannelStats;
    /// What is counted of them.
    pub struct ChannelCounters of SharedCounter;
    /// Messages sent.
    sent,
    /// Messages received.
    received,
    /// Messages dropped, as the gateway was not connected or its queue full.
    dropped,
    /// Messages that this version can't read; the connection by which one came ends.
    malformed,
    /// Connections that were made.
    connected,
    /// Connections that were refused: they showed no certificate of a gateway's.
    refused,
}

counters! {
    /// What has happened to shards at this gateway since the start.
    pub struct ShardStats;
    /// What is counted of it.
    pub struct ShardCounters of Counter;
    /// Shards that were taken from an ended lease, an earlier one of this gateway's included.
    taken_over,
    /// Shards that began with empty tables, since their records were not here.
    emptied,
    /// Times that translation of a shard was stopped: to give it away, or because it was lost.
    stopped,
    /// Times that translation of a shard began otherwise: it was given to this gateway, is the cluster's first, or stays after a move
    /// that has failed.
    begun,
}

/// What the data path's tables have of replicated records, as the last scan has found them.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub struct TablesStats {
    /// Scans of all tables since the start.
    pub scans: u64,
    /// Time from the begin of the last one to its end, in microseconds.
    pub last_scan_us: u64,
    /// Records received that are in no table now: sessions that wait for their BIB entry, and refused records.
    pub unplaced: u64,
    /// Records received that were refused, since the start.
    pub refused: u64,
}

/// [`TablesStats`], which a thread that scans tables sets and others read.
#[derive(Debug, Default)]
pub struct SharedTablesStats(Mutex<TablesStats>);

impl SharedTablesStats {
    /// Replaces them.
    pub fn set(&self, stats: TablesStats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }

    /// As they were set last.
    pub fn get(&self) -> TablesStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
