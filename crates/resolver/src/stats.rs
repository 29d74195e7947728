//! Numbers about upstream servers and the cache.

use serde::{Deserialize, Serialize};

use super::forwarder::Forwarder;
/// What a resolver has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Lookups.
    pub lookups: u64,
    /// Lookups answered from the cache.
    pub cache_hits: u64,
    /// Lookups that the cache had no answer to.
    pub cache_misses: u64,
    /// Answers that were pushed out of the cache before they expired.
    pub cache_evictions: u64,
    /// Answers in the cache now.
    pub cache_entries: u64,
    /// Octets of answers in the cache now.
    pub cache_octets: u64,
    /// Lookups that waited for the answer to somebody else's same question.
    pub merged: u64,
    /// Different questions under way now.
    pub in_flight: u64,
    /// Lookups refused because too many questions were under way.
    pub busy: u64,
    /// Questions that got no answer of use.
    pub failures: u64,
    /// Answers that validation found secure.
    pub secure: u64,
    /// Answers that validation found insecure.
    pub insecure: u64,
    /// Answers that validation found bogus.
    pub bogus: u64,
    /// By server, in the order of the settings.
    pub servers: Vec<ServerStats>,
}

/// What one server has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// The server, as in the configuration.
    pub server: String,
    /// Whether it has answered of late; a server that has not is only probed.
    pub alive: bool,
    /// Questions sent to it, by any transport.
    pub queries: u64,
    /// Answers of use.
    pub answers: u64,
    /// SERVFAIL, REFUSED and other answers that led to the next server.
    pub errors: u64,
    /// Tries that ended without an answer.
    pub timeouts: u64,
    /// Tries that could not be made: refused, unreachable, TLS.
    pub unreachable: u64,
    /// Datagrams that did not answer the question: another identifier, another question.
    pub mismatches: u64,
    /// Answers whose question came in another case than it was sent in.
    pub case_mismatches: u64,
    /// Datagrams that were no DNS message.
    pub malformed: u64,
    /// Questions asked again by TCP because so many datagrams did not answer them.
    pub spoof_suspicions: u64,
    /// Truncated answers, asked for again by TCP.
    pub truncated: u64,
    /// Connections made: TCP, TLS, HTTPS.
    pub connections: u64,
    /// Smoothed round-trip time in microseconds; 0 if it has never answered.
    pub rtt_us: u32,
}

impl Forwarder {
    /// The numbers of this moment.
    pub(super) fn stats(&self) -> Stats {
        let Self { cache, flights, counters, racers } = self;
        let lookups = counters.lookups.get();
        let cache_hits = counters.cache_hits.get();
        Stats {
            lookups,
            cache_hits,
            cache_misses: counters.cache_misses.get(),
            cache_evictions: cache.evictions(),
            cache_entries: cache.len(),
            cache_octets: cache.octets(),
            merged: counters.merged.get(),
            in_flight: flights.len() as u64,
            busy: counters.busy.get(),
            failures: counters.failures.get(),
            secure: counters.secure.get(),
            insecure: counters.insecure.get(),
            bogus: counters.bogus.get(),
            servers: racers.peers().iter().map(|peer| peer.stats()).collect(),
        }
    }
}
