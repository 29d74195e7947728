//! Who owns each shard, for those who hand packets over.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU64};
use std::time::Duration;

use fordway_cluster::{Member, Shard};
use fordway_serve::boottime;

/// The next owner of a shard knows it so long after this gateway at the latest, in general, unless it says before that it
/// does. If it is handed a packet before it knows, it hands it back, and the packet's hop limit ends soon.
const TOLD: Duration = Duration::from_millis(10);

/// No number of a gateway's: nobody is known to own the shard.
const NOBODY: u16 = u16::MAX;

/// Who owns each shard, as far as this gateway knows.
#[derive(Debug)]
pub struct Owners {
    me: Member,
    of: Vec<AtomicU16>,
    /// When each was this gateway's last, in ns of CLOCK_BOOTTIME; 0: never.
    left: Vec<AtomicU64>,
    /// For so long after that the next owner is supposed not to know it.
    pub(crate) told: Duration,
}

impl Owners {
    /// Of so many shards nothing is known.
    #[must_use]
    pub fn unknown(me: Member, shards: u16) -> Owners {
        let of = (0..shards).map(|_| AtomicU16::new(NOBODY)).collect();
        let left = (0..shards).map(|_| AtomicU64::new(0)).collect();
        Owners { me, of, left, told: TOLD }
    }

    /// The owner of a shard, as far as is known.
    #[must_use]
    pub fn of(&self, shard: u16) -> Option<Member> {
        let owner = self.of.get(usize::from(shard))?.load(Relaxed);
        (owner != NOBODY).then_some(Member(owner))
    }

    /// Whether packets of a shard are not to be handed over: this gateway owns it, or has owned it until a moment ago, and the
    /// next owner may not know yet.
    #[must_use]
    pub fn is_own(&self, shard: u16) -> bool {
        self.of(shard) == Some(self.me) || self.has_just_left(shard)
    }

    fn has_just_left(&self, shard: u16) -> bool {
        let left = self.left.get(usize::from(shard)).map_or(0, |left| left.load(Relaxed));
        left != 0 && boottime::now().saturating_sub(Duration::from_nanos(left)) < self.told
    }

    /// The owner of a shard knows that it is.
    pub(crate) fn know(&self, shard: Shard) {
        if let Some(left) = self.left.get(usize::from(shard.0)) {
            left.store(0, Relaxed);
        }
    }

    /// Gives whether this gateway owns it no longer, from now on.
    pub(crate) fn set(&self, shard: Shard, owner: Member) -> bool {
        let at = usize::from(shard.0);
        let (Some(known), Some(left)) = (self.of.get(at), self.left.get(at)) else { return false };
        let is_left = known.load(Relaxed) == self.me.0 && owner != self.me;
        if is_left {
            left.store(boottime::now().as_nanos() as u64, Relaxed);
        }
        known.store(owner.0, Relaxed);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_kept_for_a_moment_after_it_has_left() {
        let owners = Owners::unknown(Member(1), 2);
        assert!(owners.of(0).is_none() && !owners.is_own(0) && owners.of(2).is_none());
        assert!(!owners.set(Shard(0), Member(2)) && !owners.is_own(0));
        assert!(!owners.set(Shard(0), Member(1)) && owners.is_own(0));
        assert!(owners.set(Shard(0), Member(3)));
        assert_eq!(owners.of(0), Some(Member(3)));
        // A long time ago.
        owners.left[0].store(1, Relaxed);
        assert!(!owners.is_own(0) && !owners.set(Shard(2), Member(1)));
        owners.left[0].store(u64::MAX, Relaxed);
        assert!(owners.is_own(0));
        owners.know(Shard(0));
        assert!(!owners.is_own(0));
    }
}
