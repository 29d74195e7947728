//! The tables of a running engine, for those who change them beside packets: replication.

use std::time::Duration;

use fordway_xlat::nat64::{Nat64, Sweeper};

use crate::clock::monotonic;
use crate::core::Core;
use crate::current::Current;
use crate::quiescence::{Grace, Threads};
use crate::sweep::Shared;

/// An engine's tables, and the one sweeper that removes their entries. It does not keep the engine running.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(crate) core: Current,
    pub(crate) sweeper: Shared,
    pub(crate) threads: Threads,
}

impl Tables {
    /// Those of something that no engine runs.
    #[must_use]
    pub fn idle(core: Core) -> Tables {
        Tables { core: Current::new(core), sweeper: Shared::new(), threads: Threads::default() }
    }

    /// Does something with the tables as they are now, between two chunks of the sweeper, which waits meanwhile. `None`: the
    /// engine runs something that has no tables.
    pub fn with<T>(&self, f: impl FnOnce(&Nat64, &mut Sweeper, Duration) -> T) -> Option<T> {
        let core = self.core.get();
        let nat64 = core.tables()?;
        let mut sweeper = self.sweeper.lock();
        Some(f(nat64, &mut sweeper, monotonic()))
    }

    /// Begins a grace period: it is over when every packet has been sent or dropped whose translation had begun before.
    #[must_use]
    pub fn grace(&self) -> Grace {
        self.threads.grace()
    }
}
