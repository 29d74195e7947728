//! Trace events.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use fordway_xlat::DropReason;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::abi::{Abi, FwEvent, outcome};
use crate::{Error, Outcome, PassReason, Result, maps, sys};

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
    /// If it was translated: the first octets of the new packet.
    pub after: Vec<u8>,
}

/// Reads the events of a translator's programs. The descriptor becomes readable when there are some.
pub struct Events {
    ring: RingBuffer<'static>,
    read: Arc<Mutex<Vec<Event>>>,
    /// The ring buffer's descriptor must stay open while it is watched.
    _map: MapHandle,
}

impl Events {
    /// The most events of one [`read`](Events::read).
    pub const BATCH: usize = 1024;

    pub(crate) fn open(map: &MapHandle) -> Result<Events> {
        let failed = maps::failed("open", "trace");
        let map = MapHandle::try_from(map).map_err(&failed)?;
        let read = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        let take = move |octets: &[u8]| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.extend(Event::decode(octets));
            0
        };
        builder.add(&map, take).map_err(&failed)?;
        let ring = builder.build().map_err(&failed)?;
        Ok(Events { ring, read, _map: map })
    }

    /// The events that are there, oldest first; does not wait. As many as [`BATCH`](Events::BATCH):
    /// there may be more already.
    pub fn read(&mut self) -> Result<Vec<Event>> {
        let consumed = self.ring.consume_raw_n(Events::BATCH);
        if consumed < 0 {
            let source = std::io::Error::from_raw_os_error(-consumed);
            return Err(Error::Map { operation: "read", map: "trace", source });
        }
        Ok(std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        sys::ring_fd(&self.ring)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Event {
    /// `None`: not an event of this version.
    fn decode(octets: &[u8]) -> Option<Event> {
        let event = FwEvent::from_octets(octets)?;
        let outcome = match event.outcome {
            outcome::TRANSLATED => Outcome::Translated,
            outcome::PASSED_ON => Outcome::PassedOn(PassReason::from_number(event.reason)?),
            outcome::DROPPED => Outcome::Dropped(drop_reason(event.reason)?),
            outcome::UNMATCHED => Outcome::Unmatched,
            outcome::HANDED_OVER => Outcome::HandedOver,
            _ => return None,
        };
        let snap =
            |octets: &[u8], len: u8| octets.get(..usize::from(len)).unwrap_or(octets).to_vec();
        Some(Event {
            ns: event.ns,
            len: event.len,
            gso_size: event.gso_size,
            ifindex: event.ifindex,
            outcome,
            before: snap(&event.before, event.before_len),
            after: snap(&event.after, event.after_len),
        })
    }
}

pub(crate) fn drop_reason(number: u8) -> Option<DropReason> {
    usize::from(number).checked_sub(1).and_then(|index| DropReason::ALL.get(index)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(outcome: u8, reason: u8) -> FwEvent {
        let mut event = FwEvent { ns: 5, len: 1500, outcome, reason, ..FwEvent::zeroed() };
        event.before[..2].copy_from_slice(&[0x45, 1]);
        event.before_len = 2;
        event.after_len = 200;
        event
    }

    #[test]
    fn events_are_decoded() {
        let decoded = Event::decode(&event(outcome::DROPPED, 4).to_octets()).unwrap();
        assert_eq!(decoded.outcome, Outcome::Dropped(DropReason::BadHeaderChecksum));
        assert_eq!((decoded.ns, decoded.len), (5, 1500));
        assert_eq!(decoded.before, [0x45, 1]);
        assert_eq!(decoded.after.len(), 128, "a length beyond the field is cut");
        let decoded = Event::decode(&event(outcome::PASSED_ON, 17).to_octets()).unwrap();
        assert_eq!(decoded.outcome, Outcome::PassedOn(PassReason::NoRedirect));
    }

    #[test]
    fn strange_events_are_skipped() {
        assert_eq!(Event::decode(&[0; 8]), None);
        assert_eq!(Event::decode(&event(9, 0).to_octets()), None);
        assert_eq!(Event::decode(&event(outcome::PASSED_ON, 0).to_octets()), None);
        assert_eq!(Event::decode(&event(outcome::DROPPED, 255).to_octets()), None);
    }
}
