//! The translator that runs, and how the queues' threads follow a change.
//!
//! A thread looks at a number before each burst of packets, and takes the lock only when the number has
//! changed: a change costs the packets nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fordway_xlat::Translator;

/// The translator of an engine.
#[derive(Debug)]
pub(crate) struct Current(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Grows with each change.
    generation: AtomicU64,
    translator: Mutex<Arc<Translator>>,
}

/// A thread's view of it.
#[derive(Debug)]
pub(crate) struct Follower {
    shared: Arc<Shared>,
    generation: u64,
    translator: Arc<Translator>,
}

impl Current {
    pub(crate) fn new(translator: Arc<Translator>) -> Current {
        let translator = Mutex::new(translator);
        Current(Arc::new(Shared { generation: AtomicU64::new(0), translator }))
    }

    pub(crate) fn get(&self) -> Arc<Translator> {
        self.0.read().1
    }

    pub(crate) fn set(&self, translator: Arc<Translator>) {
        let mut current = self.0.translator.lock().unwrap_or_else(PoisonError::into_inner);
        *current = translator;
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn follower(&self) -> Follower {
        let (generation, translator) = self.0.read();
        Follower { shared: Arc::clone(&self.0), generation, translator }
    }
}

impl Shared {
    /// The translator and its generation, which belong together while the lock is held.
    fn read(&self) -> (u64, Arc<Translator>) {
        let current = self.translator.lock().unwrap_or_else(PoisonError::into_inner);
        (self.generation.load(Ordering::Acquire), Arc::clone(&current))
    }
}

impl Follower {
    /// Takes up a change, if there was one.
    #[inline]
    pub(crate) fn follow(&mut self) {
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            (self.generation, self.translator) = self.shared.read();
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> &Translator {
        &self.translator
    }
}

#[cfg(test)]
mod tests {
    use fordway_xlat::Config;

    use super::*;

    fn translator(mtu6: u32) -> Arc<Translator> {
        let pool6 = vec!["2001:db8:64::/96".parse().unwrap()];
        Arc::new(Translator::new(Config { pool6, mtu6, ..Config::default() }).unwrap())
    }

    #[test]
    fn followers_see_a_change_when_they_look() {
        let current = Current::new(translator(1400));
        let mut one = current.follower();
        current.set(translator(1500));
        assert_eq!(one.get().config().mtu6, 1400);
        one.follow();
        assert_eq!(one.get().config().mtu6, 1500);
        assert_eq!(current.follower().get().config().mtu6, 1500);
        assert_eq!(current.get().config().mtu6, 1500);
    }
}
