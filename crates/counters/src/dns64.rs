//! The DNS64 server.

use crate::counter::counters;
use crate::upstream;

counters! {
    /// Numbers since the server started, of all threads together.
    ///
    /// Each answer is one of `cached`, `synthesised`, `forwarded`, `local`, `errors`, `refused`, `overload`, `limited`.
    pub struct Stats;
    /// The numbers of one thread.
    pub struct Counted of Counter;
    /// Messages received by UDP.
    udp_queries,
    /// Messages received by TCP.
    tcp_queries,
    /// Messages received by TLS.
    tls_queries,
    /// Messages received by HTTPS.
    https_queries,
    /// Requests by HTTPS that were no queries, or not answered: an HTTP status other than 200.
    https_refused,
    /// TLS handshakes that failed.
    handshakes_failed,
    /// How often a changed certificate was taken into use since the last reload.
    certificates_reloaded: u64,
    /// How often a changed certificate was of no use.
    certificates_failed: u64,
    /// Queries with a server cookie of this server.
    cookies_valid,
    /// Queries with a client cookie alone.
    cookies_first,
    /// Queries with another server cookie, or one that is too old.
    cookies_invalid,
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
    /// Answers from which private addresses of public names were removed; those from the cache are not counted again.
    blocked,
    /// Answers made anew before they expired, because they were asked for.
    renewed,
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
    pub struct Rcodes;
    /// The numbers behind them, of one thread.
    pub struct RcodeCounters of Counter;
    /// NOERROR.
    noerror,
    /// FORMERR.
    formerr,
    /// SERVFAIL.
    servfail,
    /// NXDOMAIN.
    nxdomain,
    /// NOTIMP.
    notimp,
    /// REFUSED.
    refused,
    /// Any other, BADVERS among them.
    other,
}

counters! {
    /// Messages that got no answer.
    pub struct Dropped;
    /// The numbers behind them, of one thread.
    pub struct DropCounters of Counter;
    /// No query: too short, or a response.
    malformed,
    /// Over the rate of the client's network.
    limited,
    /// Of a client that may not ask, beyond the rate of refusals, or unreadable.
    refused,
    /// The system did not take the answer: no route, no room, or the client is gone.
    unsent,
}
