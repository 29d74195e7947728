//! Counters of one queue: what the core counts, and what goes wrong between queue and core.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fordway_xlat::Counters;

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

/// Errors of a queue. One writer, any number of readers.
#[derive(Debug, Default)]
pub struct IoCounters {
    receive_errors: AtomicU64,
    send_full: AtomicU64,
    send_down: AtomicU64,
    send_no_buffers: AtomicU64,
    send_refused: AtomicU64,
}

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

/// Which counter of [`IoCounters`] to raise.
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
        let counter = match error {
            IoError::Receive => &self.receive_errors,
            IoError::Full => &self.send_full,
            IoError::Down => &self.send_down,
            IoError::NoBuffers => &self.send_no_buffers,
            IoError::Refused => &self.send_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// What has been counted.
    pub fn totals(&self) -> IoTotals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoTotals {
            receive_errors: get(&self.receive_errors),
            send_full: get(&self.send_full),
            send_down: get(&self.send_down),
            send_no_buffers: get(&self.send_no_buffers),
            send_refused: get(&self.send_refused),
        }
    }
}
