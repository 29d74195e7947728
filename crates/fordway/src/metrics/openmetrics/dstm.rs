//! What only DSTM has: `fordway_dstm_*`.

use fordway_dstmd::{AgentStats, ClientStats, Stats as ServerStats};
use prometheus_client::encoding::DescriptorEncoder;

use super::nat64::{gauge, set};
use super::{Encoded, counter, put};
use crate::report::Stats;

/// A word, and what is counted under it.
type Kind<S> = (&'static str, fn(&S) -> u64);

pub(super) fn encode(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    if let Some(server) = &stats.dstm_server {
        encode_server(server, encoder)?;
    }
    if let Some(tep) = &stats.dstm_tep {
        encode_tep(tep, encoder)?;
    }
    if stats.dstm_clients.is_empty() {
        return Ok(());
    }
    let mut family = gauge(encoder, "dstm_client_bound", "1: the client has an address")?;
    for client in &stats.dstm_clients {
        let bound = u64::from(client.stats.v4.is_some());
        set(&mut family, &[("client", client.name.as_str())], bound)?;
    }
    let families: [(&str, &str, &str, &[Kind<ClientStats>]); 2] = [
        (
            "dstm_client_leases",
            "Leases of clients, by what became of them",
            "what",
            &[
                ("granted", |it| it.granted),
                ("renewed", |it| it.renewed),
                ("released", |it| it.released),
                ("lost", |it| it.lost),
                ("refused", |it| it.refusals),
            ],
        ),
        (
            "dstm_client_packets",
            "Packets that have waited for an address, by what became of them",
            "what",
            &[("waited", |it| it.waited), ("sent", |it| it.sent), ("dropped", |it| it.dropped)],
        ),
    ];
    for (name, help, label, kinds) in families {
        let mut family = counter(encoder, name, help)?;
        for client in &stats.dstm_clients {
            for (word, pick) in kinds {
                let labels = [("client", client.name.as_str()), (label, word)];
                put(&mut family, &labels, pick(&client.stats))?;
            }
        }
    }
    Ok(())
}

fn encode_server(server: &ServerStats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let now: [(&str, &str, u64); 3] = [
        ("dstm_leases", "Leases at this moment", server.leases),
        ("dstm_free", "Addresses, or port sets, that can be lent", server.free),
        ("dstm_tep_up", "1: the tunnel end point has been told everything", server.tep_up.into()),
    ];
    for (name, help, value) in now {
        let mut family = gauge(encoder, name, help)?;
        set(&mut family, &[], value)?;
    }
    let kinds: [Kind<ServerStats>; 16] = [
        ("granted", |it| it.granted),
        ("renewed", |it| it.renewed),
        ("released", |it| it.released),
        ("expired", |it| it.expired),
        ("offers", |it| it.offers),
        ("exhausted", |it| it.exhausted),
        ("refused", |it| it.refused),
        ("failed", |it| it.failed),
        ("repeated", |it| it.repeated),
        ("stale", |it| it.stale),
        ("malformed", |it| it.malformed),
        ("unknown", |it| it.unknown),
        ("forged", |it| it.forged),
        ("unexpected", |it| it.unexpected),
        ("limited", |it| it.limited),
        ("unsent", |it| it.unsent),
    ];
    let mut family = counter(encoder, "dstm_server_events", "What the server has done")?;
    for (event, pick) in kinds {
        put(&mut family, &[("event", event)], pick(server))?;
    }
    Ok(())
}

fn encode_tep(tep: &AgentStats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let mut family = gauge(encoder, "dstm_tep_bindings", "Bindings that a server has told")?;
    set(&mut family, &[], tep.bindings)?;
    let kinds: [Kind<AgentStats>; 9] = [
        ("session", |it| it.sessions),
        ("bound", |it| it.bound),
        ("unbound", |it| it.unbound),
        ("expired", |it| it.expired),
        ("full", |it| it.full),
        ("failed", |it| it.failed),
        ("malformed", |it| it.malformed),
        ("forged", |it| it.forged),
        ("stale", |it| it.stale),
    ];
    let mut family = counter(encoder, "dstm_tep_events", "What a server has told")?;
    for (event, pick) in kinds {
        put(&mut family, &[("event", event)], pick(tep))?;
    }
    Ok(())
}
