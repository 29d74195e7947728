//! What a server counts.

use fordway_dns64::Kind;
use fordway_serve::Counter;
use serde::{Deserialize, Serialize};

use fordway_resolver as upstream;

/// Numbers since the server started, of all threads together.
///
/// Each answer is one of `cached`, `synthesised`, `forwarded`, `local`, `errors`, `refused`, `overload`, `limited`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Messages received by UDP.
    pub udp_queries: u64,
    /// Messages received by TCP.
    pub tcp_queries: u64,
    /// Answers by response code.
    pub answers: Rcodes,
    /// Answers from the cache of ready answers.
    pub cached: u64,
    /// Answers made with synthesised records.
    pub synthesised: u64,
    /// Answers made of what an upstream server said.
    pub forwarded: u64,
    /// Answers made here without any upstream server: special names, reverse names.
    pub local: u64,
    /// Errors found here: bad queries, no answer from upstream, an answer that does not validate.
    pub errors: u64,
    /// Queries of clients that may not ask: REFUSED or, beyond a rate, no answer.
    pub refused: u64,
    /// Queries by UDP over the rate of the client's network that were answered with TC, so that the client comes by
    /// TCP; those without an answer are in `dropped.limited`.
    pub limited: u64,
    /// Queries that got SERVFAIL because too many were under way.
    pub overload: u64,
    /// Answers by UDP that were cut (TC), without those counted in `limited`.
    pub truncated: u64,
    /// Messages that got no answer, by reason.
    pub dropped: Dropped,
    /// TCP connections accepted.
    pub connections_accepted: u64,
    /// TCP connections refused: too many, or of a client that may not ask.
    pub connections_refused: u64,
    /// TCP connections closed because their client took no answers and asked for more.
    pub connections_unread: u64,
    /// TCP connections open now.
    pub connections: u64,
    /// Queries that wait for an upstream server now.
    pub waiting: u64,
    /// Time from query to answer: `latency[i]` counts answers within 2^i microseconds, and not within half of that; the
    /// last one counts all the rest. Trailing zeroes are left out.
    pub latency: Vec<u64>,
    /// What the resolver behind it counts.
    pub upstream: upstream::Stats,
}

/// Answers by response code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Rcodes {
    pub noerror: u64,
    pub formerr: u64,
    pub servfail: u64,
    pub nxdomain: u64,
    pub notimp: u64,
    pub refused: u64,
    /// Any other, BADVERS among them.
    pub other: u64,
}

/// Messages that got no answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// No query: too short, or a response.
    pub malformed: u64,
    /// Over the rate of the client's network.
    pub limited: u64,
    /// Of a client that may not ask, beyond the rate of refusals, or unreadable.
    pub refused: u64,
    /// The system did not take the answer: no route, no room, or the client is gone.
    pub unsent: u64,
}

/// How many values `latency` has: the last but one ends at 2^22 microseconds, 4 s.
const LATENCIES: usize = 24;

/// The counters of one thread.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) udp_queries: Counter,
    pub(super) tcp_queries: Counter,
    /// Those of [`Rcodes`], and all others.
    rcodes: [Counter; 7],
    pub(super) cached: Counter,
    synthesised: Counter,
    forwarded: Counter,
    local: Counter,
    errors: Counter,
    pub(super) refused: Counter,
    pub(super) limited: Counter,
    pub(super) overload: Counter,
    pub(super) truncated: Counter,
    pub(super) dropped_malformed: Counter,
    pub(super) dropped_limited: Counter,
    pub(super) dropped_refused: Counter,
    pub(super) dropped_unsent: Counter,
    pub(super) connections_accepted: Counter,
    pub(super) connections_refused: Counter,
    pub(super) connections_unread: Counter,
    latency: [Counter; LATENCIES],
}

impl Counters {
    /// An answer with this code goes out.
    pub(super) fn answer(&self, rcode: u16) {
        self.rcodes[usize::from(rcode).min(self.rcodes.len() - 1)].add(1);
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

    /// So many answers took so long.
    pub(super) fn took(&self, micros: u64, answers: u64) {
        let power = (u64::BITS - micros.saturating_sub(1).leading_zeros()) as usize;
        self.latency[power.min(LATENCIES - 1)].add(answers);
    }

    /// Adds the numbers of this thread.
    pub(super) fn add_to(&self, stats: &mut Stats) {
        let answers = &mut stats.answers;
        let named = [
            &mut answers.noerror,
            &mut answers.formerr,
            &mut answers.servfail,
            &mut answers.nxdomain,
            &mut answers.notimp,
            &mut answers.refused,
            &mut answers.other,
        ];
        for (sum, counter) in named.into_iter().zip(&self.rcodes) {
            *sum += counter.get();
        }
        for (sum, counter) in [
            (&mut stats.udp_queries, &self.udp_queries),
            (&mut stats.tcp_queries, &self.tcp_queries),
            (&mut stats.cached, &self.cached),
            (&mut stats.synthesised, &self.synthesised),
            (&mut stats.forwarded, &self.forwarded),
            (&mut stats.local, &self.local),
            (&mut stats.errors, &self.errors),
            (&mut stats.refused, &self.refused),
            (&mut stats.limited, &self.limited),
            (&mut stats.overload, &self.overload),
            (&mut stats.truncated, &self.truncated),
            (&mut stats.dropped.malformed, &self.dropped_malformed),
            (&mut stats.dropped.limited, &self.dropped_limited),
            (&mut stats.dropped.refused, &self.dropped_refused),
            (&mut stats.dropped.unsent, &self.dropped_unsent),
            (&mut stats.connections_accepted, &self.connections_accepted),
            (&mut stats.connections_refused, &self.connections_refused),
            (&mut stats.connections_unread, &self.connections_unread),
        ] {
            *sum += counter.get();
        }
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
