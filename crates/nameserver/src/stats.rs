//! What a server counts.

use fordway_dns64::Kind;
use fordway_serve::{Counter, counters};
use serde::{Deserialize, Serialize};

use fordway_resolver as upstream;

counters! {
    /// Numbers since the server started, of all threads together.
    ///
    /// Each answer is one of `cached`, `synthesised`, `forwarded`, `local`, `errors`, `refused`, `overload`, `limited`.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub struct Stats;
    /// The counters of one thread.
    #[derive(Debug, Default)]
    pub(crate) struct Counters of Counter {
        answers: RcodeCounters,
        pub(crate) dropped: DropCounters,
        latency: [Counter; LATENCIES],
    }
    /// Messages received by UDP.
    udp_queries,
    /// Messages received by TCP.
    tcp_queries,
    /// Answers by response code.
    answers: Rcodes,
    /// Answers from the cache of ready answers.
    cached,
    /// Answers made with synthesised records.
    synthesised,
    /// Answers made of what an upstream server said.
    forwarded,
    /// Answers made here without any upstream server: special names, reverse names.
    local,
    /// Errors found here: bad queries, no answer from upstream, an answer that does not validate.
    errors,
    /// Queries of clients that may not ask: REFUSED or, beyond a rate, no answer.
    refused,
    /// Queries by UDP over the rate of the client's network that were answered with TC, so that the client comes by
    /// TCP; those without an answer are in `dropped.limited`.
    limited,
    /// Queries that got SERVFAIL because too many were under way.
    overload,
    /// Answers by UDP that were cut (TC), without those counted in `limited`.
    truncated,
    /// Messages that got no answer, by reason.
    dropped: Dropped,
    /// TCP connections accepted.
    connections_accepted,
    /// TCP connections refused: too many, or of a client that may not ask.
    connections_refused,
    /// TCP connections closed because their client took no answers and asked for more.
    connections_unread,
    /// TCP connections open now.
    connections: u64,
    /// Queries that wait for an upstream server now.
    waiting: u64,
    /// Time from query to answer: `latency[i]` counts answers within 2^i microseconds, and not within half of that; the
    /// last one counts all the rest. Trailing zeroes are left out.
    latency: Vec<u64>,
    /// What the resolver behind it counts.
    upstream: upstream::Stats,
}

counters! {
    /// Answers by response code.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[allow(missing_docs)]
    pub struct Rcodes;
    #[derive(Debug, Default)]
    pub(crate) struct RcodeCounters of Counter {}
    noerror,
    formerr,
    servfail,
    nxdomain,
    notimp,
    refused,
    /// Any other, BADVERS among them.
    other,
}

counters! {
    /// Messages that got no answer.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Dropped;
    #[derive(Debug, Default)]
    pub(crate) struct DropCounters of Counter {}
    /// No query: too short, or a response.
    malformed,
    /// Over the rate of the client's network.
    limited,
    /// Of a client that may not ask, beyond the rate of refusals, or unreadable.
    refused,
    /// The system did not take the answer: no route, no room, or the client is gone.
    unsent,
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

    /// Counts answers by the time that they took.
    pub(super) fn took(&self, micros: u64, answers: u64) {
        let power = (u64::BITS - micros.saturating_sub(1).leading_zeros()) as usize;
        self.latency[power.min(LATENCIES - 1)].add(answers);
    }

    /// Adds the numbers of this thread.
    pub(super) fn add_to(&self, stats: &mut Stats) {
        self.add_counted_to(stats);
        self.answers.add_counted_to(&mut stats.answers);
        self.dropped.add_counted_to(&mut stats.dropped);
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
