//! The entry: a packet comes in, its IP version decides the direction.

use core::time::Duration;

use crate::config::{Config, ConfigError};
use crate::counters::Direction;
use crate::packet::Packet;
use crate::reply::{self, RateLimiter};
use crate::stateless::Stateless;
use crate::trace::{Step, Trace};
use crate::v4_to_v6::{self, Pass};
use crate::v6_to_v4;
use crate::verdict::{DropReason, Verdict};

/// A stateless translator (RFC 7915): immutable, shared by all queues.
#[derive(Debug)]
pub struct Translator {
    config: Config,
}

/// What changes while packets flow; one per queue.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) identification: u16,
    pub(crate) limiter: RateLimiter,
    pub(crate) suppressed: u64,
}

impl State {
    /// A state whose first IPv4 identification is `identification`: a random number, different for
    /// each queue (RFC 7739 gives the reasons).
    pub fn new(identification: u16) -> State {
        State { identification, limiter: RateLimiter::default(), suppressed: 0 }
    }

    /// The next identification; `segments` of them are used up.
    pub(crate) fn next_identification(&mut self, segments: usize) -> u16 {
        let next = self.identification;
        self.identification = next.wrapping_add(segments as u16);
        next
    }

    /// The number of ICMP errors that were due and not sent since the last call: rate limit, switched
    /// off, or no source configured.
    pub fn take_suppressed(&mut self) -> u64 {
        core::mem::take(&mut self.suppressed)
    }
}

impl Translator {
    /// A translator of this configuration.
    pub fn new(config: Config) -> Result<Translator, ConfigError> {
        config.check()?;
        Ok(Translator { config })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Translates a packet in place.
    ///
    /// `now` is a monotone time (its origin is free); it feeds the rate limiter. `trace` takes the
    /// steps: `&mut ()` takes none, a `Vec<Step>` all of them.
    pub fn translate(
        &self,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        let config = &self.config;
        let mapper = &mut Stateless { config };
        let direction = Direction::of(packet.bytes());
        if let Some(direction) = direction {
            trace.step(Step::Direction(direction));
        }
        let result = match direction {
            Some(Direction::V4ToV6) => {
                v4_to_v6::translate(config, mapper, packet, Pass::First, trace)
            }
            Some(Direction::V6ToV4) => v6_to_v4::translate(config, mapper, packet, state, trace),
            None if packet.len() == 0 => Err(DropReason::Truncated.into()),
            None => Err(DropReason::BadVersion.into()),
        };
        let verdict = match result {
            Ok(verdict) => verdict,
            Err(stop) if config.pass_unmatched && stop.is_foreign() => Verdict::Pass,
            Err(stop) => {
                let verdict = reply::answer(config, packet, stop, now, state, trace);
                // A hairpinned packet stops as IPv4 (RFC 7757 section 4.2.2); its sender is an IPv6
                // host, so the answer goes the same way back.
                if matches!(verdict, Verdict::Reply(_))
                    && Direction::of(packet.bytes()) != direction
                {
                    match v4_to_v6::translate(config, mapper, packet, Pass::Hairpin, trace) {
                        Ok(_) => reply::retold(packet, verdict),
                        Err(_) => Verdict::Drop(stop.reason),
                    }
                } else {
                    verdict
                }
            }
        };
        trace.step(Step::Verdict(verdict));
        verdict
    }
}
