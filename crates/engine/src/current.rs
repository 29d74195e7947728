//! What runs, and how the queues' threads follow a change.
//!
//! A thread reads a number before each burst of packets, and takes the lock only if the number has changed, so changes
//! cost nothing per packet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::core::Core;

/// What an engine runs. Clones share it, and any thread may use them.
#[derive(Clone, Debug)]
pub struct Current(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Grows with each change.
    generation: AtomicU64,
    core: Mutex<Core>,
}

/// A thread's view of it.
#[derive(Debug)]
pub(crate) struct Follower {
    shared: Arc<Shared>,
    generation: u64,
    core: Core,
}

impl Current {
    /// One that runs `core`.
    #[must_use]
    pub fn new(core: Core) -> Current {
        let core = Mutex::new(core);
        Current(Arc::new(Shared { generation: AtomicU64::new(0), core }))
    }

    /// What runs.
    #[must_use]
    pub fn get(&self) -> Core {
        self.0.read().1
    }

    /// Lets another core run from each queue's next burst of packets on.
    pub fn set(&self, core: Core) {
        let mut current = self.0.core.lock().unwrap_or_else(PoisonError::into_inner);
        *current = core;
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn follower(&self) -> Follower {
        let (generation, core) = self.0.read();
        Follower { shared: Arc::clone(&self.0), generation, core }
    }
}

impl Shared {
    /// What runs and its generation, which belong together while the lock is held.
    fn read(&self) -> (u64, Core) {
        let current = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        (self.generation.load(Ordering::Acquire), current.clone())
    }
}

impl Follower {
    /// Follows a change, if there was one.
    #[inline]
    pub(crate) fn follow(&mut self) {
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            (self.generation, self.core) = self.shared.read();
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> &Core {
        &self.core
    }
}

#[cfg(test)]
mod tests {
    use fordway_xlat::{Config, Translator};

    use super::*;

    fn translator(mtu6: u32) -> Core {
        let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
        Arc::new(Translator::new(Config { pool6, mtu6, ..Config::default() }).unwrap()).into()
    }

    fn mtu6(core: &Core) -> u32 {
        core.translator().unwrap().config().mtu6
    }

    #[test]
    fn followers_see_a_change_when_they_look() {
        let current = Current::new(translator(1400));
        let mut one = current.follower();
        current.set(translator(1500));
        assert_eq!(mtu6(one.get()), 1400);
        one.follow();
        assert_eq!(mtu6(one.get()), 1500);
        assert_eq!(mtu6(current.follower().get()), 1500);
        assert_eq!(mtu6(&current.get()), 1500);
    }
}
