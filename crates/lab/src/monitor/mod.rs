//! Recordings of a gateway at work: processor, memory and round trips, every few seconds while somebody's traffic runs.
//!
//! | module | concern |
//! |---|---|
//! | `folder` | the files of a recording |
//! | `system`, `snmp`, `echo` | where samples come from |
//! | `record` | the recording itself |
//! | `stage` | the lab's own network and traffic, to record |
//! | `compare` | what two recordings differ in |
//! | `page` | how they are shown |

pub(crate) mod compare;
pub(crate) mod echo;
pub(crate) mod folder;
pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod snmp;
pub(crate) mod stage;
pub(crate) mod system;

use std::collections::BTreeMap;

use crate::error::Result;

/// Share of all processors that is busy, per cent.
pub(crate) const CPU: &str = "cpu_busy";
/// Time of the watched processes, per cent of one processor.
pub(crate) const PROCESS: &str = "process_cpu";
/// Memory that nobody uses, per cent.
pub(crate) const FREE: &str = "memory_free";
/// Memory that programs could have, per cent.
pub(crate) const AVAILABLE: &str = "memory_available";
/// What an interface receives, Mbit/s.
pub(crate) const IN: &str = "in";
/// What an interface sends, Mbit/s.
pub(crate) const OUT: &str = "out";
/// Pages that came through the lab's own network, per second.
pub(crate) const PAGES: &str = "pages";
/// Round trip to a target, whose name follows, ms.
pub(crate) const RTT: &str = "rtt ";

/// What one look at a source gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// Value by series.
    pub(crate) values: BTreeMap<String, f64>,
    /// Series without a value, and why.
    pub(crate) missing: BTreeMap<String, String>,
}

impl Reading {
    fn put(&mut self, series: &str, value: std::result::Result<f64, String>) {
        match value {
            Ok(value) => drop(self.values.insert(series.into(), value)),
            Err(why) => drop(self.missing.insert(series.into(), why)),
        }
    }
}

/// Where samples come from.
pub(crate) trait Source {
    /// Asks for what can't wait for others, and returns at once.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// What there is to say at this moment; rates are those since the last call.
    fn read(&mut self) -> Result<Reading>;
}

/// A series for people: label and unit.
pub(crate) fn label(series: &str) -> (String, &'static str) {
    match series {
        CPU => ("Processors busy".into(), "%"),
        PROCESS => ("The processes watched".into(), "% of one processor"),
        FREE => ("Memory free".into(), "%"),
        AVAILABLE => ("Memory available".into(), "%"),
        IN => ("Received".into(), "Mbit/s"),
        OUT => ("Sent".into(), "Mbit/s"),
        PAGES => ("Pages fetched".into(), "per s"),
        other => match other.strip_prefix(RTT) {
            Some(target) => (format!("Round trip to {target}"), "ms"),
            None => (other.into(), ""),
        },
    }
}

/// Whether more of a series is better; `None`: it is neither.
pub(crate) fn higher_is_better(series: &str) -> Option<bool> {
    match series {
        CPU | PROCESS => Some(false),
        FREE | AVAILABLE | PAGES => Some(true),
        other => other.starts_with(RTT).then_some(false),
    }
}

/// The rate of a counter that may have started over, per second.
fn rate(before: u64, now: u64, seconds: f64) -> std::result::Result<f64, String> {
    if now < before {
        return Err("the counter has started over".into());
    }
    if seconds <= 0.0 {
        return Err("no time has passed".into());
    }
    Ok((now - before) as f64 / seconds)
}
