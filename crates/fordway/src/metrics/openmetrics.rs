//! Counters as OpenMetrics text.

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
        Ok(())
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
        let families: [(&str, &str, Pick); 4] = [
            (
                "kernel_unmatched",
                "Packets seen by the kernel engine that were none of the translator's",
                |kernel| kernel.unmatched,
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
    use super::*;
    use crate::report::{DirectionStats, Totals};

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
        let text = encode(Stats { translators: vec![translator] }).unwrap();
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

    #[test]
    fn every_metric_is_documented() {
        let translator = TranslatorStats {
            totals: Totals::read(&fordway_xlat::Counters::default()),
            queues: vec![Totals::default()],
            kernel: Some(KernelStats::default()),
            ..TranslatorStats::default()
        };
        let text = encode(Stats { translators: vec![translator] }).unwrap();
        let documented = include_str!("../../../../docs/operations.md");
        let families: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        assert_eq!(families.len(), 13);
        for family in families {
            assert!(documented.contains(&format!("| `{family}_total` |")), "{family}");
        }
    }
}
