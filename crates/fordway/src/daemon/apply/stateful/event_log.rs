//! Events of the sweeper, for the logs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fordway_config::LogEvent;
use fordway_engine::monotonic;
use fordway_xlat::nat64::Event;
use ipnet::Ipv6Net;

use crate::natlog::{Logs, Record, What};
use fordway_control::LogStats;

/// Where events go. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct EventLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    logs: Mutex<Logs>,
    /// Bits of a subscriber's prefix; the same for as long as the translator runs.
    subscriber_len: u8,
    /// What changed configurations had no place for.
    unfit: AtomicU64,
}

impl EventLog {
    pub(crate) fn new(logs: Logs, subscriber_len: u8) -> EventLog {
        EventLog(Arc::new(Shared {
            logs: Mutex::new(logs),
            subscriber_len,
            unfit: AtomicU64::new(0),
        }))
    }

    /// Replaces the logs. The old ones write what is queued, and end.
    pub(crate) fn set_logs(&self, logs: Logs) {
        let old = std::mem::replace(&mut *self.0.logs(), logs);
        // After the lock: it may take a while.
        drop(old);
    }

    pub(crate) fn log_stats(&self) -> Vec<LogStats> {
        self.0.logs().stats()
    }

    /// What changed configurations had no place for.
    pub(crate) fn unfit(&self) -> u64 {
        self.0.unfit.load(Ordering::Relaxed)
    }

    pub(crate) fn add_unfit(&self, number: u64) {
        self.0.unfit.fetch_add(number, Ordering::Relaxed);
    }

    /// Takes an event. In the sweeper's thread, which must not wait.
    pub(crate) fn tell(&self, event: Event) {
        let wanted = match &event {
            Event::Probe { .. } => return,
            Event::BibCreated(..) | Event::BibRemoved(_) => LogEvent::Bindings,
            Event::SessionCreated(..) | Event::SessionRemoved(..) => LogEvent::Sessions,
            Event::BlockAssigned(..) | Event::BlockReleased(..) => LogEvent::Blocks,
        };
        let logs = self.0.logs();
        if logs.wants(wanted)
            && let Some(record) = self.0.record(event)
        {
            logs.put(&record);
        }
    }
}

impl Shared {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, event: Event) -> Option<Record> {
        let subscriber = |prefix| Ipv6Net::new(prefix, self.subscriber_len).ok();
        let mut ago = Duration::ZERO;
        let what = match event {
            Event::BibCreated(binding, created) => {
                ago = monotonic().saturating_sub(created);
                What::BibCreated(binding)
            }
            Event::BibRemoved(binding) => What::BibRemoved(binding),
            Event::SessionCreated(binding, remote) => What::SessionCreated(binding, remote),
            Event::SessionRemoved(binding, remote, counts) => {
                What::SessionRemoved(binding, remote, counts)
            }
            Event::BlockAssigned(prefix, block) => What::BlockAssigned(subscriber(prefix)?, block),
            Event::BlockReleased(prefix, block) => What::BlockReleased(subscriber(prefix)?, block),
            Event::Probe { .. } => return None,
        };
        let now = SystemTime::now();
        Some(Record { time: now.checked_sub(ago).unwrap_or(now), what })
    }
}
