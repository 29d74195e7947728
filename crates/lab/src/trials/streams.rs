//! Several TCP flows at once, and round trips while they run both ways (after flent's RRUL).

use std::time::Duration;

use fordway_stats::describe::sorted;

use super::{Before, Lack, Measured, Values, now};
use crate::error::Result;
use crate::load::{iperf, ping};
use crate::process::{Output, poll};
use fordway_data::spec::{Axis, Metric, Point, Profile};
use fordway_data::trial::Trial;

/// Seconds between echo requests.
const INTERVAL_S: f64 = 0.01;
/// Seconds for which the flows run before the first echo request, and again after the last.
const AROUND_S: u64 = 1;
/// Seconds that `iperf3` may take beyond its flows.
const PATIENCE_S: u64 = 15;

/// The command line of so many flows at once, each of them for so many seconds.
fn argv(at: &Measured<'_>, point: Option<&Point>, seconds: u64, both: bool) -> Vec<String> {
    let flows = point.and_then(|point| point.at(Axis::Streams)).unwrap_or(1);
    // Their length is a time: octets would be those of all flows together.
    let profile = Profile { flow_octets: None, ..at.profile.clone() };
    let mut argv = iperf::argv(at.network.target, &profile, seconds, false, None);
    argv.extend(["-P".to_owned(), flows.to_string()]);
    if both {
        argv.push("--bidir".into());
    }
    argv
}

/// What `iperf3` said goes into the trial.
fn note(trial: &mut Trial, flow: &iperf::Flow) {
    trial.series.clone_from(&flow.series);
    trial.generator_bytes = Some(flow.bytes);
    trial.generator_sent = Some(flow.sent);
    trial.retransmits = flow.retransmits;
    trial.generator_cpu = Some((flow.client_cpu, flow.server_cpu));
}

/// Sends so many flows from the client to the server.
pub(super) fn one_way(
    at: &Measured<'_>,
    point: Option<&Point>,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let argv = argv(at, point, seconds, false);
    trial.argv.clone_from(&argv);
    trial.started = now();
    let before = Before::read(at)?;
    let limit = Duration::from_secs(seconds + PATIENCE_S);
    let finished = at.backend.run(Some(&at.network.app), &argv, Output::Keep)?.wait(limit)?;
    before.finish(at, trial)?;
    trial.exit_status = Some(finished.code());
    keep(at, "streams", point, &finished.stdout)?;
    let flow = iperf::parse(&finished.stdout)?;
    note(trial, &flow);
    values.insert(Metric::TcpStreams, Ok(flow.gbit_s));
    Ok(())
}

/// Sends so many flows each way, and echo requests beside them.
pub(super) fn both_ways(
    at: &Measured<'_>,
    point: Option<&Point>,
    seconds: u64,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let long = seconds + 2 * AROUND_S;
    let argv = argv(at, point, long, true);
    let count = (seconds as f64 / INTERVAL_S) as u32;
    let echoes = ping::argv(at.network.target, count, INTERVAL_S);
    trial.argv.clone_from(&argv);
    trial.started = now();
    let app = &at.network.app;
    let before = Before::read(at)?;
    let flows = at.backend.run(Some(app), &argv, Output::Keep)?;
    poll(Duration::from_secs(AROUND_S), || None::<()>)?;
    let expected = Duration::from_secs(seconds);
    let (asked, pings) = ping::measure(at.backend, app, &echoes, expected)?;
    let finished = flows.wait(Duration::from_secs(long + PATIENCE_S))?;
    before.finish(at, trial)?;
    // ping ends with 1 where a reply is missing; what that means is decided below.
    trial.exit_status = Some(finished.code());
    keep(at, "both-ways", point, &finished.stdout)?;
    keep(at, "ping-loaded", point, &asked.stdout)?;
    let (flow, back) = (iperf::parse(&finished.stdout)?, iperf::other_way(&finished.stdout)?);
    note(trial, &flow);
    let (sent, answered) = (u64::from(pings.sent), pings.replies_ms.len() as u64);
    (trial.sent, trial.arrived) = (Some(sent), Some(answered));
    if answered < sent {
        trial.flags.push(format!("{} of {sent} echo replies are missing", sent - answered));
    }
    values.insert(Metric::TcpBothWays, Ok(flow.gbit_s + back));
    values.insert(Metric::RttLoaded, typical(&pings));
    trial.replies = pings.replies_ms;
    Ok(())
}

/// The median of all echo requests, of which those without a reply are later than all others.
fn typical(pings: &ping::Pings) -> std::result::Result<f64, Lack> {
    let sent = pings.sent as usize;
    let rank = sent.saturating_sub(1) / 2;
    sorted(&pings.replies_ms).get(rank).copied().ok_or_else(|| {
        let lost = sent.saturating_sub(pings.replies_ms.len());
        Lack::Failed(format!("{lost} of {sent} echo replies are missing"))
    })
}

fn keep(at: &Measured<'_>, what: &str, point: Option<&Point>, text: &str) -> Result<()> {
    let flows = point.and_then(|point| point.at(Axis::Streams)).unwrap_or(1);
    at.keep(&format!("{what}-{flows}.txt"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_requests_without_a_reply_are_later_than_all_others() {
        let pings = |sent, replies: &[f64]| ping::Pings { sent, replies_ms: replies.to_vec() };
        assert_eq!(typical(&pings(3, &[1.0, 9.0, 2.0])), Ok(2.0));
        // Two of five are lost: the median is the slowest that came.
        assert_eq!(typical(&pings(5, &[1.0, 9.0, 2.0])), Ok(9.0));
        assert!(matches!(typical(&pings(6, &[1.0, 9.0])), Err(Lack::Failed(_))));
        assert!(matches!(typical(&pings(0, &[])), Err(Lack::Failed(_))));
    }
}
