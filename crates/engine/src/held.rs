//! Packets of shards that are between two owners (docs/cluster.md).
//!
//! A planned move takes a shard from one gateway some milliseconds before another one has it. A packet that is dropped
//! meanwhile is sent again by TCP after 200 ms at the earliest; so packets wait here.

use std::collections::VecDeque;
use std::time::Duration;

use fordway_tun::VnetHeader;

/// For so long a packet waits; a move that takes longer has been given up.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// How often the packets' shards are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Most packets of a queue.
const PACKETS: usize = 4096;

/// Most octets of them together.
const OCTETS: usize = 16 << 20;

/// A packet that waits, as it came: header and octets.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) shard: u16,
    pub(crate) header: VnetHeader,
    pub(crate) packet: Box<[u8]>,
    pub(crate) until: Duration,
}

/// The packets of one queue that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Held {
    waiting: VecDeque<Waiting>,
    octets: usize,
}

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// `false`: there is no room.
    pub(crate) fn push(&mut self, it: Waiting) -> bool {
        let octets = self.octets + it.packet.len();
        let has_room = self.waiting.len() < PACKETS && octets <= OCTETS;
        if has_room {
            self.octets = octets;
            self.waiting.push_back(it);
        }
        has_room
    }

    /// The one that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let it = self.waiting.pop_front()?;
        self.octets -= it.packet.len();
        Some(it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(len: usize) -> Waiting {
        let (header, until) = (VnetHeader::default(), Duration::ZERO);
        Waiting { shard: 0, header, packet: vec![0; len].into(), until }
    }

    #[test]
    fn packets_and_octets_are_bounded() {
        let mut held = Held::default();
        assert!((0..PACKETS).all(|_| held.push(waiting(40))));
        assert!(!held.push(waiting(40)));
        held.pop();
        assert!(held.push(waiting(40)));
        let mut held = Held::default();
        assert!((0..OCTETS / 65_536).all(|_| held.push(waiting(65_536))));
        assert!(!held.push(waiting(1)));
        assert_eq!(held.pop().map(|it| it.packet.len()), Some(65_536));
        assert!(held.push(waiting(65_536)));
    }
}
