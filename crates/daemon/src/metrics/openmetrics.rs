//! Counters as OpenMetrics text.

use fordway_control::Stats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::catalog::{Family, GROUPS, Histogram, Values};
use crate::failure::Failure;

/// The text, which ends with `# EOF`.
pub fn encode(stats: Stats) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix("fordway");
    registry.register_collector(Box::new(Counters(stats)));
    let mut text = String::new();
    text::encode(&mut text, &registry)
        .map_err(|error| Failure::failed(format!("cannot encode the counters: {error}")))?;
    Ok(text)
}

#[derive(Debug)]
struct Counters(Stats);

/// What encoding a part gives.
type Encoded = Result<(), std::fmt::Error>;

impl Collector for Counters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let all = GROUPS.iter().flat_map(|(_, families)| *families);
        let mut told = all.filter(|family| family.has_values(&self.0));
        told.try_for_each(|family| family.encode(&self.0, &mut encoder))
    }
}

impl Family {
    fn has_values(&self, stats: &Stats) -> bool {
        let mut any = false;
        match self.values {
            Values::Counter(values) | Values::Gauge(values) => {
                values(stats, self.name, &mut |_, _| any = true);
            }
            Values::Histogram(values) => values(stats, &mut |_, _| any = true),
        }
        any
    }

    fn encode(&self, stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let kind = match self.values {
            Values::Counter(_) => MetricType::Counter,
            Values::Gauge(_) => MetricType::Gauge,
            Values::Histogram(_) => MetricType::Histogram,
        };
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        let mut done = Ok(());
        match self.values {
            Values::Counter(values) => values(stats, self.name, &mut |labels, count| {
                let put = self.put(&mut family, labels, |to| {
                    to.encode_counter::<NoLabelSet, _, u64>(&count, None)
                });
                done = done.and(put);
            }),
            Values::Gauge(values) => values(stats, self.name, &mut |labels, value| {
                // No count of ours comes near what a signed number holds.
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                done = done.and(self.put(&mut family, labels, |to| to.encode_gauge(&value)));
            }),
            Values::Histogram(values) => {
                values(stats, &mut |labels, Histogram { sum, buckets }| {
                    let count =
                        buckets.iter().fold(0, |all: u64, (_, count)| all.wrapping_add(*count));
                    let put = self.put(&mut family, labels, |to| {
                        to.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
                    });
                    done = done.and(put);
                });
            }
        }
        done
    }

    /// Encodes a value under those of its labels.
    fn put(
        &self,
        family: &mut MetricEncoder<'_>,
        values: &[&str],
        value: impl FnOnce(&mut MetricEncoder<'_>) -> Encoded,
    ) -> Encoded {
        // An empty set of labels would be written as `{}`.
        if values.is_empty() {
            return value(family);
        }
        let labels: Vec<(&str, &str)> =
            self.labels.iter().copied().zip(values.iter().copied()).collect();
        value(&mut family.encode_family(&labels.as_slice())?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use fordway_control::{
        AutoStatus, ClusterPhase, ClusterState, ClusterStats, ConntrackStats, DirectionStats,
        DstmClientStats, DualStackStats, FoundStatus, KernelStats, LatencyStats, LogStats,
        Nat44Stats, Nat64Stats, NatPtStats, OccupancyStats, PoolStats, RecordStats, ShardCounts,
        Totals, TranslatorStats, TrtStats,
    };
    use fordway_counters::cluster::{ShardStats, StoreStats, TablesStats};
    use fordway_counters::dstm;
    use fordway_nameserver as dns64;
    use fordway_proxy as proxy;
    use fordway_resolver as upstream;
    use fordway_router as router;
    use fordway_xlat::DropReason;

    use super::*;
    use crate::metrics::counters::{
        CLUSTER_CHANNEL, CLUSTER_SHARDS, CLUSTER_STORE, Counter, DNS64, DSTM_CLIENT, DSTM_SERVER,
        DSTM_TEP, PROXY, ROUTER, TRT, UPSTREAM,
    };

    #[test]
    fn every_counter_is_there_under_its_labels() {
        let counters = fordway_xlat::Counters::default();
        counters.drop(DropReason::Loop);
        let mut totals = Totals::read(&counters);
        totals.v4_to_v6.octets = 7;
        totals.io.send_full = 3;
        let translator = TranslatorStats {
            name: "clat0".to_owned(),
            mode: "clat".to_owned(),
            totals: totals.clone(),
            queues: vec![Totals::default(), totals],
            kernel: Some(KernelStats {
                v4_to_v6: DirectionStats { octets: 9, ..DirectionStats::default() },
                passed_on: [("hairpin".to_owned(), 5)].into(),
                measured_ns: 11,
                ..KernelStats::default()
            }),
            nat64: None,
        };
        let text = encode(Stats { translators: vec![translator], ..Stats::default() }).unwrap();
        for line in [
            "# TYPE fordway_packets counter",
            "fordway_octets_total{translator=\"clat0\",queue=\"1\",direction=\"v4_to_v6\"} 7",
            "fordway_octets_total{translator=\"clat0\",queue=\"0\",direction=\"v4_to_v6\"} 0",
            "fordway_octets_total{translator=\"clat0\",queue=\"kernel\",direction=\"v4_to_v6\"} 9",
            "fordway_kernel_passed_on_total{translator=\"clat0\",reason=\"hairpin\"} 5",
            "fordway_kernel_passed_on_total{translator=\"clat0\",reason=\"not_linear\"} 0",
            "fordway_kernel_measured_nanoseconds_total{translator=\"clat0\"} 11",
            "fordway_drops_total{translator=\"clat0\",reason=\"loop\"} 1",
            "fordway_drops_total{translator=\"clat0\",reason=\"martian\"} 0",
            "fordway_queue_errors_total{translator=\"clat0\",queue=\"1\",error=\"send_full\"} 3",
            "fordway_icmp_errors_suppressed_total{translator=\"clat0\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let drops = text.lines().filter(|line| line.starts_with("fordway_drops_total"));
        assert_eq!(drops.count(), DropReason::ALL.len());
    }

    /// A translator that has everything.
    fn all() -> TranslatorStats {
        let pool = PoolStats {
            bib: [("tcp".to_owned(), 7)].into(),
            blocks: Some(OccupancyStats { used: 1, size: 126 }),
            ports: 64_512,
            subscribers: 1,
            ..PoolStats::default()
        };
        let by_protocol = BTreeMap::from([("tcp".to_owned(), 7), ("udp".to_owned(), 8)]);
        TranslatorStats {
            name: "nat64".to_owned(),
            totals: Totals::read(&fordway_xlat::Counters::default()),
            queues: vec![Totals::default()],
            kernel: Some(KernelStats::default()),
            nat64: Some(Nat64Stats {
                nat_pt: Some(NatPtStats {
                    addresses: OccupancyStats { used: 2, size: 62 },
                    held: 1,
                    dns: BTreeMap::from([("ptr".to_owned(), 4)]),
                }),
                draining: true,
                tables: [("bib".to_owned(), OccupancyStats { used: 3, size: 9 })].into(),
                bib: by_protocol.clone(),
                sessions: by_protocol.clone(),
                tcp_states: [("established".to_owned(), 5)].into(),
                resting: 2,
                pools: vec![pool],
                bib_created: by_protocol.clone(),
                sessions_created: by_protocol.clone(),
                sessions_ended: [("expired".to_owned(), by_protocol)].into(),
                ended_by_reload: 4,
                creation: LatencyStats {
                    bounds_us: vec![1, 2],
                    counts: vec![5, 3, 1],
                    sum_ns: 12_000,
                },
                alg_connections: 2,
                algs: [("ftp".to_owned(), [("mapped".to_owned(), 6)].into())].into(),
                logs: vec![
                    LogStats { to: "json:/log".to_owned(), written: 6, lost: 1 },
                    LogStats { to: "json:/log".to_owned(), written: 3, lost: 0 },
                ],
            }),
            ..TranslatorStats::default()
        }
    }

    fn everything() -> Stats {
        let server =
            upstream::ServerStats { server: "192.0.2.53:53".to_owned(), ..Default::default() };
        let device = router::DeviceStats { device: "lan0".to_owned(), ..Default::default() };
        Stats {
            translators: vec![all()],
            dns64: Some(dns64::Stats {
                tcp_queries: 7,
                latency: vec![0, 3, 1],
                upstream: upstream::Stats { servers: vec![server], ..Default::default() },
                ..Default::default()
            }),
            router: Some(router::Stats { devices: vec![device] }),
            trt: vec![TrtStats { name: "trt".to_owned(), ..Default::default() }],
            dstm_server: Some(dstm::ServerStats::default()),
            dstm_tep: Some(dstm::TepStats::default()),
            dstm_clients: vec![DstmClientStats {
                name: "dstm0".to_owned(),
                ..DstmClientStats::default()
            }],
            proxies: vec![proxy::Stats {
                name: "proxy".to_owned(),
                refused: [("framing".to_owned(), 0)].into(),
                servers: vec![proxy::ServerStats {
                    server: "192.0.2.10:80".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            automatic: vec![AutoStatus::default()],
            nat44: vec![Nat44Stats {
                conntrack: Some(ConntrackStats::default()),
                ..Nat44Stats::default()
            }],
            dual_stack: vec![DualStackStats { v4: Some(1), ..DualStackStats::default() }],
            cluster: Some(cluster()),
        }
    }

    fn cluster() -> ClusterStats {
        ClusterStats {
            state: ClusterState {
                phase: ClusterPhase::Member,
                lease_ms: 489,
                store_connected: true,
                peers: 2,
                shards_by_role: ShardCounts {
                    owner: 21,
                    moving: 1,
                    ready: 20,
                    other: 22,
                    uncovered: 3,
                },
                ..ClusterState::default()
            },
            records: RecordStats { own: 7, others: 5, lag: 4, lag_ms: 3, dropped: 2 },
            moves: ShardStats { taken_over: 6, ..ShardStats::default() },
            store: StoreStats { written: 9, ..StoreStats::default() },
            tables: TablesStats { scans: 11, last_scan_us: 1200, unplaced: 1, refused: 8 },
            ..ClusterStats::default()
        }
    }

    #[test]
    fn the_cluster_is_there_under_its_labels() {
        let text = encode(everything()).unwrap();
        for line in [
            "fordway_cluster_phase{phase=\"member\"} 1",
            "fordway_cluster_phase{phase=\"wrong_config\"} 0",
            "fordway_cluster_lease_milliseconds 489",
            "fordway_cluster_store_connected 1",
            "fordway_cluster_store_silent 0",
            "fordway_cluster_peers 2",
            "fordway_cluster_shards{role=\"owner\"} 21",
            "fordway_cluster_shards{role=\"moving\"} 1",
            "fordway_cluster_shards_uncovered 3",
            "fordway_cluster_records{of=\"own\"} 7",
            "fordway_cluster_lag_records 4",
            "fordway_cluster_lag_milliseconds 3",
            "fordway_cluster_records_unplaced 1",
            "fordway_cluster_records_refused_total 8",
            "fordway_cluster_last_scan_microseconds 1200",
            "fordway_cluster_shard_events_total{event=\"taken_over\"} 6",
            "fordway_cluster_store_events_total{event=\"written\"} 9",
            "fordway_cluster_channel_events_total{event=\"dropped\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn tables_and_pools_are_there_under_their_labels() {
        let text = encode(everything()).unwrap();
        for line in [
            "# TYPE fordway_nat64_sessions gauge",
            "fordway_nat64_sessions{translator=\"nat64\",protocol=\"udp\"} 8",
            "fordway_nat64_table_entries{translator=\"nat64\",table=\"bib\"} 3",
            "fordway_nat64_table_size{translator=\"nat64\",table=\"bib\"} 9",
            "fordway_nat64_tcp_sessions{translator=\"nat64\",state=\"established\"} 5",
            "fordway_nat64_pool_ports{translator=\"nat64\",pool=\"0\"} 64512",
            "fordway_nat64_pool_bib{translator=\"nat64\",pool=\"0\",protocol=\"tcp\"} 7",
            "fordway_nat64_pool_blocks_used{translator=\"nat64\",pool=\"0\"} 1",
            "fordway_nat64_sessions_created_total{translator=\"nat64\",protocol=\"tcp\"} 7",
            "fordway_nat64_sessions_ended_total{translator=\"nat64\",protocol=\"tcp\",cause=\"expired\"} 7",
            "fordway_nat64_alg_connections{translator=\"nat64\"} 2",
            "fordway_nat64_alg_events_total{translator=\"nat64\",alg=\"ftp\",event=\"mapped\"} 6",
            "fordway_nat64_draining{translator=\"nat64\"} 1",
            "fordway_nat_pt_addresses{translator=\"nat64\"} 62",
            "fordway_nat_pt_bound{translator=\"nat64\"} 2",
            "fordway_nat_pt_held{translator=\"nat64\"} 1",
            "fordway_nat_pt_dns_total{translator=\"nat64\",what=\"ptr\"} 4",
            "fordway_nat64_log_lost_total{translator=\"nat64\",to=\"json:/log\"} 1",
            "fordway_nat64_log_records_total{translator=\"nat64\",to=\"json:/log\"} 9",
            "fordway_nat64_session_creation_seconds_bucket{le=\"0.000001\",translator=\"nat64\"} 5",
            "fordway_nat64_session_creation_seconds_bucket{le=\"0.000002\",translator=\"nat64\"} 8",
            "fordway_nat64_session_creation_seconds_bucket{le=\"+Inf\",translator=\"nat64\"} 9",
            "fordway_nat64_session_creation_seconds_count{translator=\"nat64\"} 9",
            "fordway_nat64_session_creation_seconds_sum{translator=\"nat64\"} 0.000012",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn servers_are_there_under_their_labels() {
        let text = encode(everything()).unwrap();
        for line in [
            "fordway_dns64_queries_total{transport=\"tcp\"} 7",
            "fordway_dns64_answers_total{rcode=\"NXDOMAIN\"} 0",
            "fordway_dns64_answer_seconds_bucket{le=\"0.000001\"} 0",
            "fordway_dns64_answer_seconds_bucket{le=\"0.000002\"} 3",
            "fordway_dns64_answer_seconds_bucket{le=\"+Inf\"} 4",
            "fordway_dns64_answer_seconds_count 4",
            "fordway_dns64_upstream_queries_total{server=\"192.0.2.53:53\"} 0",
            "fordway_router_advertisements_sent_total{device=\"lan0\",to=\"host\"} 0",
            "fordway_router_advertising{device=\"lan0\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn no_series_is_there_twice() {
        let text = encode(everything()).unwrap();
        let series = |line: &str| line.rsplit_once(' ').map(|(series, _)| series.to_owned());
        let all: Vec<String> =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn state_prefixes_and_changes_are_told() {
        let found = FoundStatus {
            prefix: "64:ff9b::/96".to_owned(),
            source: "dns".to_owned(),
            from: "resolver".to_owned(),
            valid_seconds: Some(60),
            stale: false,
        };
        let auto = AutoStatus {
            name: "clat0".to_owned(),
            state: "aside".to_owned(),
            changes: 7,
            prefixes: vec![found.clone(), found],
            error: Some("no".to_owned()),
            ..AutoStatus::default()
        };
        let stats = Stats { automatic: vec![auto], ..Stats::default() };
        let text = encode(stats).unwrap();
        for line in [
            "fordway_clat_state{translator=\"clat0\",state=\"aside\"} 1",
            "fordway_clat_state{translator=\"clat0\",state=\"active\"} 0",
            "fordway_clat_prefixes{translator=\"clat0\",source=\"dns\"} 2",
            "fordway_clat_prefixes{translator=\"clat0\",source=\"configured\"} 0",
            "fordway_clat_failed{translator=\"clat0\"} 1",
            "fordway_clat_changes_total{translator=\"clat0\"} 7",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
    }

    /// With UPDATE_DOCS=1 the document takes what the catalog says now.
    #[test]
    fn every_metric_is_documented() {
        let page = page();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        assert!(std::fs::read_to_string(path).unwrap() == page, "docs/metrics.md: UPDATE_DOCS=1");
        let text = encode(everything()).unwrap();
        let encoded = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        assert_eq!(encoded, GROUPS.iter().map(|(_, families)| families.len()).sum::<usize>());
        assert_eq!(encoded, 17 + 4 + 25 + 7 + 24 + 10 + 12 + 19 + 9 + 18);
    }

    impl Family {
        /// The family's line in docs/metrics.md.
        fn row(&self) -> String {
            let (end, kind) = match self.values {
                Values::Counter(_) => ("_total", "counter"),
                Values::Gauge(_) => ("", "gauge"),
                Values::Histogram(_) => ("", "histogram"),
            };
            let words: Vec<String> = words(self.name)
                .into_iter()
                .map(|(word, meaning)| match meaning {
                    "" => format!("`{word}`"),
                    meaning => format!("`{word}` ({meaning})"),
                })
                .collect();
            let colon = if words.is_empty() { "" } else { ": " };
            let (name, help, labels) = (self.name, self.help, self.labels.join(", "));
            let words = words.join(", ");
            format!("| `fordway_{name}{end}` | {kind} | {labels} | {help}{colon}{words} |\n")
        }
    }

    /// The values of a family's last label, as far as they are those of counters.
    fn words(family: &str) -> Vec<(&'static str, &'static str)> {
        fn of<S>(all: &[Counter<S>], family: &str) -> Vec<(&'static str, &'static str)> {
            let all = all.iter().filter(|counter| counter.family == family);
            all.map(|it| (it.word, it.meaning)).filter(|(word, _)| !word.is_empty()).collect()
        }
        let servers = [of(DNS64, family), of(UPSTREAM, family), of(ROUTER, family)];
        let relays = [of(TRT, family), of(PROXY, family)];
        let dstm = [of(DSTM_SERVER, family), of(DSTM_TEP, family), of(DSTM_CLIENT, family)];
        let cluster =
            [of(CLUSTER_SHARDS, family), of(CLUSTER_STORE, family), of(CLUSTER_CHANNEL, family)];
        servers.into_iter().chain(relays).chain(dstm).chain(cluster).flatten().collect()
    }

    /// docs/metrics.md.
    fn page() -> String {
        let mut page = "\
# Metrics

What `[metrics] listen` serves at `/metrics`, and `fordway stats --prometheus` prints. A metric is there as soon as there is \
something that it is of. The tables are made of `crates/daemon/src/metrics/catalog.rs` and `counters.rs` beside it; \
`packaging/prometheus/fordway.rules.yml` has alert rules, `packaging/grafana/fordway.json` a dashboard.
"
        .to_owned();
        for (title, families) in GROUPS {
            page += &format!("\n{title}:\n\n| metric | type | labels | |\n|---|---|---|---|\n");
            for family in *families {
                page += &family.row();
            }
        }
        page
    }

    /// Every metric of ours that a text names.
    fn named(text: &str) -> HashSet<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c: char| !is_part(c));
        words.filter(|word| word.starts_with("fordway_")).map(str::to_owned).collect()
    }

    #[test]
    fn dashboard_and_alerts_name_metrics_that_exist() {
        let existing = encode(everything()).unwrap();
        let existing: HashSet<&str> =
            existing.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
        let dashboard = include_str!("../../../../packaging/grafana/fordway.json");
        let rules = include_str!("../../../../packaging/prometheus/fordway.rules.yml");
        for (file, text) in [("fordway.json", dashboard), ("fordway.rules.yml", rules)] {
            let named = named(text);
            assert!(named.len() > 8, "{file}: {named:?}");
            for metric in named {
                assert!(existing.contains(metric.as_str()), "{file} asks for {metric}");
            }
        }
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() > 8);
    }
}
