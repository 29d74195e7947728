//! IPv4 identifications of packets that may be fragmented on their way.

use alloc::boxed::Box;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::hash::mix;

/// Counters, as many as `crates/bpf/c/ends.h` has.
const PLACES_BITS: u32 = 12;
const PLACES: usize = 1 << PLACES_BITS;

/// What a packet's identification must not repeat for, while another of the same may be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    pub(crate) protocol: u8,
}

/// Identifications that all queues of a translator share.
///
/// RFC 6864 section 4.1: what may be fragmented does not repeat an identification of the same source, destination and
/// protocol. They count up from a hash of these, in one of 4,096 counters, so that they can't be guessed from those of
/// other flows (RFC 7739).
#[derive(Debug)]
pub struct Identifications {
    secret: u64,
    used: Box<[AtomicU32; PLACES]>,
}

impl Identifications {
    /// `secret`: a random number, the key of the hash.
    pub fn new(secret: u64) -> Identifications {
        Identifications { secret, used: Box::new([const { AtomicU32::new(0) }; PLACES]) }
    }

    /// The next one; `segments` of them are used up.
    pub(crate) fn next(&self, ends: Ends, segments: usize) -> u16 {
        let addresses = u64::from(ends.src.to_bits()) << 32 | u64::from(ends.dst.to_bits());
        let hash = mix(mix(self.secret ^ addresses).wrapping_add(u64::from(ends.protocol)));
        let place = (hash >> (64 - PLACES_BITS)) as usize % PLACES;
        let used = self.used[place].fetch_add(segments as u32, Ordering::Relaxed);
        (hash as u32).wrapping_add(used) as u16
    }
}
