//! Counters as OpenMetrics text.

mod auto;
mod dstm;
mod forwarding;
mod nat64;
mod proxy;
mod services;
mod trt;

use fordway_bpf::PassReason;
use fordway_xlat::DropReason;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use crate::failure::Failure;
use crate::report::{KernelStats, Stats, TranslatorStats};

/// The text, which ends with `# EOF`.
pub(crate) fn encode(stats: Stats) -> Result<String, Failure> {
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
        self.by_queue(&mut encoder)?;
        let mut family = counter(&mut encoder, "drops", "Packets dropped, by reason")?;
        for translator in &self.0.translators {
            for reason in DropReason::ALL {
                let count = translator.totals.drops.get(reason.label()).copied().unwrap_or(0);
                let labels = [("translator", name(translator)), ("reason", reason.label())];
                put(&mut family, &labels, count)?;
            }
        }
        self.of_kernel(&mut encoder)?;
        let help = "ICMP errors sent, by IP version";
        let mut family = counter(&mut encoder, "icmp_errors", help)?;
        for translator in &self.0.translators {
            let errors = translator.totals.icmp_errors;
            for (version, count) in [("4", errors.v4), ("6", errors.v6)] {
                let labels = [("translator", name(translator)), ("ip_version", version)];
                put(&mut family, &labels, count)?;
            }
        }
        let help = "ICMP errors not sent: rate limit, switched off, or no source address";
        let mut family = counter(&mut encoder, "icmp_errors_suppressed", help)?;
        for translator in &self.0.translators {
            let count = translator.totals.icmp_errors.suppressed;
            put(&mut family, &[("translator", name(translator))], count)?;
        }
        auto::encode(&self.0, &mut encoder)?;
        nat64::encode(&self.0, &mut encoder)?;
        forwarding::encode(&self.0, &mut encoder)?;
        services::encode(&self.0, &mut encoder)?;
        trt::encode(&self.0, &mut encoder)?;
        proxy::encode(&self.0.proxies, &mut encoder)?;
        dstm::encode(&self.0, &mut encoder)
    }
}

impl Counters {
    /// What each queue has of its own.
    fn by_queue(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Pick = fn(&crate::report::DirectionStats) -> u64;
        let families: [(&str, &str, Pick); 4] = [
            ("packets", "Packets translated; a super-packet is one", |d| d.packets),
            ("segments", "Packets translated, as they are on a wire", |d| d.segments),
            ("octets", "Octets of the IP packets taken in and translated", |d| d.octets),
            ("fragments", "Fragments made", |d| d.fragments),
        ];
        for (metric, help, pick) in families {
            let mut family = counter(encoder, metric, help)?;
            for translator in &self.0.translators {
                for (queue, totals) in translator.queues.iter().enumerate() {
                    for (direction, counts) in totals.directions() {
                        let queue = queue.to_string();
                        let labels = [
                            ("translator", name(translator)),
                            ("queue", &queue),
                            ("direction", direction),
                        ];
                        put(&mut family, &labels, pick(&counts))?;
                    }
                }
                // The kernel engine stands beside the queues, so that sums over them are right.
                if let Some(kernel) = &translator.kernel {
                    for (direction, counts) in kernel.as_totals().directions() {
                        let labels = [
                            ("translator", name(translator)),
                            ("queue", "kernel"),
                            ("direction", direction),
                        ];
                        put(&mut family, &labels, pick(&counts))?;
                    }
                }
            }
        }
        let mut family = counter(encoder, "queue_errors", "Errors of the device's queues")?;
        for translator in &self.0.translators {
            for (queue, totals) in translator.queues.iter().enumerate() {
                let queue = queue.to_string();
                for (error, count) in totals.io.labelled() {
                    let labels =
                        [("translator", name(translator)), ("queue", &queue), ("error", error)];
                    put(&mut family, &labels, count)?;
                }
            }
        }
        Ok(())
    }
}

impl Counters {
    /// What only a kernel engine has.
    fn of_kernel(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let with =
            || self.0.translators.iter().filter_map(|it| Some((name(it), it.kernel.as_ref()?)));
        let help = "Packets that the kernel engine left to the user engine, by cause";
        let mut family = counter(encoder, "kernel_passed_on", help)?;
        for (translator, kernel) in with() {
            for reason in PassReason::ALL {
                let count = kernel.passed_on.get(reason.label()).copied().unwrap_or(0);
                let labels = [("translator", translator), ("reason", reason.label())];
                put(&mut family, &labels, count)?;
            }
        }
        type Pick = fn(&KernelStats) -> u64;
        let families: [(&str, &str, Pick); 6] = [
            (
                "kernel_unmatched",
                "Packets seen by the kernel engine that were none of the translator's",
                |kernel| kernel.unmatched,
            ),
            (
                "kernel_elsewhere",
                "Frames for other link-layer addresses, seen by programs in front of routing",
                |kernel| kernel.elsewhere,
            ),
            (
                "kernel_tagged",
                "Frames with a VLAN tag, seen by programs in front of routing",
                |kernel| kernel.tagged,
            ),
            ("kernel_measured_packets", "Packets whose time was taken", |kernel| {
                kernel.measured_packets
            }),
            ("kernel_measured_nanoseconds", "The time that these took", |kernel| {
                kernel.measured_ns
            }),
            ("kernel_trace_lost", "Trace events that were not told", |kernel| kernel.trace_lost),
        ];
        for (metric, help, pick) in families {
            let mut family = counter(encoder, metric, help)?;
            for (translator, kernel) in with() {
                put(&mut family, &[("translator", translator)], pick(kernel))?;
            }
        }
        Ok(())
    }
}

fn name(translator: &TranslatorStats) -> &str {
    &translator.name
}

fn counter<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, std::fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn put(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], count: u64) -> Encoded {
    ConstCounter::new(count).encode(family.encode_family(&labels)?)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use fordway_dstmd as dstm;
    use fordway_nameserver as dns64;
    use fordway_proxy as proxy;
    use fordway_resolver as upstream;
    use fordway_router as router;

    use super::*;
    use crate::report::{
        DirectionStats, DstmClientStats, LatencyStats, LogStats, Nat64Stats, NatPtStats,
        OccupancyStats, PoolStats, Totals, TrtStats,
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
            dstm_server: Some(dstm::Stats::default()),
            dstm_tep: Some(dstm::AgentStats::default()),
            dstm_clients: vec![DstmClientStats {
                name: "dstm0".to_owned(),
                ..DstmClientStats::default()
            }],
            proxies: vec![proxy::Stats {
                name: "proxy".to_owned(),
                servers: vec![proxy::ServerStats {
                    server: "192.0.2.10:80".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Stats::default()
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
    fn every_metric_is_documented() {
        let text = encode(everything()).unwrap();
        let documented = include_str!("../../../../docs/operations.md");
        let families: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        assert_eq!(families.len(), 15 + 4 + 21 + 4 + 19 + 10 + 12 + 16 + 9);
        for family in families {
            let is_counter = text.contains(&format!("# TYPE {family} counter"));
            let metric = if is_counter { format!("{family}_total") } else { family.to_owned() };
            assert!(documented.contains(&format!("| `{metric}` |")), "{metric}");
        }
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
