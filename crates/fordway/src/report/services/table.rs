//! The counters of the servers beside the translators, as text with styles.

use std::fmt::Write;

use fordway_nameserver as dns64;
use fordway_router as router;

use crate::output::{FAINT, STRONG, WARNING};
use crate::report::table::group;

/// What the DNS64 server has counted.
pub(crate) fn dns64_table(stats: &dns64::Stats) -> String {
    let mut text = String::new();
    let queries = stats.udp_queries.wrapping_add(stats.tcp_queries);
    row(&mut text, "queries", queries, &format!("{} of them by TCP", group(stats.tcp_queries)));
    let origins = [
        ("cached", stats.cached, "answered from what was answered before"),
        ("synthesised", stats.synthesised, "with addresses made here"),
        ("forwarded", stats.forwarded, "as an upstream server answered"),
        ("local", stats.local, "without an upstream server"),
        ("errors", stats.errors, "errors found here"),
    ];
    for (label, count, what) in origins {
        row(&mut text, label, count, what);
    }
    let trouble = [
        ("refused", stats.refused, "of clients that may not ask"),
        ("limited", stats.limited, "over the rate, sent to TCP"),
        ("overload", stats.overload, "too many under way"),
        ("truncated", stats.truncated, "cut to fit UDP"),
        ("malformed", stats.dropped.malformed, "no query, no answer"),
        ("dropped, limited", stats.dropped.limited, "over the rate, no answer"),
        ("dropped, refused", stats.dropped.refused, "may not ask, no answer"),
        ("unsent", stats.dropped.unsent, "the system did not take the answer"),
        ("TCP refused", stats.connections_refused, "too many connections, or may not ask"),
        ("TCP unread", stats.connections_unread, "closed: asked on, and took no answers"),
    ];
    for (label, count, what) in trouble.into_iter().filter(|(_, count, _)| *count > 0) {
        warn(&mut text, label, count, what);
    }
    let codes: Vec<String> = rcodes(stats)
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(code, count)| format!("{code} {}", group(count)))
        .collect();
    if !codes.is_empty() {
        let _ = writeln!(text, "  {STRONG}answers{STRONG:#}  {}", codes.join(", "));
    }
    upstream(&mut text, &stats.upstream);
    text
}

/// Answers by the name of their response code.
pub(crate) fn rcodes(stats: &dns64::Stats) -> [(&'static str, u64); 7] {
    let answers = &stats.answers;
    [
        ("NOERROR", answers.noerror),
        ("FORMERR", answers.formerr),
        ("SERVFAIL", answers.servfail),
        ("NXDOMAIN", answers.nxdomain),
        ("NOTIMP", answers.notimp),
        ("REFUSED", answers.refused),
        ("other", answers.other),
    ]
}

fn upstream(text: &mut String, stats: &fordway_resolver::Stats) {
    let _ = writeln!(
        text,
        "  {STRONG}upstream{STRONG:#} {} lookups, {} from the cache ({} answers, {} KiB)",
        group(stats.lookups),
        group(stats.cache_hits),
        group(stats.cache_entries),
        group(stats.cache_octets.div_ceil(1024))
    );
    for server in &stats.servers {
        let _ = write!(
            text,
            "    {:<40} {:>12} queries {:>12} answers",
            server.server,
            group(server.queries),
            group(server.answers)
        );
        let trouble = [
            ("errors", server.errors),
            ("timeouts", server.timeouts),
            ("unreachable", server.unreachable),
            ("mismatches", server.mismatches.wrapping_add(server.case_mismatches)),
            ("malformed", server.malformed),
        ];
        for (label, count) in trouble.into_iter().filter(|(_, count)| *count > 0) {
            let _ = write!(text, ", {WARNING}{} {label}{WARNING:#}", group(count));
        }
        text.push('\n');
    }
}

/// What the router advertisements on a device have counted.
pub(crate) fn advertise_table(stats: &router::DeviceStats) -> String {
    let mut text = String::new();
    let sent = stats.sent.wrapping_add(stats.sent_unicast);
    let alone = format!("{} of them to one host", group(stats.sent_unicast));
    row(&mut text, "sent", sent, &alone);
    row(&mut text, "solicitations", stats.solicitations, "hosts that asked");
    if stats.dhcpv6_replies > 0 {
        row(&mut text, "DHCPv6", stats.dhcpv6_replies, "INFORMATION-REQUESTs answered");
    }
    let trouble = [
        ("unsent", stats.unsent, "the system did not take them"),
        ("inconsistent", stats.inconsistent, "of other routers that say otherwise"),
        ("invalid", stats.invalid, "messages that are not valid"),
        ("DHCPv6 ignored", stats.dhcpv6_ignored, "not valid, or for another server"),
        ("DHCPv6 limited", stats.dhcpv6_limited, "over the rate"),
    ];
    for (label, count, what) in trouble.into_iter().filter(|(_, count, _)| *count > 0) {
        warn(&mut text, label, count, what);
    }
    text
}

pub(crate) fn row(text: &mut String, label: &str, count: u64, what: &str) {
    let _ = writeln!(text, "  {label:<18}{:>16}  {FAINT}{what}{FAINT:#}", group(count));
}

pub(crate) fn warn(text: &mut String, label: &str, count: u64, what: &str) {
    let count = group(count);
    let _ = writeln!(text, "  {WARNING}{label:<18}{WARNING:#}{count:>16}  {FAINT}{what}{FAINT:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_that_there_was_is_shown() {
        let mut stats = dns64::Stats { udp_queries: 1200, tcp_queries: 34, ..Default::default() };
        let quiet = dns64_table(&stats);
        assert!(quiet.contains("1,234") && quiet.contains("34 of them by TCP"), "{quiet}");
        assert!(!quiet.contains("overload"), "{quiet}");
        stats.overload = 7;
        assert!(dns64_table(&stats).contains("too many under way"));
        let device = router::DeviceStats { inconsistent: 2, ..Default::default() };
        assert!(advertise_table(&device).contains("say otherwise"));
    }
}
