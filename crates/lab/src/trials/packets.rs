//! Small packets: datagrams between the ends, and frames through a gateway.

use fordway_data::spec::{Metric, Way};
use fordway_data::trial::Trial;

use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::{datagrams as load, frames as stream};
use crate::mechanism::Counted;

/// Packets that the mechanism may count beside the load's own: neighbours, router discovery, errors.
const OTHERS: u64 = 1000;

/// Sends small datagrams from a socket as fast as it can.
pub(super) fn datagrams(
    at: &Measured<'_>,
    way: Way,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let file = at.raw.join(format!("{}-cycles-{}.txt", at.name, way.name()));
    let counters = at.cycles.then_some(file.as_path());
    trial.started = now();
    let before = Before::read(at)?;
    let seconds = at.profile.packets_s;
    let (finished, burst) = load::measure(at.backend, at.network, way, seconds, counters)?;
    before.finish(at, trial)?;
    at.keep(&format!("datagrams-{}.json", way.name()), &finished.stdout)?;
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
    let [rate, cpu, cycles] = match way {
        Way::Up => [Metric::UdpRateUp, Metric::CpuPerPacketUp, Metric::CyclesPerPacketUp],
        Way::Down => [Metric::UdpRateDown, Metric::CpuPerPacketDown, Metric::CyclesPerPacketDown],
    };
    values.insert(rate, Ok(burst.rate()));
    let packets = burst.arrived as f64;
    if burst.arrived > 0 {
        if let Some(used) = &trial.cpu {
            values.insert(cpu, Ok(used.busy_s * 1e6 / packets));
        }
        if let Some(counted) = burst.cycles {
            values.insert(cycles, Ok(counted / packets));
        }
    }
    Ok(())
}

/// Sends small frames through a gateway as fast as the kernel can.
pub(super) fn frames(
    at: &Measured<'_>,
    way: Way,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let log = at.raw.join(format!("{}-frames-{}.log", at.name, way.name()));
    trial.started = now();
    let before = Before::read(at)?;
    let stream = stream::measure(at.backend, at.network, way, at.profile.packets_s, &log)?;
    before.finish(at, trial)?;
    trial.exit_status = Some(0);
    trial.arrived = Some(stream.received.packets);
    trial.generator_cpu = Some((100.0 * stream.used.cpu_s / stream.used.seconds, 0.0));
    check(trial, at, way, stream.received.packets, None);
    let metric = match way {
        Way::Up => Metric::FrameRateUp,
        Way::Down => Metric::FrameRateDown,
    };
    values.insert(metric, Ok(stream.rate()));
    trial.argv = stream.argv;
    Ok(())
}

/// The receiver's count must agree with its device's, and with the mechanism's own.
fn check(trial: &mut Trial, at: &Measured<'_>, way: Way, arrived: u64, sent: Option<u64>) {
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

    #[test]
    fn a_mechanism_translates_what_arrives_and_no_more_than_was_sent() {
        assert_eq!(disagreement(100, 100, Some(100)), None);
        assert_eq!(disagreement(120, 100, Some(150)), None);
        assert_eq!(disagreement(1_000_000, 100, None), None);
        assert!(disagreement(99, 100, Some(150)).is_some());
        assert!(disagreement(1151, 100, Some(150)).is_some());
    }
}
