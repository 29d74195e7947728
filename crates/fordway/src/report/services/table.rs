//! The counters of the servers beside the translators, as text with styles.

use std::fmt::Write;

use fordway_daemon::metrics::counters::{DNS64, ROUTER, row, table, words};
use fordway_daemon::output::group;
use fordway_daemon::output::{STRONG, WARNING};
use fordway_nameserver as dns64;
use fordway_router as router;

/// What the DNS64 server has counted.
pub(crate) fn dns64_table(stats: &dns64::Stats) -> String {
    let mut text = String::new();
    let by = [stats.udp_queries, stats.tcp_queries, stats.tls_queries, stats.https_queries];
    let queries = by.into_iter().fold(0, u64::wrapping_add);
    row(&mut text, "queries", queries, &format!("{} of them by TCP", group(stats.tcp_queries)));
    text.push_str(&table(DNS64, stats));
    let codes: Vec<String> = words(DNS64, "dns64_answers", stats)
        .filter(|(_, count)| *count > 0)
        .map(|(code, count)| format!("{code} {}", group(count)))
        .collect();
    if !codes.is_empty() {
        let _ = writeln!(text, "  {STRONG}answers{STRONG:#}  {}", codes.join(", "));
    }
    upstream(&mut text, &stats.upstream);
    text
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
    text.push_str(&table(ROUTER, stats));
    text
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
