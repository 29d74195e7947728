//! Counters of one queue: what the core counts, and what goes wrong between queue and core.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fordway_xlat::counters::Arrival;
use fordway_xlat::{Counters, DropReason, Verdict};

/// All counters of one queue.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets, by direction and by reason of dropping.
    pub core: Counters,
    /// Errors of the queue itself.
    pub io: IoCounters,
    /// How long translation of packets took that made a session.
    pub creation: Latency,
}

/// What came of sending: the pieces that left, or why the device did not take one.
pub(crate) type Sent = Result<usize, DropReason>;

impl QueueCounters {
    /// Counts a packet by its verdict, and by what came of sending what it had become.
    #[inline]
    pub(crate) fn record(&self, arrival: Arrival, verdict: Verdict, sent: Sent) {
        match (sent, verdict) {
            (Ok(pieces), _) => self.core.record(arrival, verdict, pieces),
            // It is dropped for the reason that its sender should have heard of.
            (Err(_), Verdict::Reply(error)) => {
                self.core.drop(error.reason);
                self.core.suppress(1);
            }
            (Err(reason), _) => self.core.drop(reason),
        }
    }
}

/// Upper bounds of the classes of [`Latency`], in microseconds; the last class has none.
pub const LATENCY_US: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// A histogram of durations. One writer, any number of readers.
#[derive(Debug, Default)]
pub struct Latency {
    classes: [AtomicU64; LATENCY_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Latency {
    pub(crate) fn record(&self, took: Duration) {
        let us = took.as_nanos().div_ceil(1000) as u64;
        let class = LATENCY_US.iter().position(|bound| us <= *bound);
        let class = class.unwrap_or(LATENCY_US.len());
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How many in each class, and all durations together in nanoseconds.
    pub fn totals(&self) -> ([u64; LATENCY_US.len() + 1], u64) {
        let classes = std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed));
        (classes, self.sum_ns.load(Ordering::Relaxed))
    }
}

/// Errors of a queue, by [`IoError`]. One writer, any number of readers.
#[derive(Debug, Default)]
pub struct IoCounters([AtomicU64; 5]);

/// Errors of a queue, as read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Packets that could not be received whole.
    pub receive_errors: u64,
    /// Packets not sent because the device's buffer was full.
    pub send_full: u64,
    /// Packets not sent because the interface was down.
    pub send_down: u64,
    /// Packets not sent because the kernel had no memory.
    pub send_no_buffers: u64,
    /// Packets that the kernel did not accept.
    pub send_refused: u64,
}

/// Which counter of [`IoCounters`] to raise: its index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IoError {
    Receive,
    Full,
    Down,
    NoBuffers,
    Refused,
}

impl IoCounters {
    pub(crate) fn raise(&self, error: IoError) {
        self.0[error as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What has been counted.
    pub fn totals(&self) -> IoTotals {
        let get = |error: IoError| self.0[error as usize].load(Ordering::Relaxed);
        IoTotals {
            receive_errors: get(IoError::Receive),
            send_full: get(IoError::Full),
            send_down: get(IoError::Down),
            send_no_buffers: get(IoError::NoBuffers),
            send_refused: get(IoError::Refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use fordway_xlat::{Direction, IcmpError, IcmpErrorKind};

    use super::*;

    const ARRIVAL: Arrival =
        Arrival { direction: Some(Direction::V4ToV6), octets: 100, segments: 1 };

    #[test]
    fn an_answer_that_is_not_sent_does_not_hide_why_the_packet_was_dropped() {
        let counters = QueueCounters::default();
        let reason = DropReason::HopLimitExceeded;
        let answer = Verdict::Reply(IcmpError { kind: IcmpErrorKind::TimeExceeded, reason });
        counters.record(ARRIVAL, answer, Err(DropReason::QueueFull));
        assert_eq!(counters.core.dropped(reason), 1);
        assert_eq!(counters.core.dropped(DropReason::QueueFull), 0);
        assert_eq!(counters.core.icmp_errors(Direction::V4ToV6), 0);
        assert_eq!(counters.core.icmp_errors_suppressed(), 1);
    }

    #[test]
    fn a_packet_that_is_not_sent_is_not_one_that_was_translated() {
        let counters = QueueCounters::default();
        counters.record(ARRIVAL, Verdict::Forward, Err(DropReason::QueueFull));
        counters.record(ARRIVAL, Verdict::Forward, Ok(2));
        assert_eq!(counters.core.dropped(DropReason::QueueFull), 1);
        assert_eq!(counters.core.direction(Direction::V4ToV6).packets, 1);
        assert_eq!(counters.core.direction(Direction::V4ToV6).fragments, 2);
    }

    #[test]
    fn durations_are_counted_by_their_class() {
        let latency = Latency::default();
        for ns in [0, 1_000, 1_001, 512_000, 512_001] {
            latency.record(Duration::from_nanos(ns));
        }
        assert_eq!(latency.totals(), ([2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1], 1_026_002));
    }
}
