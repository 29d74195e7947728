//! Limits of the kernel's connection tracking. They hold for the whole machine; a namespace only counts
//! its own entries against them.

use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};

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

    /// Sets them.
    pub(crate) fn set(self) -> Result<()> {
        // A new size of the hash table sets the limit, too, on some kernels: the limit comes last.
        for (path, value) in [(BUCKETS, self.buckets), (MAX, self.max)] {
            std::fs::write(path, value.to_string()).map_err(LabError::file(path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_only_raised() {
        let now = Limits { max: 262_144, buckets: 262_144 };
        assert_eq!(now.for_connections(100_000), now);
        assert_eq!(now.for_connections(1_000_000), Limits { max: 1 << 20, buckets: 1 << 20 });
        let many = Limits { max: 1000, buckets: 4_000_000 };
        assert_eq!(many.for_connections(5000), Limits { max: 8192, buckets: 4_000_000 });
    }
}
