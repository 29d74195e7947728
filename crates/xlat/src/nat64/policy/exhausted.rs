//! Failed searches for a port, so that they are not repeated for every packet of hosts whose ports are exhausted.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::nat64::Nat64;
use crate::nat64::table::{PortBlock, Protocol};

impl Nat64 {
    /// The key of a search for a port in `blocks`: all subscribers that share these blocks share its result.
    pub(crate) fn search_key(&self, blocks: &[PortBlock], protocol: Protocol) -> Option<u64> {
        let first = blocks.first()?;
        // Protocol numbers of RFC 6146 have 5 bits, and there are at most 8 blocks.
        let kind = protocol.number() | ((blocks.len() - 1) as u8) << 5;
        Some(self.secret.v4(first.v4, first.low, kind))
    }

    /// The slot of a search, and the bits of the slot beside the tick.
    fn exhausted_slot(&self, search: u64) -> (&AtomicU64, u64) {
        (&self.exhausted[search as usize % 64], search & 0xffff_ffff_0000_0000)
    }

    /// Whether this search has failed in this tick.
    pub(crate) fn known_exhausted(&self, search: u64, now: u32) -> bool {
        let (slot, who) = self.exhausted_slot(search);
        slot.load(Relaxed) == who | u64::from(now)
    }

    /// Remembers that this search has failed.
    pub(crate) fn note_exhausted(&self, search: u64, now: u32) {
        let (slot, who) = self.exhausted_slot(search);
        slot.store(who | u64::from(now), Relaxed);
    }
}
