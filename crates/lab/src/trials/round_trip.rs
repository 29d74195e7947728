//! Round-trip times: on an idle path, and under a steady load.

use std::time::Duration;

use fordway_data::histogram::percentile;
use fordway_data::spec::{Metric, Way};
use fordway_data::trial::Trial;
use fordway_stats::describe::midmean;

use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::{echo, ping};
use crate::probe::gate;

/// A sender that was later than this is remarked: part of the tail is its own.
const FLAG_LAG_US: f64 = 200.0;

/// Measures round-trip times on an idle path, one echo at a time.
pub(super) fn ping(at: &Measured<'_>, trial: &mut Trial, values: &mut Values) -> Result<()> {
    let profile = at.profile;
    let argv = ping::argv(at.network.target, profile.ping_count, profile.ping_interval_s);
    let expected = Duration::from_secs_f64(f64::from(profile.ping_count) * profile.ping_interval_s);
    trial.argv.clone_from(&argv);
    trial.started = now();
    // The first echo resolves neighbours; it must not be among the measured ones.
    let warm = ping::argv(at.network.target, 2, 0.01);
    ping::measure(at.backend, &at.network.app, &warm, Duration::from_secs(1))?;
    let counters = at.counters()?;
    let meter = at.count()?;
    let (finished, pings) = ping::measure(at.backend, &at.network.app, &argv, expected)?;
    trial.cpu = Some(at.used(meter)?);
    trial.counters = counters.zip(at.counters()?);
    trial.exit_status = Some(finished.code());
    at.keep("ping.txt", &finished.stdout)?;
    let lost = 1.0 - pings.replies_ms.len() as f64 / f64::from(pings.sent.max(1));
    trial.lost = Some(lost);
    if lost > 0.0 {
        trial.flags.push(format!("{:.1} % of the echo replies are missing", 100.0 * lost));
    }
    let replies = pings.replies_ms.len() as u64;
    check_both_ways(trial, at, replies, pings.sent.into());
    if let Some(typical) = midmean(&pings.replies_ms) {
        trial.value = Some(typical);
        values.insert(Metric::Rtt, Ok(typical));
    }
    trial.replies = pings.replies_ms;
    Ok(())
}

/// Measures round-trip times of datagrams at a steady rate.
pub(super) fn probe(at: &Measured<'_>, trial: &mut Trial, values: &mut Values) -> Result<()> {
    let (rate, seconds) = (at.profile.probe_rate, at.profile.probe_s);
    trial.offered = Some(f64::from(rate));
    let log = at.raw.join(format!("{}-echo-server.log", at.name));
    let _server = gate::serve(at.backend, at.network, &log)?;
    trial.started = now();
    let before = Before::read(at)?;
    let (finished, echoes) = echo::measure(at.backend, at.network, rate, seconds)?;
    before.finish(at, trial)?;
    at.keep("echo.json", &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    trial.argv = finished.argv;
    let share = 100.0 * echoes.cpu_s / echoes.seconds;
    trial.generator_cpu = Some((share, 0.0));
    trial.sent = Some(echoes.sent);
    trial.arrived = Some(echoes.sent - echoes.lost);
    check_both_ways(trial, at, echoes.sent - echoes.lost, echoes.sent);
    if echoes.lost > 0 {
        trial.flags.push(format!("{} of {} datagrams were lost", echoes.lost, echoes.sent));
    }
    if echoes.worst_lag_us > FLAG_LAG_US {
        trial.flags.push(format!(
            "the tester itself was up to {:.0} µs late; part of the tail is its own",
            echoes.worst_lag_us
        ));
    }
    for (metric, p) in PERCENTILES {
        values.insert(metric, percentile(&echoes.histogram, echoes.sent, p));
    }
    trial.histogram = echoes.histogram;
    Ok(())
}

/// What was answered must have passed the mechanism twice, by its own account.
fn check_both_ways(trial: &mut Trial, at: &Measured<'_>, answered: u64, sent: u64) {
    for way in [Way::Up, Way::Down] {
        let counted = super::packets::counted(trial, at, way);
        let why =
            counted.and_then(|c| super::packets::disagreement(c.packets, answered, Some(sent)));
        trial.invalid.extend(why);
    }
}

/// The percentiles that are compared.
const PERCENTILES: [(Metric, f64); 3] =
    [(Metric::LatencyP50, 0.5), (Metric::LatencyP99, 0.99), (Metric::LatencyP999, 0.999)];
