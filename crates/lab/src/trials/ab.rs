//! Study B's page, over and over again, by `ab`.

use fordway_data::spec::{Axis, Metric, Point};
use fordway_data::trial::Trial;

use super::{Before, Measured, Values, now};
use crate::error::{LabError, Result};
use crate::load::ab::{self as load, Fetched, PAGE};
use crate::load::fetch;

/// A larger share of failed requests makes a trial a failure.
const MAX_FAILED: f64 = 0.01;

/// Fetches as many pages over as many connections as the point says.
pub(super) fn measure(
    at: &Measured<'_>,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let level = |axis| {
        let level = point.and_then(|point| point.at(axis));
        level.ok_or_else(|| LabError::Usage("ab needs requests and connections".into()))
    };
    let (requests, connections) = (level(Axis::Requests)?, level(Axis::Connections)?);
    let log = at.raw.join(format!("{}-origin.log", at.name));
    let _origin = fetch::serve(at.backend, at.network, fetch::KEPT_BY_APACHE, &log)?;
    trial.started = now();
    let before = Before::read(at)?;
    let (finished, fetched) = load::measure(at.backend, at.network, requests, connections)?;
    before.finish(at, trial)?;
    at.keep(&format!("ab-{requests}-{connections}.txt"), &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    trial.argv = finished.argv;
    trial.sent = Some(requests);
    trial.arrived = Some(fetched.requests.saturating_sub(fetched.failed));
    trial.generator_bytes = Some(fetched.octets);
    trial.failed.extend(fault(&fetched, requests));
    if fetched.failed > 0 {
        trial.flags.push(format!("{} of {requests} requests failed", fetched.failed));
    }
    let carried = trial.links.get("iperf/uplink").map(|device| device.tx_bytes);
    trial.invalid.extend(carried.and_then(|octets| too_few(octets, &fetched)));
    for (metric, value) in [
        (Metric::AbTotalTime, fetched.seconds),
        (Metric::AbBytes, fetched.octets as f64),
        (Metric::AbKeepalive, fetched.kept as f64),
        (Metric::AbRequestsPerS, fetched.per_s),
        (Metric::AbTimePerRequest, fetched.per_request_ms),
        (Metric::AbTransferRate, fetched.kib_s),
    ] {
        values.insert(metric, Ok(value));
    }
    Ok(())
}

/// What was not fetched as it should be.
fn fault(fetched: &Fetched, wanted: u64) -> Option<String> {
    if fetched.page != PAGE {
        return Some(format!("the page had {} octets, not {PAGE}", fetched.page));
    }
    let lost = wanted.saturating_sub(fetched.requests) + fetched.failed;
    (lost as f64 > MAX_FAILED * wanted as f64).then(|| {
        format!("{lost} of {wanted} requests failed; {:.0} % are borne", 100.0 * MAX_FAILED)
    })
}

/// Why the count of the server's device can't be right.
fn too_few(sent: u64, fetched: &Fetched) -> Option<String> {
    (sent < fetched.octets).then(|| {
        format!("counters disagree: ab received {} octets, the server sent {sent}", fetched.octets)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_request_in_a_hundred_is_borne() {
        let good = Fetched {
            page: PAGE,
            seconds: 1.0,
            requests: 1000,
            failed: 0,
            kept: 990,
            octets: 1000 * PAGE,
            per_s: 1000.0,
            per_request_ms: 1.0,
            kib_s: 1.0,
        };
        assert_eq!(fault(&good, 1000), None);
        assert_eq!(fault(&Fetched { failed: 10, ..good }, 1000), None);
        assert!(fault(&Fetched { failed: 11, ..good }, 1000).is_some());
        assert!(fault(&Fetched { requests: 980, ..good }, 1000).is_some());
        assert!(fault(&Fetched { page: 10, ..good }, 1000).unwrap().contains("10 octets"));
        assert!(too_few(good.octets - 1, &good).is_some());
        assert_eq!(too_few(good.octets, &good), None);
    }
}
