//! What a gateway is told, and the times of the protocol.

use crate::record::{Member, Nanos};

const MS: Nanos = 1_000_000;

/// How many votes end a lease ([`Fencing::votes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fencing {
    /// More than half of the peers': without the store, half of the peers may die.
    Majority,
    /// One: the last gateway that lives takes over. Without the store none may die.
    Any,
}

impl Fencing {
    /// Votes of `peers` peers that end a lease.
    #[must_use]
    pub fn votes(self, peers: usize) -> usize {
        match self {
            Fencing::Majority => peers / 2 + 1,
            Fencing::Any => 1,
        }
    }

    /// Promises of `peers` peers that extend a lease: so many that no votes can be collected without one of them.
    #[must_use]
    pub fn promises(self, peers: usize) -> usize {
        (peers + 1).saturating_sub(self.votes(peers))
    }
}

/// Times, in ns; equal on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long others wait before they end a lease, by their own clocks.
    pub ttl: Nanos,
    /// Between two renewals.
    pub renew: Nanos,
    /// The true rate of a clock differs from 1 by at most so many millionths.
    pub drift_ppm: u64,
    /// A program that has looked at the time has sent the packet within this time.
    pub slack: Nanos,
    /// How long promises can extend a lease beyond the last renewal.
    pub outage: Nanos,
    /// How long those wait that don't have a shard's records, before they take it.
    pub grace: Nanos,
    /// How long everybody waits before that for each living gateway that should rather take it.
    pub turn: Nanos,
    /// How long those wait at least whom a living gateway comes before, which may have the records, but not hear from the store: as
    /// long as its servers take to choose a leader.
    pub patience: Nanos,
    /// How long a standby that hears nothing more of the owner is one: longer than servers of the store take to choose a leader, shorter
    /// than ports rest before another subscriber gets them (RFC 6888 REQ-8), so that old entries contradict no new ones.
    pub memory: Nanos,
    /// How long a planned move waits for the standby, and for the store.
    pub handover: Nanos,
    /// How long a replicated record waits for others to be sent with.
    pub batch: Nanos,
    /// After what time an unacknowledged message is sent again.
    pub resend: Nanos,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            ttl: 500 * MS,
            renew: 100 * MS,
            drift_ppm: 1000,
            slack: 10 * MS,
            outage: 900_000 * MS,
            grace: 500 * MS,
            patience: 10_000 * MS,
            memory: 30_000 * MS,
            turn: 50 * MS,
            handover: 50 * MS,
            batch: 5 * MS,
            resend: 50 * MS,
        }
    }
}

impl Timing {
    /// How long a holder may use what others respect for `length`: shorter by the rates of both clocks, and by
    /// [`Timing::slack`].
    #[must_use]
    pub fn usable(&self, length: Nanos) -> Nanos {
        const MILLION: u128 = 1_000_000;
        let drift = u128::from(self.drift_ppm).min(MILLION);
        let shorter = u128::from(length) * (MILLION - drift) / (MILLION + drift);
        (shorter as Nanos).saturating_sub(self.slack)
    }

    /// How long something lasts at most by one's own clock that lasts so long by another one.
    #[must_use]
    pub fn at_most(&self, length: Nanos) -> Nanos {
        const MILLION: u128 = 1_000_000;
        let drift = u128::from(self.drift_ppm).min(MILLION - 1);
        (u128::from(length) * (MILLION + drift)).div_ceil(MILLION - drift) as Nanos
    }

    /// Why the times don't work together.
    pub fn check(&self) -> Result<(), WrongTiming> {
        if self.renew == 0 || self.usable(self.ttl) < 3 * self.renew {
            return Err(WrongTiming::Renew);
        }
        if self.outage < self.ttl {
            return Err(WrongTiming::Outage);
        }
        Ok(())
    }
}

/// Times that don't work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongTiming {
    /// A lease that two lost renewals end.
    #[error("ttl must be more than three times renew")]
    Renew,
    /// A lease that is longer than an outage.
    #[error("outage must be at least ttl")]
    Outage,
}

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Its own number.
    pub me: Member,
    /// Its host's identity, such as `/etc/machine-id`.
    pub host: u128,
    /// Drawn at random by this process.
    pub process: u64,
    /// Its share of shards, in comparison with others'; 100 is usual.
    pub weight: u32,
    /// How many shards there are.
    pub shards: u16,
    /// The cluster's key, for hashes.
    pub key: [u64; 2],
    /// Hash of what must be equal on all members; includes the fields above that are, and those below.
    pub config: u64,
    /// Votes.
    pub fencing: Fencing,
    /// Times.
    pub timing: Timing,
    /// Replicated records that wait for acknowledgement at most, for each shard.
    pub queue: usize,
    /// Shards that move away at a time.
    pub moves: usize,
    /// A fault of the protocol, which the model must find.
    #[cfg(test)]
    pub mutant: Option<crate::mutant::Mutant>,
}

impl Settings {
    /// Whether the protocol has this fault. Never, outside of tests of the model.
    #[cfg(test)]
    pub(crate) fn has(&self, mutant: crate::mutant::Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// `mutant!(settings, Name)`: whether the protocol has a fault; `false` outside of tests.
macro_rules! mutant {
    ($settings:expr, $name:ident) => {{
        #[cfg(test)]
        let has = $settings.has(crate::mutant::Mutant::$name);
        #[cfg(not(test))]
        let has = {
            let _ = &$settings;
            false
        };
        has
    }};
}
pub(crate) use mutant;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_and_promises_exclude_each_other() {
        for fencing in [Fencing::Majority, Fencing::Any] {
            for peers in 0..70 {
                assert_eq!(fencing.votes(peers) + fencing.promises(peers), peers + 1);
            }
        }
        let majority = [0, 1, 2, 3, 4].map(|peers| Fencing::Majority.promises(peers));
        assert_eq!(majority, [0, 1, 1, 2, 2]);
        assert_eq!([0, 1, 2].map(|peers| Fencing::Any.promises(peers)), [0, 1, 2]);
    }

    #[test]
    fn a_lease_is_shorter_for_its_holder() {
        let timing = Timing::default();
        // 500 ms * 0.999 / 1.001 - 10 ms
        assert_eq!(timing.usable(timing.ttl), 489_000_999);
        assert_eq!(timing.at_most(timing.ttl), 501_001_002);
        assert_eq!(timing.usable(0), 0);
        assert_eq!(timing.check(), Ok(()));
        assert_eq!(Timing { renew: 200 * MS, ..timing }.check(), Err(WrongTiming::Renew));
        assert_eq!(Timing { outage: 1, ..timing }.check(), Err(WrongTiming::Outage));
    }
}
