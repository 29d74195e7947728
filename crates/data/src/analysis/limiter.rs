//! What held a throughput down, with the number that shows it (ground rule: every cell names its
//! limiter with evidence).

use std::collections::BTreeMap;

use fordway_stats::describe::mean;

use crate::numbers::nice;
use crate::spec::Metric;
use crate::trial::Trial;

/// A process with this many cores busy on one flow is itself the limit.
const CORE_FULL: f64 = 0.85;

/// A machine this busy has nothing left to give.
const MACHINE_FULL: f64 = 0.90;

/// A load that came this near to its cap was held down by it.
const HELD_UNDER: f64 = 0.9;

/// So small a share of lost packets holds nothing down.
const MANY_LOST: f64 = 1e-4;

/// A sender that turns in so many circles per packet waits for somebody else.
const MANY_WAITS: f64 = 10.0;

/// The mean of what `of` gives, over the trials for which it gives anything.
pub(super) fn average(trials: &[&Trial], of: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = trials.iter().filter_map(|t| of(t)).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// Names what held a throughput down, with the number that shows it.
pub(super) fn limiter(
    metric: Metric,
    typical: f64,
    ceiling: Option<f64>,
    trials: &[&Trial],
) -> (String, String, bool) {
    if !metric.has_limiter() {
        return ("none".into(), String::new(), false);
    }
    if trials.is_empty() {
        return ("unknown".into(), "no trial counts".into(), false);
    }
    // Headers and pauses take a little of the cap.
    let cap = average(trials, |t| t.cap).filter(|cap| typical >= HELD_UNDER * cap);
    if let Some(cap) = cap {
        let text = format!("held under the cap of {} {}", nice(cap), metric.unit());
        return ("rate cap".into(), text, true);
    }
    let cores = average(trials, |t| t.cpu?.mechanism_cores);
    let busy = average(trials, |t| Some(t.cpu?.busy_share)).unwrap_or(0.0);
    let softirq = average(trials, |t| Some(t.cpu?.softirq_share)).unwrap_or(0.0);
    let factor = metric.ceiling_factor();
    let near = ceiling.is_some_and(|c| typical * factor >= c);
    if let (true, Some(ceiling)) = (near, ceiling) {
        let text = format!(
            "within a factor {factor} of the generator's own {} {}{}",
            nice(ceiling),
            metric.unit(),
            generator_cpu(trials)
        );
        return ("generator".into(), text, true);
    }
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
    (what.into(), text.join("; "), false)
}

/// The limiter of flows in a closed loop, whose sender's processor also does all that the kernel does:
/// forwarding, translating and receiving. If the sender never waits, that processor is the limit;
/// otherwise whatever it waits for, which is not in the kernel.
fn closed_loop(
    waits: f64,
    typical: f64,
    ceiling: Option<f64>,
    trials: &[&Trial],
) -> (String, String, bool) {
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
    (what.into(), text, false)
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

    #[test]
    fn a_single_lost_packet_limits_nothing() {
        let name = |rx_lost| {
            let link = LinkCounters { rx_packets: 1_000_000, rx_lost, ..LinkCounters::default() };
            let mut trial = Trial::blank(Metric::TcpThroughputUp);
            trial.links.insert("iperf/uplink".into(), link);
            let (what, why, _) = limiter(Metric::TcpThroughputUp, 1.0, Some(30.0), &[&trial]);
            assert!(
                why.contains(&format!("{rx_lost} of {} packets lost", 1_000_000 + rx_lost)),
                "{why}"
            );
            what
        };
        assert_eq!([name(1), name(99), name(2000)], ["unknown", "unknown", "drops"]);
    }

    #[test]
    fn a_load_at_its_cap_says_so_and_one_below_does_not() {
        let name = |typical| {
            let mut trial = Trial::blank(Metric::TcpThroughputUp);
            trial.cap = Some(1.0);
            limiter(Metric::TcpThroughputUp, typical, Some(1.0), &[&trial])
        };
        let (what, why, at_least) = name(0.94);
        assert_eq!((what.as_str(), at_least), ("rate cap", true));
        assert!(why.contains("cap of 1.00 Gbit/s"), "{why}");
        assert_ne!(name(0.3).0, "rate cap");
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
            let (what, why, _) = limiter(Metric::NewUdpFlows, 400.0, Some(4000.0), &[trial]);
            assert!(why.contains("of 2.50 µs each, the tester takes 0.250"), "{why}");
            what
        };
        assert_eq!(name(&trial(0.1, None)), "one processor");
        assert_eq!(name(&trial(0.1, Some(0.01))), "one processor");
        assert_eq!(name(&trial(100.0, Some(0.99))), "mechanism cpu");
        assert_eq!(name(&trial(100.0, Some(0.5))), "mechanism");
    }
}
