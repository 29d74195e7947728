//! What only proxies have: `fordway_proxy_*`.

use fordway_proxy::Stats;
use prometheus_client::encoding::DescriptorEncoder;

use super::nat64::{gauge, set};
use super::{Encoded, counter, put};

type Pick = fn(&Stats) -> u64;

/// A metric, its help, its label, and what is counted under each value of that.
type Labelled<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, Pick)]);

pub(super) fn encode(all: &[Stats], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    if all.is_empty() {
        return Ok(());
    }
    let labelled: [Labelled<'_>; 5] = [
        (
            "proxy_requests",
            "Requests, by the version of HTTP",
            "version",
            &[("1", |it| it.requests_http1), ("2", |it| it.requests_http2)],
        ),
        (
            "proxy_responses",
            "Final responses, by the class of their status",
            "class",
            &[
                ("2xx", |it| it.responses[0]),
                ("3xx", |it| it.responses[1]),
                ("4xx", |it| it.responses[2]),
                ("5xx", |it| it.responses[3]),
            ],
        ),
        (
            "proxy_connections",
            "Connections of clients, by what became of them",
            "how",
            &[("accepted", |it| it.connections_accepted), ("refused", |it| it.connections_refused)],
        ),
        (
            "proxy_server_connections",
            "Connections made to servers, by family",
            "family",
            &[("ipv4", |it| it.servers_v4), ("ipv6", |it| it.servers_v6)],
        ),
        (
            "proxy_octets",
            "Octets passed on, by direction",
            "direction",
            &[("in", |it| it.octets_in), ("out", |it| it.octets_out)],
        ),
    ];
    for (name, help, label, kinds) in labelled {
        let mut family = counter(encoder, name, help)?;
        for stats in all {
            for (word, pick) in kinds {
                put(&mut family, &[("proxy", stats.name.as_str()), (label, word)], pick(stats))?;
            }
        }
    }
    let plain: [(&str, &str, Pick); 6] = [
        ("proxy_tunnels", "Tunnels made by CONNECT or Upgrade", |it| it.tunnels),
        ("proxy_fallbacks", "Connections made to the second family (RFC 8305)", |it| it.fell_back),
        ("proxy_reused", "Requests on connections that had served before", |it| it.reused),
        ("proxy_retries", "Requests sent again on another connection", |it| it.retried),
        ("proxy_abandoned", "Requests whose client had gone before there was an answer", |it| {
            it.abandoned
        }),
        ("proxy_log_lost", "Lines that the access log did not take", |it| it.log_lost),
    ];
    for (name, help, pick) in plain {
        let mut family = counter(encoder, name, help)?;
        for stats in all {
            put(&mut family, &[("proxy", stats.name.as_str())], pick(stats))?;
        }
    }
    let mut family = counter(encoder, "proxy_refused", "Answers of the proxy's own, by reason")?;
    for stats in all {
        for (reason, count) in &stats.refused {
            put(
                &mut family,
                &[("proxy", stats.name.as_str()), ("reason", reason.as_str())],
                *count,
            )?;
        }
    }
    let now: [(&str, &str, Pick); 3] = [
        ("proxy_open_connections", "Connections of clients that are open", |it| it.connections),
        ("proxy_open_tunnels", "Tunnels that are open", |it| it.tunnels_open),
        ("proxy_idle_connections", "Connections to servers that wait", |it| it.idle),
    ];
    for (name, help, pick) in now {
        let mut family = gauge(encoder, name, help)?;
        for stats in all {
            set(&mut family, &[("proxy", stats.name.as_str())], pick(stats))?;
        }
    }
    let mut family =
        gauge(encoder, "proxy_server_alive", "1: requests go to this server of a site")?;
    for stats in all {
        for server in &stats.servers {
            let labels = [("proxy", stats.name.as_str()), ("server", server.server.as_str())];
            set(&mut family, &labels, u64::from(server.alive))?;
        }
    }
    Ok(())
}
