//! What held a throughput down, with the number that shows it (ground rule: every cell names its
//! limiter with evidence).

use std::collections::BTreeMap;

use fordway_stats::describe::{mean, median};

use super::Ceiling;
use crate::numbers::nice;
use crate::spec::{Group, Metric};
use crate::trial::Trial;

/// A process with this many cores busy on one flow is itself the limit.
const CORE_FULL: f64 = 0.85;

/// A machine this busy has nothing left to give.
const MACHINE_FULL: f64 = 0.90;

/// A load that came this near to its cap was held down by it.
const HELD_UNDER: f64 = 0.9;

/// A value within this factor of what the tester alone reaches may be the tester's.
const OWN_FACTOR: f64 = 2.0;

/// So small a share of lost packets holds nothing down.
const MANY_LOST: f64 = 1e-4;

/// A sender that turns in so many circles per packet waits for somebody else.
const MANY_WAITS: f64 = 10.0;

/// The mean of what `of` gives, over the trials for which it gives anything.
pub(super) fn average(trials: &[&Trial], of: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = trials.iter().filter_map(|t| of(t)).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// What held a throughput down.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    /// Its name.
    pub(super) what: String,
    /// The number that shows it.
    pub(super) evidence: String,
    /// Blocks whose values are lower bounds, as the generator or its cap may have been the limit there.
    pub(super) bounds: Vec<u32>,
}

impl Limit {
    fn of(what: &str, evidence: String) -> Self {
        Self { what: what.into(), evidence, bounds: Vec::new() }
    }
}

/// Names what held a throughput down, with the number that shows it. Each block's value is held against the generator's
/// ceiling of the same block.
pub(super) fn limiter(
    metric: Metric,
    values: &[(u32, f64)],
    ceiling: Option<&Ceiling>,
    trials: &[&Trial],
) -> Limit {
    if !metric.has_limiter() {
        return Limit::of("none", String::new());
    }
    if values.is_empty() {
        return Limit::of("unknown", "no trial has a value".into());
    }
    let typical = median(&values.iter().map(|v| v.1).collect::<Vec<f64>>());
    let blocks = |held: &dyn Fn(u32, f64) -> bool| -> Vec<u32> {
        values.iter().filter(|(block, value)| held(*block, *value)).map(|v| v.0).collect()
    };
    // Headers and pauses take a little of the cap.
    if let Some(cap) = average(trials, |t| t.cap) {
        // Testers of the RFCs name their own highest rate: near it, a value may be theirs.
        let own = matches!(metric.group(), Some(Group::Rfc8219 | Group::Rfc9693));
        let share = if own { 1.0 / OWN_FACTOR } else { HELD_UNDER };
        let bounds = blocks(&|_, value| value >= share * cap);
        if !bounds.is_empty() {
            let (cap, unit) = (nice(cap), metric.unit());
            let (what, evidence) = if own {
                let evidence = format!(
                    "within a factor {OWN_FACTOR} of the {cap} {unit} that the tester alone sends and receives"
                );
                ("generator", evidence)
            } else {
                ("rate cap", format!("held under the cap of {cap} {unit}"))
            };
            return Limit { what: what.into(), evidence, bounds };
        }
    }
    let cores = average(trials, |t| t.cpu?.mechanism_cores);
    let busy = average(trials, |t| Some(t.cpu?.busy_share)).unwrap_or(0.0);
    let softirq = average(trials, |t| Some(t.cpu?.softirq_share)).unwrap_or(0.0);
    let factor = metric.ceiling_factor();
    if let Some(ceiling) = ceiling {
        let bounds = blocks(&|block, value| value * factor >= ceiling.at(block));
        if !bounds.is_empty() {
            let some = match bounds.len() {
                all if all == values.len() => String::new(),
                some => format!(" in {some} of {} blocks", values.len()),
            };
            let evidence = format!(
                "within a factor {factor} of the generator's own {} {}{some}{}",
                nice(ceiling.value),
                metric.unit(),
                generator_cpu(trials)
            );
            return Limit { what: "generator".into(), evidence, bounds };
        }
    }
    let ceiling = ceiling.map(|ceiling| ceiling.value);
    if let Some(waits) = average(trials, |t| t.sender_waits) {
        return closed_loop(waits, typical, ceiling, trials);
    }
    let lost = worst_loss(trials);
    let (what, text) = match cores {
        Some(cores) if cores >= CORE_FULL => {
            let threads = trials.iter().find_map(|t| t.cpu?.mechanism_threads).unwrap_or(1);
            ("mechanism cpu", format!("its process used {cores:.2} cores ({threads} threads)"))
        }
        _ if busy >= MACHINE_FULL => (
            "machine cpu",
            format!(
                "{:.0} % of the machine busy, {:.0} % in forwarding{}",
                100.0 * busy,
                100.0 * softirq,
                cores.map_or(String::new(), |c| format!("; the mechanism used {c:.2} cores"))
            ),
        ),
        _ if lost.as_ref().is_some_and(|(_, n, of)| *n as f64 >= MANY_LOST * *of as f64) => {
            ("drops", String::new())
        }
        _ => (
            "unknown",
            format!("{:.0} % of the machine busy{}", 100.0 * busy, generator_cpu(trials)),
        ),
    };
    let drops = lost.map(|(device, n, of)| format!("{n} of {of} packets lost at {device}"));
    let text: Vec<String> =
        [Some(text).filter(|t| !t.is_empty()), drops].into_iter().flatten().collect();
    Limit::of(what, text.join("; "))
}

/// The limiter of flows in a closed loop, whose sender's processor also does all that the kernel does:
/// forwarding, translating and receiving. If the sender never waits, that processor is the limit;
/// otherwise whatever it waits for, which is not in the kernel.
fn closed_loop(waits: f64, typical: f64, ceiling: Option<f64>, trials: &[&Trial]) -> Limit {
    let busy = average(trials, |t| t.sender_processor).unwrap_or(0.0);
    let mut text = format!(
        "the processor that sends, forwards and receives was {:.0} % busy, and the window full {} \
         times per packet",
        100.0 * busy,
        nice(waits)
    );
    // Rates are in thousands per second.
    if let Some(ceiling) = ceiling.filter(|_| typical > 0.0) {
        let (own, all) = (1e3 / ceiling, 1e3 / typical);
        text.push_str(&format!("; of {} µs each, the tester takes {}", nice(all), nice(own)));
    }
    let cores = average(trials, |t| t.cpu?.mechanism_cores);
    if let Some(cores) = cores {
        text.push_str(&format!("; the mechanism's process used {cores:.2} cores"));
    }
    let what = match cores {
        Some(cores) if cores >= CORE_FULL => "mechanism cpu",
        Some(_) if waits >= MANY_WAITS => "mechanism",
        _ if waits >= MANY_WAITS => "unknown",
        _ => "one processor",
    };
    Limit::of(what, text)
}

/// How busy the generator's two processes were, as a continuation of a sentence.
fn generator_cpu(trials: &[&Trial]) -> String {
    let sender = average(trials, |t| Some(t.generator_cpu?.0));
    let receiver = average(trials, |t| Some(t.generator_cpu?.1));
    sender.zip(receiver).map_or_else(String::new, |(sender, receiver)| {
        format!("; sender {sender:.0} %, receiver {receiver:.0} % of a core")
    })
}

/// The device that lost most packets over the trials, when it lost any: name, lost, and of how many.
fn worst_loss(trials: &[&Trial]) -> Option<(String, u64, u64)> {
    let mut lost: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for trial in trials {
        for (device, c) in &trial.links {
            let (n, of) = lost.entry(device).or_default();
            *n += c.rx_lost + c.tx_lost;
            *of += c.rx_packets + c.tx_packets + c.rx_lost + c.tx_lost;
        }
    }
    let (device, (count, of)) = lost.into_iter().max_by_key(|(_, (n, _))| *n)?;
    (count > 0).then(|| (device.to_owned(), count, of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::CpuUse;
    use crate::trial::LinkCounters;

    /// The generator's ceilings of blocks 1, 2, ...
    fn ceiling(metric: Metric, values: &[f64]) -> Ceiling {
        Ceiling {
            condition: Trial::blank(metric).condition,
            metric,
            point: None,
            family: None,
            value: median(values),
            values: (1..).zip(values.iter().copied()).collect(),
        }
    }

    #[test]
    fn a_value_is_held_against_the_ceiling_of_its_own_block() {
        let metric = Metric::UdpRateUp;
        // The machine was slower in the last block, for generator and mechanism alike.
        let own = ceiling(metric, &[1000.0, 1000.0, 400.0]);
        let trial = Trial::blank(metric);
        let values = [(1, 300.0), (2, 300.0), (3, 290.0)];
        let found = limiter(metric, &values, Some(&own), &[&trial]);
        assert_eq!((found.what.as_str(), found.bounds), ("generator", vec![3]));
        assert!(found.evidence.contains("in 1 of 3 blocks"), "{}", found.evidence);
        // A ceiling that was measured once, before the slow block, hides it.
        let once = Ceiling { values: vec![(0, 1000.0)], ..own };
        assert!(limiter(metric, &values, Some(&once), &[&trial]).bounds.is_empty());
    }

    #[test]
    fn a_single_lost_packet_limits_nothing() {
        let name = |rx_lost| {
            let link = LinkCounters { rx_packets: 1_000_000, rx_lost, ..LinkCounters::default() };
            let mut trial = Trial::blank(Metric::TcpThroughputUp);
            trial.links.insert("iperf/uplink".into(), link);
            let own = ceiling(Metric::TcpThroughputUp, &[30.0]);
            let found = limiter(Metric::TcpThroughputUp, &[(1, 1.0)], Some(&own), &[&trial]);
            let why = found.evidence;
            assert!(
                why.contains(&format!("{rx_lost} of {} packets lost", 1_000_000 + rx_lost)),
                "{why}"
            );
            found.what
        };
        assert_eq!([name(1), name(99), name(2000)], ["unknown", "unknown", "drops"]);
    }

    #[test]
    fn half_of_what_the_tester_alone_reaches_may_be_the_testers() {
        let of = |value: f64| {
            let trial =
                Trial { cap: Some(500.0), value: Some(value), ..Trial::blank(Metric::Throughput) };
            limiter(Metric::Throughput, &[(1, value)], None, &[&trial])
        };
        assert_eq!((of(250.0).what.as_str(), &of(250.0).bounds[..]), ("generator", &[1][..]));
        assert_ne!(of(249.0).what, "generator");
    }

    #[test]
    fn a_load_at_its_cap_says_so_and_one_below_does_not() {
        let name = |typical| {
            let mut trial = Trial::blank(Metric::TcpThroughputUp);
            trial.cap = Some(1.0);
            let own = ceiling(Metric::TcpThroughputUp, &[1.0]);
            limiter(Metric::TcpThroughputUp, &[(1, typical)], Some(&own), &[&trial])
        };
        let found = name(0.94);
        assert_eq!((found.what.as_str(), &found.bounds[..]), ("rate cap", &[1][..]));
        assert!(found.evidence.contains("cap of 1.00 Gbit/s"), "{}", found.evidence);
        assert_ne!(name(0.3).what, "rate cap");
    }

    #[test]
    fn flows_are_held_down_by_the_processor_or_by_whom_the_sender_waits_for() {
        let trial = |waits, cores: Option<f64>| Trial {
            sender_waits: Some(waits),
            sender_processor: Some(1.0),
            cpu: Some(CpuUse { mechanism_cores: cores, ..CpuUse::default() }),
            ..Trial::blank(Metric::NewUdpFlows)
        };
        let name = |trial: &Trial| {
            let own = ceiling(Metric::NewUdpFlows, &[4000.0]);
            let found = limiter(Metric::NewUdpFlows, &[(1, 400.0)], Some(&own), &[trial]);
            let why = found.evidence;
            assert!(why.contains("of 2.50 µs each, the tester takes 0.250"), "{why}");
            found.what
        };
        assert_eq!(name(&trial(0.1, None)), "one processor");
        assert_eq!(name(&trial(0.1, Some(0.01))), "one processor");
        assert_eq!(name(&trial(100.0, Some(0.99))), "mechanism cpu");
        assert_eq!(name(&trial(100.0, Some(0.5))), "mechanism");
    }
}
