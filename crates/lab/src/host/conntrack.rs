//! The kernel's connection tracking. Its limits hold for the whole machine; a namespace only counts its own
//! entries against them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::process::poll;

const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "/sys/module/nf_conntrack/parameters/hashsize";

/// How many connections the kernel keeps track of, and how many buckets it looks them up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Entries.
    pub(crate) max: u64,
    /// Buckets of the hash table.
    pub(crate) buckets: u64,
}

impl Limits {
    /// What is set now; `None` where the kernel tracks no connections.
    pub(crate) fn read() -> Option<Self> {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        Some(Self { max: number(MAX)?, buckets: number(BUCKETS)? })
    }

    /// Room for so many connections in as many buckets, as the kernel's own defaults have it, rounded to
    /// a power of two; never less than what is set.
    pub(crate) fn for_connections(self, connections: u64) -> Self {
        if connections <= self.max {
            return self;
        }
        let max = connections.next_power_of_two();
        Self { max, buckets: self.buckets.max(max) }
    }

    /// What a run found before it changed anything, which it may have noted, and what it has to set now for so many connections:
    /// more or less than for a load before, and never less than it found.
    pub(crate) fn of_run(noted: Option<Self>, now: Self, connections: u64) -> (Self, Self) {
        let found = noted.unwrap_or(now);
        (found, found.for_connections(connections))
    }

    /// Sets them.
    pub(crate) fn set(self) -> Result<()> {
        // A new size of the hash table sets the limit, too, on some kernels: the limit comes last.
        for (path, value) in [(BUCKETS, self.buckets), (MAX, self.max)] {
            std::fs::write(path, value.to_string()).map_err(LabError::file(path))?;
        }
        Ok(())
    }
}

/// How long the entries of a namespace that is gone may take to go, too.
const PATIENCE: Duration = Duration::from_secs(20);
/// So many more than before are other namespaces' business.
const FEW: u64 = 4096;

/// Entries that the machine has memory for at this moment, of all namespaces.
pub(crate) fn entries() -> Option<u64> {
    objects(&std::fs::read_to_string("/proc/slabinfo").ok()?)
}

/// Waits until no more entries are left than there were: the kernel takes those of a namespace that is
/// gone away in its own time, which would be the next measurement's.
pub(crate) fn settle(before: Option<u64>) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    // What is not gone by then disturbs; the trials say how busy the machine was.
    poll(PATIENCE, || entries().is_none_or(|now| now <= before + FEW).then_some(())).map(drop)
}

/// Objects in use of the kernel's cache of entries.
fn objects(slabinfo: &str) -> Option<u64> {
    let line = slabinfo.lines().find_map(|l| l.strip_prefix("nf_conntrack "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_in_use() {
        let text = "slabinfo - version: 2.1\n\
                    nf_conntrack_expect    0 0 208 19 1 : tunables 0 0 0\n\
                    nf_conntrack         144    208    256   16    1 : tunables    0    0    0\n";
        assert_eq!(objects(text), Some(144));
        assert_eq!(objects("slabinfo - version: 2.1\n"), None);
    }

    #[test]
    fn limits_are_only_raised() {
        let now = Limits { max: 262_144, buckets: 262_144 };
        assert_eq!(now.for_connections(100_000), now);
        assert_eq!(now.for_connections(1_000_000), Limits { max: 1 << 20, buckets: 1 << 20 });
        let many = Limits { max: 1000, buckets: 4_000_000 };
        assert_eq!(many.for_connections(5000), Limits { max: 8192, buckets: 4_000_000 });
    }

    #[test]
    fn each_load_has_its_own_room() {
        let found = Limits { max: 262_144, buckets: 65_536 };
        let large = Limits { max: 1 << 25, buckets: 1 << 25 };
        assert_eq!(Limits::of_run(None, found, 20_000_000), (found, large));
        let less = Limits { max: 1 << 21, buckets: 1 << 21 };
        assert_eq!(Limits::of_run(Some(found), large, 2_000_000), (found, less));
        assert_eq!(Limits::of_run(Some(found), less, 200_000), (found, found));
    }
}
