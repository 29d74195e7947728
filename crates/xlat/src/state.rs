//! What changes while packets flow, apart from tables.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::identification::{Ends, Identifications};
use crate::passage::Entered;
use crate::syns::Syns;

/// What changes while packets flow; one per queue.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) identification: u16,
    identifications: Option<Arc<Identifications>>,
    pub(crate) fragment: u32,
    pub(crate) limiter: RateLimiter,
    pub(crate) suppressed: u64,
    pub(crate) made: bool,
    /// Buffer for what ALGs write.
    pub(crate) octets: Vec<u8>,
    /// Unsolicited SYNs (stateful translation).
    pub syns: Syns,
    /// The time of CLOCK_BOOTTIME at which the next packet's translation begins. Only where there are
    /// [`Shards`](crate::nat64::Shards) it has to be set before each packet; without, every lease has ended.
    pub boottime: Duration,
    /// Of the [enablings](crate::nat64::Shards::enablings) of shards, how many count: packets of a shard that was enabled
    /// later are for another gateway, as before.
    pub enablings: u64,
    /// What the last packet was translated by, where there are shards.
    pub(crate) entered: Entered,
}

impl State {
    /// A state whose first IPv4 identification is `identification`: a random number, different for each queue (RFC 7739
    /// gives the reasons).
    pub fn new(identification: u16) -> State {
        State {
            identification,
            identifications: None,
            fragment: u32::from(identification) << 16,
            limiter: RateLimiter::default(),
            suppressed: 0,
            made: false,
            octets: Vec::new(),
            syns: Syns::default(),
            boottime: Duration::MAX,
            enablings: u64::MAX,
            entered: Entered::default(),
        }
    }

    /// Shares the identifications of IPv4 packets that may be fragmented with other states. Without, all count up from
    /// the state's own.
    #[must_use]
    pub fn with_identifications(self, shared: Arc<Identifications>) -> State {
        State { identifications: Some(shared), ..self }
    }

    /// Lets the identifications of IPv6 fragments begin with a random number, different for each queue.
    #[must_use]
    pub fn with_fragments_from(self, fragment: u32) -> State {
        State { fragment, ..self }
    }

    /// The next identification of IPv6 fragments; `packets` of them are used up.
    pub fn next_fragment(&mut self, packets: usize) -> u32 {
        let next = self.fragment;
        self.fragment = next.wrapping_add(packets as u32);
        next
    }

    /// The next identification of a packet of these ends that may be fragmented; `segments` of them are used up.
    pub(crate) fn next_identification_of(&mut self, ends: Ends, segments: usize) -> u16 {
        match &self.identifications {
            Some(shared) => shared.next(ends, segments),
            None => self.next_identification(segments),
        }
    }

    /// The next identification of a packet with DF, which may repeat; `segments` of them are used up.
    pub(crate) fn next_identification(&mut self, segments: usize) -> u16 {
        let next = self.identification;
        self.identification = next.wrapping_add(segments as u16);
        next
    }

    /// Whether a packet since the last call has made a session.
    pub fn take_made(&mut self) -> bool {
        core::mem::take(&mut self.made)
    }

    /// The number of ICMP errors that were due and not sent since the last call: rate limit, switched off, or no source
    /// configured.
    pub fn take_suppressed(&mut self) -> u64 {
        core::mem::take(&mut self.suppressed)
    }
}

/// A token bucket. Tokens are counted in billionths, so that time in nanoseconds fills it exactly.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateLimiter {
    /// Tokens left, and when they were counted; `None`: full, never used.
    level: Option<(u128, Duration)>,
}

impl RateLimiter {
    /// Takes one token. `false`: none left.
    pub(crate) fn take(&mut self, now: Duration, per_second: u32, burst: u32) -> bool {
        const TOKEN: u128 = 1_000_000_000;
        let full = u128::from(burst) * TOKEN;
        let level = match self.level {
            None => full,
            Some((level, then)) => {
                let gained = now.saturating_sub(then).as_nanos() * u128::from(per_second);
                full.min(level + gained)
            }
        };
        let taken = level >= TOKEN;
        self.level = Some((if taken { level - TOKEN } else { level }, now));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiter_gives_a_burst_then_its_rate() {
        let mut limiter = RateLimiter::default();
        let at = Duration::from_millis;
        let burst = (0..20).filter(|_| limiter.take(at(5), 100, 10)).count();
        assert_eq!(burst, 10);
        assert!(!limiter.take(at(14), 100, 10));
        assert!(limiter.take(at(15), 100, 10));
        assert!(!limiter.take(at(15), 100, 10));
        let later = (0..20).filter(|_| limiter.take(at(100_000), 100, 10)).count();
        assert_eq!(later, 10);
    }
}
