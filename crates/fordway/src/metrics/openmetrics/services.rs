//! What only the servers beside the translators have: `fordway_dns64_*` and `fordway_router_*`.

use fordway_nameserver as dns64;
use fordway_resolver as upstream;
use fordway_router::{DeviceStats, State};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::nat64::{gauge, set};
use super::{Encoded, counter, put};
use crate::report::{Stats, rcodes};

pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    if let Some(dns64) = &stats.dns64 {
        queries(dns64, encoder)?;
        caches(dns64, encoder)?;
        servers(&dns64.upstream, encoder)?;
        let (name, help) = ("dns64_answer_seconds", "Time from a query to its answer");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        latency(&mut family, &dns64.latency)?;
    }
    if let Some(router) = &stats.router {
        devices(&router.devices, encoder)?;
    }
    Ok(())
}

/// A counter with one label.
fn by(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, label): (&str, &str, &str),
    counts: &[(&str, u64)],
) -> Encoded {
    let mut family = counter(encoder, name, help)?;
    for (word, count) in counts {
        put(&mut family, &[(label, *word)], *count)?;
    }
    Ok(())
}

fn queries(stats: &dns64::Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    by(
        encoder,
        ("dns64_queries", "Messages received, by transport", "transport"),
        &[("udp", stats.udp_queries), ("tcp", stats.tcp_queries)],
    )?;
    let codes = ("dns64_answers", "Answers, by response code", "rcode");
    by(encoder, codes, &rcodes(stats))?;
    by(
        encoder,
        ("dns64_answered", "Queries, by what became of them", "how"),
        &[
            ("cached", stats.cached),
            ("synthesised", stats.synthesised),
            ("forwarded", stats.forwarded),
            ("local", stats.local),
            ("error", stats.errors),
            ("refused", stats.refused),
            ("limited", stats.limited),
            ("overload", stats.overload),
        ],
    )?;
    by(
        encoder,
        ("dns64_dropped", "Messages that got no answer, by reason", "reason"),
        &[
            ("malformed", stats.dropped.malformed),
            ("limited", stats.dropped.limited),
            ("refused", stats.dropped.refused),
            ("unsent", stats.dropped.unsent),
        ],
    )?;
    plain(encoder, "dns64_truncated", "Answers by UDP that were cut", stats.truncated)?;
    by(
        encoder,
        ("dns64_connections", "TCP connections, by what became of them", "how"),
        &[
            ("accepted", stats.connections_accepted),
            ("refused", stats.connections_refused),
            ("unread", stats.connections_unread),
        ],
    )?;
    now(encoder, "dns64_open_connections", "TCP connections that are open", stats.connections)?;
    now(encoder, "dns64_waiting", "Queries that wait for an upstream server", stats.waiting)
}

fn caches(stats: &dns64::Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let stats = &stats.upstream;
    by(
        encoder,
        ("dns64_lookup_results", "Of these, what became of some", "how"),
        &[
            ("cached", stats.cache_hits),
            ("merged", stats.merged),
            ("busy", stats.busy),
            ("failed", stats.failures),
        ],
    )?;
    plain(encoder, "dns64_lookups", "Questions for upstream servers", stats.lookups)?;
    by(
        encoder,
        ("dns64_validated", "Answers that were validated, by result", "security"),
        &[("secure", stats.secure), ("insecure", stats.insecure), ("bogus", stats.bogus)],
    )?;
    let help = "Answers pushed out of the cache before their time";
    plain(encoder, "dns64_cache_evictions", help, stats.cache_evictions)?;
    now(encoder, "dns64_cache_entries", "Answers in the cache", stats.cache_entries)?;
    now(encoder, "dns64_cache_octets", "Octets of answers in the cache", stats.cache_octets)
}

fn servers(stats: &upstream::Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Pick = fn(&upstream::ServerStats) -> u64;
    let kinds: [(&str, Pick); 9] = [
        ("answer", |it| it.answers),
        ("error", |it| it.errors),
        ("timeout", |it| it.timeouts),
        ("unreachable", |it| it.unreachable),
        ("mismatch", |it| it.mismatches),
        ("case_mismatch", |it| it.case_mismatches),
        ("malformed", |it| it.malformed),
        ("truncated", |it| it.truncated),
        ("spoof_suspicion", |it| it.spoof_suspicions),
    ];
    let mut family = counter(encoder, "dns64_upstream_queries", "Questions sent, by server")?;
    for server in &stats.servers {
        put(&mut family, &[("server", server.server.as_str())], server.queries)?;
    }
    let help = "What came of questions, by server";
    let mut family = counter(encoder, "dns64_upstream_results", help)?;
    for server in &stats.servers {
        for (result, pick) in kinds {
            let labels = [("server", server.server.as_str()), ("result", result)];
            put(&mut family, &labels, pick(server))?;
        }
    }
    let help = "1: the server answers";
    let mut family = gauge(encoder, "dns64_upstream_alive", help)?;
    for server in &stats.servers {
        set(&mut family, &[("server", server.server.as_str())], u64::from(server.alive))?;
    }
    let help = "Round-trip time of a server, in microseconds; 0: it has never answered";
    let mut family = gauge(encoder, "dns64_upstream_rtt_microseconds", help)?;
    for server in &stats.servers {
        set(&mut family, &[("server", server.server.as_str())], server.rtt_us.into())?;
    }
    Ok(())
}

/// `counts[i]`: answers within 2^i microseconds, but not within half of that; the last of 24 counts all the rest.
fn latency(family: &mut MetricEncoder<'_>, counts: &[u64]) -> Encoded {
    let count = |class: usize| counts.get(class).copied().unwrap_or(0);
    let micros = |class: usize| (1u64 << class) as f64 / 1e6;
    let mut buckets: Vec<(f64, u64)> =
        (0..LAST_CLASS).map(|class| (micros(class), count(class))).collect();
    buckets.push((f64::INFINITY, count(LAST_CLASS)));
    // The server keeps no sum: the middle of a class stands for its answers.
    let sum = (0..=LAST_CLASS).map(|class| 0.75 * micros(class) * count(class) as f64).sum();
    let all = counts.iter().fold(0, |all: u64, count| all.wrapping_add(*count));
    family.encode_histogram::<NoLabelSet>(sum, all, &buckets, None)
}

/// The class of the server's times that has no upper bound.
const LAST_CLASS: usize = 23;

fn devices(devices: &[DeviceStats], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Pick = fn(&DeviceStats) -> u64;
    let mut family = counter(encoder, "router_advertisements_sent", "Router advertisements sent")?;
    for device in devices {
        for (to, count) in [("all", device.sent), ("host", device.sent_unicast)] {
            put(&mut family, &[("device", device.device.as_str()), ("to", to)], count)?;
        }
    }
    let families: [(&str, &str, Pick); 8] = [
        ("router_unsent", "Advertisements that could not be sent", |it| it.unsent),
        ("router_solicitations", "Valid router solicitations", |it| it.solicitations),
        ("router_advertisements_heard", "Advertisements of other routers", |it| it.advertisements),
        ("router_inconsistent", "Of these, those that contradict ours", |it| it.inconsistent),
        ("router_invalid", "Messages that are not valid", |it| it.invalid),
        ("router_dhcpv6_replies", "INFORMATION-REQUESTs that were answered", |it| {
            it.dhcpv6_replies
        }),
        ("router_dhcpv6_ignored", "DHCPv6 messages that were ignored", |it| it.dhcpv6_ignored),
        ("router_dhcpv6_limited", "INFORMATION-REQUESTs over the rate", |it| it.dhcpv6_limited),
    ];
    for (name, help, pick) in families {
        let mut family = counter(encoder, name, help)?;
        for device in devices {
            put(&mut family, &[("device", device.device.as_str())], pick(device))?;
        }
    }
    let mut family = gauge(encoder, "router_advertising", "1: the device advertises")?;
    for device in devices {
        let on = u64::from(device.state == State::Advertising);
        set(&mut family, &[("device", device.device.as_str())], on)?;
    }
    Ok(())
}

/// A counter without a label.
fn plain(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> Encoded {
    let metric = ConstCounter::new(count);
    metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// A gauge without a label.
pub(super) fn now(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Encoded {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    let metric = ConstGauge::new(value);
    metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}
