//! Round trips of requests over many connections at a time.

use fordway_data::histogram::percentile;
use fordway_data::spec::{Axis, Exchange, Metric, Point};
use fordway_data::trial::Trial;
use fordway_load::web::exchange::Exchanged;

use super::{Before, Measured, Values, now};
use crate::error::Result;
use crate::load::{exchange as load, fetch};

/// Asks over as many connections as the point says.
pub(super) fn measure(
    at: &Measured<'_>,
    what: Exchange,
    point: Option<&Point>,
    trial: &mut Trial,
    values: &mut Values,
) -> Result<()> {
    let connections = point.and_then(|p| p.at(Axis::Connections)).unwrap_or(1);
    let metric = match what {
        Exchange::Small => Metric::HttpRttSmall,
        Exchange::Up => Metric::HttpRttUp,
        Exchange::Down => Metric::HttpRttDown,
    };
    let log = at.raw.join(format!("{}-origin.log", at.name));
    let _origin = fetch::serve(at.backend, at.network, fetch::KEPT, &log)?;
    trial.started = now();
    let before = Before::read(at)?;
    let requests = at.profile.http_requests;
    let (finished, told) = load::measure(at.backend, at.network, what, connections, requests)?;
    before.finish(at, trial)?;
    at.keep(&format!("{}-{connections}.json", metric.name()), &finished.stdout)?;
    trial.exit_status = Some(finished.code());
    trial.argv = finished.argv;
    let due = u64::from(requests) * connections;
    trial.sent = Some(due);
    trial.arrived = Some(told.answered);
    trial.generator_bytes = Some(match what {
        Exchange::Up => told.answered * load::UP as u64,
        _ => told.octets,
    });
    trial.generator_cpu = Some((100.0 * told.cpu_s / told.seconds.max(1e-9), 0.0));
    trial.retransmits = told.path.map(|path| path.again);
    trial.path_mtu = told.path.map(|path| path.mtu);
    trial.failed.extend(fault(&told, due));
    if told.reopened > 0 {
        let times = told.reopened;
        trial.flags.push(format!("a connection was closed between two requests {times} times"));
    }
    values.insert(metric, percentile(&told.histogram, told.answered, 0.5));
    trial.histogram = told.histogram;
    Ok(())
}

/// What was not answered.
fn fault(told: &Exchanged, due: u64) -> Option<String> {
    let why = told.why.as_deref().unwrap_or("no reason is known");
    (told.answered < due).then(|| {
        let (answered, failed) = (told.answered, told.failed);
        format!("{answered} of {due} requests were answered, {failed} connections failed: {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_an_answer_is_a_failure() {
        let whole = Exchanged { answered: 50, ..Exchanged::default() };
        assert_eq!(fault(&whole, 50), None);
        let part = Exchanged { answered: 49, failed: 1, why: Some("reset".into()), ..whole };
        let said = fault(&part, 50).unwrap();
        assert!(said.contains("49 of 50") && said.contains("reset"), "{said}");
    }
}
