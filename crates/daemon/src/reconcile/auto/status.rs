//! What is known of an automatic CLAT.

use std::time::{Duration, Instant};

use fordway_dns64::discovery::{Prefix, Source};

use super::Auto;
use super::decide::Decision;
use fordway_control::{AutoStatus, FoundStatus};

impl Auto {
    /// What it does, in a word.
    pub(crate) fn state(&self) -> &'static str {
        match &self.decision {
            Some(Decision::Active(_)) if self.applied.is_some() => "active",
            Some(Decision::Aside(_)) => "aside",
            _ => "waiting",
        }
    }

    /// What it does, and why.
    pub(crate) fn status(&self) -> AutoStatus {
        let now = Instant::now();
        let reason = match &self.decision {
            Some(Decision::Active(_)) => None,
            Some(Decision::Waiting(wait)) => Some(wait.to_string()),
            Some(Decision::Aside(native)) => {
                Some(format!("there is native IPv4 on {}", native.device))
            }
            None => Some("nothing is known of the network yet".to_owned()),
        };
        let (error, retry) = self.attempt.failure().unzip();
        let applied = self.applied.as_ref();
        AutoStatus {
            name: self.name().to_owned(),
            state: self.state().to_owned(),
            reason,
            since_seconds: now.saturating_duration_since(self.since).as_secs(),
            changes: self.changes,
            pref64: applied.map(|applied| applied.pref64.to_string()),
            uplink: applied.map(|applied| applied.uplink.name.clone()),
            v6: applied.map(|applied| applied.v6),
            duplicates: self.check.describe(applied).map(str::to_owned),
            prefixes: self.found.prefixes.iter().map(found_status).collect(),
            left: self.left.is_some(),
            error: error.map(str::to_owned),
            retry_seconds: retry
                .flatten()
                .map(|retry| retry.saturating_duration_since(now).as_secs_f64().ceil() as u64),
        }
    }
}

fn found_status(prefix: &Prefix) -> FoundStatus {
    let left = |until: Duration| until.saturating_sub(boot_time()).as_secs();
    FoundStatus {
        prefix: prefix.pool6.to_string(),
        source: match prefix.source {
            Source::Configured => "configured",
            Source::RouterAdvertisement { .. } => "router advertisement",
            Source::Dns { .. } => "dns",
        }
        .to_owned(),
        from: told_by(prefix),
        valid_seconds: prefix.until.map(left),
        stale: prefix.stale,
    }
}

/// Who has told a prefix.
pub(super) fn told_by(prefix: &Prefix) -> String {
    match &prefix.device {
        Some(device) => format!("{} on {}", prefix.source, device.name),
        None => prefix.source.to_string(),
    }
}

/// The clock of the discovery.
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
