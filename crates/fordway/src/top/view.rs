//! Rates, occupancy and drops of daemons, from two samples of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fordway_control::{
    COUNTERS, Client, ClusterPhase, ClusterStats, DirectionStats, Error, RecordStats, ShardCounts,
    Stats, Status, TranslatorStats,
};
use fordway_xlat::DropReason;
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;

/// A daemon at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) status: Status,
    pub(crate) stats: Stats,
}

impl Sample {
    /// Asks the daemon behind a socket.
    fn take(socket: &Path) -> Result<Sample, Error> {
        let client = Client::new(socket);
        Ok(Sample { status: client.status()?, stats: client.stats()?, at: Instant::now() })
    }
}

/// The daemons that are looked at, each with its latest sample. A daemon that has ended stays among them.
#[derive(Default)]
pub(crate) struct Watched(BTreeMap<PathBuf, Option<Sample>>);

impl Watched {
    /// Takes a sample of each daemon behind `sockets` and of those that were seen before.
    pub(crate) fn look(&mut self, sockets: Vec<PathBuf>) -> View {
        for socket in sockets {
            self.0.entry(socket).or_default();
        }
        let daemons = self.0.iter_mut().map(|(socket, latest)| match Sample::take(socket) {
            Ok(now) => {
                let view = DaemonView::between(socket, latest.as_ref(), &now);
                *latest = Some(now);
                view
            }
            Err(error) => {
                *latest = None;
                DaemonView::unreachable(socket, error.to_string())
            }
        });
        let daemons = daemons.collect();
        let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now());
        View { time: now.to_string(), daemons }
    }
}

/// The JSON Schema of [`View`].
pub(crate) fn schema() -> Value {
    schema_for!(View).to_value()
}

/// All daemons that are looked at.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "What fordway top shows")]
pub(crate) struct View {
    /// When, as RFC 3339 has it.
    pub(crate) time: String,
    pub(crate) daemons: Vec<DaemonView>,
}

impl View {
    /// Why no daemon can be reached; `None`: one can.
    pub(crate) fn unreachable(&self) -> Option<&str> {
        let errors = self.daemons.iter().map(|daemon| daemon.error.as_deref());
        errors.reduce(Option::and).flatten()
    }
}

/// A daemon. Rates are per second; they are absent in the first sample and in the first one after a restart.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DaemonView {
    pub(crate) socket: String,
    /// Why it can't be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) config: String,
    pub(crate) uptime_seconds: u64,
    pub(crate) translators: Vec<TranslatorView>,
    pub(crate) servers: Vec<ServerView>,
    /// Its part in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<ClusterView>,
    pub(crate) occupancy: Vec<Occupancy>,
    /// Reasons with a packet, the highest rate first.
    pub(crate) drops: Vec<DropView>,
}

/// A translator.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct TranslatorView {
    pub(crate) name: String,
    pub(crate) mode: String,
    /// `kernel` or `user`.
    pub(crate) engine: String,
    /// Where packets are taken.
    pub(crate) attach: String,
    /// Why it does not translate: of a CLAT that sets itself up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<String>,
    pub(crate) v4_to_v6: Flow,
    pub(crate) v6_to_v4: Flow,
    pub(crate) dropped_per_second: Option<f64>,
    /// Sessions of a stateful translator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sessions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sessions_created_per_second: Option<f64>,
}

/// A direction.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Flow {
    /// Packets as they are on a wire.
    pub(crate) packets_per_second: Option<f64>,
    pub(crate) bits_per_second: Option<f64>,
}

/// What runs beside the translators.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ServerView {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    /// What `per_second` counts.
    pub(crate) unit: &'static str,
    pub(crate) per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bits_per_second: Option<f64>,
    /// Connections, sessions, leases or waiting queries now.
    pub(crate) open: u64,
    pub(crate) refused_per_second: Option<f64>,
}

/// A gateway in its cluster.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ClusterView {
    pub(crate) gateway: String,
    pub(crate) phase: ClusterPhase,
    /// It holds a lease that has not ended.
    pub(crate) translates: bool,
    pub(crate) store_connected: bool,
    pub(crate) shards: ShardCounts,
    pub(crate) records: RecordStats,
    /// Packets that were given to other gateways.
    pub(crate) handed_over_per_second: Option<f64>,
}

/// How full something of a translator is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Occupancy {
    /// The translator.
    pub(crate) name: String,
    /// A table, or ports or blocks of a pool.
    pub(crate) what: String,
    pub(crate) used: u64,
    pub(crate) size: u64,
}

/// Packets dropped for one reason.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DropView {
    /// The translator.
    pub(crate) name: String,
    /// Label of the reason.
    pub(crate) reason: String,
    /// The reason as a sentence.
    pub(crate) text: String,
    pub(crate) packets: u64,
    pub(crate) per_second: Option<f64>,
}

/// Time since an earlier sample of the same process; without one there are no rates.
#[derive(Clone, Copy)]
struct Since<'a>(Option<(&'a Stats, f64)>);

impl<'a> Since<'a> {
    /// The rate of a counter. `before` finds the counter in the earlier sample; what was not there began at zero.
    fn rate(self, now: u64, before: impl FnOnce(&'a Stats) -> Option<u64>) -> Option<f64> {
        let (stats, seconds) = self.0?;
        Some(now.saturating_sub(before(stats).unwrap_or(0)) as f64 / seconds)
    }
}

impl DaemonView {
    fn unreachable(socket: &Path, error: String) -> DaemonView {
        let socket = socket.display().to_string();
        DaemonView { socket, error: Some(error), ..DaemonView::default() }
    }

    /// Rates from `before` to `now`.
    pub(crate) fn between(socket: &Path, before: Option<&Sample>, now: &Sample) -> DaemonView {
        let (status, stats) = (&now.status, &now.stats);
        // The counters of another process began anew.
        let before = before.filter(|before| before.status.pid == status.pid);
        let since = Since(before.and_then(|before| {
            let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
            (seconds > 0.0).then_some((&before.stats, seconds))
        }));
        let mut drops = drops(stats, since);
        drops.sort_by(|a, b| {
            let rates = b.per_second.unwrap_or(0.0).total_cmp(&a.per_second.unwrap_or(0.0));
            rates.then(b.packets.cmp(&a.packets))
        });
        DaemonView {
            socket: socket.display().to_string(),
            error: None,
            version: status.version.clone(),
            pid: status.pid,
            config: status.config.clone(),
            uptime_seconds: status.uptime_seconds,
            translators: translators(status, stats, since),
            servers: servers(stats, since),
            cluster: stats.cluster.as_ref().map(|it| cluster(it, stats, since)),
            occupancy: stats.translators.iter().flat_map(occupancy).collect(),
            drops,
        }
    }
}

fn cluster(cluster: &ClusterStats, stats: &Stats, since: Since<'_>) -> ClusterView {
    let ClusterStats { state, records, .. } = cluster;
    let of = |it: &TranslatorStats| it.totals.handed_over;
    let handed_over = |stats: &Stats| stats.translators.iter().map(of).sum::<u64>();
    ClusterView {
        gateway: state.name.clone(),
        phase: state.phase,
        translates: state.translates(),
        store_connected: state.store_connected,
        shards: state.shards_by_role,
        records: *records,
        handed_over_per_second: since.rate(handed_over(stats), |before| Some(handed_over(before))),
    }
}

fn translators(status: &Status, stats: &Stats, since: Since<'_>) -> Vec<TranslatorView> {
    let running = stats.translators.iter().map(|it| translator(status, it, since));
    let is_waiting = |name: &str| !stats.translators.iter().any(|it| it.name == name);
    let waiting = stats.automatic.iter().filter(|it| is_waiting(&it.name));
    let waiting = waiting.map(|it| TranslatorView {
        name: it.name.clone(),
        mode: "clat".to_owned(),
        waiting: Some(it.error.clone().or(it.reason.clone()).unwrap_or(it.state.clone())),
        ..TranslatorView::default()
    });
    running.chain(waiting).collect()
}

fn translator(status: &Status, now: &TranslatorStats, since: Since<'_>) -> TranslatorView {
    let flow = |now_of: DirectionStats, of: fn(&TranslatorStats) -> DirectionStats| {
        let rate = |pick: fn(DirectionStats) -> u64| {
            since.rate(pick(now_of), |stats| Some(pick(of(earlier(stats, &now.name)?))))
        };
        let bits = rate(|it| it.octets).map(|octets| octets * 8.0);
        Flow { packets_per_second: rate(|it| it.segments), bits_per_second: bits }
    };
    let told = status.translators.iter().find(|it| it.name == now.name);
    let made = |it: &TranslatorStats| Some(it.nat64.as_ref()?.sessions_created.values().sum());
    TranslatorView {
        name: now.name.clone(),
        mode: now.mode.clone(),
        engine: told.map(|it| it.engine.clone()).unwrap_or_default(),
        attach: told.map(|it| it.attach.clone()).unwrap_or_default(),
        waiting: None,
        v4_to_v6: flow(now.totals.v4_to_v6, |it| it.totals.v4_to_v6),
        v6_to_v4: flow(now.totals.v6_to_v4, |it| it.totals.v6_to_v4),
        dropped_per_second: since
            .rate(now.totals.dropped(), |stats| Some(earlier(stats, &now.name)?.totals.dropped())),
        sessions: now.nat64.as_ref().map(|it| it.sessions.values().sum()),
        sessions_created_per_second: made(now)
            .and_then(|count| since.rate(count, |stats| made(earlier(stats, &now.name)?))),
    }
}

fn earlier<'a>(stats: &'a Stats, name: &str) -> Option<&'a TranslatorStats> {
    stats.translators.iter().find(|it| it.name == name)
}

/// Tables and pools of a stateful translator.
fn occupancy(translator: &TranslatorStats) -> Vec<Occupancy> {
    let Some(nat64) = &translator.nat64 else { return Vec::new() };
    let of =
        |what: String, used, size| Occupancy { name: translator.name.clone(), what, used, size };
    let tables =
        nat64.tables.iter().map(|(name, it)| of(format!("{name} table"), it.used, it.size));
    let mut all: Vec<Occupancy> = tables.collect();
    for pool in &nat64.pools {
        let title = format!("pool4 {}", pool.pool4.join(" "));
        // `all` are 1:1 mappings, which take no port.
        let protocols = pool.bib.iter().filter(|(protocol, _)| *protocol != "all");
        all.extend(protocols.map(|(it, used)| of(format!("{title} {it}"), *used, pool.ports)));
        all.extend(pool.blocks.map(|it| of(format!("{title} blocks"), it.used, it.size)));
    }
    let addresses = nat64.nat_pt.as_ref().map(|it| it.addresses);
    all.extend(addresses.map(|it| of("addresses".to_owned(), it.used, it.size)));
    all
}

fn drops(stats: &Stats, since: Since<'_>) -> Vec<DropView> {
    let mut all = Vec::new();
    for now in &stats.translators {
        let drops = now.totals.drops.iter().filter(|(_, packets)| **packets > 0);
        all.extend(drops.map(|(label, packets)| {
            DropView {
                name: now.name.clone(),
                reason: label.clone(),
                text: DropReason::ALL
                    .iter()
                    .find(|reason| reason.label() == label)
                    .map(|reason| reason.text().to_owned())
                    .unwrap_or_default(),
                packets: *packets,
                per_second: since.rate(*packets, |stats| {
                    earlier(stats, &now.name)?.totals.drops.get(label).copied()
                }),
            }
        }));
    }
    for now in &stats.nat44 {
        let of = |it: &Stats, label: &str| {
            let it = it.nat44.iter().find(|it| it.name == now.name)?;
            Some(it.counters.get(label)?.packets)
        };
        let kinds = COUNTERS.iter().filter(|(_, is_drop, _)| *is_drop);
        all.extend(kinds.filter_map(|(label, _, text)| {
            let packets = of(stats, label).filter(|packets| *packets > 0)?;
            Some(DropView {
                name: now.name.clone(),
                reason: (*label).to_owned(),
                text: (*text).to_owned(),
                packets,
                per_second: since.rate(packets, |stats| of(stats, label)),
            })
        }));
    }
    all
}

/// What is shown of a server: what counts, octets, what is open, what was refused.
struct Counted {
    count: u64,
    octets: Option<u64>,
    open: u64,
    refused: u64,
}

fn servers(stats: &Stats, since: Since<'_>) -> Vec<ServerView> {
    let mut all = Vec::new();
    let mut add = |name: &str, kind, unit, of: &dyn Fn(&Stats) -> Option<Counted>| {
        let Some(now) = of(stats) else { return };
        let rate =
            |count: u64, pick: fn(Counted) -> u64| since.rate(count, |stats| of(stats).map(pick));
        let octets = now.octets.and_then(|it| rate(it, |it| it.octets.unwrap_or(0)));
        all.push(ServerView {
            name: name.to_owned(),
            kind,
            unit,
            per_second: rate(now.count, |it| it.count),
            bits_per_second: octets.map(|octets| octets * 8.0),
            open: now.open,
            refused_per_second: rate(now.refused, |it| it.refused),
        });
    };
    for nat44 in &stats.nat44 {
        add(&nat44.name, "nat44", "packets", &|stats| {
            let it = stats.nat44.iter().find(|it| it.name == nat44.name)?;
            let of = |name: &str| it.counters.get(name).copied().unwrap_or_default();
            let (out, back) = (of("out"), of("in"));
            let dropped = COUNTERS.iter().filter(|(_, is_drop, _)| *is_drop);
            Some(Counted {
                count: out.packets + back.packets,
                octets: Some(out.octets + back.octets),
                open: it.conntrack.map_or(0, |it| it.connections),
                refused: dropped.map(|(name, ..)| of(name).packets).sum(),
            })
        });
    }
    for dual_stack in &stats.dual_stack {
        add(&dual_stack.name, "dual-stack", "packets", &|stats| {
            let it = stats.dual_stack.iter().find(|it| it.name == dual_stack.name)?;
            let count = it.v4.unwrap_or(0) + it.v6.unwrap_or(0);
            Some(Counted { count, octets: None, open: 0, refused: 0 })
        });
    }
    add("dns64", "DNS64", "queries", &|stats| {
        let it = stats.dns64.as_ref()?;
        let count = it.udp_queries + it.tcp_queries;
        let refused = it.refused + it.limited + it.overload + it.connections_refused;
        Some(Counted { count, octets: None, open: it.waiting, refused })
    });
    for relay in &stats.trt {
        add(&relay.name, "relay", "connections", &|stats| {
            let it = &stats.trt.iter().find(|it| it.name == relay.name)?.counters;
            Some(Counted {
                count: it.tcp_accepted + it.udp_opened,
                octets: Some(
                    it.tcp_octets_up + it.tcp_octets_down + it.udp_octets_up + it.udp_octets_down,
                ),
                open: it.connections + it.sessions,
                refused: it.refused_client
                    + it.refused_address
                    + it.refused_private
                    + it.refused_own
                    + it.refused_listed
                    + it.limited_total
                    + it.limited_client,
            })
        });
    }
    for proxy in &stats.proxies {
        add(&proxy.name, "proxy", "requests", &|stats| {
            let it = stats.proxies.iter().find(|it| it.name == proxy.name)?;
            Some(Counted {
                count: it.requests_http1 + it.requests_http2,
                octets: Some(it.octets_in + it.octets_out),
                open: it.connections,
                refused: it.connections_refused + it.refused.values().sum::<u64>(),
            })
        });
    }
    add("dstm-server", "DSTM", "leases", &|stats| {
        let it = stats.dstm_server.as_ref()?;
        let refused = it.exhausted + it.refused;
        Some(Counted { count: it.granted, octets: None, open: it.leases, refused })
    });
    all
}

#[cfg(test)]
pub(crate) mod tests;
