//! Small packets: datagrams between the ends, and frames through a gateway.

use std::path::Path;

use fordway_data::spec::{Metric, Way};
use fordway_data::trial::Trial;

use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::datagrams::{self as load, Burst};
use crate::load::frames::{self as stream, Frames};
use crate::mechanism::Counted;

/// Packets that the mechanism may count beside the load's own: neighbours, router discovery, errors.
const OTHERS: u64 = 1000;

/// Share of the datagrams at a steady rate that may be lost: a queue that was full for a moment.
const MAX_LOST: f64 = 1e-3;

/// Sends small datagrams from a socket as fast as it can.
pub(super) fn datagrams(
    at: &Measured<'_>,
    way: Way,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let (burst, _) = burst(at, way, None, None, trial)?;
    let rate = match way {
        Way::Up => Metric::UdpRateUp,
        Way::Down => Metric::UdpRateDown,
    };
    values.insert(rate, Ok(burst.rate()));
    Ok(())
}

/// Sends small datagrams at a rate that is the same for all mechanisms, and takes the processor time of one. Under a
/// flood, what is lost on the way would be part of the cost of what arrives.
pub(super) fn paced(
    at: &Measured<'_>,
    way: Way,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let file = at.raw.join(format!("{}-cycles-{}.txt", at.name, way.name()));
    let counters = at.cycles.then_some(file.as_path());
    let rate = at.profile.paced_rate.into();
    let (burst, cycles) = burst(at, way, Some(rate), counters, trial)?;
    trial.failed.extend(overloaded(&burst, rate));
    let [cpu, per_packet] = match way {
        Way::Up => [Metric::CpuPerPacketUp, Metric::CyclesPerPacketUp],
        Way::Down => [Metric::CpuPerPacketDown, Metric::CyclesPerPacketDown],
    };
    let packets = burst.sent.packets.max(1) as f64;
    if let Some(used) = &trial.cpu {
        values.insert(cpu, Ok(used.busy_s * 1e6 / packets));
    }
    if let Some(counted) = cycles {
        values.insert(per_packet, Ok(counted / packets));
    }
    Ok(())
}

/// Why a packet has no cost at this rate: the mechanism does not carry it without loss.
fn overloaded(burst: &Burst, rate: u64) -> Option<String> {
    (burst.lost() > MAX_LOST)
        .then(|| format!("{:.1} % of {rate} datagrams per second were lost", 100.0 * burst.lost()))
}

/// Sends datagrams, and counts what becomes of them; with a file for `perf`, also cycles.
fn burst(
    at: &Measured<'_>,
    way: Way,
    rate: Option<u64>,
    counters: Option<&Path>,
    trial: &mut Trial,
) -> Result<(Burst, Option<f64>)> {
    trial.started = now();
    let sink = load::sink(at.backend, at.network, way)?;
    let before = Before::read(at)?;
    let size = (at.profile.packets_s, rate);
    let (finished, sent, cycles) = load::send(at.backend, at.network, way, size, counters)?;
    let after = before.stop(at)?;
    let burst = Burst { sent, arrived: sink.settled()? };
    after.finish(at, trial)?;
    let what = if rate.is_some() { "paced" } else { "datagrams" };
    at.keep(&format!("{what}-{}.json", way.name()), &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    trial.argv = finished.argv;
    trial.offered = Some(burst.offered());
    trial.cap = at.backend.cap().map(|cap| cap.packets_s as f64 / 1e3);
    trial.sent = Some(burst.sent.packets);
    trial.arrived = Some(burst.arrived);
    trial.generator_cpu = Some((100.0 * burst.sent.cpu_s / burst.sent.seconds, 0.0));
    if burst.arrived > burst.sent.packets {
        let sent = burst.sent.packets;
        trial.invalid.push(format!("{} datagrams arrived of {sent} sent", burst.arrived));
    }
    check(trial, at, way, burst.arrived, Some(burst.sent.packets));
    Ok((burst, cycles))
}

/// Sends frames through a gateway as fast as the kernel can: small ones, at a point between so many pairs of hosts, or
/// those of an IMIX.
pub(super) fn frames(
    at: &Measured<'_>,
    way: Way,
    frames: Frames<'_>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let [rate, payload] = match (frames, way) {
        (Frames::Small, Way::Up) => [Some(Metric::FrameRateUp), None],
        (Frames::Small, Way::Down) => [Some(Metric::FrameRateDown), None],
        (Frames::Between { .. }, Way::Up) => [Some(Metric::PairRateUp), None],
        (Frames::Between { .. }, Way::Down) => [Some(Metric::PairRateDown), None],
        (Frames::Imix(_), Way::Up) => [Metric::ImixRateUp, Metric::ImixThroughputUp].map(Some),
        (Frames::Imix(_), Way::Down) => {
            [Metric::ImixRateDown, Metric::ImixThroughputDown].map(Some)
        }
    };
    let kind = match frames {
        Frames::Small => String::new(),
        Frames::Between { hosts, .. } => format!("-{hosts}"),
        Frames::Imix(_) => "-imix".to_owned(),
    };
    let log = at.raw.join(format!("{}-frames-{}{kind}.log", at.name, way.name()));
    trial.started = now();
    let before = Before::read(at)?;
    let stream = stream::measure(at.backend, at.network, way, frames, at.profile.packets_s, &log)?;
    before.finish(at, trial)?;
    trial.exit_status = Some(0);
    trial.arrived = Some(stream.received.packets);
    trial.generator_cpu = Some((100.0 * stream.used.cpu_s / stream.used.seconds, 0.0));
    check(trial, at, way, stream.received.packets, None);
    let all = [rate.zip(Some(stream.rate())), payload.zip(stream.payload())];
    values.extend(all.into_iter().flatten().map(|(metric, value)| (metric, Ok(value))));
    trial.argv = stream.argv;
    Ok(())
}

/// The receiver's count must agree with its device's, and with the mechanism's own.
pub(super) fn check(
    trial: &mut Trial,
    at: &Measured<'_>,
    way: Way,
    arrived: u64,
    sent: Option<u64>,
) {
    let devices = at.network.receiving_devices(way, at.in_kernel);
    let seen = devices.iter().find_map(|d| Some((*d, trial.links.get(*d)?.rx_packets)));
    if let Some((device, carried)) = seen.filter(|(_, carried)| *carried < arrived) {
        trial.invalid.push(format!(
            "counters disagree: {arrived} packets arrived, {device} received {carried}"
        ));
    }
    let Some(counted) = counted(trial, at, way) else { return };
    if let Some(why) = disagreement(counted.packets, arrived, sent) {
        trial.invalid.push(why);
    }
    for (reason, n) in counted.drops {
        trial.flags.push(format!("the mechanism dropped {n} packets: {reason}"));
    }
}

/// The mechanism's own account of one way, when it counts packets.
pub(super) fn counted(trial: &Trial, at: &Measured<'_>, way: Way) -> Option<Counted> {
    let (mechanism, (before, after)) = at.mechanism.zip(trial.counters.as_ref())?;
    mechanism.read(before, after, at.network.becomes_v6(way))
}

/// Why a mechanism's count of packets can't be right.
pub(super) fn disagreement(translated: u64, arrived: u64, sent: Option<u64>) -> Option<String> {
    if translated < arrived {
        return Some(format!(
            "counters disagree: {arrived} packets arrived, the mechanism translated {translated}"
        ));
    }
    let sent = sent.filter(|sent| translated > sent + OTHERS)?;
    Some(format!(
        "counters disagree: {sent} packets were sent, the mechanism translated {translated}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(packets: u64, arrived: u64) -> Burst {
        let sent = fordway_load::datagrams::Sent {
            packets,
            refused: 0,
            seconds: 1.0,
            cpu_s: 0.1,
            worst_lag_us: 0.0,
        };
        Burst { sent, arrived }
    }

    #[test]
    fn loss_is_no_cost_of_what_arrives() {
        // A packet costs 4 µs up to its translation and 1 µs after it, on one processor; a queue between the two drops
        // what the second step has no time for. `share` of the time goes to the first step, as under a flood.
        let flood = |share: f64| {
            let first = (share * 1e6 / 4.0) as u64;
            let arrived = first.min(((1.0 - share) * 1e6 / 1.0) as u64);
            (1e6 / arrived as f64, sent(first, arrived))
        };
        // Busy time over arrivals, as it once was: five times the cost, and a matter of the scheduler.
        let (fair, all_arrive) = flood(0.8);
        let (starved, _) = flood(0.96);
        assert!((fair - 5.0).abs() < 0.01 && starved > 24.0, "{fair} {starved}");
        assert_eq!(overloaded(&all_arrive, 200_000), None);
        // At a rate that is carried, each packet costs what it costs; at one that is not, there is no cost.
        let paced = |rate: u64| {
            let busy_s = 5e-6 * rate as f64;
            (busy_s <= 1.0).then(|| busy_s * 1e6 / sent(rate, rate).sent.packets as f64)
        };
        assert_eq!([paced(20_000), paced(100_000)], [Some(5.0), Some(5.0)]);
        let (_, lossy) = flood(0.96);
        assert!(overloaded(&lossy, 240_000).unwrap().contains("83.3 % of 240000"));
        assert_eq!(overloaded(&sent(20_000, 19_990), 20_000), None);
        assert!(overloaded(&sent(20_000, 19_970), 20_000).is_some());
    }

    #[test]
    fn a_mechanism_translates_what_arrives_and_no_more_than_was_sent() {
        assert_eq!(disagreement(100, 100, Some(100)), None);
        assert_eq!(disagreement(120, 100, Some(150)), None);
        assert_eq!(disagreement(1_000_000, 100, None), None);
        assert!(disagreement(99, 100, Some(150)).is_some());
        assert!(disagreement(1151, 100, Some(150)).is_some());
    }
}
