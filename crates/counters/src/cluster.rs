//! What a gateway of a cluster counts of the store and of the other gateways.

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
