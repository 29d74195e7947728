//! Trace events.

use std::os::fd::{AsFd, BorrowedFd};

use crate::Outcome;

/// A packet that a program saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// Octets of the packet, from its IP header.
    pub len: u32,
    /// Segment size of a super-packet; 0 for others.
    pub gso_size: u32,
    /// The device at which it was seen.
    pub ifindex: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// Its first octets (128 at most) from its IP header, as it came.
    pub before: Vec<u8>,
    /// If it was translated: the first octets of what left.
    pub after: Vec<u8>,
}

/// Reads the events of a translator's programs. The descriptor becomes readable when there are some.
#[derive(Debug)]
pub struct Events {
    _private: (),
}

impl Events {
    /// The most events of one [`read`](Events::read).
    pub const BATCH: usize = 1024;

    /// The events that are there, oldest first; does not wait. As many as [`BATCH`](Events::BATCH):
    /// there may be more already.
    pub fn read(&mut self) -> crate::Result<Vec<Event>> {
        todo!()
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
