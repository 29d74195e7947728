//! The measurements of one deployment, and the rules by which a trial counts.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::backend::{Backend, Place, write_file};
use crate::error::{LabError, Result};
use crate::host::cpu::Meter;
use crate::host::links::{difference, snapshot};
use crate::load::{iperf, ping};
use crate::mechanism::{Deployed, Mechanism};
use crate::probe::gate::own_program;
use crate::process::Output;
use crate::spec::{Metric, Profile};
use crate::stats::describe::median;
use crate::topology::Network;
use crate::trial::{Condition, Trial};

/// A trial with more stolen processor time than this does not count.
const MAX_STEAL: f64 = 0.10;
/// A trial with more stolen processor time than this is flagged.
const FLAG_STEAL: f64 = 0.02;
/// A trial during which other programs kept this many cores busy is flagged.
const FLAG_OTHER: f64 = 0.3;
/// How the flag for other programs begins.
pub(crate) const OTHER_WORK: &str = "other programs kept";
/// Fewest octets on a device per payload octet: super-packets carry next to no headers.
const LEAST_WIRE: f64 = 0.98;
/// Most octets on a device per payload octet: 1,280-octet packets with both headers and options.
const MOST_WIRE: f64 = 1.10;
/// Payload of a segment sent again.
const SEGMENT: f64 = 1448.0;
/// Seconds of the flow's rate that may be under way, or in socket buffers, when iperf3 stops counting.
const UNDER_WAY_S: f64 = 0.3;
/// Octets that socket buffers hold at any rate.
const BUFFERS: f64 = 16e6;
/// Replies that a series of pings may lack.
const MAX_PING_LOSS: f64 = 0.05;

/// What is measured where.
#[derive(Clone, Copy)]
pub(crate) struct Measured<'a> {
    /// Runs the tools.
    pub(crate) backend: &'a dyn Backend,
    /// The network with the mechanism on it.
    pub(crate) network: &'a Network,
    /// The mechanism's process.
    pub(crate) deployed: &'a Deployed,
    /// Reads its counters; `None` while calibrating.
    pub(crate) mechanism: Option<&'a dyn Mechanism>,
    /// Sizes.
    pub(crate) profile: &'a Profile,
    /// Folder for raw outputs.
    pub(crate) raw: &'a Path,
    /// Name of the deployment, for files.
    pub(crate) name: &'a str,
}

impl Measured<'_> {
    fn counters(&self) -> Option<serde_json::Value> {
        self.mechanism?.counters(self.deployed)
    }

    fn pid(&self) -> Option<u32> {
        self.deployed.daemon.as_ref().map(crate::process::Running::pid)
    }

    fn keep(&self, what: &str, text: &str) -> Result<()> {
        write_file(&self.raw.join(format!("{}-{what}", self.name)), text.as_bytes())
    }
}

/// A trial with nothing measured yet.
pub(crate) fn blank(metric: Metric) -> Trial {
    Trial {
        key: String::new(),
        experiment: String::new(),
        seed: 0,
        block: 0,
        order: 0,
        condition: Condition { clocksource: String::new(), duration_s: 0, offloads: true },
        mechanism: String::new(),
        implementation: String::new(),
        version: String::new(),
        config_hash: String::new(),
        metric,
        unit: metric.unit().into(),
        direction: metric.direction().into(),
        offered: None,
        value: None,
        replies: Vec::new(),
        series: Vec::new(),
        generator_bytes: None,
        retransmits: None,
        generator_cpu: None,
        links: Default::default(),
        counters: None,
        cpu: None,
        checks: Vec::new(),
        valid: false,
        invalid: Vec::new(),
        flags: Vec::new(),
        mechanism_argv: Vec::new(),
        argv: Vec::new(),
        exit_status: None,
        started: now(),
        elapsed_s: 0.0,
    }
}

/// The present time (RFC 3339, UTC, whole seconds).
pub(crate) fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}

/// Measures one TCP flow.
pub(crate) fn throughput(
    at: &Measured<'_>,
    metric: Metric,
    seconds: u64,
    trial: &mut Trial,
) -> Result<()> {
    let places = at.network.places();
    let down = metric == Metric::TcpThroughputDown;
    let argv = iperf::argv(at.network.target, seconds, at.profile.interval_s, down);
    trial.argv.clone_from(&argv);
    trial.started = now();
    let counters = at.counters();
    let before = snapshot(at.backend, &places)?;
    let meter = Meter::start(at.pid());
    let (finished, flow) = iperf::measure(at.backend, &at.network.app, &argv, seconds)?;
    trial.cpu = Some(meter.stop());
    let after = snapshot(at.backend, &places)?;
    trial.counters = counters.zip(at.counters());
    trial.links = difference(&before, &after);
    trial.exit_status = Some(finished.code());
    at.keep(&format!("iperf3-{}.json", metric.direction()), &finished.stdout)?;
    let flow = flow?;
    trial.value = Some(flow.gbit_s);
    trial.series = flow.series;
    trial.generator_bytes = Some(flow.bytes);
    trial.retransmits = flow.retransmits;
    let (client, server) = (flow.client_cpu, flow.server_cpu);
    trial.generator_cpu = Some(if down { (server, client) } else { (client, server) });
    check_octets(trial, at.network.receiving_devices(down));
    check_counters(trial, at.mechanism, down);
    Ok(())
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

/// Whether octets counted on the way can be those that iperf3 received: not fewer, and not more
/// than headers, repeated segments and what was under way at the end explain.
fn agrees(trial: &Trial, counted: u64, payload: u64) -> bool {
    let (counted, payload) = (counted as f64, payload as f64);
    let again = trial.retransmits.unwrap_or(0) as f64 * SEGMENT;
    let octets_per_second = trial.value.unwrap_or(0.0) * 1e9 / 8.0;
    let most = MOST_WIRE * (payload + again) + UNDER_WAY_S * octets_per_second + BUFFERS;
    (LEAST_WIRE * payload..=most).contains(&counted)
}

/// The mechanism's own counters must agree with the generator's as well.
fn check_counters(trial: &mut Trial, mechanism: Option<&dyn Mechanism>, down: bool) {
    let read = mechanism.zip(trial.counters.as_ref()).and_then(|(m, (a, b))| m.read(a, b, down));
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

/// Measures round-trip times.
pub(crate) fn rtt(at: &Measured<'_>, trial: &mut Trial) -> Result<()> {
    let profile = at.profile;
    let argv = ping::argv(at.network.target, profile.ping_count, profile.ping_interval_s);
    let expected = Duration::from_secs_f64(f64::from(profile.ping_count) * profile.ping_interval_s);
    trial.argv.clone_from(&argv);
    trial.started = now();
    // The first echo resolves neighbours; it must not be among the measured ones.
    let warm = ping::argv(at.network.target, 2, 0.01);
    ping::measure(at.backend, &at.network.app, &warm, Duration::from_secs(1))?;
    let counters = at.counters();
    let meter = Meter::start(at.pid());
    let (finished, pings) = ping::measure(at.backend, &at.network.app, &argv, expected)?;
    trial.cpu = Some(meter.stop());
    trial.counters = counters.zip(at.counters());
    trial.exit_status = Some(finished.code());
    at.keep("ping.txt", &finished.stdout)?;
    let lost = 1.0 - pings.replies_ms.len() as f64 / f64::from(pings.sent.max(1));
    if lost > MAX_PING_LOSS {
        trial.invalid.push(format!("{:.0} % of the echo replies are missing", 100.0 * lost));
    } else if lost > 0.0 {
        trial.flags.push(format!("{:.1} % of the echo replies are missing", 100.0 * lost));
    }
    // The median: one reply that waited for a processor must not decide for all.
    trial.value = Some(median(&pings.replies_ms)).filter(|v| v.is_finite());
    trial.replies = pings.replies_ms;
    Ok(())
}

/// Measures from the start of the process to the first translated packet.
pub(crate) fn start_time(
    backend: &dyn Backend,
    place: &Place,
    target: IpAddr,
    start: &[String],
    trial: &mut Trial,
) -> Result<()> {
    let mut argv: Vec<String> =
        [&own_program()?, "probe", "start", "--target", &target.to_string(), "--"]
            .map(str::to_owned)
            .into();
    argv.extend_from_slice(start);
    trial.started = now();
    let out = backend.run(Some(place), &argv, Output::Keep)?.wait(Duration::from_secs(15))?;
    trial.argv = argv;
    trial.exit_status = Some(out.code());
    let out = out.ok()?;
    let ms: f64 = out.stdout.trim().parse().map_err(|_| LabError::Parse {
        tool: "fordway-lab probe start",
        why: out.stdout.clone(),
    })?;
    trial.value = Some(ms);
    Ok(())
}

/// Cores that were busy with neither the generator, the mechanism, nor forwarding.
fn other_cores(trial: &Trial) -> f64 {
    let Some(cpu) = &trial.cpu else { return 0.0 };
    let machine = crate::host::cpu::processors() as f64;
    let (sender, receiver) = trial.generator_cpu.unwrap_or((0.0, 0.0));
    (cpu.busy_share - cpu.softirq_share) * machine
        - (sender + receiver) / 100.0
        - cpu.mechanism_cores.unwrap_or(0.0)
}

/// Decides whether a trial counts.
pub(crate) fn judge(trial: &mut Trial) {
    let other = other_cores(trial);
    if other > FLAG_OTHER {
        trial.flags.push(format!("{OTHER_WORK} {other:.1} cores busy"));
    }
    if let Some(cpu) = &trial.cpu {
        let per_cent = 100.0 * cpu.steal_share;
        if cpu.steal_share > MAX_STEAL {
            trial.invalid.push(format!("the hypervisor took {per_cent:.0} % of the time"));
        } else if cpu.steal_share > FLAG_STEAL {
            trial.flags.push(format!("the hypervisor took {per_cent:.1} % of the time"));
        }
    }
    if let Some(status) = trial.exit_status.filter(|s| *s != 0) {
        // ping says 1 for a single lost reply; the loss rule above decides about those.
        if trial.metric != Metric::Rtt || trial.value.is_none() {
            trial.invalid.push(format!("the tool ended with status {status}"));
        }
    }
    let measured = trial.value.is_some_and(|v| v.is_finite() && v > 0.0);
    let gated = trial.metric == Metric::Gate && !trial.checks.is_empty();
    if !measured && !gated && trial.invalid.is_empty() {
        trial.invalid.push("nothing was measured".into());
    }
    trial.valid = trial.invalid.is_empty();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cpu::CpuUse;
    use crate::host::links::LinkCounters;

    #[test]
    fn a_trial_counts_only_when_nothing_speaks_against_it() {
        let mut good = Trial { value: Some(1.0), ..blank(Metric::Rtt) };
        judge(&mut good);
        assert!(good.valid);
        let mut empty = blank(Metric::Rtt);
        judge(&mut empty);
        assert_eq!(empty.invalid, ["nothing was measured"]);
        let stolen = CpuUse { steal_share: 0.2, ..CpuUse::default() };
        let mut stolen = Trial { value: Some(1.0), cpu: Some(stolen), ..blank(Metric::Rtt) };
        judge(&mut stolen);
        assert!(!stolen.valid);
    }

    #[test]
    fn counters_that_disagree_make_a_trial_invalid() {
        let link = |rx_bytes| LinkCounters { rx_bytes, ..LinkCounters::default() };
        const MB: u64 = 1_000_000;
        for (carried, ok) in [(1020 * MB, true), (900 * MB, false), (1300 * MB, false)] {
            let mut trial = blank(Metric::TcpThroughputUp);
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
