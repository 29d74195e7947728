//! One TCP flow: throughput, and what it takes of the processors.

use fordway_data::spec::{Metric, Way};
use fordway_data::trial::Trial;

use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::iperf;
use crate::mechanism::Mechanism;

/// Fewest octets on a device per payload octet: super-packets carry next to no headers.
const LEAST_WIRE: f64 = 0.98;
/// Most octets on a device per payload octet: 1,280-octet packets with both headers and options.
const MOST_WIRE: f64 = 1.10;
/// Payload of a segment sent again.
const SEGMENT: f64 = 1448.0;
/// Octets beside the flow's own: iperf3's control connection.
const BESIDE: f64 = 1e6;

/// Measures one TCP flow.
pub(super) fn measure(
    at: &Measured<'_>,
    way: Way,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let down = way == Way::Down;
    let cap = at.backend.cap();
    let argv = iperf::argv(at.network.target, at.profile, seconds, down, cap);
    trial.cap = cap.map(|cap| cap.gbit_s);
    trial.argv.clone_from(&argv);
    trial.started = now();
    let before = Before::read(at)?;
    let (finished, flow) = iperf::measure(at.backend, &at.network.app, &argv, at.profile, seconds)?;
    before.finish(at, trial)?;
    trial.exit_status = Some(finished.code());
    at.keep(&format!("iperf3-{}.json", way.name()), &finished.stdout)?;
    let flow = flow?;
    trial.value = Some(flow.gbit_s);
    trial.series = flow.series;
    trial.generator_bytes = Some(flow.bytes);
    trial.generator_sent = Some(flow.sent);
    trial.retransmits = flow.retransmits;
    let (client, server) = (flow.client_cpu, flow.server_cpu);
    trial.generator_cpu = Some(if down { (server, client) } else { (client, server) });
    check_octets(trial, at.network.receiving_devices(way, at.in_kernel));
    check_counters(trial, at.mechanism, at.network.becomes_v6(way));
    let (rate, cpu) = match way {
        Way::Up => (Metric::TcpThroughputUp, Metric::CpuPerGbitUp),
        Way::Down => (Metric::TcpThroughputDown, Metric::CpuPerGbitDown),
    };
    values.insert(rate, Ok(flow.gbit_s));
    if let Some(used) = &trial.cpu {
        values.insert(cpu, Ok(ms_per_gbit(used.busy_s, flow.bytes)));
    }
    Ok(())
}

/// Milliseconds of processor time per 10^9 bits of payload.
fn ms_per_gbit(busy_s: f64, octets: u64) -> f64 {
    busy_s * 1e3 / (octets as f64 * 8.0 / 1e9)
}

/// The device at the receiver's end must have carried what the generator says it received.
fn check_octets(trial: &mut Trial, devices: &[&str]) {
    let found = devices.iter().find_map(|d| Some((*d, trial.links.get(*d)?.rx_bytes)));
    let (Some((device, carried)), Some(payload)) = (found, trial.generator_bytes) else {
        return;
    };
    if !agrees(trial, carried, payload) {
        trial.invalid.push(format!(
            "counters disagree: iperf3 received {payload} octets, {device} carried {carried}"
        ));
    }
}

/// Whether octets counted on the way can be those of the flow: not fewer than iperf3 received, and not more than its
/// sender gave to the socket, with headers and repeated segments. What was under way at the end lies between the two.
fn agrees(trial: &Trial, counted: u64, payload: u64) -> bool {
    let (counted, received) = (counted as f64, payload as f64);
    let sent = trial.generator_sent.map_or(received, |sent| sent as f64).max(received);
    let again = trial.retransmits.unwrap_or(0) as f64 * SEGMENT;
    (LEAST_WIRE * received..=MOST_WIRE * (sent + again) + BESIDE).contains(&counted)
}

/// The mechanism's own counters must agree with the generator's as well.
fn check_counters(trial: &mut Trial, mechanism: Option<&dyn Mechanism>, to_v6: bool) {
    let read = mechanism.zip(trial.counters.as_ref()).and_then(|(m, (a, b))| m.read(a, b, to_v6));
    let (Some(counted), Some(payload)) = (read, trial.generator_bytes) else { return };
    if !agrees(trial, counted.octets, payload) {
        trial.invalid.push(format!(
            "counters disagree: iperf3 received {payload} octets, the mechanism translated {}",
            counted.octets
        ));
    }
    for (reason, n) in counted.drops {
        trial.flags.push(format!("the mechanism dropped {n} packets: {reason}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_data::trial::LinkCounters;

    #[test]
    fn processor_time_is_per_payload() {
        // 2.5 s for 10 Gbit.
        assert_eq!(ms_per_gbit(2.5, 1_250_000_000), 250.0);
    }

    #[test]
    fn a_short_flow_explains_no_more_octets_than_its_sender_sent() {
        const MB: u64 = 1_000_000;
        // One second at 0.8 Gbit/s, of which 4 MB were under way at its end.
        let trial = Trial {
            value: Some(0.8),
            generator_sent: Some(104 * MB),
            ..Trial::blank(Metric::TcpThroughputUp)
        };
        // As it once was: three tenths of a second, and 16 MB.
        let old = |counted: f64| counted <= 1.10 * 100e6 + 0.3 * 100e6 + 16e6;
        for (counted, right) in [(99, true), (112, true), (120, false), (150, false), (97, false)] {
            assert_eq!(agrees(&trial, counted * MB, 100 * MB), right, "{counted}");
        }
        assert!(old(150e6), "half as much again as was received");
    }

    #[test]
    fn counters_that_disagree_make_a_trial_invalid() {
        let link = |rx_bytes| LinkCounters { rx_bytes, ..LinkCounters::default() };
        const MB: u64 = 1_000_000;
        for (carried, ok) in [(1020 * MB, true), (900 * MB, false), (1300 * MB, false)] {
            let mut trial = Trial::blank(Metric::TcpThroughputUp);
            trial.generator_bytes = Some(1000 * MB);
            trial.links.insert("iperf/uplink".into(), link(carried));
            check_octets(&mut trial, &["client/clat0", "iperf/uplink"]);
            assert_eq!(trial.invalid.is_empty(), ok, "{carried}");
            // Segments sent again explain the surplus.
            let mut trial = Trial { retransmits: Some(150_000), invalid: vec![], ..trial };
            check_octets(&mut trial, &["iperf/uplink"]);
            assert_eq!(trial.invalid.is_empty(), carried >= 1000 * MB, "{carried}");
        }
    }
}
