//! Unsolicited SYNs from IPv4, kept for TCP_INCOMING_SYN (RFC 6146 section 3.5.2.2, RFC 5382 REQ-4).
//!
//! If the host opens the same connection meanwhile, the SYN is dropped: its sender retransmits it, and it then belongs
//! to a session. Otherwise its sender gets an ICMP error after that time.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use core::net::Ipv4Addr;
use core::time::Duration;

/// Stored SYNs of one thread at most.
const MOST: usize = 1024;

/// Octets that are kept of each: what an ICMPv4 error quotes (RFC 1812 section 4.3.2.3).
const KEPT: usize = 548;

/// The key of a SYN: (T,t) and (Z,z).
pub(crate) type Ends = ((Ipv4Addr, u16), (Ipv4Addr, u16));

/// A stored SYN.
#[derive(Clone, Debug)]
pub struct StoredSyn {
    /// The IPv4 packet, or its beginning.
    pub packet: Box<[u8]>,
    /// It came from IPv6 and hairpins: which of `pool6` it was sent to.
    pub(crate) hairpin: Option<u8>,
    pub(crate) ends: Ends,
    due: Duration,
}

/// The stored SYNs of a thread.
#[derive(Clone, Debug, Default)]
pub struct Syns {
    // All are kept for the same time, so the first is due first.
    stored: VecDeque<StoredSyn>,
    known: BTreeSet<Ends>,
}

impl Syns {
    /// Keeps a SYN until `due`; one that is kept already is not kept again. `false`: there is no room.
    pub(crate) fn store(
        &mut self,
        packet: &[u8],
        ends: Ends,
        hairpin: Option<u8>,
        due: Duration,
    ) -> bool {
        if self.known.contains(&ends) {
            return true;
        }
        if self.stored.len() >= MOST {
            return false;
        }
        let packet = packet[..packet.len().min(KEPT)].into();
        self.known.insert(ends);
        self.stored.push_back(StoredSyn { packet, hairpin, ends, due });
        true
    }

    /// The next SYN that is due.
    pub fn due(&mut self, now: Duration) -> Option<StoredSyn> {
        let is_due = self.stored.front().is_some_and(|syn| syn.due <= now);
        let syn = is_due.then(|| self.stored.pop_front()).flatten()?;
        self.known.remove(&syn.ends);
        Some(syn)
    }

    /// When the next SYN is due; `None`: none is kept.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.stored.front().map(|syn| syn.due)
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }
}
