//! What a server counts.

use std::ops::Deref;

use fordway_counters::Counter;
use fordway_counters::dns64::{Counted, DropCounters, RcodeCounters, Stats};
use fordway_dns64::Kind;

use super::cookie::Shown;

/// The counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counted: Counted,
    answers: RcodeCounters,
    pub(crate) dropped: DropCounters,
    latency: [Counter; LATENCIES],
}

impl Deref for Counters {
    type Target = Counted;

    fn deref(&self) -> &Counted {
        &self.counted
    }
}

/// How many values `latency` has: the last but one ends at 2^22 microseconds, 4 s.
const LATENCIES: usize = 24;

impl Counters {
    /// An answer with this code goes out.
    pub(super) fn answer(&self, rcode: u16) {
        let RcodeCounters { noerror, formerr, servfail, nxdomain, notimp, refused, other } =
            &self.answers;
        let named = [noerror, formerr, servfail, nxdomain, notimp, refused];
        named.get(usize::from(rcode)).copied().unwrap_or(other).add(1);
    }

    /// An answer was made, from where `kind` says.
    pub(super) fn made(&self, kind: Kind) {
        let counter = match kind {
            Kind::Upstream => &self.forwarded,
            Kind::Synthetic => &self.synthesised,
            Kind::Local => &self.local,
            Kind::Error => &self.errors,
        };
        counter.add(1);
    }

    /// A query came with a cookie.
    pub(super) fn cookie(&self, shown: Shown) {
        let counter = match shown {
            Shown::Valid => &self.cookies_valid,
            Shown::First => &self.cookies_first,
            Shown::Invalid => &self.cookies_invalid,
        };
        counter.add(1);
    }

    /// Counts answers by the time that they took.
    pub(super) fn took(&self, micros: u64, answers: u64) {
        let power = (u64::BITS - micros.saturating_sub(1).leading_zeros()) as usize;
        self.latency[power.min(LATENCIES - 1)].add(answers);
    }

    /// Adds the numbers of this thread.
    pub(super) fn add_to(&self, stats: &mut Stats) {
        self.counted.add_to(stats);
        self.answers.add_to(&mut stats.answers);
        self.dropped.add_to(&mut stats.dropped);
        let used =
            self.latency.iter().rposition(|counter| counter.get() > 0).map_or(0, |at| at + 1);
        stats.latency.resize(stats.latency.len().max(used), 0);
        for (sum, counter) in stats.latency.iter_mut().zip(&self.latency) {
            *sum += counter.get();
        }
    }
}

#[cfg(test)]
mod tests {
    use fordway_counters::dns64::Rcodes;

    use super::*;

    #[test]
    fn latency_by_powers_of_two() {
        let counters = Counters::default();
        for (micros, power) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 22, 22)] {
            counters.took(micros, 1);
            assert!(counters.latency[power].get() > 0, "{micros}");
        }
        counters.took((1 << 22) + 1, 1);
        counters.took(u64::MAX, 1);
        assert_eq!(counters.latency[LATENCIES - 1].get(), 2);
    }

    #[test]
    fn threads_are_summed_up() {
        let (one, other) = (Counters::default(), Counters::default());
        one.answer(0);
        one.answer(3);
        one.answer(16);
        other.answer(3);
        other.made(Kind::Local);
        one.took(1, 5);
        other.took(7, 2);
        let mut stats = Stats::default();
        one.add_to(&mut stats);
        other.add_to(&mut stats);
        assert_eq!(
            stats.answers,
            Rcodes { noerror: 1, nxdomain: 2, other: 1, ..Rcodes::default() }
        );
        assert_eq!(stats.local, 1);
        assert_eq!(stats.latency, [5, 0, 0, 2]);
    }
}
