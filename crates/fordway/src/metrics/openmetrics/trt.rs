//! What only transport relays have: `fordway_trt_*`, labelled with the relay's name.

use fordway_relay as trt;
use prometheus_client::encoding::DescriptorEncoder;

use super::nat64::{gauge, set};
use super::{Encoded, counter, put};
use crate::report::{Stats, TrtStats};

type Pick = fn(&trt::Stats) -> u64;

/// A family: its name, what it means, its label if it has one, and what is counted by the label's value.
type Family = (&'static str, &'static str, &'static str, &'static [(&'static str, Pick)]);

const COUNTERS: [Family; 9] = [
    (
        "trt_connections",
        "TCP connections of clients, by how far they came",
        "step",
        &[("accepted", |it| it.tcp_accepted), ("established", |it| it.tcp_established)],
    ),
    (
        "trt_ended",
        "TCP connections that were relayed, by how they ended",
        "how",
        &[
            ("finished", |it| it.tcp_finished),
            ("reset_client", |it| it.tcp_reset_client),
            ("reset_server", |it| it.tcp_reset_server),
            ("idle", |it| it.tcp_idle),
        ],
    ),
    (
        "trt_refused",
        "Connections and datagrams that were refused, by reason",
        "reason",
        &[
            ("client", |it| it.refused_client),
            ("address", |it| it.refused_address),
            ("private", |it| it.refused_private),
            ("own", |it| it.refused_own),
            ("listed", |it| it.refused_listed),
            ("limit", |it| it.limited_total),
            ("client_limit", |it| it.limited_client),
        ],
    ),
    (
        "trt_failed",
        "Connections to servers that did not come about, by reason",
        "reason",
        &[
            ("refused", |it| it.failed_refused),
            ("unreachable", |it| it.failed_unreachable),
            ("timeout", |it| it.failed_timeout),
            ("resources", |it| it.failed_resources),
            ("abandoned", |it| it.tcp_abandoned),
            ("other", |it| it.failed_other),
        ],
    ),
    (
        "trt_tcp_octets",
        "Octets of TCP, by direction",
        "direction",
        &[("up", |it| it.tcp_octets_up), ("down", |it| it.tcp_octets_down)],
    ),
    (
        "trt_udp_sessions",
        "UDP sessions, by what became of them",
        "how",
        &[("opened", |it| it.udp_opened), ("idle", |it| it.udp_idle)],
    ),
    (
        "trt_udp_datagrams",
        "Datagrams, by what became of them",
        "how",
        &[
            ("up", |it| it.udp_datagrams_up),
            ("down", |it| it.udp_datagrams_down),
            ("unsolicited", |it| it.udp_unsolicited),
            ("unsent", |it| it.udp_unsent),
            ("too_big", |it| it.udp_too_big),
        ],
    ),
    (
        "trt_udp_octets",
        "Octets in datagrams, by direction",
        "direction",
        &[("up", |it| it.udp_octets_up), ("down", |it| it.udp_octets_down)],
    ),
    (
        "trt_icmp_errors",
        "ICMPv6 errors for clients, by what became of them",
        "how",
        &[("sent", |it| it.icmp_sent), ("limited", |it| it.icmp_limited)],
    ),
];

pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let relays = stats.trt.as_slice();
    if relays.is_empty() {
        return Ok(());
    }
    for (name, help, label, picks) in COUNTERS {
        let mut family = counter(encoder, name, help)?;
        for relay in relays {
            for (word, pick) in picks {
                let labels = [("relay", relay.name.as_str()), (label, *word)];
                put(&mut family, &labels, pick(&relay.counters))?;
            }
        }
    }
    let mut family = counter(encoder, "trt_urgent_octets", "Urgent octets of TCP")?;
    for relay in relays {
        put(&mut family, &[("relay", relay.name.as_str())], relay.counters.tcp_urgent)?;
    }
    type Open = (&'static str, &'static str, fn(&TrtStats) -> u64);
    let open: [Open; 2] = [
        ("trt_open_connections", "TCP connections that are open", |it| it.counters.connections),
        ("trt_open_sessions", "UDP sessions that are open", |it| it.counters.sessions),
    ];
    for (name, help, pick) in open {
        let mut family = gauge(encoder, name, help)?;
        for relay in relays {
            set(&mut family, &[("relay", relay.name.as_str())], pick(relay))?;
        }
    }
    Ok(())
}
