//! Many connections at once, by `h2load`.

use std::net::IpAddr;
use std::time::Duration;

use super::site::{RAMP_MORE_S, many_files};
use super::{Count, KEPT, Site};
use crate::backend::Backend;
use crate::error::{LabError, Result};
use crate::load::fetch::host_of;
use crate::process::{Finished, Output, last_lines};
use crate::topology::Network;

/// What became of many connections.
pub(crate) struct Held {
    pub(crate) finished: Finished,
    /// Counts of the sustain phase.
    pub(crate) counts: Vec<Count>,
    /// Transactions that were to be made, and those of them that failed.
    pub(crate) due: u64,
    pub(crate) failed: u64,
}

/// Opens so many connections in the ramp-up phase. Each carries its transactions at a steady pace, the last of them after
/// the sustain phase.
pub(crate) fn held(
    (backend, network): (&dyn Backend, &Network),
    site: &mut Site<'_>,
    size: u64,
    connections: u32,
    (ramp_s, sustain_s): (f64, f64),
) -> Result<Held> {
    let argv = many_files(&h2load(network.target, size, connections, (ramp_s, sustain_s)));
    let mut running = backend.run(Some(&network.app), &argv, Output::Keep)?;
    let counts = site.sustained(&mut running, (ramp_s, sustain_s), connections.into())?;
    let pace = between(ramp_s, sustain_s);
    let limit = Duration::from_secs_f64(ramp_s + 2.0 * pace + 20.0);
    let finished = match running.wait(limit) {
        Err(error @ LabError::Timeout { .. }) => {
            let why = format!("connections do not come to an end: {error}");
            return Err(LabError::Failed(why));
        }
        other => other?.ok()?,
    };
    let due = u64::from(connections) * u64::from(KEPT);
    let failed = due.saturating_sub(of_h2load(&finished.stdout)?);
    Ok(Held { finished, counts, due, failed })
}

/// Seconds between two transactions of a connection that lasts longer than both phases.
fn between(ramp_s: f64, sustain_s: f64) -> f64 {
    (ramp_s + RAMP_MORE_S + sustain_s + 2.0) / f64::from(KEPT - 1)
}

fn h2load(
    target: IpAddr,
    size: u64,
    connections: u32,
    (ramp_s, sustain_s): (f64, f64),
) -> Vec<String> {
    // In steps of a tenth of a second; the last ones are open before the phase ends.
    let steps = (8.0 * ramp_s).max(1.0);
    let each = (f64::from(connections) / steps).ceil();
    let pace = 1.0 / between(ramp_s, sustain_s);
    [
        "h2load",
        "--h1",
        "-t",
        "1",
        "-c",
        &connections.to_string(),
        "-n",
        &(u64::from(connections) * u64::from(KEPT)).to_string(),
        "-r",
        &each.to_string(),
        "--rate-period",
        "100ms",
        "--rps",
        &format!("{pace:.4}"),
        &format!("http://{}/o{size}", host_of(target)),
    ]
    .map(str::to_owned)
    .into()
}

/// Transactions that were answered with a status of 2xx: `status codes: 100 2xx, 0 3xx, 0 4xx, 0 5xx`.
fn of_h2load(said: &str) -> Result<u64> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("status codes:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or_else(|| {
        LabError::Parse { tool: "h2load", why: format!("not understood: {}", last_lines(said, 3)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_outlast_both_phases() {
        assert!(9.0 * between(1.0, 3.0) >= 1.0 + RAMP_MORE_S + 3.0 + 1.9);
        let argv = h2load("192.0.2.1".parse().unwrap(), 1024, 10_000, (1.0, 3.0));
        assert!(argv.windows(2).any(|two| two == ["-n", "100000"]), "{argv:?}");
        assert!(argv.windows(2).any(|two| two == ["-r", "1250"]), "{argv:?}");
        let said = "requests: 100 total, 100 started, 98 done, 97 succeeded, 3 failed\n\
                    status codes: 97 2xx, 0 3xx, 1 4xx, 0 5xx\n";
        assert_eq!(of_h2load(said).unwrap(), 97);
        assert!(of_h2load("could not resolve").is_err());
    }
}
