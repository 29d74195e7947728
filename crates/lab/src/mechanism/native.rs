//! Plain forwarding by the kernel: the baseline.

use fordway_data::spec::Kind;

use super::{Availability, Context, Deployed, Mechanism};
use crate::error::Result;

/// Nothing but the topology itself.
pub(super) struct Native;

impl Mechanism for Native {
    fn availability(&self, _kind: Kind) -> Availability {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Availability::Ready { version: format!("Linux {}", release.trim()), program: None }
    }

    fn deploy(&self, _context: Context<'_>) -> Result<Deployed> {
        Ok(Deployed::default())
    }
}
