//! The resolver behind a DNS64 server: its cache and its upstream servers.

use crate::counter::counters;

counters! {
    /// What a resolver has done since it was made.
    pub struct Stats;
    /// What the resolver counts.
    pub struct ResolverCounters of SharedCounter;
    /// Lookups.
    lookups,
    /// Lookups answered from the cache.
    cache_hits,
    /// Lookups that the cache had no answer to.
    cache_misses,
    /// Lookups answered with what had expired, because servers failed or took too long.
    stale,
    /// Answers that were pushed out of the cache before they expired.
    cache_evictions: u64,
    /// Answers in the cache now.
    cache_entries: u64,
    /// Octets of answers in the cache now.
    cache_octets: u64,
    /// Lookups that waited for the answer to the same question of another lookup.
    merged,
    /// Different questions under way now.
    in_flight: u64,
    /// Lookups refused because too many questions were under way.
    busy,
    /// Questions that got no usable answer.
    failures,
    /// Answers that validation found secure.
    secure,
    /// Answers that validation found insecure.
    insecure,
    /// Answers that validation found bogus.
    bogus,
    /// By server, in the order of the settings.
    servers: Vec<ServerStats>,
}

counters! {
    /// What one server has done.
    pub struct ServerStats;
    /// What is counted by server.
    pub struct ServerCounters of SharedCounter;
    /// The server, as in the configuration.
    server: String,
    /// Whether it has answered lately; a server that has not is only probed.
    alive: bool,
    /// Questions sent to it, by any transport.
    queries,
    /// Usable answers.
    answers,
    /// SERVFAIL, REFUSED and other answers that led to the next server.
    errors,
    /// Tries that ended without an answer.
    timeouts,
    /// Tries that could not be made: refused, unreachable, TLS.
    unreachable,
    /// Datagrams that did not answer the query: another identifier, another question.
    mismatches,
    /// Answers whose question came in another case than it was sent in.
    case_mismatches,
    /// Datagrams that were no DNS message.
    malformed,
    /// Questions asked again by TCP because so many datagrams did not answer them.
    spoof_suspicions,
    /// Truncated answers, asked for again by TCP.
    truncated,
    /// Connections made: TCP, TLS, HTTPS.
    connections,
    /// Smoothed round-trip time in microseconds; 0 if it has never answered.
    rtt_us: u32,
}
