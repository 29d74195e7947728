//! Packets whose shard another gateway of the cluster translates (docs/cluster.md).

use std::fmt;
use std::time::Duration;

use fordway_tun::VnetHeader;

/// Hands packets over to the owners of shards.
///
/// All threads of an engine use one, each for one packet at a time. It must not block.
pub trait HandOver: Send + Sync + fmt::Debug {
    /// Hands a packet over to the owner of `shard`: writes it with its virtio-net header, both as they came, to where the
    /// kernel routes it to the owner. `queue` is the number of the calling thread's queue, from 0. `false`: the packet
    /// can't be handed over, and is dropped.
    ///
    /// The packet begins with its IP header. It is one from the network: a fragment of an IPv6 datagram is handed over as
    /// one; an IPv4 datagram whose fragments were reassembled here is whole, at most 65,535 octets, without DF, for the
    /// kernel to fragment. The kernel decrements the hop limit.
    fn hand_over(&self, queue: usize, shard: u16, header: &VnetHeader, packet: &[u8]) -> bool;

    /// Whether this gateway owns `shard`, as far as is known, or has owned it until a moment ago. If so, and the shard is not
    /// translated here, it is between two owners: its packets wait in the engine.
    fn is_own(&self, shard: u16) -> bool;

    /// How long a packet waits at most; then it is dropped.
    fn patience(&self) -> Duration;
}
