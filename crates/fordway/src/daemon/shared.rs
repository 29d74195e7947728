//! What the daemon's sockets tell of its translators.

use std::sync::Arc;
use std::time::Instant;

use fordway_engine::QueueCounters;

use super::instance::Running;
use crate::report::{IoStats, Stats, Status, Totals, TranslatorStats, TranslatorStatus};

/// Fixed facts and live counters.
pub(crate) struct Shared {
    origin: String,
    ready: Instant,
    translators: Vec<One>,
}

struct One {
    status: TranslatorStatus,
    started: Instant,
    counters: Vec<Arc<QueueCounters>>,
}

impl Shared {
    pub(super) fn new(origin: &str, running: &[Running]) -> Shared {
        let translators = running.iter().map(|one| One {
            status: one.status().clone(),
            started: one.started(),
            counters: one.counters(),
        });
        Shared {
            origin: origin.to_owned(),
            ready: Instant::now(),
            translators: translators.collect(),
        }
    }

    /// What runs now.
    pub(crate) fn status(&self) -> Status {
        let translators = self.translators.iter().map(|one| TranslatorStatus {
            uptime_seconds: one.started.elapsed().as_secs(),
            ..one.status.clone()
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            config: self.origin.clone(),
            uptime_seconds: self.ready.elapsed().as_secs(),
            translators: translators.collect(),
        }
    }

    /// What has been carried until now.
    pub(crate) fn stats(&self) -> Stats {
        Stats { translators: self.translators.iter().map(One::stats).collect() }
    }
}

impl One {
    fn stats(&self) -> TranslatorStats {
        let queues: Vec<Totals> = self.counters.iter().map(|counters| queue(counters)).collect();
        let mut totals = Totals::default();
        for queue in &queues {
            totals.add(queue);
        }
        TranslatorStats {
            name: self.status.name.clone(),
            mode: self.status.mode.clone(),
            totals,
            queues,
        }
    }
}

fn queue(counters: &QueueCounters) -> Totals {
    let io = counters.io.totals();
    Totals {
        io: IoStats {
            receive_errors: io.receive_errors,
            send_full: io.send_full,
            send_down: io.send_down,
            send_no_buffers: io.send_no_buffers,
            send_refused: io.send_refused,
        },
        ..Totals::read(&counters.core)
    }
}
