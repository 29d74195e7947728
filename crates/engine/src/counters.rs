//! Counters of one queue: what the core counts, and what goes wrong between queue and core.

use std::sync::atomic::{AtomicU64, Ordering};

use fordway_xlat::Counters;

/// All counters of one queue.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets, by direction and by reason of dropping.
    pub core: Counters,
    /// Errors of the queue itself.
    pub io: IoCounters,
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
