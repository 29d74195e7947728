//! The counters of the servers beside the translators: each stands here once, with its words in `fordway stats` and its
//! place among the metrics.

use std::fmt::Write;

use fordway_counters::{cluster, dstm};
use fordway_nameserver as dns64;
use fordway_proxy as proxy;
use fordway_relay as trt;
use fordway_resolver as upstream;
use fordway_router as router;

use crate::output::group;
use crate::output::{FAINT, WARNING};

/// How `fordway stats` shows a counter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// In any case.
    Always,
    /// If it is not 0.
    Seldom,
    /// As a warning, if it is not 0.
    Trouble,
    /// Not as a line of its own.
    Hidden,
}

/// A counter of `S`.
pub struct Counter<S> {
    show: Show,
    /// What it is called in `fordway stats`.
    label: &'static str,
    /// What it means.
    pub(super) meaning: &'static str,
    pub(super) pick: fn(&S) -> u64,
    /// Name of the metric; `none`: there is none.
    pub(super) family: &'static str,
    /// Value of the metric's last label, which tells the counter from others of the family; empty: it is the only one.
    pub(super) word: &'static str,
}

/// Lines: how it is shown, its label, its meaning, where its value is, the metric and the value of its last label.
macro_rules! counters {
    ($($show:ident $label:literal $meaning:literal $pick:expr => $family:ident $($word:literal)?;)*) => {
        &[$(Counter {
            show: Show::$show,
            label: $label,
            meaning: $meaning,
            pick: $pick,
            family: stringify!($family),
            word: concat!("" $(, $word)?),
        }),*]
    };
}

/// Of DNS64.
pub const DNS64: &[Counter<dns64::Stats>] = counters! {
    Hidden "" "" |it| it.udp_queries => dns64_queries "udp";
    Hidden "" "" |it| it.tcp_queries => dns64_queries "tcp";
    Seldom "by TLS" "queries by TLS (RFC 7858)" |it| it.tls_queries => dns64_queries "tls";
    Seldom "by HTTPS" "queries by HTTPS (RFC 8484)" |it| it.https_queries => dns64_queries "https";
    Trouble "HTTP refused" "no query, or no answer: an HTTP status other than 200" |it| it.https_refused => dns64_https_refused;
    Trouble "TLS failed" "handshakes that failed" |it| it.handshakes_failed => dns64_connections "handshake_failed";
    Seldom "certificate" "taken into use when it changed" |it| it.certificates_reloaded => dns64_certificate "reloaded";
    Trouble "certificate failed" "changed, and of no use" |it| it.certificates_failed => dns64_certificate "failed";
    Always "cached" "answered from what was answered before" |it| it.cached => dns64_answered "cached";
    Always "synthesised" "with addresses made here" |it| it.synthesised => dns64_answered "synthesised";
    Always "forwarded" "as an upstream server answered" |it| it.forwarded => dns64_answered "forwarded";
    Always "local" "without an upstream server" |it| it.local => dns64_answered "local";
    Always "errors" "errors found here" |it| it.errors => dns64_answered "error";
    Hidden "" "" |it| it.cookies_valid => dns64_cookies "valid";
    Hidden "" "only the client's" |it| it.cookies_first => dns64_cookies "first";
    Hidden "" "too old, or not of this server" |it| it.cookies_invalid => dns64_cookies "invalid";
    Trouble "blocked" "private addresses of public names removed" |it| it.blocked => dns64_blocked;
    Seldom "renewed" "asked for again before they expired" |it| it.renewed => dns64_renewed;
    Trouble "stale" "lookups answered with what had expired" |it| it.upstream.stale => dns64_lookup_results "stale";
    Trouble "refused" "of clients that may not ask" |it| it.refused => dns64_answered "refused";
    Trouble "limited" "over the rate, sent to TCP" |it| it.limited => dns64_answered "limited";
    Trouble "overload" "too many under way" |it| it.overload => dns64_answered "overload";
    Trouble "truncated" "cut to fit UDP" |it| it.truncated => dns64_truncated;
    Trouble "malformed" "no query, no answer" |it| it.dropped.malformed => dns64_dropped "malformed";
    Trouble "dropped, limited" "over the rate, no answer" |it| it.dropped.limited => dns64_dropped "limited";
    Trouble "dropped, refused" "may not ask, no answer" |it| it.dropped.refused => dns64_dropped "refused";
    Trouble "unsent" "the system did not take the answer" |it| it.dropped.unsent => dns64_dropped "unsent";
    Hidden "" "" |it| it.connections_accepted => dns64_connections "accepted";
    Trouble "TCP refused" "too many connections, or may not ask" |it| it.connections_refused => dns64_connections "refused";
    Trouble "TCP unread" "closed: asked on, and took no answers" |it| it.connections_unread => dns64_connections "unread";
    Hidden "" "" |it| it.answers.noerror => dns64_answers "NOERROR";
    Hidden "" "" |it| it.answers.formerr => dns64_answers "FORMERR";
    Hidden "" "" |it| it.answers.servfail => dns64_answers "SERVFAIL";
    Hidden "" "" |it| it.answers.nxdomain => dns64_answers "NXDOMAIN";
    Hidden "" "" |it| it.answers.notimp => dns64_answers "NOTIMP";
    Hidden "" "" |it| it.answers.refused => dns64_answers "REFUSED";
    Hidden "" "" |it| it.answers.other => dns64_answers "other";
    Hidden "" "" |it| it.connections => dns64_open_connections;
    Hidden "" "" |it| it.waiting => dns64_waiting;
    Hidden "" "" |it| it.upstream.lookups => dns64_lookups;
    Hidden "" "answered from the cache" |it| it.upstream.cache_hits => dns64_lookup_results "cached";
    Hidden "" "answered with another client's lookup" |it| it.upstream.merged => dns64_lookup_results "merged";
    Hidden "" "refused: too many under way" |it| it.upstream.busy => dns64_lookup_results "busy";
    Hidden "" "" |it| it.upstream.failures => dns64_lookup_results "failed";
    Hidden "" "" |it| it.upstream.secure => dns64_validated "secure";
    Hidden "" "" |it| it.upstream.insecure => dns64_validated "insecure";
    Hidden "" "" |it| it.upstream.bogus => dns64_validated "bogus";
    Hidden "" "" |it| it.upstream.cache_evictions => dns64_cache_evictions;
    Hidden "" "" |it| it.upstream.cache_entries => dns64_cache_entries;
    Hidden "" "" |it| it.upstream.cache_octets => dns64_cache_octets;
};

/// Of each server that is asked.
pub const UPSTREAM: &[Counter<upstream::ServerStats>] = counters! {
    Hidden "" "" |it| it.queries => dns64_upstream_queries;
    Hidden "" "" |it| it.answers => dns64_upstream_results "answer";
    Hidden "" "" |it| it.errors => dns64_upstream_results "error";
    Hidden "" "" |it| it.timeouts => dns64_upstream_results "timeout";
    Hidden "" "" |it| it.unreachable => dns64_upstream_results "unreachable";
    Hidden "" "did not answer the question" |it| it.mismatches => dns64_upstream_results "mismatch";
    Hidden "" "the name in other case" |it| it.case_mismatches => dns64_upstream_results "case_mismatch";
    Hidden "" "" |it| it.malformed => dns64_upstream_results "malformed";
    Hidden "" "" |it| it.truncated => dns64_upstream_results "truncated";
    Hidden "" "" |it| it.spoof_suspicions => dns64_upstream_results "spoof_suspicion";
    Hidden "" "" |it| it.alive.into() => dns64_upstream_alive;
    Hidden "" "" |it| it.rtt_us.into() => dns64_upstream_rtt_microseconds;
};

/// Of router advertisements, by device.
pub const ROUTER: &[Counter<router::DeviceStats>] = counters! {
    Hidden "" "" |it| it.sent => router_advertisements_sent "all";
    Hidden "" "that asked" |it| it.sent_unicast => router_advertisements_sent "host";
    Always "solicitations" "hosts that asked" |it| it.solicitations => router_solicitations;
    Seldom "DHCPv6" "INFORMATION-REQUESTs answered" |it| it.dhcpv6_replies => router_dhcpv6_replies;
    Trouble "unsent" "the system did not take them" |it| it.unsent => router_unsent;
    Hidden "" "" |it| it.advertisements => router_advertisements_heard;
    Trouble "inconsistent" "of other routers that say otherwise" |it| it.inconsistent => router_inconsistent;
    Trouble "invalid" "messages that are not valid" |it| it.invalid => router_invalid;
    Trouble "DHCPv6 ignored" "not valid, or for another server" |it| it.dhcpv6_ignored => router_dhcpv6_ignored;
    Trouble "DHCPv6 limited" "over the rate" |it| it.dhcpv6_limited => router_dhcpv6_limited;
    Hidden "" "" |it| (it.state == router::State::Advertising).into() => router_advertising;
};

/// Of relays.
pub const TRT: &[Counter<trt::Stats>] = counters! {
    Always "connections" "accepted from clients" |it| it.tcp_accepted => trt_connections "accepted";
    Always "established" "taken by servers" |it| it.tcp_established => trt_connections "established";
    Always "open" "now" |it| it.connections => trt_open_connections;
    Always "finished" "ended by both sides" |it| it.tcp_finished => trt_ended "finished";
    Always "octets up" "of TCP to servers" |it| it.tcp_octets_up => trt_tcp_octets "up";
    Always "octets down" "of TCP to clients" |it| it.tcp_octets_down => trt_tcp_octets "down";
    Always "UDP sessions" "opened" |it| it.udp_opened => trt_udp_sessions "opened";
    Always "UDP open" "now" |it| it.sessions => trt_open_sessions;
    Always "datagrams up" "to servers" |it| it.udp_datagrams_up => trt_udp_datagrams "up";
    Always "datagrams down" "to clients" |it| it.udp_datagrams_down => trt_udp_datagrams "down";
    Always "UDP octets up" "in these to servers" |it| it.udp_octets_up => trt_udp_octets "up";
    Always "UDP octets down" "in these to clients" |it| it.udp_octets_down => trt_udp_octets "down";
    Trouble "reset by client" "or the client was lost" |it| it.tcp_reset_client => trt_ended "reset_client";
    Trouble "reset by server" "or the server was lost" |it| it.tcp_reset_server => trt_ended "reset_server";
    Trouble "abandoned" "reset by clients before servers answered" |it| it.tcp_abandoned => trt_failed "abandoned";
    Trouble "idle" "without octets for too long" |it| it.tcp_idle => trt_ended "idle";
    Trouble "client refused" "may not use the relay" |it| it.refused_client => trt_refused "client";
    Trouble "no address" "to no address of a server" |it| it.refused_address => trt_refused "address";
    Trouble "private" "to addresses that are not global" |it| it.refused_private => trt_refused "private";
    Trouble "own address" "to this host" |it| it.refused_own => trt_refused "own";
    Trouble "listed" "to destinations in refuse4" |it| it.refused_listed => trt_refused "listed";
    Trouble "over the limit" "beyond the number of all" |it| it.limited_total => trt_refused "limit";
    Trouble "client's limit" "beyond the number of one client network" |it| it.limited_client => trt_refused "client_limit";
    Trouble "server refused" "connection refused" |it| it.failed_refused => trt_failed "refused";
    Trouble "unreachable" "servers that can't be reached" |it| it.failed_unreachable => trt_failed "unreachable";
    Trouble "timeout" "servers that did not answer" |it| it.failed_timeout => trt_failed "timeout";
    Trouble "no resources" "no port, descriptor or memory left here" |it| it.failed_resources => trt_failed "resources";
    Trouble "other failures" "of connections to servers" |it| it.failed_other => trt_failed "other";
    Trouble "unsolicited" "datagrams without a session" |it| it.udp_unsolicited => trt_udp_datagrams "unsolicited";
    Trouble "unsent" "datagrams that the system did not take" |it| it.udp_unsent => trt_udp_datagrams "unsent";
    Trouble "urgent octets" "of TCP" |it| it.tcp_urgent => trt_urgent_octets;
    Trouble "sessions ended" "without datagrams for too long" |it| it.udp_idle => trt_udp_sessions "idle";
    Trouble "too big" "datagrams for the way to a server" |it| it.udp_too_big => trt_udp_datagrams "too_big";
    Trouble "ICMPv6 errors" "sent to clients" |it| it.icmp_sent => trt_icmp_errors "sent";
    Trouble "ICMPv6 unsent" "beyond the rate" |it| it.icmp_limited => trt_icmp_errors "limited";
};

/// Of proxies.
pub const PROXY: &[Counter<proxy::Stats>] = counters! {
    Hidden "" "" |it| it.requests_http1 => proxy_requests "1";
    Hidden "" "" |it| it.requests_http2 => proxy_requests "2";
    Always "2xx" "successful" |it| it.responses[0] => proxy_responses "2xx";
    Always "3xx" "redirections" |it| it.responses[1] => proxy_responses "3xx";
    Always "4xx" "errors of clients" |it| it.responses[2] => proxy_responses "4xx";
    Always "5xx" "errors of servers" |it| it.responses[3] => proxy_responses "5xx";
    Always "tunnels" "by CONNECT or Upgrade" |it| it.tunnels => proxy_tunnels;
    Always "connections" "of clients" |it| it.connections_accepted => proxy_connections "accepted";
    Always "to IPv4" "connections to servers" |it| it.servers_v4 => proxy_server_connections "ipv4";
    Always "to IPv6" "connections to servers" |it| it.servers_v6 => proxy_server_connections "ipv6";
    Always "reused" "requests on connections that had served before" |it| it.reused => proxy_reused;
    Always "octets in" "from clients to servers" |it| it.octets_in => proxy_octets "in";
    Always "octets out" "from servers to clients" |it| it.octets_out => proxy_octets "out";
    Trouble "fell back" "to the other family (RFC 8305)" |it| it.fell_back => proxy_fallbacks;
    Trouble "retried" "on another connection" |it| it.retried => proxy_retries;
    Trouble "abandoned" "the client had gone before there was an answer" |it| it.abandoned => proxy_abandoned;
    Trouble "too many" "connections of clients" |it| it.connections_refused => proxy_connections "refused";
    Trouble "no PROXY header" "from proxies in front" |it| it.proxy_headers_refused => proxy_headers_refused;
    Trouble "certificates changed" "read again" |it| it.certificates_reloaded => proxy_certificates "reloaded";
    Trouble "certificates of no use" "changed files; those before stay" |it| it.certificates_failed => proxy_certificates "failed";
    Trouble "log lines lost" "the access log was held up" |it| it.log_lost => proxy_log_lost;
    Hidden "" "" |it| it.connections => proxy_open_connections;
    Hidden "" "" |it| it.tunnels_open => proxy_open_tunnels;
    Hidden "" "" |it| it.idle => proxy_idle_connections;
};

/// Of the server of DSTM.
pub const DSTM_SERVER: &[Counter<dstm::ServerStats>] = counters! {
    Always "leases" "now" |it| it.leases => dstm_leases;
    Hidden "" "" |it| it.free => dstm_free;
    Hidden "" "" |it| it.tep_up.into() => dstm_tep_up;
    Always "granted" "leases" |it| it.granted => dstm_server_events "granted";
    Always "renewed" "leases" |it| it.renewed => dstm_server_events "renewed";
    Always "released" "given back by clients" |it| it.released => dstm_server_events "released";
    Always "expired" "not renewed" |it| it.expired => dstm_server_events "expired";
    Hidden "" "addresses offered" |it| it.offers => dstm_server_events "offers";
    Trouble "exhausted" "refused: all addresses are lent" |it| it.exhausted => dstm_server_events "exhausted";
    Trouble "refused" "for other reasons" |it| it.refused => dstm_server_events "refused";
    Trouble "failed" "the disk or the tunnel end point did not do its part" |it| it.failed => dstm_server_events "failed";
    Hidden "" "requests that came again" |it| it.repeated => dstm_server_events "repeated";
    Trouble "unknown" "clients that no key is known for" |it| it.unknown => dstm_server_events "unknown";
    Trouble "forged" "messages with a wrong authenticator: is the key the same?" |it| it.forged => dstm_server_events "forged";
    Trouble "malformed" "messages" |it| it.malformed => dstm_server_events "malformed";
    Trouble "unexpected" "messages of kinds that clients don't send" |it| it.unexpected => dstm_server_events "unexpected";
    Trouble "stale" "messages with numbers of the past" |it| it.stale => dstm_server_events "stale";
    Trouble "limited" "more messages than a client may send" |it| it.limited => dstm_server_events "limited";
    Trouble "unsent" "answers" |it| it.unsent => dstm_server_events "unsent";
};

/// Of the tunnel endpoint of DSTM.
pub const DSTM_TEP: &[Counter<dstm::TepStats>] = counters! {
    Always "bindings" "now" |it| it.bindings => dstm_tep_bindings;
    Always "sessions" "of the server" |it| it.sessions => dstm_tep_events "session";
    Always "bound" "bindings that came" |it| it.bound => dstm_tep_events "bound";
    Always "unbound" "bindings that the server took back" |it| it.unbound => dstm_tep_events "unbound";
    Always "expired" "bindings that ended by themselves" |it| it.expired => dstm_tep_events "expired";
    Trouble "full" "bindings for which there was no room" |it| it.full => dstm_tep_events "full";
    Trouble "failed" "bindings that were not taken" |it| it.failed => dstm_tep_events "failed";
    Trouble "forged" "messages with a wrong authenticator: is the key the same?" |it| it.forged => dstm_tep_events "forged";
    Trouble "malformed" "messages" |it| it.malformed => dstm_tep_events "malformed";
    Trouble "stale" "messages of the past" |it| it.stale => dstm_tep_events "stale";
};

/// Of hosts of DSTM.
pub const DSTM_CLIENT: &[Counter<dstm::ClientStats>] = counters! {
    Hidden "" "" |it| it.v4.is_some().into() => dstm_client_bound;
    Always "granted" "leases" |it| it.granted => dstm_client_leases "granted";
    Always "renewed" "leases" |it| it.renewed => dstm_client_leases "renewed";
    Always "released" "given back" |it| it.released => dstm_client_leases "released";
    Always "waited" "packets, for an address" |it| it.waited => dstm_client_packets "waited";
    Always "sent" "of these when there was one" |it| it.sent => dstm_client_packets "sent";
    Trouble "dropped" "packets that have waited in vain" |it| it.dropped => dstm_client_packets "dropped";
    Trouble "refusals" "requests that were refused" |it| it.refusals => dstm_client_leases "refused";
    Trouble "lost" "leases that ended early or were not renewed" |it| it.lost => dstm_client_leases "lost";
    Trouble "foreign" "messages that were not the server's" |it| it.foreign => none;
};

/// Of the cluster's shards.
pub const CLUSTER_SHARDS: &[Counter<cluster::ShardStats>] = counters! {
    Always "taken over" "shards, from an ended lease" |it| it.taken_over => cluster_shard_events "taken_over";
    Always "begun" "shards, by planned moves" |it| it.begun => cluster_shard_events "begun";
    Always "stopped" "shards, given away or lost" |it| it.stopped => cluster_shard_events "stopped";
    Trouble "emptied" "shards that began without their sessions" |it| it.emptied => cluster_shard_events "emptied";
};

/// Of the cluster's store.
pub const CLUSTER_STORE: &[Counter<cluster::StoreStats>] = counters! {
    Always "written" "values that the store has taken" |it| it.written => cluster_store_events "written";
    Seldom "refused" "writes on a value that is no longer the last" |it| it.refused => cluster_store_events "refused";
    Seldom "overruled" "values that don't count, since another came first" |it| it.overruled => cluster_store_events "overruled";
    Trouble "unknown" "writes whose outcome is not known" |it| it.unknown => cluster_store_events "unknown";
    Trouble "unsent" "writes and reads, as no server was connected" |it| it.dropped => cluster_store_events "dropped";
    Trouble "unreadable" "values of another version" |it| it.malformed => cluster_store_events "malformed";
    Hidden "" "watches begun" |it| it.watches => cluster_store_events "watches";
};

/// Of the channels between gateways.
pub const CLUSTER_CHANNEL: &[Counter<cluster::ChannelStats>] = counters! {
    Always "sent" "messages to other gateways" |it| it.sent => cluster_channel_events "sent";
    Always "received" "messages of other gateways" |it| it.received => cluster_channel_events "received";
    Hidden "" "connections made" |it| it.connected => cluster_channel_events "connected";
    Trouble "lost" "messages to gateways that did not take them" |it| it.dropped => cluster_channel_events "dropped";
    Trouble "malformed" "messages of another version" |it| it.malformed => cluster_channel_events "malformed";
    Trouble "strangers" "connections without a gateway's certificate" |it| it.refused => cluster_channel_events "refused";
};

/// The counters of `it` as text with styles, a line each.
pub fn table<S>(counters: &[Counter<S>], it: &S) -> String {
    let mut text = String::new();
    for Counter { show, label, meaning, pick, .. } in counters {
        match (show, pick(it)) {
            (Show::Hidden, _) | (Show::Seldom | Show::Trouble, 0) => {}
            (Show::Always | Show::Seldom, count) => row(&mut text, label, count, meaning),
            (Show::Trouble, count) => warn(&mut text, label, count, meaning),
        }
    }
    text
}

/// The counters of a family, each with its value of the last label.
pub fn words<S>(
    counters: &[Counter<S>],
    family: &str,
    it: &S,
) -> impl Iterator<Item = (&'static str, u64)> {
    let family = counters.iter().filter(move |counter| counter.family == family);
    family.map(move |counter| (counter.word, (counter.pick)(it)))
}

/// A counter as a line.
pub fn row(text: &mut String, label: &str, count: u64, meaning: &str) {
    let _ = writeln!(text, "  {label:<18}{:>16}  {FAINT}{meaning}{FAINT:#}", group(count));
}

/// A counter of something that should not happen.
pub fn warn(text: &mut String, label: &str, count: u64, meaning: &str) {
    let count = group(count);
    let _ =
        writeln!(text, "  {WARNING}{label:<18}{WARNING:#}{count:>16}  {FAINT}{meaning}{FAINT:#}");
}
