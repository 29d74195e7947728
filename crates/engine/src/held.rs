//! Packets of shards that are between two owners (docs/cluster.md).
//!
//! A planned move takes a shard from one gateway some milliseconds before another one has it. A packet that is dropped
//! meanwhile is sent again by TCP after 200 ms at the earliest; so packets wait here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fordway_tun::VnetHeader;

/// How often the packets' shards are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Most packets of a queue.
const PACKETS: usize = 4096;

/// Most octets of them together.
const OCTETS: usize = 16 << 20;

/// A packet that waits, as it came: header and octets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) header: VnetHeader,
    pub(crate) packet: Box<[u8]>,
    pub(crate) until: Duration,
}

/// The packets of one queue that wait; those of a shard in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// No shard's is empty.
    waiting: BTreeMap<u16, VecDeque<Waiting>>,
    packets: usize,
    octets: usize,
}

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.packets
    }

    pub(crate) fn has(&self, shard: u16) -> bool {
        self.waiting.contains_key(&shard)
    }

    /// The shards of which packets wait.
    pub(crate) fn shards(&self) -> Vec<u16> {
        self.waiting.keys().copied().collect()
    }

    /// `false`: there is no room.
    pub(crate) fn push(&mut self, shard: u16, it: Waiting) -> bool {
        let octets = self.octets + it.packet.len();
        let has_room = self.packets < PACKETS && octets <= OCTETS;
        if has_room {
            (self.packets, self.octets) = (self.packets + 1, octets);
            self.waiting.entry(shard).or_default().push_back(it);
        }
        has_room
    }

    /// The packets of a shard wait no longer.
    pub(crate) fn take(&mut self, shard: u16) -> VecDeque<Waiting> {
        let taken = self.waiting.remove(&shard).unwrap_or_default();
        self.packets -= taken.len();
        self.octets -= octets(&taken);
        taken
    }

    /// Drops the packets of a shard that have waited for too long; gives their number.
    pub(crate) fn expire(&mut self, shard: u16, now: Duration) -> usize {
        let mut taken = self.take(shard);
        let expired = taken.partition_point(|it| it.until <= now);
        taken.drain(..expired);
        if !taken.is_empty() {
            self.packets += taken.len();
            self.octets += octets(&taken);
            self.waiting.insert(shard, taken);
        }
        expired
    }
}

fn octets(packets: &VecDeque<Waiting>) -> usize {
    packets.iter().map(|it| it.packet.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(len: usize, until: u64) -> Waiting {
        let (header, until) = (VnetHeader::default(), Duration::from_millis(until));
        Waiting { header, packet: vec![0; len].into(), until }
    }

    #[test]
    fn packets_and_octets_are_bounded() {
        let mut held = Held::default();
        assert!((0..PACKETS).all(|at| held.push(at as u16 % 2, waiting(40, 0))));
        assert!(!held.push(2, waiting(40, 0)));
        assert_eq!(held.take(1).len(), PACKETS / 2);
        assert_eq!(held.len(), PACKETS / 2);
        assert!(held.push(2, waiting(40, 0)));
        let mut held = Held::default();
        assert!((0..OCTETS / 65_536).all(|_| held.push(0, waiting(65_536, 0))));
        assert!(!held.push(0, waiting(1, 0)));
        assert_eq!(held.take(0).len(), OCTETS / 65_536);
        assert!(held.push(0, waiting(65_536, 0)));
    }

    #[test]
    fn what_has_waited_for_too_long_is_dropped() {
        let mut held = Held::default();
        for (shard, len, until) in [(0, 1, 10), (1, 2, 10), (0, 3, 20), (0, 4, 30)] {
            assert!(held.push(shard, waiting(len, until)));
        }
        let at = Duration::from_millis;
        assert_eq!((held.expire(0, at(9)), held.len()), (0, 4));
        assert_eq!((held.expire(0, at(20)), held.len(), held.octets), (2, 2, 6));
        assert_eq!((held.expire(1, at(20)), held.shards()), (1, vec![0]));
        assert!(held.has(0) && !held.has(1));
        assert_eq!(held.take(0), [waiting(4, 30)]);
        assert_eq!((held.len(), held.octets, held.has(0)), (0, 0, false));
    }
}
