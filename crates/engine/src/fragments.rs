//! Fragments that wait for each other before a stateful translator gets their packet whole.
//!
//! The kernel may give fragments of one packet to several queues, so all threads share them: in shards, each
//! behind a lock that only fragments take.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fordway_xlat::HEADROOM;
use fordway_xlat::reassembly::{Limits, Outcome, Reassembler};

/// Locks that fragments are spread over.
const SHARDS: usize = 16;

/// IPv4: octets of the flags and the fragment offset, and which bits say that it is a fragment.
const V4_FRAGMENT: Range<usize> = 6..8;
const V4_MORE_OR_OFFSET: u16 = 0x3fff;

/// IPv6: the Next Header, and those behind which a Fragment Header can stand: Hop-by-Hop Options, Routing,
/// Fragment, Destination Options.
const V6_NEXT_HEADER: usize = 6;
const V6_EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

/// The fragments of all queues.
#[derive(Debug)]
pub(crate) struct Fragments {
    shards: Vec<Mutex<Reassembler>>,
}

impl Default for Fragments {
    fn default() -> Fragments {
        let all = Limits::default();
        let limits = Limits {
            datagrams: all.datagrams.div_ceil(SHARDS),
            octets: all.octets.div_ceil(SHARDS),
            ..all
        };
        // One source's packets may all be in one shard.
        let octets_per_source = all.octets_per_source.min(limits.octets / 2);
        let limits = Limits { octets_per_source, ..limits };
        Fragments { shards: (0..SHARDS).map(|_| Mutex::new(Reassembler::new(limits))).collect() }
    }
}

/// Whether a packet is a fragment, or may be one behind its extension headers.
#[inline]
pub(crate) fn may_be_fragment(packet: &[u8]) -> bool {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => packet
            .get(V4_FRAGMENT)
            .is_some_and(|field| u16::from_be_bytes([field[0], field[1]]) & V4_MORE_OR_OFFSET != 0),
        Some(6) => packet.get(V6_NEXT_HEADER).is_some_and(|next| V6_EXTENSIONS.contains(next)),
        _ => false,
    }
}

impl Fragments {
    fn shard(&self, packet: &[u8]) -> MutexGuard<'_, Reassembler> {
        let addresses = match packet.first().map(|octet| octet >> 4) {
            Some(4) => packet.get(12..20),
            _ => packet.get(8..40),
        };
        let sum = addresses
            .unwrap_or_default()
            .iter()
            .fold(0_usize, |sum, octet| sum.wrapping_mul(31).wrapping_add(usize::from(*octet)));
        self.shards[sum % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a packet. A whole one is written to `buffer`, `start` octets from its beginning (at least
    /// [`HEADROOM`]); its range is that of the buffer.
    pub(crate) fn insert(
        &self,
        packet: &[u8],
        now: Duration,
        buffer: &mut [u8],
        start: usize,
    ) -> Outcome {
        let before = start - HEADROOM;
        match self.shard(packet).insert(packet, now, &mut buffer[before..]) {
            Outcome::Complete(range) => Outcome::Complete(range.start + before..range.end + before),
            outcome => outcome,
        }
    }

    /// How many fragments have waited in vain until now; they are gone.
    pub(crate) fn expire(&self, now: Duration) -> usize {
        let expire = |shard: &Mutex<Reassembler>| {
            // Whoever holds the lock, or will next, sees to it.
            shard.try_lock().map_or(0, |mut shard| shard.expire(now))
        };
        self.shards.iter().map(expire).sum()
    }
}
