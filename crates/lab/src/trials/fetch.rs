//! Objects by HTTP through a mechanism, or a proxy.

use fordway_data::spec::{Fetch, Metric};
use fordway_data::trial::Trial;

use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::fetch::{self as load, Fetched};

/// Fetches objects for a while.
pub(super) fn measure(
    at: &Measured<'_>,
    what: Fetch,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let log = at.raw.join(format!("{}-origin.log", at.name));
    let _origin = load::serve(at.backend, at.network, load::KEPT, &log)?;
    trial.started = now();
    let before = Before::read(at)?;
    let (finished, fetched) =
        load::measure(at.backend, at.network, what, at.profile.http_s, at.name)?;
    before.finish(at, trial)?;
    at.keep(&format!("http-{}.txt", what.name()), &finished.stdout)?;
    // curl ends with 28 when its time is up, which is what it was told.
    let in_time = what == Fetch::Tunnel && finished.code() == 28;
    trial.exit_status = Some(if in_time { 0 } else { finished.code() });
    trial.argv = finished.argv;
    trial.sent = Some(fetched.requests + fetched.failed);
    trial.arrived = Some(fetched.requests);
    trial.generator_bytes = Some(fetched.octets);
    trial.failed.extend(fault(&fetched));
    let counted = at.mechanism.zip(trial.counters.as_ref());
    if let Some(asked) = counted.and_then(|(m, (a, b))| m.requests(a, b)) {
        trial.invalid.extend(disagreement(asked, &fetched, what));
    }
    let metric = match what {
        Fetch::Small => Metric::HttpSmall,
        Fetch::Large => Metric::HttpLarge,
        Fetch::Tunnel => Metric::HttpTunnel,
    };
    values.insert(metric, Ok(fetched.rate(what)));
    Ok(())
}

/// What was not fetched.
fn fault(fetched: &Fetched) -> Option<String> {
    (fetched.failed > 0).then(|| {
        format!("{} requests failed beside {} that did not", fetched.failed, fetched.requests)
    })
}

/// Why a proxy's own count of requests, or of tunnels, can't be right.
fn disagreement(asked: u64, fetched: &Fetched, what: Fetch) -> Option<String> {
    // Those under way at the end have been asked for, but not answered.
    let most = fetched.requests + fetched.failed + 1000;
    let right = match what {
        Fetch::Tunnel => asked >= 1,
        _ => (fetched.requests..=most).contains(&asked),
    };
    (!right).then(|| {
        format!(
            "counters disagree: {} requests were answered, the mechanism counted {asked}",
            fetched.requests
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_counts_what_was_asked_and_errors_do_not_count() {
        let fetched = Fetched { requests: 5000, octets: 0, seconds: 1.0, failed: 0 };
        assert_eq!(disagreement(5032, &fetched, Fetch::Small), None);
        assert!(disagreement(4999, &fetched, Fetch::Small).is_some());
        assert!(disagreement(7000, &fetched, Fetch::Large).is_some());
        assert_eq!(disagreement(1, &fetched, Fetch::Tunnel), None);
        assert_eq!(fault(&fetched), None);
        let failed = fault(&Fetched { failed: 2, ..fetched });
        assert!(failed.is_some_and(|why| why.contains("2 requests failed")));
    }
}
